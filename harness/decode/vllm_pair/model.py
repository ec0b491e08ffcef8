"""The pair as one vLLM model: two complete submodels of any architecture vLLM knows, run side by side.

Both submodels' attention layers land in the same KV cache manager, so paging, prefix cache, chunked prefill and
preemption serve them together. The engine is opened on the RL checkpoint; base's weights are a secondary source.
"""

import copy
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import torch
from torch import nn
from vllm.compilation.backends import set_model_tag
from vllm.config import VllmConfig
from vllm.config.utils import replace
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.models.utils import init_vllm_registered_model, maybe_prefix
from vllm.transformers_utils.config import get_config

from harness.decode.vllm_pair.loading import load_whole
from harness.decode.vllm_pair.plugin import CONTEXT_KEY
from harness.decode.vllm_pair.step import rehearse
from harness.policy.combine import AddedTokens, Carried, Pair

PROFILED = ("cuda", "xpu")  # devices whose memory vLLM measures in a dummy step before it sizes the KV cache


class RLVRPairForCausalLM(nn.Module):
    """Runs RL and base on the same tokens; `compute_logits` returns RL's logits and keeps base's beside them.

    `config.rlvr_architecture` names the submodels' class and `config.rlvr_base` the base checkpoint, whose own
    configuration says how base is built; `config.rlvr_tied` and `config.rlvr_base_tied` say whose configuration ties
    the output layer to the input embeddings.
    """

    checkpoints: dict[str, str]  # role -> what its weights are loaded from
    secondary_weights: list[DefaultModelLoader.Source]  # of the submodels that vLLM was not opened on
    base_ids: torch.Tensor  # what base reads of a step, where it does not know all of RL's tokens
    rl: Any  # vLLM's model, as `submodel` gives it
    base: Any

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config = vllm_config.model_config.hf_config
        self.hidden_size = self.base_hidden_size = self.config.hidden_size
        self.shared: int | None = getattr(self.config, "rlvr_shared", None)  # ids of both, where RL has its own too
        vocab = self.config.rlvr_vocab
        self.combination = Pair(vocab) if self.shared is None else AddedTokens(vocab, self.shared)
        self.build(vllm_config, prefix)
        if self.shared is not None:
            tokens = vllm_config.scheduler_config.max_num_batched_tokens
            self.base_ids = torch.zeros(tokens, dtype=torch.long)  # on vLLM's default device, as its models are built
        self.base_logits: torch.Tensor | None = None  # of the step in hand: same rows, same stream
        self.watched: list[tuple[int, int]] | None = None  # of each step: rows, and rows whose two halves are the same
        self._rehearsed = False
        vllm_config.compilation_config.static_forward_context[CONTEXT_KEY] = self

    def build(self, vllm_config: VllmConfig, prefix: str) -> None:
        """Make `rl` and `base`, and say where base's weights come from."""
        config = self.config
        self.checkpoints = {"rl": vllm_config.model_config.model, "base": config.rlvr_base}
        self.rl = submodel(vllm_config, maybe_prefix(prefix, "rl"), config.rlvr_tied, rlvr_role="rl")
        self.secondary_weights = []
        self.base, self.base_hidden_size = self._beside(vllm_config, prefix, "base")

    def _beside(self, vllm_config: VllmConfig, prefix: str, role: str) -> tuple[nn.Module, int]:
        """Make a submodel of another checkpoint than vLLM was opened on, whose weights are a second source.

        Return it and its hidden size.
        """
        place, revision, tied = (getattr(self.config, f"rlvr_{role}{end}") for end in ("", "_revision", "_tied"))
        source = DefaultModelLoader.Source(model_or_path=place, revision=revision, prefix=f"{role}.")
        self.secondary_weights = [*self.secondary_weights, source]
        own = own_config(vllm_config, role)
        model = submodel(vllm_config, maybe_prefix(prefix, role), tied, own, rlvr_role=role)
        return model, own.get_text_config().hidden_size

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return RL's input embeddings, (tokens,) -> (tokens, hidden); part of vLLM's model interface."""
        return self.rl.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Return hidden states of RL and base side by side: (tokens,) -> (tokens, RL's hidden + base's hidden).

        RL's half is copied out before base runs. Under piecewise CUDA graphs a submodel's output lies in memory that
        vLLM's graph pool hands to the next submodel ("only safe for the last graph"): read after base has run, it is
        base's own hidden state, and every Delta log p is 0 without a word.
        """
        rl = self.rl(input_ids, positions, intermediate_tensors, None)
        both = rl.new_empty((rl.shape[0], self.hidden_size + self.base_hidden_size))
        both[:, : self.hidden_size] = rl
        both[:, self.hidden_size :] = self.base(self._as_base_knows(input_ids), positions, intermediate_tensors, None)
        return both

    def _as_base_knows(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the tokens with `config.rlvr_stand_in` in place of each that base does not know: (tokens,), (tokens,).

        They lie where they lay before: a CUDA graph of base reads its input at the place where it was captured.
        """
        if self.shared is None or input_ids is None:
            return input_ids
        known = self.base_ids[: input_ids.shape[0]]
        known.copy_(input_ids.where(input_ids < self.shared, self.config.rlvr_stand_in))
        return known

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return RL's logits, (rows, both hidden) -> (rows, vocab); base's of the same rows stay on `base_logits`."""
        rl, base = self._logits_of_pair(hidden_states)
        return self._hand_over(base, rl)

    def _logits_of_pair(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return RL's and base's logits of the same rows; None on ranks that do not sample."""
        rl, base = hidden_states.split([self.hidden_size, self.base_hidden_size], dim=-1)
        if self.watched is not None:  # by the self-test alone: it waits for the device
            same = int((rl == base).all(dim=-1).sum()) if rl.shape == base.shape else 0
            self.watched.append((len(rl), same))
        return self.rl.compute_logits(rl.contiguous()), self.base.compute_logits(base.contiguous())

    def _hand_over(self, base: torch.Tensor | None, rl: torch.Tensor | None) -> torch.Tensor | None:
        """Keep base's logits for the processor and return RL's; the first step is the one whose memory is measured."""
        self.base_logits = base
        if not self._rehearsed and base is not None and rl is not None and rl.device.type in PROFILED:
            rehearse(base, rl, self.combination)
        self._rehearsed = True
        return rl

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load RL's weights from names without another submodel's prefix (`base.`). See `load_whole`."""
        others = tuple(f"{role}." for role in self.checkpoints if role != "rl")
        named = ((name if name.startswith(others) else f"rl.{name}", weight) for name, weight in weights)
        return load_whole(self, self.checkpoints, named)


class RLVRPairOnTargetForCausalLM(RLVRPairForCausalLM):
    """Carries the pair's change over to a third model, `config.rlvr_target`; see `harness.policy.combine`.

    `compute_logits` returns the target's logits with the change, and keeps the target's own where base's are kept.
    """

    target: Any

    def build(self, vllm_config: VllmConfig, prefix: str) -> None:
        """Make `rl`, `base` and `target`."""
        super().build(vllm_config, prefix)
        self.checkpoints["target"] = self.config.rlvr_target
        self.target, self.target_hidden_size = self._beside(vllm_config, prefix, "target")

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Return all hidden states side by side: (tokens,) -> (tokens, hidden of RL + base + target)."""
        pair = super().forward(input_ids, positions, intermediate_tensors)
        target = self.target(input_ids, positions, intermediate_tensors, None)
        return torch.cat([pair, target], dim=-1)  # `pair` is memory of its own: the target's forward leaves it alone

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return the target's logits with the pair's change: (rows, all hidden) -> (rows, vocab)."""
        pair, target = hidden_states.tensor_split([self.hidden_size + self.base_hidden_size], dim=-1)
        rl, base = self._logits_of_pair(pair)
        target = self.target.compute_logits(target.contiguous())
        if rl is None or base is None or target is None:
            return self._hand_over(base, rl)
        return self._hand_over(*Carried().policies({"base": base, "rl": rl, "target": target}))


class RLVRSingleForCausalLM(RLVRPairForCausalLM):
    """A model that is paired with itself, decided by the same rules: one set of weights, one forward, delta log p 0."""

    def build(self, vllm_config: VllmConfig, prefix: str) -> None:
        """Make `rl` alone."""
        self.checkpoints = {"rl": vllm_config.model_config.model}
        self.rl = submodel(vllm_config, maybe_prefix(prefix, "rl"), self.config.rlvr_tied, rlvr_role="rl")

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Return the model's hidden states: (tokens,) -> (tokens, hidden)."""
        return self.rl(input_ids, positions, intermediate_tensors, None)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return the model's logits, (rows, hidden) -> (rows, vocab), which are base's as well."""
        logits = self.rl.compute_logits(hidden_states)
        return self._hand_over(logits, logits)


def own_config(vllm_config: VllmConfig, role: str) -> Any:
    """Return a submodel's own configuration, with what was settled for all: where logits are computed, positions."""
    model = vllm_config.model_config
    given = model.hf_config
    place, revision = (getattr(given, f"rlvr_{role}{end}") for end in ("", "_revision"))
    config = get_config(place, model.trust_remote_code, revision=revision)
    if (dtype := getattr(given, "head_dtype", None)) is not None:
        config.head_dtype = dtype
    if positions := getattr(given, f"rlvr_{role}_positions", None):
        config.max_position_embeddings = positions
    return config


def submodel(vllm_config: VllmConfig, prefix: str, tied: bool, own: Any = None, **facts: str) -> nn.Module:
    """Make one submodel, its compile cache named by the `facts` that tell its code from others', `rlvr_role` first.

    `own` is its configuration where that is not vLLM's, which is RL's.

    Without the role in its configuration both submodels would share one cache key, and with some settings the second
    would load the first one's compiled code, KV cache and all (logits off by whole units).

    `tied` is what the submodel's own configuration says: vLLM's is RL's, and newer versions untie it, for both, where
    RL's files hold an `lm_head.weight`.
    """
    given = vllm_config.additional_config
    if own is not None:
        facts["rlvr_config"] = sha256(own.to_json_string(use_diff=False).encode()).hexdigest()
    tagged = replace(vllm_config, additional_config={**(given if isinstance(given, dict) else {}), **facts})
    architecture = vllm_config.model_config.hf_config.rlvr_architecture
    config = copy.deepcopy(own or vllm_config.model_config.hf_config)
    config.tie_word_embeddings = config.get_text_config().tie_word_embeddings = tied
    with set_model_tag(f"rlvr_{facts['rlvr_role']}"):
        return init_vllm_registered_model(tagged, prefix=prefix, hf_config=config, architectures=[architecture])
