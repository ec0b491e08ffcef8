"""Algorithm 1 for a batch: propose from the primary, ask the criterion, redraw from the target where it holds.

Every row has its own rule, so one batch can serve every configuration of a sweep.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import torch

from harness.policy.criteria import CRITERIA, delta_logp, fires, statistic
from harness.policy.noise import GATE, PROPOSE, REDRAW, uniform
from harness.policy.nucleus import draw
from harness.policy.trace import trace

GATES = ("never", "always", *CRITERIA)


@dataclass(frozen=True, slots=True)
class RuleRow:
    """How one response is decoded. `gate` is a criterion, or `never` (the primary alone), or `always` (the target)."""

    gate: str = "never"
    primary: str = "base"  # who proposes: "base" or "rl"
    tau: float = 0.0
    gamma: float = 0.0  # 0: the target is RL itself
    temperature: float = 1.0
    top_p: float = 1.0


class Rule:
    """The rules of n rows as tensors, with what can be known about the batch before any logits are seen."""

    def __init__(self, rows: Sequence[RuleRow], device: torch.device | str = "cpu") -> None:
        """Raises ValueError for a gate or a primary that is not known."""
        for row in rows:
            if row.gate not in GATES:
                raise ValueError(f"gate={row.gate!r} is not known; accepted: {', '.join(GATES)}")
            if row.primary not in ("base", "rl"):
                raise ValueError(f"primary={row.primary!r} is not known; accepted: base, rl")

        def column(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)

        self.n = len(rows)
        self.tau = column([row.tau for row in rows])
        self.gamma = column([row.gamma for row in rows])
        self.temperature = column([row.temperature for row in rows])
        self.top_p = torch.tensor([row.top_p for row in rows], dtype=torch.float64, device=device)
        self.proposes_rl = torch.tensor([row.primary == "rl" for row in rows], device=device)
        self.primaries = frozenset(row.primary for row in rows)
        self.unit_temperature = all(row.temperature == 1 for row in rows)
        self.extrapolates = any(row.gamma for row in rows)
        self.rows_of_gate = {
            gate: torch.tensor([i for i, row in enumerate(rows) if row.gate == gate], device=device)
            for gate in sorted({row.gate for row in rows})
        }

    def take(self, index: torch.Tensor) -> "Rule":
        """The rules of rows `index` (m,) int64, in that order; a row may be taken several times."""
        taken = copy(self)
        taken.n = len(index)
        for name in ("tau", "gamma", "temperature", "top_p", "proposes_rl"):
            setattr(taken, name, getattr(self, name)[index])
        taken.rows_of_gate = {
            gate: found
            for gate, rows in self.rows_of_gate.items()
            if len(found := torch.isin(index, rows).nonzero().squeeze(1))
        }
        return taken


@dataclass(frozen=True, slots=True)
class Noise:
    """The uniform numbers of one step, each (n,) float64 in [0, 1)."""

    propose: torch.Tensor
    redraw: torch.Tensor
    gate: torch.Tensor

    @classmethod
    def at(cls, keys: torch.Tensor, positions: torch.Tensor) -> "Noise":
        """The noise of responses `keys` at absolute `positions`, both (n,) int64."""
        return cls(*(uniform(keys, positions, stream) for stream in (PROPOSE, REDRAW, GATE)))


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided at one position of each row; all (n,)."""

    token: torch.Tensor  # int64, the token to emit
    proposed: torch.Tensor  # int64, the primary's draw
    replaced: torch.Tensor  # bool, the criterion held and the token was redrawn
    delta_logp: torch.Tensor  # float32, of the proposed token, in nats
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
    """One step of Algorithm 1 for n rows.

    Args:
        base_logits, rl_logits: (n, padded vocabulary), any float type.
        rule: n rules.
        noise: n uniform numbers for each stream.
        vocab_size: real tokens; logits beyond are padding and never drawn.
        dense: redraw every row and select (no device-to-host wait), or only the rows where the gate fired (less
            work). Default: dense anywhere but on the CPU.
        proposed: (n,) int64, what `propose` gave for these very rows; by default it is drawn here.
        traced: (m,) int64, the rows whose facts are wanted; top: with so many of each model's likeliest tokens.

    Returns:
        Decision, tensors of n rows (`trace`: m rows) on the logits' device.
    """
    lb = log_softmax(base_logits[:, :vocab_size], rule)
    lr = log_softmax(rl_logits[:, :vocab_size], rule)
    if proposed is None:
        proposed = draw(_primary(lb, lr, rule), rule.top_p, noise.propose)
    delta = delta_logp(lb, lr, proposed)

    replaced = torch.zeros(rule.n, dtype=torch.bool, device=lb.device)
    for gate, rows in rule.rows_of_gate.items():
        if gate == "always":
            replaced[rows] = True
        elif gate == "delta_logp":
            replaced[rows] = fires(gate, delta[rows], rule.tau[rows])
        elif gate != "never":
            value = statistic(gate, lb[rows], lr[rows], proposed[rows], noise.gate[rows])
            replaced[rows] = fires(gate, value, rule.tau[rows])

    token = proposed
    if rule.rows_of_gate.keys() != {"never"}:
        if dense is None:
            dense = lb.device.type != "cpu"
        rows = torch.arange(rule.n, device=lb.device) if dense else replaced.nonzero().squeeze(1)
        if len(rows):
            target = extrapolate(lb[rows], lr[rows], rule.gamma[rows]) if rule.extrapolates else lr[rows]
            redrawn = torch.empty_like(proposed)
            redrawn[rows] = draw(target, rule.top_p[rows], noise.redraw[rows])
            token = torch.where(replaced, redrawn, proposed)
    facts = None if traced is None else trace(lb[traced], lr[traced], proposed[traced], top)
    return Decision(token=token, proposed=proposed, replaced=replaced, delta_logp=delta, trace=facts)


