"""Describe how each request is decoded, and compile the rules of a batch before any logits are computed.

The settings that sweeps vary (tau, gamma, top-p, temperature, window) are columns of numbers. Other settings are
objects that rows share. Rows with equal objects form a group, which is known on the host. A step loops over the groups
in the batch, so no value is read on the host, and a feature that no row uses costs nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rlvr_dir.policy import nucleus
from rlvr_dir.policy.gates import Gate, GateError, gate_of, sign_of
from rlvr_dir.policy.own import imported


@dataclass(frozen=True, slots=True)
class Rule:
    """Describe how one request is decoded. Without a gate the primary writes alone."""

    gate: Gate | None = None
    primary: str = "base"  # the model that proposes: "base" or "rl"
    gamma: float = 0.0  # of the writer: -1 is base, 0 is RL (replace), above 0 is beyond RL (extrapolate)
    top_p: float = 1.0  # of the nucleus; 1 if greedy
    greedy: bool = False  # whether the most likely token is taken; of equal ones the lowest id
    temperature: float = 1.0  # for both models and the criteria; 1 if greedy
    since: int = 0  # the window: tokens of the response that the gate can flag
    until: float = inf
    # Decides whether a flagged token is dropped, so that the writer cannot write it. "gate": always. "base", "rl":
    # unless that model samples the same token. A number: a coin drops this share. None: the writer samples once and may
    # write the same token again.
    decider: str | float | None = None
    trace: int | None = None  # whether to return the trace, and with how many of each model's most likely tokens

    def plain(self) -> dict[str, Any]:
        """Return the rule as plain values, which can be sent to other processes."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"gate": self.gate and self.gate.plain()}

    @classmethod
    def of_plain(cls, fields: Mapping[str, Any]) -> "Rule":
        """Undo `plain`. Raises KeyError or ValueError if `fields` is not a rule."""
        return cls(**{**fields, "gate": fields["gate"] and _gate(fields["gate"])})


def _gate(fields: Mapping[str, Any]) -> Gate:
    if "source" not in fields:
        return gate_of(fields)
    criterion = fields["criterion"]
    if (own := imported(criterion, fields["source"])) is None:
        raise GateError(
            "was not imported when this engine started",
            argument="criterion",
            value=criterion,
            hint="Start the engine again with this criterion",
        )
    return own.model_validate({name: value for name, value in fields.items() if name not in ("criterion", "source")})


COLUMNS = (
    "temperature", "gamma", "top_p", "since", "until", "tau", "below", "sign", "rl_primary", "draws_target", "greedy",
    "rate",
)  # fmt: skip


def _columns(rule: Rule) -> tuple[float, ...]:
    """Return a rule's numbers, in the order of COLUMNS."""
    tau, below = rule.gate.threshold if rule.gate else (inf, False)
    numbers = rule.temperature, rule.gamma, rule.top_p, rule.since, rule.until, tau
    target = rule.gate is not None and not rule.gate.redraws  # otherwise the gate defines what to draw from
    rate = rule.decider if isinstance(rule.decider, float) else 1.0
    return (*numbers, below, sign_of(rule.gate), rule.primary == "rl", target, rule.greedy, rate)


class Rows:
    """Select some of a batch's n rows, known on the host: all of them, none, or those at an index on the device."""

    def __init__(self, rows: Sequence[int], n: int, device: torch.device | str) -> None:
        self.rows, self.n, self.device = rows, n, device
        self.all = len(rows) == n and all(row == place for place, row in enumerate(rows))

    @cached_property
    def index(self) -> Tensor:
        """Return the rows' index, (rows,) int64, on the device."""
        return to_device(self.rows, torch.long, torch.device(self.device))

    def of(self, x: Tensor) -> Tensor:
        """Return these rows of a tensor."""
        return x if self.all else x.index_select(0, self.index)

    def write(self, x: Tensor, rows: Tensor) -> None:
        """Overwrite these rows of a tensor."""
        x.copy_(rows) if self.all else x.index_copy_(0, self.index, rows.to(x.dtype))

    def apply(self, function: Callable[..., Tensor], x: Tensor, *inputs: Tensor) -> Tensor:
        """Return x with `function` of these rows of the inputs put in place. It is not called if there are no rows."""
        if not self.rows:
            return x
        part = function(*(self.of(tensor) for tensor in inputs))
        return part if self.all else x.index_copy(0, self.index, part)

    def put(self, x: Tensor, other: Tensor) -> Tensor:
        """Return x with these rows of another tensor in their place."""
        return self.apply(lambda rows: rows, x, other)

    def among(self, part: "Rows") -> "Rows":
        """Return the rows that are also in `part`, by their places in it."""
        if self.all or part.all:
            return Rows(range(len(part.rows)), len(part.rows), self.device) if self.all else self
        own = set(self.rows)
        places = [place for place, row in enumerate(part.rows) if row in own]
        return Rows(places, len(part.rows), self.device)


def where(mask: Tensor) -> Rows:
    """Return the rows where (n,) bool holds. On a GPU return all rows, because selecting them would wait for it."""
    n, looked_at = len(mask), mask.device.type in nucleus.LOOKED_AT
    return Rows(mask.nonzero()[:, 0].tolist() if looked_at else range(n), n, mask.device)


Groups = Sequence[tuple[Gate, Rows]]
_ROWS = (
    "tempered", "rl_rows", "extrapolated", "without", "decided", "rl_decides", "coins", "greedy", "traced",
)  # fmt: skip


