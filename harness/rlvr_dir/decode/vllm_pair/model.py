"""Combine the models of a pair into one vLLM model. Each is a complete submodel of any architecture that vLLM supports.

The attention layers of all submodels use the same KV cache manager, so paging, prefix cache, chunked prefill and
preemption apply to all of them. vLLM is opened on one checkpoint. The others' weights are secondary sources.
"""

import copy
from collections.abc import Iterable
from hashlib import sha256
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from vllm.compilation.backends import set_model_tag
from vllm.config import VllmConfig
from vllm.config.utils import replace
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.models.utils import init_vllm_registered_model, maybe_prefix
from vllm.transformers_utils.config import get_config

from rlvr_dir.decode.vllm_pair.loading import load_whole
from rlvr_dir.decode.vllm_pair.plugin import CONTEXT_KEY
from rlvr_dir.decode.vllm_pair.step import rehearse
from rlvr_dir.policy.combine import combination_of, cut
from rlvr_dir.policy.given import ROWS, Scoring, scored

SCORED_AT_ONCE = 1024  # rows of a text for which vLLM requests logits at once
PROFILED = ("cuda", "xpu")  # on these, vLLM measures memory in a dummy step before it sizes the KV cache


class RLVRPairForCausalLM(nn.Module):
    """Run all models on the same tokens. `compute_logits` returns RL's logits and stores those of the others.

    `config.rlvr` describes the models:

    - `models`: by role, the `place`, the `revision`, whether the model's own configuration ties the output layer to the
      input embeddings (`tied`) and at how many `positions` it is read. vLLM was opened on the first of them. A model
      that is paired with itself is `rl` alone: one set of weights, one forward.
    - `architecture` is the class of the submodels.
    - `vocab` is the number of real tokens. All models have the first `shared` of them. Base reads `stand_in` in place
      of any other.
    - `scores`: given text will be scored. Then each row's hidden states also contain the next token. While `scoring` is
      set, `compute_logits` returns what `rlvr_dir.policy.given` computes for it, on the first ids.
    """

    base_ids: torch.Tensor  # base's input in a step, if it does not have all of RL's tokens
    rl: Any  # vLLM's model of this role, from `_submodel`; each other role has one as well
    base: Any

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.pair_config = vllm_config.model_config.hf_config.rlvr
        self.shared: int = self.pair_config["shared"]
        self.combination = combination_of(self.pair_config["models"], self.pair_config["vocab"], self.shared)
        self.checkpoints: dict[str, str] = {}  # by role: where its weights are loaded from
        self.secondary_weights: list[DefaultModelLoader.Source] = []
        self.widths: dict[str, int] = {}  # by role: its hidden size
        for role in self.pair_config["models"]:
            self.build(role, vllm_config, maybe_prefix(prefix, role))
        if self.shared < self.pair_config["vocab"]:
            tokens = vllm_config.scheduler_config.max_num_batched_tokens
            self.base_ids = torch.zeros(tokens, dtype=torch.long)  # on vLLM's default device, like its models
        self.logits: dict[str, torch.Tensor | None] = {}  # of the other roles in this step: same rows, same stream
        self.watched: list[tuple[int, int]] | None = None  # for each step: rows, and rows with two equal halves
        self._rehearsed = False
        self.scores: bool = self.pair_config.get("scores", False)
        self.scoring: Scoring | None = None
        vllm_config.compilation_config.static_forward_context[CONTEXT_KEY] = self

    def build(self, role: str, vllm_config: VllmConfig, prefix: str) -> None:
        """Build a submodel and register the source of its weights.

        The weights of the first submodel come from the checkpoint on which vLLM was opened.
        """
        model, first = self.pair_config["models"][role], not self.widths
        place, revision = model["place"], model["revision"]
        config = vllm_config.model_config.hf_config if first else own_config(vllm_config, model)
        setattr(self, role, submodel(vllm_config, prefix, model["tied"], None if first else config, rlvr_role=role))
        self.checkpoints[role] = place
        if not first:
            source = DefaultModelLoader.Source(model_or_path=place, revision=revision, prefix=f"{role}.")
            self.secondary_weights.append(source)
        self.widths[role] = config.get_text_config().hidden_size

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return RL's input embeddings, (tokens,) -> (tokens, hidden). This is part of vLLM's model interface."""
        return self.rl.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Return the models' hidden states side by side: (tokens,) -> (tokens, sum of their hidden sizes).

        Each is copied before the next model runs. Under piecewise CUDA graphs a submodel's output is in memory that
        vLLM's graph pool reuses for the next submodel ("only safe for the last graph"). Without the copy, RL's hidden
        state would be base's after base has run, and every Delta log p would silently be 0.
        """
        if len(self.widths) == 1 and not self.scores:
            return self.rl(input_ids, positions, intermediate_tensors, None)
        side_by_side, start = torch.empty(0), 0
        for role, width in self.widths.items():
            hidden = getattr(self, role)(self._as_known(role, input_ids), positions, intermediate_tensors, None)
            if not start:
                side_by_side = hidden.new_empty((hidden.shape[0], sum(self.widths.values())))
                if self.scores:  # as raw bits, for any type
                    side_by_side = torch.cat([side_by_side, input_ids.int().roll(-1)[:, None].view(hidden.dtype)], 1)
            side_by_side[:, start : start + width] = hidden
            start += width
        return side_by_side

    def _as_known(self, role: str, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the tokens as a model reads them, (tokens,) -> (tokens,).

        Base reads a stand-in for each token that it does not have. The tensor keeps its address, because a CUDA graph
        of base reads its input where it was captured.
        """
        if role != "base" or self.shared == self.pair_config["vocab"] or input_ids is None:
            return input_ids
        ids = self.base_ids[: input_ids.shape[0]]
        ids.copy_(input_ids.where(input_ids < self.shared, self.pair_config["stand_in"]))
        return ids

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return RL's logits, (rows, all hidden) -> (rows, vocab); store those of the others in `logits`.

        All are None on ranks that do not sample. Memory is measured in the first step.
        """
        if self.scoring is not None:
            return self.score(hidden_states, self.scoring)
        halves = self._halves(hidden_states)
        if self.watched is not None:  # only in the self-test, because it waits for the device
            rl, base = halves["rl"], halves["base"]
            same = int((rl == base).all(dim=-1).sum()) if rl.shape == base.shape else 0
            self.watched.append((len(rl), same))
        logits = self._logits(halves)
        if not self._rehearsed and logits["rl"] is not None and logits["rl"].device.type in PROFILED:
            rehearse(logits, self.combination)
            if self.scores:
                self.score(hidden_states.new_zeros((SCORED_AT_ONCE, hidden_states.shape[1])), Scoring())
        self._rehearsed = True
        rl = logits.pop("rl")
        self.logits = logits
        return rl

    def _halves(self, hidden_states: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = hidden_states.tensor_split([*accumulate(self.widths.values())], dim=-1)  # the last is the next token
        return dict(zip(self.widths, parts, strict=False))

    def _logits(self, halves: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {role: getattr(self, role).compute_logits(half.contiguous()) for role, half in halves.items()}

    def score(self, hidden_states: torch.Tensor, scoring: Scoring) -> torch.Tensor | None:
        """Return the scores of each row's next token on the first ids, -inf on the others: (rows, vocab) float32.

        It computes ROWS of them at a time, because the logits of a whole text may not fit into memory.
        """
        vocab, out = self.pair_config["vocab"], None
        following = hidden_states[:, sum(self.widths.values()) :].contiguous().view(torch.int32)[:, 0]
        tokens = following.long().clamp(0, vocab - 1)  # the last row of a step has none
        for at in range(0, len(hidden_states), ROWS):
            logits = self._logits(self._halves(hidden_states[at : at + ROWS]))
            if (rl := logits["rl"]) is not None:
                both = self.combination.policies(logits, torch.zeros(len(rl), dtype=torch.bool, device=rl.device))
                table = scored(cut(both[0], vocab), cut(both[1], vocab), tokens[at : at + ROWS], scoring)
                out = table.new_full((len(tokens), rl.shape[1]), float("-inf")) if out is None else out
                out[at : at + ROWS, : scoring.width] = table
        return out

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load all weights; see `load_whole`.

        Names without another model's prefix (`base.`) belong to the first model.
        """
        first, *others = self.checkpoints
        prefixes = tuple(f"{role}." for role in others)
        named = ((name if name.startswith(prefixes) else f"{first}.{name}", weight) for name, weight in weights)
        return load_whole(self, self.checkpoints, named)


def own_config(vllm_config: VllmConfig, model: dict[str, Any]) -> Any:
    """Return a submodel's own configuration, with the common type of the output layer and number of positions."""
    model_config = vllm_config.model_config
    config = get_config(model["place"], model_config.trust_remote_code, revision=model["revision"])
    if (dtype := getattr(model_config.hf_config, "head_dtype", None)) is not None:
        config.head_dtype = dtype
    if model["positions"]:
        config.max_position_embeddings = model["positions"]
    return config


def submodel(vllm_config: VllmConfig, prefix: str, tied: bool, own: Any = None, **facts: str) -> nn.Module:
    """Build one submodel. The `facts` that distinguish its code from others' name its compile cache, `rlvr_role` first.

    `own` is its configuration, if vLLM was opened on another one.

    Without the role in the configuration, two submodels would share one cache key. With some settings the second would
    then load the first one's compiled code, including its KV cache, and logits would be wrong by whole units.

    `tied` is the value in the submodel's own configuration. vLLM uses the first submodel's value, and newer versions
    untie all submodels if the first one's files contain an `lm_head.weight`.
    """
    additional = vllm_config.additional_config
    if own is not None:
        facts["rlvr_config"] = sha256(own.to_json_string(use_diff=False).encode()).hexdigest()
    tagged = replace(vllm_config, additional_config={**(additional if isinstance(additional, dict) else {}), **facts})
    architecture = vllm_config.model_config.hf_config.rlvr["architecture"]
    config = copy.deepcopy(own or vllm_config.model_config.hf_config)
    config.tie_word_embeddings = config.get_text_config().tie_word_embeddings = tied
    with set_model_tag(f"rlvr_{facts['rlvr_role']}"):
        return init_vllm_registered_model(tagged, prefix=prefix, hf_config=config, architectures=[architecture])
