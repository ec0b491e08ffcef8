"""What is decided under: the rule of every row, as one table, and the uniform numbers of one step.

Every row has its own rule, so one batch can serve every configuration of a sweep.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any

import torch

from harness.policy.criteria import BELOW, CRITERIA
from harness.policy.history import MOST_SPAN
from harness.policy.noise import GATE, PROPOSE, REDRAW, uniform

GATES = ("never", "always", *CRITERIA, "spike", "coupling")
COLUMNS = (
    "gate", "proposes_rl", "tau", "gamma", "temperature", "top_p", "below", "since", "until", "min_p_rl", "min_p",
    "typical_p", "span", "start", "renyi",
)  # fmt: skip
AT_ONCE = 32  # rows that are decided together where each takes much memory: a sorted policy with its sums in float64


@dataclass(frozen=True, slots=True)
class RuleRow:
    """Say how one response is decoded. `gate` is a criterion of a position, `spike`, or needs no threshold.

    `never` is the primary alone, `always` the target, and `coupling` the target too, at the least replacement
    (`couple`). `spike` holds where the cross entropy of base and RL is above tau times its mean over the `span`
    positions before (`Past`).
    """

    gate: str = "never"
    primary: str = "base"  # who proposes: "base" or "rl"
    tau: float = 0.0
    gamma: float = 0.0  # 0: the target is RL itself, -1: base
    temperature: float = 1.0
    top_p: float = 1.0  # 0: greedy
    below: bool | None = None  # whether the criterion holds below tau or above it; None: its own side (`BELOW`)
    since: int = 0  # the gate is shut before this absolute position, and from `until` on
    until: int | None = None
    min_p_rl: float = 0.0  # the target has no token below this share of RL's largest probability
    min_p: float = 0.0  # neither policy has a token below this share of its own largest probability
    typical_p: float = 1.0  # the mass of the locally typical tokens that either policy keeps
    span: int = 0  # positions that `spike` looks back at, none of them before `start`
    start: int = 0  # absolute position of the response's first token
    renyi: bool = False  # tell the primary's Renyi entropy in place of delta log p (`renyi_entropy`)

    def columns(self) -> tuple[float, ...]:
        """Return the row as numbers, in the order of COLUMNS.

        Raises ValueError for a gate or a primary that is not known, a `spike` without a span, or for min_p beside
        typical_p: no token need be kept by both.
        """
        if self.gate not in GATES:
            raise ValueError(f"gate={self.gate!r} is not known; accepted: {', '.join(GATES)}")
        if self.primary not in ("base", "rl"):
            raise ValueError(f"primary={self.primary!r} is not known; accepted: base, rl")
        if self.min_p > 0 and self.typical_p < 1:
            raise ValueError(f"min_p={self.min_p} and typical_p={self.typical_p} are given; accepted: one of them")
        if self.gate == "spike" and not 1 <= self.span <= MOST_SPAN:
            raise ValueError(f"span={self.span} is refused; accepted: 1 to {MOST_SPAN} positions")
        numbers = (self.tau, self.gamma, self.temperature, self.top_p)
        below = self.gate in BELOW if self.below is None else self.below
        window = (float(self.since), inf if self.until is None else float(self.until))
        gate, proposes_rl = float(GATES.index(self.gate)), float(self.primary == "rl")
        cuts = (self.min_p_rl, self.min_p, self.typical_p)
        last = (float(self.span), float(self.start), float(self.renyi))
        return (gate, proposes_rl, *numbers, float(below), *window, *cuts, *last)


class Rule:
    """The rules of n rows as one table, with what the host knows about them before any logits are seen.

    `columns` is (n, 15) float64 on the logits' device, in the order of COLUMNS: the gate as its index in GATES, whether
    RL proposes (0 or 1), tau, gamma, temperature, top-p, whether the criterion holds below tau (0 or 1), the positions
    between which it is asked, the least share of RL's largest probability, and of a policy's own, the typical mass,
    how far `spike` looks back and where the response starts, whether a Renyi entropy is told (0 or 1). The rest are
    plain Python values that may also hold for rows that are not among these n (`take` keeps them): `gates`,
    `primaries`, `unit_temperature`, `extrapolates`, `reaches_base` (a gamma of -1), `greedy`, `windows` (the gate is
    not asked everywhere), `guards` (a `min_p_rl` above 0), `min_ps` (a `min_p` above 0), `typical` (a `typical_p`
    below 1), `longest` (span), `renyis` (a `renyi`).
    """

    def __init__(self, rows: Sequence[RuleRow], device: torch.device | str = "cpu") -> None:
        """Make the table of these rows; raises ValueError for a gate or a primary that is not known."""
        table = [row.columns() for row in rows]
        self.columns = torch.tensor(table, dtype=torch.float64).reshape(len(table), len(COLUMNS)).to(device)
        self._know(rows)

    def _know(self, rows: Sequence[RuleRow]) -> None:
        self._rows: Sequence[RuleRow] | None = rows
        self._parts: dict[str, list[tuple[torch.Tensor, int, Rule]]] = {}
        self.gates = frozenset(row.gate for row in rows)
        self.primaries = frozenset(row.primary for row in rows)
        self.unit_temperature = all(row.temperature == 1 for row in rows)
        self.extrapolates = any(row.gamma for row in rows)
        self.reaches_base = any(row.gamma == -1 for row in rows)
        self.greedy = frozenset(row.top_p == 0 for row in rows)
        self.windows = any(row.since > 0 or row.until is not None for row in rows)
        self.guards = any(row.min_p_rl > 0 for row in rows)
        self.min_ps = any(row.min_p > 0 for row in rows)
        self.typical = any(row.typical_p < 1 for row in rows)
        self.renyis = any(row.renyi for row in rows)
        self.longest = max((row.span for row in rows if row.gate == "spike"), default=0)

    @classmethod
    def known(cls, columns: torch.Tensor, rows: Sequence[RuleRow]) -> "Rule":
        """Return the rules of a table that lies on a device already: (n, 15) float64, made of these n rows."""
        made = cls.__new__(cls)
        made.columns = columns
        made._know(rows)
        return made

    def take(self, index: torch.Tensor) -> "Rule":
        """Return the rules of rows `index` (m,) int64, in that order; a row may be taken several times."""
        taken = copy(self)
        taken.columns = self.columns.index_select(0, index)
        taken._rows, taken._parts = None, {}  # the host does not know which
        return taken

    def parts(self, kind: str) -> list[tuple[torch.Tensor, int, "Rule"]]:
        """Return the rows that torch decides by themselves, `AT_ONCE` at a time: made once, so that no step copies.

        On a GPU every part has `AT_ONCE` rows, the last one by repeating its last row: a sum's last bits depend on how
        many rows are summed at once, and so would a token on who else is in the batch.

        Args:
            kind: of `KINDS`.

        Returns:
            For each part the rows' indices, (m,) int64; how many of them are meant, the first ones; their rules. Of
            rules that were taken, which rows these are is not known, and the parts are all rows.
        """
        if kind not in self._parts:
            rows, device = self._rows, self.columns.device
            wanted = [i for i in range(self.n) if rows is None or KINDS[kind](rows[i])]
            made = self._parts[kind] = []
            for start in range(0, len(wanted), AT_ONCE):
                part = wanted[start : start + AT_ONCE]
                meant = len(part)
                if device.type != "cpu":
                    part += part[-1:] * (AT_ONCE - meant)
                at = to_device(part, torch.long, device)
                some = None if rows is None else Rule.known(self.columns[at], [rows[i] for i in part])
                made.append((at, meant, some or self.take(at)))
        return self._parts[kind]

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

    @property
    def min_p_rl(self) -> torch.Tensor:
        """(n,) float32."""
        return self.columns[:, 9].float()

    @property
    def min_p(self) -> torch.Tensor:
        """(n,) float32."""
        return self.columns[:, 10].float()

    @property
    def typical_p(self) -> torch.Tensor:
        """(n,) float64."""
        return self.columns[:, 11]

    @property
    def renyi(self) -> torch.Tensor:
        """(n,) bool: which rows tell a Renyi entropy in place of delta log p."""
        return self.columns[:, 14] > 0

    @property
    def narrows(self) -> torch.Tensor:
        """(n,) bool: which rows' policies are narrowed by `min_p` or `typical_p`."""
        return (self.columns[:, 10] > 0) | (self.columns[:, 11] < 1)

    @property
    def span(self) -> torch.Tensor:
        """(n,) int64."""
        return self.columns[:, 12].long()

    @property
    def start(self) -> torch.Tensor:
        """(n,) int64."""
        return self.columns[:, 13].long()

    def open_at(self, positions: torch.Tensor) -> torch.Tensor:
        """Tell which rows' gates are open where each stands, (n,) int64 absolute positions: -> (n,) bool."""
        return (self.columns[:, 7] <= positions) & (positions < self.columns[:, 8])

    def has(self, gate: str) -> torch.Tensor:
        """Tell which rows have this gate: (n,) bool."""
        return self.gate == GATES.index(gate)


