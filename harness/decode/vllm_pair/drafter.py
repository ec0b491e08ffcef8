"""Give vLLM a draft model without weights or attention, by which a pair of ours looks its drafts up.

vLLM's runner V2 speculates by a fixed list of methods. Its `draft_model` runs any class that is registered, and with
`use_local_argmax_reduction` takes the tokens that the class names. This one names what `lookup` finds. The runner's
state of the target model, which is told of requests and steps, keeps the texts.
"""

from typing import Any

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.v1.worker.gpu.model_states.default import DefaultModelState

from harness.decode.vllm_pair.lookup import Texts
from harness.decode.vllm_pair.plugin import CONTEXT_KEY, EXPECTED, EXTRA_ARG


class DraftedState(DefaultModelState):
    """Keep what runner V2 tells of requests and steps where the processor and the drafter find it: on the pair."""

    def __init__(self, vllm_config: VllmConfig, model: Any, encoder_cache: Any, device: torch.device) -> None:
        """Make room for what the requests of the pair, `model`, write."""
        super().__init__(vllm_config, model, encoder_cache, device)
        self._pair = model
        model.texts = Texts(self.max_num_reqs, self.max_model_len, device)
        model.texts.rehearse()

    def add_request(self, req_index: int, new_req_data: Any) -> None:
        """Put a request's text beside those of its problem: of the same prompt, without what is begun of a response."""
        super().add_request(req_index, new_req_data)
        extra = new_req_data.sampling_params.extra_args or {}
        prompt = tuple(new_req_data.prompt_token_ids or ())[: extra.get(EXTRA_ARG, {}).get("start")]
        self._pair.texts.add(req_index, prompt, extra.get(EXPECTED, ()))

    def prepare_inputs(self, input_batch: Any, req_states: Any) -> dict[str, Any]:
        """Note the step in hand: which request each row of logits is of, and where the tokens are."""
        self._pair.step, self._pair.drafts = (input_batch, req_states), None
        return super().prepare_inputs(input_batch, req_states)


class LookupDrafter(nn.Module):
    """Name `num_speculative_tokens` drafts of each request, a column a call."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        """Find the pair; `prefix` is part of vLLM's interface."""
        super().__init__()
        self._pair = [vllm_config.compilation_config.static_forward_context[CONTEXT_KEY]]  # a list: no submodule
        assert vllm_config.speculative_config is not None
        self._k = vllm_config.speculative_config.num_speculative_tokens
        self._column = 0

    def load_weights(self, weights: Any) -> set[str]:
        """Load nothing: there is none."""
        return set()

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return nothing of use, (tokens,) -> (tokens, 1); part of vLLM's model interface."""
        return input_ids[:, None].float()

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Refuse: vLLM takes the tokens that are named. That it is there makes this a model that writes text."""
        raise NotImplementedError("drafts are named by get_top_tokens")

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return each token itself in place of a hidden state: (tokens,) -> (tokens, 1) int64."""
        return input_ids.long()[:, None]

    def get_top_tokens(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the next draft of each request, (n, 1) -> (n,): its last token where no step of ours is in hand."""
        pair = self._pair[0]
        if pair.drafts is None:
            pair.drafts, self._column = self._look_up(pair, hidden_states), 0
        column = min(self._column, self._k - 1)
        self._column += 1
        return pair.drafts[:, column]

    def _look_up(self, pair: Any, last: torch.Tensor) -> torch.Tensor:
        batch, states = pair.step
        if len(last) != batch.num_reqs or not pair.texts.knows(batch.idx_mapping_np):
            return last.expand(-1, self._k)  # a rehearsal of vLLM's
        slots = batch.idx_mapping.long()
        rows = pair.texts.rows(batch.idx_mapping_np)
        pair.texts.follow(rows, states.all_token_ids.gpu, states.total_len.gpu[slots].long(), slots, self._k + 1)
        return pair.texts.drafts(rows, self._k)
