"""Implement Algorithm 1 as a vLLM logits processor, in one class for both generations of vLLM's processor interface.

Every request that has `extra_args={"rlvr": …}` is decided here, by its own rule. The chosen token is forced: its logit
becomes the channel's number, and all others become -inf. Other requests are not modified and sample from the RL model
as in any vLLM engine.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from vllm.v1.sample.logits_processor import LogitsProcessor as RunnerV1Processor
from vllm.v1.sample.logits_processor import MoveDirectionality

from rlvr_dir.decode.types import Plan
from rlvr_dir.decode.vllm_pair import channel
from rlvr_dir.decode.vllm_pair.plugin import CONTEXT_KEY, EXTRA_ARG
from rlvr_dir.decode.vllm_pair.slots import SlotTable, StepBatch
from rlvr_dir.decode.vllm_pair.step import decide_step, force
from rlvr_dir.policy.rule import to_device
from rlvr_dir.policy.trace import columns

try:
    from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor as RunnerV2Processor

    _INTERFACES: tuple[type, ...] = (RunnerV1Processor, RunnerV2Processor)
except ModuleNotFoundError:  # in vLLM 0.25 runner V2 accepts no processors, and V1 is used if one is requested
    _INTERFACES = (RunnerV1Processor,)


def plan_of(sampling_params: Any, output: Sequence[int] = ()) -> Plan | None:
    """Return what a step needs to know about a request; None if it is not one of ours."""
    fields = (sampling_params.extra_args or {}).get(EXTRA_ARG)
    return None if fields is None else Plan.of_plain(fields, output)


class PairProcessor(*_INTERFACES):
    """Implement a processor that decides and forces the token of every pair request in the batch."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse parameters that would change the logits of one model only, when the request is submitted.

        Raises:
            ValueError: A parameter is refused. The error names it.
        """
        if plan_of(sampling_params) is None:
            return
        neutral = {
            "n": 1, "temperature": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
            "min_tokens": 0, "min_p": 0.0, "seed": None, "logit_bias": None, "bad_words": None,
            "allowed_token_ids": None, "structured_outputs": None, "prompt_logprobs": None,
        }  # fmt: skip
        for name, value in neutral.items():
            value_given = getattr(sampling_params, name, value)
            if value_given != value and value_given not in ([], {}):
                raise ValueError(
                    f"{name}={value_given!r} is not possible where two models decode a request; leave it at {value!r}"
                )

    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        """Make the table of slots. V1 passes (config, device, is_pin_memory), V2 passes (config, request states)."""
        self._context = vllm_config.compilation_config.static_forward_context
        if is_pin_memory is None:
            self._table = SlotTable(device_or_states.device)
        else:  # in V1 the slots are the rows of the batch
            self._table = SlotTable(device_or_states)
        self._positions: tuple[list[int | None], torch.Tensor] | None = None  # V1: of the last step, host and device

    # Model runner V1 -------------------------------------------------------------------------------------------

    def is_argmax_invariant(self) -> bool:
        """Return False, because this processor changes the argmax."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Update the slots of requests that were removed, added or moved, in this order, because indices are reused."""
        if batch_update is None:
            return
        table = self._table
        for index in batch_update.removed:
            table.put(index, None)
        for index, params, _, output_token_ids in batch_update.added:
            table.put(index, plan_of(params, output_token_ids))
        for source, target, direction in batch_update.moved:
            moved, displaced = table.rows.get(source), table.rows.get(target)
            table.put(target, moved)
            table.put(source, displaced if direction == MoveDirectionality.SWAP else None)

    def _written(self, batch: StepBatch) -> torch.Tensor:
        """Return the position of each row's next token: (n,) int64. The value of a row that is not ours is arbitrary.

        The output may contain placeholders: only its length counts. From one step to the next all lengths grow by one,
        unless a prompt is still being read. In that case they are copied to the device again.
        """
        positions = [row.start + row.begun + len(row.output) if row else None for row in batch.rows]
        before = self._positions
        if before is not None and before[0] == positions:
            return before[1]
        if before is not None and [None if row is None else row + 1 for row in before[0]] == positions:
            on_device = before[1].add_(1)
        else:
            on_device = to_device([position or 0 for position in positions], torch.long, batch.keys.device)
        self._positions = positions, on_device
        return on_device

    # Model runner V2 -------------------------------------------------------------------------------------------

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Assign a recycled slot; return whether the request's logits are changed here."""
        plan = plan_of(sampling_params)
        self._table.put(req_idx, plan)
        return plan is not None

    def apply_staged_writes(self) -> None:
        """Do nothing, because the data from `add_request` are copied to the device with the next batch."""

    # Both ------------------------------------------------------------------------------------------------------

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """Force the decided token of every pair row: (rows, vocab) -> the same tensor, changed in place."""
        if not self._table.rows:
            return logits
        model = self._context[CONTEXT_KEY]
        batch = self._table.batch(np.arange(logits.shape[0]) if ctx is None else ctx.idx_mapping_np)
        if not any(batch.rows):
            return logits
        requests = batch.at(self._written(batch) if ctx is None else ctx.pos.long() + 1)
        decision = decide_step({**model.logits, "rl": logits}, batch.rules, requests, model.combination)
        if batch.end is not None:  # so that the host learns at once of a response that cannot continue
            decision = replace(decision, token=decision.token.masked_fill(decision.delta_logp.isnan(), batch.end))
        force(logits, decision, batch.decided)
        if decision.trace is not None:
            traced = batch.rules.traced.index
            self._write_trace(logits, traced, batch.traced_alike, decision.token, decision.trace)
        return logits

    @staticmethod
    def _write_trace(
        logits: torch.Tensor,
        traced: torch.Tensor,
        alike: Sequence[tuple[int, torch.Tensor]],
        tokens: torch.Tensor,
        traces: torch.Tensor,
    ) -> None:
        """Write the statistics of traced rows beside their forced tokens, as many as each row requested."""
        for top, rows in alike:
            at, width = traced[rows], columns(top)
            beside = channel.slots(tokens[at], channel.PROPOSAL + width)[:, channel.PROPOSAL :]
            logits[at[:, None], beside] = channel.encode_trace(traces[rows, :width]).to(logits.dtype)
