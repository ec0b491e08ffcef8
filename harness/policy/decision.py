"""Algorithm 1 for a batch: propose from the primary, ask the criterion, redraw from the target where it holds.

Every row has its own rule, so one batch can serve every configuration of a sweep.

A row whose top-p is 0 is greedy: proposal and redraw are each the likeliest token of their policy, found among the
logits themselves (of equal ones the lowest id), and the criterion is asked as ever. No noise but `random`'s is used.
"""

import dataclasses
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import torch

from harness.policy.criteria import BELOW, CRITERIA, delta_logp, fires, statistic
from harness.policy.noise import GATE, PROPOSE, REDRAW, uniform
from harness.policy.nucleus import UNIT, draw, draw_by_mass, truncate
from harness.policy.trace import trace

GATES = ("never", "always", *CRITERIA, "coupling")
COUPLED_AT_ONCE = 32  # rows
COLUMNS = ("gate", "proposes_rl", "tau", "gamma", "temperature", "top_p", "below")


@dataclass(frozen=True, slots=True)
class RuleRow:
    """Say how one response is decoded. `gate` is a criterion, or one of three that need no threshold.

    `never` is the primary alone, `always` the target, and `coupling` the target too, at the least replacement
    (`couple`).
    """

    gate: str = "never"
    primary: str = "base"  # who proposes: "base" or "rl"
    tau: float = 0.0
    gamma: float = 0.0  # 0: the target is RL itself, -1: base
    temperature: float = 1.0
    top_p: float = 1.0  # 0: greedy
    below: bool | None = None  # whether the criterion holds below tau or above it; None: its own side (`BELOW`)

    def columns(self) -> tuple[float, ...]:
        """Return the row as numbers, in the order of COLUMNS.

        Raises ValueError for a gate or a primary that is not known.
        """
        if self.gate not in GATES:
            raise ValueError(f"gate={self.gate!r} is not known; accepted: {', '.join(GATES)}")
        if self.primary not in ("base", "rl"):
            raise ValueError(f"primary={self.primary!r} is not known; accepted: base, rl")
        numbers = (self.tau, self.gamma, self.temperature, self.top_p)
        below = self.gate in BELOW if self.below is None else self.below
        return (GATES.index(self.gate), float(self.primary == "rl"), *numbers, float(below))


class Rule:
    """The rules of n rows as one table, with what the host knows about them before any logits are seen.

    `columns` is (n, 7) float64 on the logits' device, in the order of COLUMNS: the gate as its index in GATES, whether
    RL proposes (0 or 1), tau, gamma, temperature, top-p, whether the criterion holds below tau (0 or 1). The rest are
    plain Python values that may also hold for rows that are not among these n (`take` keeps them): `gates`,
    `primaries`, `unit_temperature`, `extrapolates`, `reaches_base` (a gamma of -1), `greedy`.
    """

    def __init__(self, rows: Sequence[RuleRow], device: torch.device | str = "cpu") -> None:
        """Make the table of these rows; raises ValueError for a gate or a primary that is not known."""
        table = [row.columns() for row in rows]
        self.columns = torch.tensor(table, dtype=torch.float64).reshape(len(table), len(COLUMNS)).to(device)
        self._know(rows)

    def _know(self, rows: Sequence[RuleRow]) -> None:
        self.gates = frozenset(row.gate for row in rows)
        self.primaries = frozenset(row.primary for row in rows)
        self.unit_temperature = all(row.temperature == 1 for row in rows)
        self.extrapolates = any(row.gamma for row in rows)
        self.reaches_base = any(row.gamma == -1 for row in rows)
        self.greedy = frozenset(row.top_p == 0 for row in rows)

    @classmethod
    def known(cls, columns: torch.Tensor, rows: Sequence[RuleRow]) -> "Rule":
        """Return the rules of a table that lies on a device already: (n, 7) float64, made of some of `rows`."""
        made = cls.__new__(cls)
        made.columns = columns
        made._know(rows)
        return made

    def take(self, index: torch.Tensor) -> "Rule":
        """Return the rules of rows `index` (m,) int64, in that order; a row may be taken several times."""
        taken = copy(self)
        taken.columns = self.columns.index_select(0, index)
        return taken

    @property
    def n(self) -> int:
        """Rows."""
        return self.columns.shape[0]

    @property
    def gate(self) -> torch.Tensor:
        """(n,) float64, the index of each row's gate in GATES."""
        return self.columns[:, 0]

    @property
    def proposes_rl(self) -> torch.Tensor:
        """(n,) bool."""
        return self.columns[:, 1] > 0

    @property
    def tau(self) -> torch.Tensor:
        """(n,) float32."""
        return self.columns[:, 2].float()

    @property
    def gamma(self) -> torch.Tensor:
        """(n,) float32."""
        return self.columns[:, 3].float()

    @property
    def temperature(self) -> torch.Tensor:
        """(n,) float32."""
        return self.columns[:, 4].float()

    @property
    def top_p(self) -> torch.Tensor:
        """(n,) float64."""
        return self.columns[:, 5]

    @property
    def below(self) -> torch.Tensor:
        """(n,) bool: whether each row's criterion holds below tau."""
        return self.columns[:, 6] > 0

    def has(self, gate: str) -> torch.Tensor:
        """Tell which rows have this gate: (n,) bool."""
        return self.gate == GATES.index(gate)


