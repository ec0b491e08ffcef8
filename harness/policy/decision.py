"""Algorithm 1 for a batch: propose from the primary, ask the criterion, redraw from the target where it holds.

A row whose top-p is 0 is greedy: proposal and redraw are each the likeliest token of their policy, found among the
logits themselves (of equal ones the lowest id), and the criterion is asked as ever. No noise but `random`'s is used.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch

from harness.policy.coupling import couple
from harness.policy.criteria import cross_entropy, delta_logp, fires, renyi_entropy, statistic
from harness.policy.history import Past
from harness.policy.keep import keep
from harness.policy.nucleus import UNIT, draw, draw_by_mass
from harness.policy.rule import AT_ONCE, Noise, Rule
from harness.policy.target import (
    argmax,
    argmax_target,
    log_softmax,
    moved,
    plausible,
    primary_of,
    target_of,
    tempered,
)
from harness.policy.trace import trace


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided at one position of each row; all (n,)."""

    token: torch.Tensor  # int64, the token to emit
    proposed: torch.Tensor  # int64, the primary's draw
    replaced: torch.Tensor  # bool, the criterion held and the token was redrawn
    delta_logp: torch.Tensor  # float32, of the proposed token, in nats (a rule may tell a Renyi entropy in its place);
    # NaN: a model's logits are no distribution
    trace: torch.Tensor | None = None  # (traced rows, columns(top)) float32, see `trace.py`

    @property
    def changed(self) -> torch.Tensor:
        """Where the redrawn token differs from the proposed one: (n,) bool."""
        return self.token != self.proposed


def decide(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    noise: Noise,
    *,
    vocab_size: int | None = None,
    dense: bool | None = None,
    proposed: torch.Tensor | None = None,
    traced: torch.Tensor | None = None,
    top: int = 0,
    past: Past | None = None,
) -> Decision:
    """Take one step of Algorithm 1 for n rows.

    Args:
        base_logits, rl_logits: (n, padded vocabulary), any float type.
        rule: n rules.
        noise: n uniform numbers for each stream.
        vocab_size: real tokens; logits beyond are padding and never drawn.
        dense: redraw every row and select, looking at no value (a GPU is not waited for), or only the rows where the
            gate fired (less work on a CPU). Default: dense anywhere but on the CPU.
        proposed: (n,) int64, what `propose` gave for these very rows; by default it is drawn here.
        traced: (m,) int64, the rows whose facts are wanted; top: with so many of each model's likeliest tokens.
        past: of these rows; only `spike` looks at it, and writes this step down.

    Returns:
        Decision, tensors of n rows (`trace`: m rows) on the logits' device. Where either model's logits are no
        distribution (a NaN or +inf among them, or nothing but -inf) `delta_logp` is NaN, and the row's token, one of
        the vocabulary, means nothing. It is NaN too where a number is missing that `spike` looks back at.

    Raises:
        ValueError: positions or the past are missing, and a rule looks at them.
    """
    if dense is None:
        dense = base_logits.device.type != "cpu"
    if dense:
        return _decide_dense(base_logits, rl_logits, rule, noise, vocab_size, proposed, traced, top, past)
    lb = log_softmax(base_logits[:, :vocab_size], rule)
    lr = log_softmax(rl_logits[:, :vocab_size], rule)
    if proposed is None:
        proposed = _pick(
            rule,
            likeliest=lambda: argmax(primary_of(base_logits, rl_logits, rule), vocab_size),
            drawn=lambda: draw(keep(primary_of(lb, lr, rule), rule), rule.top_p, noise.propose),
        )
    delta = delta_logp(lb, lr, proposed)

    replaced = torch.zeros(rule.n, dtype=torch.bool, device=lb.device)
    for gate in sorted(rule.gates - {"never", "spike", "coupling"}):
        facts = (lb, lr, proposed, delta, noise.gate, rule.tau, rule.below)
        if len(rule.gates) == 1:
            replaced |= _fires(gate, *facts)
        elif len(rows := rule.has(gate).nonzero().squeeze(1)):
            replaced[rows] = _fires(gate, *(each[rows] for each in facts))
    if "spike" in rule.gates and len(rows := rule.has("spike").nonzero().squeeze(1)):
        own, ce = rule.take(rows), cross_entropy(lb[rows], lr[rows])
        value = spikes(ce, own, noise.positions if noise.positions is None else noise.positions[rows], past, rows)
        replaced[rows] = fires(value, own.tau, own.below)
        delta[rows] = delta[rows].masked_fill(value.isnan(), torch.nan)

    if rule.windows:
        replaced &= noise.opens(rule)
    token = proposed
    if rule.gates != {"never"} and len(rows := replaced.nonzero().squeeze(1)):
        own = rule.take(rows)

        def drawn() -> torch.Tensor:
            return draw(keep(target_of(lb[rows], lr[rows], own), own), own.top_p, noise.redraw[rows])

        redrawn = _pick(own, lambda: argmax_target(base_logits[rows], rl_logits[rows], own, vocab_size), drawn)
        token = proposed.index_copy(0, rows, redrawn)
    if rule.renyis:
        told = renyi_entropy(primary_of(lb, lr, rule), rule.temperature)
        delta = torch.where(rule.renyi & ~delta.isnan(), told, delta)
    facts = None if traced is None else trace(lb[traced], lr[traced], proposed[traced], top)
    decision = Decision(token=token, proposed=proposed, replaced=replaced, delta_logp=delta, trace=facts)
    return with_coupling(decision, base_logits, rl_logits, rule, noise, vocab_size)


