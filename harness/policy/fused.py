"""`decide` as four kernel launches, which read the logits twice and never wait for the host.

    summarise   one tile of one row: maxima and sums for every normaliser, entropy and divergence
    normalise   joins a row's tiles, in a fixed order
    gather      one tile again: the integer mass of every token under the primary and under the target; the few tokens
                that are likelier than 2^-10 are listed (at most 1024 can be)
    decide      one row: the proposal, the gate, the new draw. The listed tokens nearly always settle a draw; where
                they do not, the row's masses are counted into bins, and the bins that matter into finer ones. Of a
                row that is greedy (top-p 0) `gather` has found the token: the largest logit, of equal ones the first

`force` is the fifth. Masses are integers, so a row's result does not depend on the batch, nor on the rank of a tensor
parallel engine. `kernels.py` has the kernels; it is imported at the first launch, since it needs Triton.
"""

import dataclasses
import importlib.util

import torch

from harness.policy.criteria import fires, js_divergence
from harness.policy.decision import Decision, decide, decided_apart, spikes, trace_rows, with_coupling, with_renyi
from harness.policy.history import Past
from harness.policy.keep import keep
from harness.policy.nucleus import UNIT, draw_by_mass
from harness.policy.rule import Noise, Rule
from harness.policy.target import argmax_target, log_softmax, target_of

REGISTERS = 64  # a thread of the kernels that read all logits: then two of their programs fit a multiprocessor, not one
TILE = 4096  # columns read at once; sums of floats, and so the last digits of a mass, depend on it


def fused_available(device: torch.device | str) -> bool:
    """Tell whether `decide_fused` can run on this device: a GPU that torch calls cuda, with Triton installed."""
    return torch.device(device).type == "cuda" and importlib.util.find_spec("triton") is not None


def decide_fused(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    keys: torch.Tensor,
    positions: torch.Tensor,
    *,
    vocab_size: int | None = None,
    traced: torch.Tensor | None = None,
    top: int = 0,
    past: Past | None = None,
) -> Decision:
    """Take one step of Algorithm 1 for n rows: `decide` with the noise `Noise.at(keys, positions)`.

    What needs a row's normalisers before its sum can be taken (`js`, `coupling`, a target with `min_p_rl`) is done by
    torch afterwards, from what the kernels proposed; so is `spike`, from the cross entropy they have found. Rows with
    `min_p` or `typical_p` are done by torch altogether.

    It decides the same tokens, unless a draw meets a step of the cumulative mass, or a statistic its threshold, to the
    last digits of float32.

    Args:
        base_logits, rl_logits: (n, padded vocabulary), any float type, each row's columns side by side in memory.
        rule: n rules, on the logits' device.
        keys, positions: (n,) int64, as for `uniform`.
        vocab_size: real tokens; logits beyond are padding and never drawn.
        traced: (m,) int64, the rows whose facts are wanted; top: with so many of each model's likeliest tokens. For
            these rows alone log-probabilities are written to memory, by torch.
        past: of these rows, for `spike`.

    Returns:
        Decision, tensors of n rows (`trace`: m rows) on the logits' device.

    Raises:
        ValueError: shapes that differ, or columns that are not side by side, or a `spike` without a past.
    """
    logits = base_logits, rl_logits
    decision, constants, _ = run_kernels(*logits, rule, keys, positions, vocab_size)
    if "spike" in rule.gates:
        decision = _with_spike(decision, cross_entropy_of(constants), rule, positions, past)
    if rule.min_ps or rule.typical:
        decision = _narrowed(decision, *logits, rule, keys, positions, vocab_size, past)
    noise = Noise.at(keys, positions) if rule.guards or not rule.gates.isdisjoint(("coupling", "js")) else None
    if noise is not None:
        decision = _with_js(decision, *logits, rule, noise, vocab_size)
        decision = with_coupling(decision, *logits, rule, noise, vocab_size)
    decision = with_renyi(decision, *logits, rule, vocab_size)
    if traced is None:
        return decision
    return dataclasses.replace(decision, trace=trace_rows(*logits, rule, vocab_size, decision.proposed, traced, top))


