"""Run `decide` as four kernel launches, which read the logits twice and never wait for the host.

    summarise   reads one tile of one row: maxima and sums for every normaliser, entropy and divergence
    normalise   joins a row's tiles, in a fixed order
    gather      reads one tile again: the integer mass of every token under the primary and under the target. It lists
                the few tokens with a probability above 2^-10 (there can be at most 1024)
    decide      handles one row: the proposal, its statistic against the threshold, the new draw. The listed tokens
                nearly always determine a draw. If they do not, the row's masses are counted into bins, and the bins
                that matter into finer ones. For a greedy row `gather` has found the token: the first one with the
                largest logit

The kernels implement statistics, not gates. Rows whose gate needs whole policies are decided by torch.

`force` is the fifth kernel. Masses are integers, so a row's result does not depend on the batch or on the rank of a
tensor parallel engine. The kernels are in `kernels.py`, which is imported at the first launch because it needs Triton.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rlvr_dir.policy.algorithm import Decision, decide
from rlvr_dir.policy.combine import PAIR, Combination, cut
from rlvr_dir.policy.rule import Rows, Rules, to_device
from rlvr_dir.policy.step import Requests
from rlvr_dir.policy.table import by_torch, columns
from rlvr_dir.policy.target import Policies
from rlvr_dir.policy.trace import traced

AT_ONCE = 32  # rows that torch decides together: float64 sums over a sorted policy take much memory
REGISTERS = 64  # per thread of the kernels that read all logits, so that two programs fit on a multiprocessor
TILE = 4096  # columns read at once; float sums, and so the last digits of a mass, depend on it


def fused_available(device: torch.device | str) -> bool:
    """Return whether `decide_fused` can run on this device: a GPU that torch calls cuda, with Triton installed."""
    return torch.device(device).type == "cuda" and importlib.util.find_spec("triton") is not None


@dataclass(frozen=True)
class Part:
    """Hold rows that torch decides together. On a GPU there are always `AT_ONCE`, and only the first `meant` count.

    The last bits of a sum depend on how many rows are summed at once. With a varying number, a token would depend on
    the other requests in the batch.
    """

    rows: Rows
    meant: int
    rules: Rules

    def write(self, x: Tensor, out: Tensor) -> Tensor:
        """Return x with the rows that count overwritten."""
        return x.index_copy(0, self.rows.index[: self.meant], out[: self.meant])


@dataclass(frozen=True)
class Work:
    """Prepare the work for a batch of rules once, so that no step copies anything to the device."""

    table: Tensor  # (n, COLUMNS) float64
    parts: Sequence[Part]
    traced: Sequence[Part]

    @classmethod
    def of(cls, rules: Rules) -> "Work":
        """Divide the rows of a batch between the kernels and torch."""
        device = rules.table.device
        apart = [i for i, rule in enumerate(rules.rules) if by_torch(rule)]
        table = to_device([columns(rule) for rule in rules.rules], torch.float64, device)
        return cls(table, _parts(rules, apart), _parts(rules, rules.traced.rows))


def _parts(rules: Rules, wanted: Sequence[int]) -> list[Part]:
    parts, device = [], rules.table.device
    for start in range(0, len(wanted), AT_ONCE):
        rows = list(wanted[start : start + AT_ONCE])
        meant = len(rows)
        if device.type != "cpu":
            rows += rows[-1:] * (AT_ONCE - meant)
        some = Rows(rows, rules.n, device)
        parts.append(Part(some, meant, Rules.compile([rules.rules[i] for i in rows], device)))
    return parts


_WORK: WeakKeyDictionary[Rules, Work] = WeakKeyDictionary()


def decide_fused(
    logits: Mapping[str, Tensor], rules: Rules, requests: Requests, combination: Combination = PAIR
) -> Decision:
    """Run one step of Algorithm 1 for n rows, like `decide` and with the same arguments.

    The tokens are the same as those of `decide`, unless a draw falls on a step of the cumulative mass, or a statistic
    equals its threshold, within the last digits of float32.

    Raises:
        ValueError: The shapes differ, or columns are not adjacent in memory.
    """
    work = _WORK.get(rules)
    if work is None:
        work = _WORK[rules] = Work.of(rules)
    base, rl = combination.policies(logits, rules.rl_alone)
    vocab = combination.vocab or base.shape[1]
    decision, _, _ = run_kernels(base, rl, work.table, requests, vocab)
    for part in work.parts:
        both = {"base": part.rows.of(base), "rl": part.rows.of(rl)}
        own = decide(both, part.rules, requests.of(part.rows), Combination(vocab))
        names = ("token", "proposed", "replaced", "delta_logp", "delta_logp_written")
        decision = replace(
            decision, **{name: part.write(getattr(decision, name), getattr(own, name)) for name in names}
        )
    if not work.traced:
        return decision
    traces = []
    for part in work.traced:
        policies = Policies(cut(part.rows.of(base), vocab), cut(part.rows.of(rl), vocab), part.rules)
        traces.append(traced(policies, part.rows.of(decision.proposed))[: part.meant])
    return replace(decision, trace=torch.cat(traces))


def force(
    logits: Tensor,
    decision: Decision,
    decided: Tensor | None = None,
    *,
    band: float,
    limit: float,
    beside: tuple[float, float, float, float],
) -> Tensor:
    """Leave one finite logit in each row, on the decided token: band (1 + replaced + changed) + delta log p.

    If delta log p is NaN, the number is 4 band. Rows whose token changed keep two more numbers, on the first ids other
    than the decided token's: those of the channel's `encode_proposal`.

    Args:
        logits: (n, padded vocabulary), each row's columns adjacent in memory; changed in place.
        decision: The decision for these rows.
        decided: (n,) bool, the rows to change; by default all. Others stay unchanged.
        band, limit: Of the number; delta log p is clipped to [-limit, limit].
        beside: The offset and the step of the proposed id's number, then those of the written token's delta log p.

    Returns:
        The same `logits`.
    """
    from rlvr_dir.policy import kernels

    n, width = logits.shape
    if n:
        masked = decided is not None
        kernels.force[(n, -(-width // TILE))](
            logits, decided.view(torch.int8) if masked else decision.token, decision.token, decision.proposed,
            decision.replaced.view(torch.int8), decision.delta_logp, decision.delta_logp_written, band, limit,
            *beside, width, logits.stride(0), MASKED=masked, TILE=TILE,
        )  # fmt: skip
    return logits


def run_kernels(
    base_logits: Tensor,
    rl_logits: Tensor,
    table: Tensor,
    requests: Requests,
    vocab: int,
    *,
    tile: int = TILE,
    chunk: int = 8,
) -> tuple[Decision, Tensor, Tensor]:
    """Launch the kernels of one step, for rules as in `Work.table`. Errors are those of `decide_fused`.

    Returns:
        The decision; the constants of the rows, (n, kernels.CONSTANTS) float32; the masses' totals, (n, 2) int64.
    """
    from rlvr_dir.policy import kernels

    if base_logits.shape != rl_logits.shape or base_logits.stride(1) != 1 or rl_logits.stride(1) != 1:
        raise ValueError(
            f"base_logits {tuple(base_logits.shape)} and rl_logits {tuple(rl_logits.shape)}: accepted are two tensors "
            "of one shape whose columns are side by side in memory"
        )
    (n, width), device = base_logits.shape, base_logits.device
    tiles = -(-vocab // tile)

    def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    partials = empty(n, kernels.PARTIALS, tiles, dtype=torch.float32)
    constants = empty(n, kernels.CONSTANTS, dtype=torch.float32)
    lists, counts, totals = empty(n, 2, kernels.CANDIDATES), empty(n, 2, dtype=torch.int32), empty(n, 2)
    bins = empty(n, kernels.BINS)
    token, proposed = empty(n), empty(n)
    replaced, delta, written = empty(n, dtype=torch.bool), *(empty(n, dtype=torch.float32) for _ in range(2))
    if n:
        logits, sizes = (base_logits, rl_logits), (vocab, width, base_logits.stride(0), rl_logits.stride(0))
        exact = {"enable_fp_fusion": False}  # a mass is the same number in every kernel
        reading = {"TILE": tile, "num_warps": 16, **exact, **({} if torch.version.hip else {"maxnreg": REGISTERS})}
        kernels.summarise[(n, tiles)](*logits, table, partials, *sizes, tiles, **reading)
        kernels.normalise[(n,)](
            table, partials, constants, counts, totals, vocab, tiles,
            TILES=max(2, 1 << (tiles - 1).bit_length()), num_warps=1, **exact,
        )  # fmt: skip
        kernels.gather[(n, tiles)](*logits, constants, lists, counts, totals, *sizes, **reading)
        kernels.decide[(n,)](
            *logits, table, constants, lists, counts, totals, bins,
            requests.keys, requests.positions, requests.starts,
            token, proposed, replaced.view(torch.int8), delta, written, *sizes,
            TILE=tile, CHUNK=chunk, num_warps=16, **exact,
        )  # fmt: skip
    decision = Decision(token, proposed, replaced, delta, written)
    return decision, constants, totals