@dataclass(frozen=True, slots=True)
class Noise:
    """The uniform numbers of one step, each (n,) float64 in [0, 1)."""

    propose: torch.Tensor
    redraw: torch.Tensor
    gate: torch.Tensor

    @classmethod
    def at(cls, keys: torch.Tensor, positions: torch.Tensor) -> "Noise":
        """Return the noise of responses `keys` at absolute `positions`, both (n,) int64."""
        return cls(*(uniform(keys, positions, stream) for stream in (PROPOSE, REDRAW, GATE)))


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided at one position of each row; all (n,)."""

    token: torch.Tensor  # int64, the token to emit
    proposed: torch.Tensor  # int64, the primary's draw
    replaced: torch.Tensor  # bool, the criterion held and the token was redrawn
    delta_logp: torch.Tensor  # float32, of the proposed token, in nats; NaN: a model's logits are no distribution
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

    Returns:
        Decision, tensors of n rows (`trace`: m rows) on the logits' device. Where either model's logits are no
        distribution (a NaN or +inf among them, or nothing but -inf) `delta_logp` is NaN, and the row's token, one of
        the vocabulary, means nothing.
    """
    if dense is None:
        dense = base_logits.device.type != "cpu"
    if dense:
        return _decide_dense(base_logits, rl_logits, rule, noise, vocab_size, proposed, traced, top)
    lb = log_softmax(base_logits[:, :vocab_size], rule)
    lr = log_softmax(rl_logits[:, :vocab_size], rule)
    if proposed is None:
        proposed = _pick(
            rule,
            likeliest=lambda: _argmax(_primary(base_logits, rl_logits, rule), vocab_size),
            drawn=lambda: draw(_primary(lb, lr, rule), rule.top_p, noise.propose),
        )
    delta = delta_logp(lb, lr, proposed)

    replaced = torch.zeros(rule.n, dtype=torch.bool, device=lb.device)
    for gate in sorted(rule.gates - {"never", "coupling"}):
        facts = (lb, lr, proposed, delta, noise.gate, rule.tau, rule.below)
        if len(rule.gates) == 1:
            replaced |= _fires(gate, *facts)
        elif len(rows := rule.has(gate).nonzero().squeeze(1)):
            replaced[rows] = _fires(gate, *(each[rows] for each in facts))

    token = proposed
    if rule.gates != {"never"} and len(rows := replaced.nonzero().squeeze(1)):
        own = rule.take(rows)

        def drawn() -> torch.Tensor:
            target = extrapolate(lb[rows], lr[rows], own.gamma) if rule.extrapolates else lr[rows]
            return draw(target, own.top_p, noise.redraw[rows])

        redrawn = _pick(own, lambda: _argmax_target(base_logits[rows], rl_logits[rows], own, vocab_size), drawn)
        token = proposed.index_copy(0, rows, redrawn)
    facts = None if traced is None else trace(lb[traced], lr[traced], proposed[traced], top)
    decision = Decision(token=token, proposed=proposed, replaced=replaced, delta_logp=delta, trace=facts)
    return couple(base_logits, rl_logits, rule, noise, decision, vocab_size)