def cross_entropy_of(constants: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of base and RL, H(base) + KL(base || RL), of the rows' constants: (n,) float32."""
    from harness.policy.kernels import STATISTICS_AT

    return constants[:, STATISTICS_AT] + constants[:, STATISTICS_AT + 3]


def _with_spike(
    decision: Decision, ce: torch.Tensor, rule: Rule, positions: torch.Tensor, past: Past | None
) -> Decision:
    """Return the decision with `spike` asked, which the kernels take to hold."""
    value, ours = spikes(ce, rule, positions, past), rule.has("spike")
    fired = decision.replaced & (~ours | fires(value, rule.tau, rule.below))
    return dataclasses.replace(
        decision,
        token=torch.where(fired, decision.token, decision.proposed),
        replaced=fired,
        delta_logp=decision.delta_logp.masked_fill(ours & value.isnan(), torch.nan),
    )


def _narrowed(
    decision: Decision,
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    keys: torch.Tensor,
    positions: torch.Tensor,
    vocab_size: int | None,
    past: Past | None,
) -> Decision:
    """Return the decision with the rows that `keep` narrows decided by `decide`."""

    def decide_part(at: torch.Tensor, own: Rule) -> dict[str, torch.Tensor]:
        noise = Noise.at(keys[at], positions[at])
        mine = None if past is None else past.take(at).only(own.narrows)
        ours = decide(base_logits[at], rl_logits[at], own, noise, vocab_size=vocab_size, dense=True, past=mine)
        names = ("token", "proposed", "replaced", "delta_logp")
        return {name: torch.where(own.narrows, getattr(ours, name), getattr(decision, name)[at]) for name in names}

    return decided_apart(decision, rule, "narrowed", decide_part)


def _with_js(
    decision: Decision,
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    noise: Noise,
    vocab_size: int | None,
) -> Decision:
    """Return the decision with `js` asked, which the kernels take to hold, and guarded targets drawn from."""

    def decide_part(at: torch.Tensor, own: Rule) -> dict[str, torch.Tensor]:
        b, r = base_logits[at], rl_logits[at]
        lb, lr = (log_softmax(each[:, :vocab_size], own) for each in (b, r))
        redrawn, fired = decision.token[at], decision.replaced[at]
        if "js" in own.gates:
            fired = fired & (~own.has("js") | fires(js_divergence(lb, lr), own.tau, own.below))
        if own.guards:
            target = draw_by_mass(keep(target_of(lb, lr, own), own).exp().mul_(2.0**UNIT), own.top_p, noise.redraw[at])
            if True in own.greedy:
                target = torch.where(own.top_p == 0, argmax_target(b, r, own, vocab_size), target)
            redrawn = torch.where(own.min_p_rl > 0, target, redrawn)
        return {"token": torch.where(fired, redrawn, decision.proposed[at]), "replaced": fired}

    return decided_apart(decision, rule, "js", decide_part)


def force(
    logits: torch.Tensor,
    decision: Decision,
    decided: torch.Tensor | None = None,
    *,
    band: float,
    limit: float,
) -> torch.Tensor:
    """Leave one finite logit in each row, on the decided token: band (1 + replaced + changed) + delta log p.

    Where delta log p is NaN it is 4 band.

    Args:
        logits: (n, padded vocabulary), each row's columns side by side in memory; changed in place.
        decision: of these rows.
        decided: (n,) bool, the rows that are meant; by default all. The others are left as they are.
        band, limit: of the number; delta log p is cut to [-limit, limit].

    Returns:
        The same `logits`.
    """
    from harness.policy import kernels

    n, width = logits.shape
    if n:
        masked = decided is not None
        kernels.force[(n, -(-width // TILE))](
            logits, decided.view(torch.int8) if masked else decision.token, decision.token, decision.proposed,
            decision.replaced.view(torch.int8), decision.delta_logp, band, limit, width, logits.stride(0),
            MASKED=masked, TILE=TILE,
        )  # fmt: skip
    return logits


def run_kernels(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    keys: torch.Tensor,
    positions: torch.Tensor,
    vocab_size: int | None = None,
    *,
    tile: int = TILE,
    chunk: int = 8,
) -> tuple[Decision, torch.Tensor, torch.Tensor]:
    """Launch the kernels of one step; its arguments and errors are those of `decide_fused`.

    Returns:
        The decision; the constants of the rows, (n, kernels.CONSTANTS) float32; the masses' totals, (n, 2) int64.
    """
    from harness.policy import kernels

    if base_logits.shape != rl_logits.shape or base_logits.stride(1) != 1 or rl_logits.stride(1) != 1:
        raise ValueError(
            f"base_logits {tuple(base_logits.shape)} and rl_logits {tuple(rl_logits.shape)}: accepted are two tensors "
            "of one shape whose columns are side by side in memory"
        )
    (n, width), device = base_logits.shape, base_logits.device
    vocab = vocab_size or width
    tiles = -(-vocab // tile)

    def empty(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    partials = empty(n, kernels.PARTIALS, tiles, dtype=torch.float32)
    constants = empty(n, kernels.CONSTANTS, dtype=torch.float32)
    lists, counts, totals = empty(n, 2, kernels.CANDIDATES), empty(n, 2, dtype=torch.int32), empty(n, 2)
    bins = empty(n, kernels.BINS)
    token, proposed = empty(n), empty(n)
    replaced, delta = empty(n, dtype=torch.bool), empty(n, dtype=torch.float32)
    if n:
        logits, sizes = (base_logits, rl_logits), (vocab, width, base_logits.stride(0), rl_logits.stride(0))
        exact = {"enable_fp_fusion": False}  # one mass, wherever it is computed
        reading = {"TILE": tile, "num_warps": 16, **exact, **({} if torch.version.hip else {"maxnreg": REGISTERS})}
        kernels.summarise[(n, tiles)](*logits, rule.columns, partials, *sizes, tiles, **reading)
        kernels.normalise[(n,)](
            rule.columns, partials, constants, counts, totals, vocab, tiles,
            TILES=max(2, 1 << (tiles - 1).bit_length()), num_warps=1, **exact,
        )  # fmt: skip
        kernels.gather[(n, tiles)](*logits, constants, lists, counts, totals, *sizes, **reading)
        kernels.decide[(n,)](
            *logits, rule.columns, constants, lists, counts, totals, bins, keys, positions,
            token, proposed, replaced.view(torch.int8), delta, *sizes,
            TILE=tile, CHUNK=chunk, num_warps=16, **exact,
        )  # fmt: skip
    decision = Decision(token=token, proposed=proposed, replaced=replaced, delta_logp=delta)
    return decision, constants, totals