def _decide_dense(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    noise: Noise,
    vocab_size: int | None,
    proposed: torch.Tensor | None,
    traced: torch.Tensor | None,
    top: int,
    past: Past | None,
) -> Decision:
    """Do what `decide` does, looking at no value, and so never waiting for a GPU.

    Every row is redrawn, and the gate selects. Log-probabilities are made where they are needed and not kept: what
    stays is the logarithm of each normaliser, (n, 1). A draw takes most memory, and none of them is held beside it.
    """

    def logp(logits: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        scaled = tempered(logits[:, :vocab_size], rule)
        copied = logits.dtype != torch.float32 or not rule.unit_temperature
        return scaled.sub_(z) if copied else scaled - z

    zb, zr = (tempered(logits[:, :vocab_size], rule).logsumexp(1, keepdim=True) for logits in (base_logits, rl_logits))
    zb, zr = zb + (zb - zb), zr + (zr - zr)  # infinite ones become NaN, as in `log_softmax`; finite ones stay

    def drawn_proposal() -> torch.Tensor:
        if len(rule.primaries) == 1:
            primary = logp(rl_logits, zr) if "rl" in rule.primaries else logp(base_logits, zb)
        else:
            primary = torch.where(rule.proposes_rl[:, None], logp(rl_logits, zr), logp(base_logits, zb))
        return draw_by_mass(_mass(keep(primary, rule)), rule.top_p, noise.propose)

    def drawn_target() -> torch.Tensor:
        target = logp(rl_logits, zr)
        if rule.extrapolates:
            gamma = rule.gamma[:, None]
            step = moved((target - logp(base_logits, zb)).mul_(gamma))
            target.add_(step)
            del step
            target.sub_(target.logsumexp(1, keepdim=True).where(gamma != 0, 0.0))
            if rule.reaches_base:
                target = torch.where(gamma == -1, logp(base_logits, zb), target)
        if rule.guards:
            target = plausible(target, logp(rl_logits, zr), rule)
        return draw_by_mass(_mass(keep(target, rule)), rule.top_p, noise.redraw)

    if proposed is None:
        likeliest = lambda: argmax(primary_of(base_logits, rl_logits, rule), vocab_size)  # noqa: E731
        proposed = _pick(rule, likeliest, drawn_proposal)
    at = proposed[:, None]
    of_base, of_rl = (tempered(logits.gather(1, at), rule) for logits in (base_logits, rl_logits))
    delta = ((of_rl - zr) - (of_base - zb)).squeeze(1)

    replaced = rule.has("always")
    at_hand = {"delta_logp": delta, "abs_delta_logp": delta.abs(), "nll_rl": (zr - of_rl).squeeze(1)}
    for gate in sorted(rule.gates & set(at_hand)):
        replaced = replaced | (rule.has(gate) & fires(at_hand[gate], rule.tau, rule.below))
    statistics = rule.gates - {"never", "always", "coupling", *at_hand}
    if statistics:
        lb, lr = logp(base_logits, zb), logp(rl_logits, zr)
        for gate in sorted(statistics):
            if gate == "spike":
                value = spikes(cross_entropy(lb, lr), rule, noise.positions, past)
                delta = delta.masked_fill(rule.has("spike") & value.isnan(), torch.nan)
            else:
                value = statistic(gate, lb, lr, proposed, noise.gate)
            replaced = replaced | (rule.has(gate) & fires(value, rule.tau, rule.below))
        del lb, lr

    if rule.windows:
        replaced = replaced & noise.opens(rule)
    token = proposed
    if rule.gates != {"never"}:
        redrawn = _pick(rule, lambda: argmax_target(base_logits, rl_logits, rule, vocab_size), drawn_target)
        token = torch.where(replaced, redrawn, proposed)
    facts = None if traced is None else trace_rows(base_logits, rl_logits, rule, vocab_size, proposed, traced, top)
    decision = Decision(token=token, proposed=proposed, replaced=replaced, delta_logp=delta, trace=facts)
    decision = with_renyi(decision, base_logits, rl_logits, rule, vocab_size)
    return with_coupling(decision, base_logits, rl_logits, rule, noise, vocab_size)


def decided_apart(
    decision: Decision, rule: Rule, kind: str, decide_part: Callable[[torch.Tensor, Rule], dict[str, torch.Tensor]]
) -> Decision:
    """Return the decision with the rows of a kind (`Rule.parts`) decided apart, a few at a time, looking at no value.

    `decide_part` is given the indices of some rows, (m,) int64, and their rules; it returns fields of `Decision`.
    """
    fields: dict[str, torch.Tensor] = {}
    for at, meant, own in rule.parts(kind):
        for name, value in decide_part(at, own).items():
            before: torch.Tensor = fields[name] if name in fields else getattr(decision, name)
            fields[name] = before.index_copy(0, at[:meant], value[:meant])
    return dataclasses.replace(decision, **fields)


def with_coupling(
    decision: Decision,
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    noise: Noise,
    vocab_size: int | None,
) -> Decision:
    """Return the decision with the rows whose gate is `coupling` decided by `couple`, from what they proposed."""

    def decide_part(at: torch.Tensor, own: Rule) -> dict[str, torch.Tensor]:
        logits, ours = (base_logits[at], rl_logits[at]), own.has("coupling")
        token, replaced = couple(*logits, own, noise.take(at), decision.proposed[at], vocab_size)
        return {
            "token": torch.where(ours, token, decision.token[at]),
            "replaced": torch.where(ours, replaced, decision.replaced[at]),
        }

    return decided_apart(decision, rule, "coupling", decide_part) if "coupling" in rule.gates else decision


def with_renyi(
    decision: Decision, base_logits: torch.Tensor, rl_logits: torch.Tensor, rule: Rule, vocab_size: int | None
) -> Decision:
    """Return the decision with the Renyi entropy of its primary for delta log p where a rule tells that."""

    def decide_part(at: torch.Tensor, own: Rule) -> dict[str, torch.Tensor]:
        lb, lr = (log_softmax(logits[at][:, :vocab_size], own) for logits in (base_logits, rl_logits))
        entropy, delta = renyi_entropy(primary_of(lb, lr, own), own.temperature), decision.delta_logp[at]
        return {"delta_logp": torch.where(own.renyi & ~delta.isnan(), entropy, delta)}

    return decided_apart(decision, rule, "renyi", decide_part) if rule.renyis else decision


def _fires(
    gate: str,
    lb: torch.Tensor,
    lr: torch.Tensor,
    proposed: torch.Tensor,
    delta: torch.Tensor,
    rho: torch.Tensor,
    tau: torch.Tensor,
    below: torch.Tensor,
) -> torch.Tensor:
    """Tell which rows, all of this gate, redraw their proposal: -> (n,) bool."""
    if gate == "always":
        return torch.ones_like(proposed, dtype=torch.bool)
    value = delta if gate == "delta_logp" else statistic(gate, lb, lr, proposed, rho)
    return fires(value, tau, below)


def spikes(
    ce: torch.Tensor,
    rule: Rule,
    positions: torch.Tensor | None,
    past: Past | None,
    rows: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return what `spike` compares with its threshold, and write this step down: (n,) nats -> (n,) float32.

    `past` is that of all rows, of which `rows` (n,) are these. Raises ValueError where it or `positions` are missing.
    """
    if positions is None or past is None:
        raise ValueError("spike: positions or past are missing; accepted: Noise.at, and a Past of these rows")
    return (past if rows is None else past.take(rows)).spike(ce, positions, rule.start, rule.span, rule.longest)


def trace_rows(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    vocab_size: int | None,
    proposed: torch.Tensor,
    traced: torch.Tensor,
    top: int,
) -> torch.Tensor:
    """Return the `trace` of some rows of a batch, (m,) int64: log-probabilities are made of a few of them at a time."""
    facts = []
    for at in traced.split(AT_ONCE):
        meant = len(at)
        if at.device.type != "cpu":  # as in `Rule.parts`
            at = torch.cat([at, at[-1:].expand(AT_ONCE - meant)])
        own = rule.take(at)
        lb, lr = (log_softmax(logits[at][:, :vocab_size], own) for logits in (base_logits, rl_logits))
        facts.append(trace(lb, lr, proposed[at], top)[:meant])
    return torch.cat(facts)


def propose(
    logits: torch.Tensor, rule: Rule, noise: Noise, *, vocab_size: int | None = None, dense: bool | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `decide` proposes, from the primary's logits alone, and where it is already known to be redrawn.

    For drafting: the primary's next tokens do not wait for the other model. All rows have the same primary.

    Args:
        logits: (n, padded vocabulary), of the primary.
        rule, noise, vocab_size, dense: as for `decide`.

    Returns:
        proposed (n,) int64; fires (n,) bool, where a criterion that needs only the primary (its entropy, or none:
        `random`) holds. A criterion that looks at both models is not known yet and says False.

    Raises:
        ValueError: the rows have several primaries.
    """
    if len(rule.primaries) != 1:
        raise ValueError("the rows have several primaries; accepted: one, for all of them")
    logp = log_softmax(logits[:, :vocab_size], rule)
    if dense is None:
        dense = logits.device.type != "cpu"

    def drawn() -> torch.Tensor:
        if not dense:
            return draw(keep(logp, rule), rule.top_p, noise.propose)
        scaled = tempered(logits[:, :vocab_size], rule)  # to the bit as `decide` makes it
        return draw_by_mass(_mass(keep(scaled - scaled.logsumexp(1, keepdim=True), rule)), rule.top_p, noise.propose)

    proposed = _pick(rule, lambda: argmax(logits, vocab_size), drawn)
    fired = torch.zeros(rule.n, dtype=torch.bool, device=logp.device)
    for gate in rule.gates & {"random", *(f"entropy_{primary}" for primary in rule.primaries)}:
        # logp stands for both models: the criterion looks at this one only
        held = fires(statistic(gate, logp, logp, proposed, noise.gate), rule.tau, rule.below)
        fired |= rule.has(gate) & held
    return proposed, fired & noise.opens(rule) if rule.windows else fired


def _pick(rule: Rule, likeliest: Callable[[], torch.Tensor], drawn: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return (n,) tokens: `likeliest()` of the rows that are greedy, `drawn()` of the others; only what is needed."""
    if rule.greedy == {True}:
        return likeliest()
    return torch.where(rule.top_p == 0, likeliest(), drawn()) if True in rule.greedy else drawn()


def _mass(logp: torch.Tensor) -> torch.Tensor:
    """Return probabilities as `draw_by_mass` takes them, in place of the log-probabilities."""
    return logp.exp_().mul_(2.0**UNIT)