def _decide_dense(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    noise: Noise,
    vocab_size: int | None,
    proposed: torch.Tensor | None,
    traced: torch.Tensor | None,
    top: int,
) -> Decision:
    """Do what `decide` does, looking at no value, and so never waiting for a GPU.

    Every row is redrawn, and the gate selects. Log-probabilities are made where they are needed and not kept: what
    stays is the logarithm of each normaliser, (n, 1). A draw takes most memory, and none of them is held beside it.
    """

    def logp(logits: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        tempered = _tempered(logits[:, :vocab_size], rule)
        copied = logits.dtype != torch.float32 or not rule.unit_temperature
        return tempered.sub_(z) if copied else tempered - z

    zb, zr = (_tempered(logits[:, :vocab_size], rule).logsumexp(1, keepdim=True) for logits in (base_logits, rl_logits))
    zb, zr = zb + (zb - zb), zr + (zr - zr)  # infinite ones become NaN, as in `log_softmax`; finite ones stay

    def drawn_proposal() -> torch.Tensor:
        if len(rule.primaries) == 1:
            primary = logp(rl_logits, zr) if "rl" in rule.primaries else logp(base_logits, zb)
        else:
            primary = torch.where(rule.proposes_rl[:, None], logp(rl_logits, zr), logp(base_logits, zb))
        return draw_by_mass(_mass(primary), rule.top_p, noise.propose)

    def drawn_target() -> torch.Tensor:
        target = logp(rl_logits, zr)
        if rule.extrapolates:
            gamma = rule.gamma[:, None]
            moved = _moved((target - logp(base_logits, zb)).mul_(gamma))
            target.add_(moved)
            del moved
            target.sub_(target.logsumexp(1, keepdim=True).where(gamma != 0, 0.0))
            if rule.reaches_base:
                target = torch.where(gamma == -1, logp(base_logits, zb), target)
        return draw_by_mass(_mass(target), rule.top_p, noise.redraw)

    if proposed is None:
        likeliest = lambda: _argmax(_primary(base_logits, rl_logits, rule), vocab_size)  # noqa: E731
        proposed = _pick(rule, likeliest, drawn_proposal)
    at = proposed[:, None]
    of_base, of_rl = (_tempered(logits.gather(1, at), rule) for logits in (base_logits, rl_logits))
    delta = ((of_rl - zr) - (of_base - zb)).squeeze(1)

    replaced = rule.has("always")
    at_hand = {"delta_logp": delta, "abs_delta_logp": delta.abs(), "nll_rl": (zr - of_rl).squeeze(1)}
    for gate in sorted(rule.gates & set(at_hand)):
        replaced = replaced | (rule.has(gate) & fires(at_hand[gate], rule.tau, rule.below))
    statistics = rule.gates - {"never", "always", "coupling", *at_hand}
    if statistics:
        lb, lr = logp(base_logits, zb), logp(rl_logits, zr)
        for gate in sorted(statistics):
            value = statistic(gate, lb, lr, proposed, noise.gate)
            replaced = replaced | (rule.has(gate) & fires(value, rule.tau, rule.below))
        del lb, lr

    token = proposed
    if rule.gates != {"never"}:
        redrawn = _pick(rule, lambda: _argmax_target(base_logits, rl_logits, rule, vocab_size), drawn_target)
        token = torch.where(replaced, redrawn, proposed)
    facts = None if traced is None else trace_rows(base_logits, rl_logits, rule, vocab_size, proposed, traced, top)
    decision = Decision(token=token, proposed=proposed, replaced=replaced, delta_logp=delta, trace=facts)
    return couple(base_logits, rl_logits, rule, noise, decision, vocab_size)


def couple(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    noise: Noise,
    decision: Decision,
    vocab_size: int | None = None,
) -> Decision:
    """Decide the rows whose gate is `coupling`, from what they proposed; the others' decisions stay.

    With B the law of the proposal y and Q that of the target, both truncated, y is kept with probability
    min(1, Q(y) / B(y)), else redrawn from (Q - B) where that is above 0. So the token's law is Q, exactly, and it is
    redrawn with probability (1/2) sum |Q - B|, the least of any way to draw both (the maximal coupling, as in
    speculative sampling, arXiv 2211.17192): the floor below every other gate that wants Q's law.

    Looks at no value, and takes a few rows at a time: two sorted policies in float64 are large.
    """
    if "coupling" not in rule.gates:
        return decision
    token, replaced = [], []
    for at in torch.arange(rule.n, device=base_logits.device).split(COUPLED_AT_ONCE):
        own, proposed = rule.take(at), decision.proposed[at]
        b, r = base_logits[at], rl_logits[at]
        lb, lr = (log_softmax(each[:, :vocab_size], own) for each in (b, r))
        proposal = truncate(_primary(lb, lr, own), own.top_p)
        target = truncate(extrapolate(lb, lr, own.gamma) if own.extrapolates else lr, own.top_p)
        kept = noise.gate[at] * proposal.gather(1, proposed[:, None])[:, 0] < target.gather(1, proposed[:, None])[:, 0]
        excess = (target - proposal).clamp_(min=0.0).mul_(2.0**UNIT).float()
        redrawn = draw_by_mass(excess, torch.ones_like(own.top_p), noise.redraw[at])
        if True in own.greedy:
            likeliest, greedy = _argmax_target(b, r, own, vocab_size), own.top_p == 0
            kept, redrawn = torch.where(greedy, proposed == likeliest, kept), torch.where(greedy, likeliest, redrawn)
        token.append(torch.where(kept, proposed, redrawn))
        replaced.append(~kept)
    ours = rule.has("coupling")
    return dataclasses.replace(
        decision,
        token=torch.where(ours, torch.cat(token), decision.token),
        replaced=torch.where(ours, torch.cat(replaced), decision.replaced),
    )


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


def trace_rows(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    vocab_size: int | None,
    proposed: torch.Tensor,
    traced: torch.Tensor,
    top: int,
) -> torch.Tensor:
    """Return the `trace` of some rows of a batch, (m,) int64: log-probabilities are made of these alone."""
    rules = rule.take(traced)
    lb, lr = (log_softmax(logits[traced][:, :vocab_size], rules) for logits in (base_logits, rl_logits))
    return trace(lb, lr, proposed[traced], top)


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
            return draw(logp, rule.top_p, noise.propose)
        tempered = _tempered(logits[:, :vocab_size], rule)  # to the bit as `decide` makes it
        return draw_by_mass(_mass(tempered - tempered.logsumexp(1, keepdim=True)), rule.top_p, noise.propose)

    proposed = _pick(rule, lambda: _argmax(logits, vocab_size), drawn)
    fired = torch.zeros(rule.n, dtype=torch.bool, device=logp.device)
    for gate in rule.gates & {"random", *(f"entropy_{primary}" for primary in rule.primaries)}:
        # logp stands for both models: the criterion looks at this one only
        held = fires(statistic(gate, logp, logp, proposed, noise.gate), rule.tau, rule.below)
        fired |= rule.has(gate) & held
    return proposed, fired


def log_softmax(logits: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Return log-probabilities over the whole vocabulary at each row's temperature: (n, vocab) -> the same, float32."""
    return torch.log_softmax(_tempered(logits, rule), dim=-1)


def _tempered(logits: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Return float32 logits over the temperature; no copy where both are so already."""
    logits = logits.float()
    return logits if rule.unit_temperature else logits / rule.temperature[:, None]


def _pick(rule: Rule, likeliest: Callable[[], torch.Tensor], drawn: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return (n,) tokens: `likeliest()` of the rows that are greedy, `drawn()` of the others; only what is needed."""
    if rule.greedy == {True}:
        return likeliest()
    return torch.where(rule.top_p == 0, likeliest(), drawn()) if True in rule.greedy else drawn()


def _argmax(logits: torch.Tensor, vocab_size: int | None) -> torch.Tensor:
    """Return the token of the largest logit, of equal ones the first: (n, padded vocabulary) -> (n,) int64."""
    return logits[:, :vocab_size].argmax(1)


def _argmax_target(
    base_logits: torch.Tensor, rl_logits: torch.Tensor, rule: Rule, vocab_size: int | None
) -> torch.Tensor:
    """Return the likeliest token of each target: two (n, padded vocabulary) -> (n,) int64.

    For gamma 0 it is the largest logit of RL, for gamma -1 of base, to the bit. Else r + gamma (r - b) is in the order
    of pi_extra's probabilities, without any normaliser; but for gamma above 0 a token that base cannot give keeps its
    RL weight (see `extrapolate`), which on this scale is r and gamma times the difference of the two normalisers.
    """
    if not rule.extrapolates:
        return _argmax(rl_logits, vocab_size)
    b, r = (logits[:, :vocab_size].float() for logits in (base_logits, rl_logits))
    gamma, temperature = rule.gamma[:, None], rule.temperature[:, None]
    zb, zr = ((x / temperature).logsumexp(1, keepdim=True) for x in (b, r))
    alone, impossible = b == float("-inf"), r == float("-inf")
    beyond = torch.where(gamma > 0, gamma * (zr - zb) * temperature, -torch.inf)
    moved = torch.where(alone, r + beyond, r + gamma * (r - b))
    moved = torch.where(impossible | (gamma == 0), r, moved)
    return torch.where(gamma == -1, b, moved).argmax(1)


def _mass(logp: torch.Tensor) -> torch.Tensor:
    """Return probabilities as `draw_by_mass` takes them, in place of the log-probabilities."""
    return logp.exp_().mul_(2.0**UNIT)


def extrapolate(lb: torch.Tensor, lr: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """Return log pi_extra, proportional to exp(lr + gamma (lr - lb)): two (n, vocab) and (n,) -> (n, vocab).

    One family: gamma -1 is base, -1 to 0 lies between the two, 0 is RL, and above it lies what is beyond RL. Both ends
    are met to the bit. A token that one model cannot give has no ratio: between the two it has no weight, as in any
    product of powers, and beyond RL, where it would have all, it keeps its RL weight.
    """
    weight = gamma[:, None]
    extra = torch.log_softmax(lr + _moved(weight * (lr - lb)), dim=-1)
    return torch.where(weight == 0, lr, torch.where(weight == -1, lb, extra))


def _moved(step: torch.Tensor) -> torch.Tensor:
    """Return gamma times the log-ratio, in place, with what `extrapolate` says where a model cannot give the token."""
    return step.nan_to_num_(nan=0.0, posinf=0.0, neginf=-torch.inf)


def _primary(lb: torch.Tensor, lr: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Return the log-probabilities that propose, row by row; no copy when all rows have the same primary."""
    if len(rule.primaries) == 1:
        return lr if "rl" in rule.primaries else lb
    return torch.where(rule.proposes_rl[:, None], lr, lb)