def propose(
    logits: torch.Tensor, rule: Rule, noise: Noise, *, vocab_size: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `decide` proposes, from the primary's logits alone, and where it is already known to be redrawn.

    For drafting: the primary's next tokens do not wait for the other model. All rows have the same primary.

    Args:
        logits: (n, padded vocabulary), of the primary.
        rule, noise, vocab_size: as for `decide`.

    Returns:
        proposed (n,) int64; fires (n,) bool, where a criterion that needs only the primary (its entropy, or none:
        `random`) holds. A criterion that looks at both models is not known yet and says False.

    Raises:
        ValueError: the rows have several primaries.
    """
    if len(rule.primaries) != 1:
        raise ValueError("the rows have several primaries; accepted: one, for all of them")
    logp = log_softmax(logits[:, :vocab_size], rule)
    proposed = draw(logp, rule.top_p, noise.propose)
    fired = torch.zeros(rule.n, dtype=torch.bool, device=logp.device)
    for gate in ("random", *(f"entropy_{primary}" for primary in rule.primaries)):
        if gate in rule.rows_of_gate:
            rows = rule.rows_of_gate[gate]
            own = logp[rows]  # stands for both models: the criterion looks at this one only
            fired[rows] = fires(gate, statistic(gate, own, own, proposed[rows], noise.gate[rows]), rule.tau[rows])
    return proposed, fired


def log_softmax(logits: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Log-probabilities over the whole vocabulary at each row's temperature, float32: (n, vocab) -> (n, vocab)."""
    logits = logits.float()
    return torch.log_softmax(logits if rule.unit_temperature else logits / rule.temperature[:, None], dim=-1)


def extrapolate(lb: torch.Tensor, lr: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """log pi_extra, proportional to exp(lr + gamma (lr - lb)): (n, vocab), (n, vocab), (n,) -> (n, vocab).

    gamma 0 is RL to the bit. A token that either model gives probability 0 has no ratio to extrapolate and keeps its
    RL weight; so -inf never meets -inf.
    """
    weight = gamma[:, None]
    ratio = lr - lb
    moved = torch.where(ratio.isfinite(), lr + weight * ratio, lr)
    return torch.where(weight == 0, lr, torch.log_softmax(moved, dim=-1))


def _primary(lb: torch.Tensor, lr: torch.Tensor, rule: Rule) -> torch.Tensor:
    """The log-probabilities that propose, row by row; no copy when all rows have the same primary."""
    if len(rule.primaries) == 1:
        return lr if "rl" in rule.primaries else lb
    return torch.where(rule.proposes_rl[:, None], lr, lb)