# Rows that the kernels leave to torch. Those whose policies are narrowed it decides altogether.
KINDS: dict[str, Callable[[RuleRow], bool]] = {
    "narrowed": lambda row: row.min_p > 0 or row.typical_p < 1,
    "js": lambda row: row.gate == "js" or row.min_p_rl > 0,
    "coupling": lambda row: row.gate == "coupling",
    "renyi": lambda row: row.renyi,
}


def to_device(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Make a tensor of plain values; to a GPU it goes through pinned memory, so that nothing waits for the copy."""
    made = torch.tensor(values, dtype=dtype)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made.to(device)


@dataclass(frozen=True, slots=True)
class Noise:
    """The uniform numbers of one step, each (n,) float64 in [0, 1), and where it stands.

    Only rules whose gates are not open everywhere, and `spike`, look at `positions`, (n,) int64 and absolute.
    """

    propose: torch.Tensor
    redraw: torch.Tensor
    gate: torch.Tensor
    positions: torch.Tensor | None = None

    @classmethod
    def at(cls, keys: torch.Tensor, positions: torch.Tensor) -> "Noise":
        """Return the noise of responses `keys` at absolute `positions`, both (n,) int64."""
        return cls(*(uniform(keys, positions, stream) for stream in (PROPOSE, REDRAW, GATE)), positions=positions)

    def take(self, index: torch.Tensor) -> "Noise":
        """Return the noise of rows `index` (m,) int64."""
        positions = None if self.positions is None else self.positions[index]
        return Noise(self.propose[index], self.redraw[index], self.gate[index], positions)

    def opens(self, rule: Rule) -> torch.Tensor:
        """Tell which rows' gates are open: (n,) bool.

        Raises ValueError where a rule has a window and nobody said where the step stands.
        """
        if self.positions is None:
            raise ValueError("positions are missing: a rule's gate is not open everywhere; accepted: Noise.at")
        return rule.open_at(self.positions)
