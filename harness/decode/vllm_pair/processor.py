"""Algorithm 1 as a vLLM logits processor: one class for both generations of vLLM's processor interface.

Every request that carries `extra_args={"rlvr": …}` is decided here, under its own rule, and the chosen token is
forced: its logit becomes the channel's number, all others -inf. Requests without it are left alone and sample from
the RL model as in any vLLM engine.
"""

from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor as RunnerV1Processor
from vllm.v1.sample.logits_processor import MoveDirectionality

from harness.decode.vllm_pair import channel
from harness.decode.vllm_pair.model import CONTEXT_KEY
from harness.policy import Decision, Noise, Rule, RuleRow, decide
from harness.policy.trace import columns

try:
    from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor as RunnerV2Processor

    _INTERFACES: tuple[type, ...] = (RunnerV1Processor, RunnerV2Processor)
except ModuleNotFoundError:  # vLLM 0.25: its runner V2 takes no processors, and gives way to V1 where one is asked for
    _INTERFACES = (RunnerV1Processor,)

EXTRA_ARG = "rlvr"


def extra_args(row: RuleRow, key: int, vocab_size: int, trace: int | None = None) -> dict[str, Any]:
    """`SamplingParams.extra_args` of one request: plain values, since they cross process boundaries."""
    fields = {name: getattr(row, name) for name in RuleRow.__slots__}
    return {EXTRA_ARG: {**fields, "key": key, "vocab_size": vocab_size, "trace": trace}}


class _Row:
    """One request in the batch: its rule, its noise key, and where it is (`runner` V1 only)."""

    __slots__ = ("key", "output", "prompt_length", "rule", "trace", "vocab_size")

    def __init__(self, fields: dict[str, Any], prompt_length: int = 0, output: list[int] | None = None) -> None:
        self.rule = RuleRow(**{name: fields[name] for name in RuleRow.__slots__})
        self.key, self.vocab_size, self.trace = fields["key"], fields["vocab_size"], fields["trace"]
        self.prompt_length, self.output = prompt_length, output if output is not None else []


class PairProcessor(*_INTERFACES):
    """Decides and forces the token of every pair request in the batch."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuses, at admission, what would change the logits of one model only.

        Raises:
            ValueError: naming the parameter.
        """
        fields = (sampling_params.extra_args or {}).get(EXTRA_ARG)
        if fields is None:
            return
        Rule([_Row(fields).rule])
        neutral = {
            "n": 1, "temperature": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
            "min_tokens": 0, "min_p": 0.0, "seed": None, "logit_bias": None, "bad_words": None,
            "allowed_token_ids": None, "structured_outputs": None, "prompt_logprobs": None,
        }  # fmt: skip
        for name, value in neutral.items():
            given = getattr(sampling_params, name, value)
            if given != value and given not in ([], {}):
                raise ValueError(f"{name}={given!r} is refused in a request decoded by a pair; accepted: {value!r}")

    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        """V1 passes (config, device, is_pin_memory), V2 (config, request states)."""
        self._context = vllm_config.compilation_config.static_forward_context
        self._slots: dict[int, _Row] = {}  # V1: batch index -> row; V2: request slot -> row
        self._batch: tuple[Any, ...] | None = None  # what can be kept while the batch stays the same

    # Model runner V1 -------------------------------------------------------------------------------------------

    def is_argmax_invariant(self) -> bool:
        """False: this processor is all about the argmax."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follows requests in, out and around the batch; order: removed, added, moved (indices are reused)."""
        if batch_update is None:
            return
        self._batch = None
        for index in batch_update.removed:
            self._slots.pop(index, None)
        for index, params, prompt_token_ids, output_token_ids in batch_update.added:
            fields = (params.extra_args or {}).get(EXTRA_ARG)
            self._slots.pop(index, None)
            if fields is not None:
                self._slots[index] = _Row(fields, len(prompt_token_ids or ()), output_token_ids)
        for source, target, direction in batch_update.moved:
            moved, displaced = self._slots.pop(source, None), self._slots.pop(target, None)
            if moved is not None:
                self._slots[target] = moved
            if direction == MoveDirectionality.SWAP and displaced is not None:
                self._slots[source] = displaced

    # Model runner V2 -------------------------------------------------------------------------------------------

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Takes over a recycled slot; True if the request's logits are changed here."""
        fields = (sampling_params.extra_args or {}).get(EXTRA_ARG)
        self._slots.pop(req_idx, None)
        self._batch = None
        if fields is not None:
            self._slots[req_idx] = _Row(fields)
        return fields is not None

    # Both ------------------------------------------------------------------------------------------------------

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """Forces the decided token of every pair row: (rows, vocab) -> the same tensor, changed in place."""
        if not self._slots:
            return logits
        slots = range(logits.shape[0]) if ctx is None else ctx.idx_mapping_np.tolist()
        if len(slots) != logits.shape[0]:
            raise RuntimeError("speculative decoding is refused with a pair: a request has several logits rows")
        if ctx is not None or self._batch is None:  # V2 reorders its rows at every step
            self._batch = self._describe(slots, logits.device)
        rows, indices, rule, keys, prompt_lengths, vocab_size, traced = self._batch
        if not rows:
            return logits
        base_logits = self._context[CONTEXT_KEY].base_logits
        if ctx is None:
            lengths = torch.tensor([len(row.output) for row in rows], device=logits.device)
            positions = prompt_lengths + lengths  # the output may hold placeholders: its length counts, not its content
        else:
            positions = ctx.pos[indices].long() + 1
        everything = len(rows) == logits.shape[0]
        decision = decide(
            base_logits if everything else base_logits[indices],
            logits if everything else logits[indices],
            rule,
            Noise.at(keys, positions),
            vocab_size=vocab_size,
            traced=traced,
            top=max(row.trace or 0 for row in rows),
        )
        facts = channel.encode(decision.replaced, decision.changed, decision.delta_logp).to(logits.dtype)
        if everything:
            logits.fill_(float("-inf"))
        else:
            logits[indices] = float("-inf")
        if traced is not None:
            self._write_trace(logits, rows, indices, decision, traced)
        logits[indices, decision.token] = facts
        return logits

    def _write_trace(
        self, logits: torch.Tensor, rows: list[_Row], indices: torch.Tensor, decision: Decision, traced: torch.Tensor
    ) -> None:
        """Puts the statistics of traced rows beside their forced tokens, of each row as many as it asked for."""
        tops = [row.trace for row in rows if row.trace is not None]
        for top in sorted(set(tops)):
            mine = torch.tensor([i for i, each in enumerate(tops) if each == top], device=logits.device)
            width, at = columns(top), traced[mine]
            beside = channel.slots(decision.token[at], width)
            logits[indices[at][:, None], beside] = channel.encode_trace(decision.trace[mine, :width]).to(logits.dtype)

    def _describe(self, slots: Any, device: torch.device) -> tuple[Any, ...]:
        """The pair rows of a batch and their rules as tensors."""
        present = [(index, self._slots[slot]) for index, slot in enumerate(slots) if slot in self._slots]
        rows = [row for _, row in present]
        traced = [i for i, row in enumerate(rows) if row.trace is not None]
        return (
            rows,
            torch.tensor([index for index, _ in present], dtype=torch.long, device=device),
            Rule([row.rule for row in rows], device),
            torch.tensor([row.key for row in rows], dtype=torch.long, device=device),
            torch.tensor([row.prompt_length for row in rows], dtype=torch.long, device=device),
            rows[0].vocab_size if rows else None,
            torch.tensor(traced, dtype=torch.long, device=device) if traced else None,
        )