@dataclass(eq=False)
class Rules:
    """Hold the rules of n rows: their numbers as tensors, (n,) unless noted, and the rows that use each feature."""

    rules: Sequence[Rule]  # of these rows
    table: Tensor  # (n, COLUMNS) float64
    gates: Groups  # rows whose gates differ only in the threshold
    tempered: Rows
    rl_rows: Rows  # rows whose primary is RL
    extrapolated: Rows
    without: Rows  # rows with a decider, whose writer cannot write the proposed token
    decided: Rows  # rows in which a model's draw, or a coin, decides whether a flagged token is dropped
    rl_decides: Rows
    coins: Rows
    greedy: Rows
    traced: Rows
    temperature: Tensor = field(init=False)  # (n, 1) float32, to broadcast over vocabularies
    gamma: Tensor = field(init=False)  # (n, 1) float32
    normalised: Tensor = field(init=False)  # (n, 1) bool: false for greedy rows, which compare logits
    top_p: Tensor = field(init=False)  # float64; 1 for greedy rows, which have one token
    tau: Tensor = field(init=False)  # float32; infinite without a gate, so that nothing is flagged
    below: Tensor = field(init=False)  # bool: tokens are flagged below tau, not above it
    sign: Tensor = field(init=False)  # float32, -1 or 1: the sign of delta log p that the gate requires; 0: none
    draws_target: Tensor = field(init=False)  # bool: flagged tokens are resampled from the target
    rate: Tensor = field(init=False)  # float64: the share of flagged tokens that a coin drops
    rl_alone: Tensor = field(init=False)  # bool: RL writes by itself, and base is never used

    def __post_init__(self) -> None:
        self._parts: WeakKeyDictionary[Rows, Rules] = WeakKeyDictionary()
        column = dict(zip(COLUMNS, self.table.unbind(1), strict=True))
        for name in ("temperature", "gamma"):
            setattr(self, name, column[name][:, None].float())
        self.normalised = column["greedy"][:, None] == 0
        self.top_p, self.tau = column["top_p"].contiguous(), column["tau"].float()
        self.below, self.draws_target = column["below"] > 0, column["draws_target"] > 0
        self.sign, self.rate = column["sign"].float(), column["rate"]
        self.rl_alone = (column["rl_primary"] > 0) & column["tau"].isposinf()
        self._window = column["since"], column["until"]

    @classmethod
    def compile(cls, rules: Sequence[Rule], device: torch.device | str = "cpu") -> "Rules":
        """Make the tables of a batch with one copy of all columns to the device, and one copy of each group's rows."""
        device = torch.device(device)

        def rows(value: Callable[[Rule], Any]) -> Rows:
            return Rows([i for i, rule in enumerate(rules) if value(rule)], len(rules), device)

        by_gate: dict[Gate, list[int]] = {}
        for i, rule in enumerate(rules):
            if rule.gate is not None:
                by_gate.setdefault(rule.gate.without_threshold(), []).append(i)
        table = to_device([_columns(rule) for rule in rules], torch.float64, device)
        return cls(
            rules,
            table.reshape(len(rules), len(COLUMNS)),
            gates=[(gate, Rows(asking, len(rules), device)) for gate, asking in by_gate.items()],
            tempered=rows(lambda rule: rule.temperature != 1),
            rl_rows=rows(lambda rule: rule.primary == "rl"),
            extrapolated=rows(lambda rule: rule.gamma),
            without=rows(lambda rule: rule.decider is not None),
            decided=rows(lambda rule: rule.decider not in (None, "gate")),
            rl_decides=rows(lambda rule: rule.decider == "rl"),
            coins=rows(lambda rule: isinstance(rule.decider, float)),
            greedy=rows(lambda rule: rule.greedy),
            traced=rows(lambda rule: rule.trace is not None),
        )

    def of(self, rows: Rows) -> "Rules":
        """Return the rules of some rows, in their order; the same object if the rows are the same."""
        if rows.all:
            return self
        if rows not in self._parts:
            rules = [self.rules[i] for i in rows.rows]
            members = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
            gates = [(gate, own.among(rows)) for gate, own in self.gates]
            members["gates"] = [(gate, own) for gate, own in gates if own.rows]
            for name in _ROWS:
                members[name] = members[name].among(rows)
            self._parts[rows] = Rules(**{**members, "rules": rules, "table": rows.of(self.table)})
        return self._parts[rows]

    @property
    def n(self) -> int:
        """Return the number of rows."""
        return len(self.table)

    @property
    def top(self) -> int:
        """Return the largest number of most likely tokens per model that a traced row lists."""
        return max((self.rules[i].trace or 0 for i in self.traced.rows), default=0)

    def fires(self, value: Tensor, delta_logp: Tensor) -> Tensor:
        """Return where tokens are flagged, by the gates' values and delta log p of the proposals: (n,), (n,) -> (n,)
        bool."""
        beyond = torch.where(self.below, value < self.tau, value > self.tau)
        return beyond & ((self.sign == 0) | (self.sign * delta_logp > 0))

    def open(self, written: Tensor) -> Tensor:
        """Return where the window is open after this many tokens of each response: (n,) int64 -> (n,) bool."""
        since, until = self._window
        return (since <= written) & (written < until)


def to_device(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Make a tensor of plain values. Copies to a GPU use pinned memory, so that nothing waits for them."""
    tensor = torch.tensor(values, dtype=dtype)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
