"""Read the results of pairs of one kind: the levels of base and RL, each gate, and its controls.

kind = Kind("RL", read_results(["runs/stage/seed"]))
kind.step("delta_logp", 0, "token")  # what RL's token adds at the first gate of Δ log p, problem by problem
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from rlvr_dir.config import Decoding
from rlvr_dir.decode.trace import Trace
from rlvr_dir.errors import UserError
from rlvr_dir.policy.gates import Threshold
from rlvr_dir.results.from_records import record_of
from rlvr_dir.results.matching import conflicting_weights
from rlvr_dir.results.result import EvalResult
from rlvr_dir.stats import RunScores, common_families

# The decodings with the gate of a replacement, by who decides whether the flagged token is dropped, and who writes.
CELLS: dict[str, tuple[Literal["gate", "base", "rl"] | None, Literal["base", "rl"]]] = {
    "resample": (None, "base"), "base, base": ("base", "base"), "RL, base": ("rl", "base"), "RL, RL": ("rl", "rl"),
    "base, RL": ("base", "rl"), "gate, base": ("gate", "base"), "gate, RL": ("gate", "rl"),
}  # fmt: skip
COIN = "coin, base"  # a coin that drops as often as RL does; base writes
# Contrasts that each change one thing. The first five add up to replace - base.
STEPS = {
    "second draw": ("resample", "base"), "cut of base": ("base, base", "resample"),
    "decision": ("RL, base", "base, base"), "token": ("RL, RL", "RL, base"), "cut of RL": ("replace", "RL, RL"),
    "rate": (COIN, "base, base"), "choice": ("RL, base", COIN), "token first": ("base, RL", "base, base"),
    "decision last": ("RL, RL", "base, RL"), "decision over gate": ("RL, base", "gate, base"),
    "token where gate decides": ("gate, RL", "gate, base"), "decision and cut": ("RL, base", "resample"),
    "token and cut": ("replace", "RL, base"), "over RL": ("replace", "rl"),
}  # fmt: skip
PATH = tuple(STEPS)[:5]
INTERACTION = "interaction"  # token minus token first: the effect of RL's token if RL decides, but not if base decides
Point = tuple[float, float, np.ndarray]  # shares of flagged and of changed tokens; right answers, (problems, samples)


@dataclass(slots=True)
class OnePair:
    """Hold the results of one pair: of base, of RL, and of each criterion, beginning with the fewest flagged tokens."""

    levels: dict[str, np.ndarray] = field(default_factory=dict)
    criteria: dict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))
    base: EvalResult | None = None
    seen: dict[Decoding, str] = field(default_factory=dict)  # by their results' hashes
    gates: dict[str, list[tuple[float, Decoding]]] = field(default_factory=lambda: defaultdict(list))  # as `criteria`
    controls: dict[Decoding, np.ndarray] = field(default_factory=dict)  # those of all of `CELLS`
    coins: dict[Decoding, np.ndarray] = field(default_factory=dict)  # by the resample with the same gate
    traces: list[Trace] | None = None  # of base's own answers; None until `apart` reads them
    weights: dict[str, str] = field(default_factory=dict)  # by role, as far as known from results

    def add(self, result: EvalResult) -> None:
        """Add a result. Extrapolations, decodings on RL and duplicates from two sweeps of the pair are left out.

        Raises:
            UserError: There is another result of this decoding, or earlier ones have other weights.
        """
        how = result.decoding
        if roles := conflicting_weights(self.weights, result.read_weights):
            raise UserError(
                f"{result.pair[1]}: {result.label} was decoded by other weights of {' and '.join(roles)} than others "
                "of this pair",
                accepted="results of the same weights",
            )
        self.weights |= result.read_weights
        if self.seen.get(how) == result.config_hash:
            return
        if how in self.seen:
            raise UserError(f"{result.pair[1]}: {result.label} is given twice", accepted="one result of each decoding")
        self.seen[how] = result.config_hash
        if how.mode in ("base", "rl"):
            self.levels[how.mode] = result.correct
            self.base = result if how.mode == "base" else self.base
        elif how.mode == "replace" and how.primary == "base" and how.decider is None:
            points = self.criteria[how.criterion]
            points.append((result.replacement_ratio, result.changed_ratio, result.correct))
            points.sort(key=lambda point: point[0])
            self.gates[how.criterion].append((result.replacement_ratio, how))
            self.gates[how.criterion].sort(key=lambda gate: gate[0])
        elif isinstance(how.decider, float) and how.primary == "base" and how.mode == "resample":
            self.coins[how.cell(None, "base")] = result.correct
        elif how.primary == "base" and how.mode != "extrapolate":
            self.controls[how] = result.correct

    def control(self, criterion: str, i: int, name: str) -> np.ndarray | None:
        """Return the right answers of a point's control, by its name in `CELLS` or `COIN`; None if it was not decoded.

        A gate without a threshold, such as the coupling, has none.
        """
        how = self.gates[criterion][i][1]
        if not isinstance(how.gate, Threshold):
            return None
        if name == COIN:
            return self.coins.get(how.cell(None, "base"))
        return self.controls.get(how.cell(*CELLS[name]))

    def apart(self, criterion: str, i: int) -> float | None:
        """Return how much both models differ without base's token, where a point's gate flags base's own tokens.

        It is a mean total variation from the traces of base's answers; None if these are not available, or nothing is
        flagged.
        """
        gate = self.gates[criterion][i][1].gate
        if self.traces is None:
            record = record_of(self.base) if self.base else None
            rows = [row.load() for row in record.rows.values()] if record else []
            self.traces = [Trace(table) for row in rows if (table := row.trace) is not None]
        if not isinstance(gate, Threshold) or gate.statistic == "random" or not self.traces:
            return None
        tau, below = gate.threshold
        values = np.concatenate([trace.value(gate) for trace in self.traces])
        flagged = values < tau if below else values > tau
        others = np.concatenate([trace.fact("tv_other") for trace in self.traces])[flagged]
        return float(others.mean()) if others.size else None

    @property
    def points(self) -> list[tuple[str, int]]:
        """Return each criterion with the number of each of its points."""
        return [(criterion, i) for criterion, points in self.criteria.items() for i in range(len(points))]

    def at_changed(self, criterion: str, share: float) -> np.ndarray | None:
        """Return a criterion's right answers at a share of changed tokens, by linear interpolation between its points.

        The lines begin at base, where nothing changes. The result is None beyond the last point, and for a criterion
        with a single point: accuracy rises steeply at first, so one line from base would lie far below it.
        """
        if len(self.criteria[criterion]) < 2:
            return None
        known = [(0.0, self.levels["base"]), *((changed, right) for _, changed, right in self.criteria[criterion])]
        known.sort(key=lambda point: point[0])
        for (before, low), (after, high) in pairwise(known):
            if before <= share <= after and after > before:
                weight = (share - before) / (after - before)
                return (1 - weight) * low + weight * high
        return None

    def passed(self) -> "OnePair":
        """Return the same pair with one answer per problem: whether any sample is right, as in Pass@n of n samples."""
        levels = {mode: _any(right) for mode, right in self.levels.items()}
        criteria = {
            each: [(flagged, changed, _any(right)) for flagged, changed, right in points]
            for each, points in self.criteria.items()
        }
        return OnePair(levels, criteria, gates=self.gates)


def _any(right: np.ndarray) -> np.ndarray:
    return right.max(axis=1, keepdims=True)


class Kind:
    """Hold the pairs of a kind, by what identifies each one's base."""

    def __init__(self, name: str, results: Iterable[EvalResult], least: int = 2) -> None:
        """Combine the results of each pair; see `pair_statistics` for errors."""
        several: dict[tuple[str, str], OnePair] = defaultdict(OnePair)
        bases: dict[tuple[str, str], str] = {}
        families, every = [], [*results]
        for result in every:
            families.append(result.families)
            several[result.pair].add(result)
            bases[result.pair] = result.weights.get("base", result.pair[0])
        if len({*bases.values()}) < len(several):  # with several RL models of one base, each pair is separate
            bases = {pair: "/".join(pair) for pair in bases}
        self.name = name
        self.families = common_families(families)
        self.bases = {result.weights.get("base", result.pair[0]) for result in every}
        self.pairs = {bases[pair]: several[pair] for pair in sorted(several, key=lambda pair: bases[pair])}
        if len(self.pairs) < least:
            raise UserError(
                f"{name} has {len(self.pairs)} pair, and intervals over pairs need several",
                accepted="two or more pairs",
            )
        self.points = next(iter(self.pairs.values())).points
        for (base, rl), one in several.items():
            if one.levels.keys() != {"base", "rl"} or {*one.points} != {*self.points}:
                raise UserError(
                    f"{name}: {rl} (on {base}) was not decoded as the other pairs of its kind; finish its sweep"
                )

    def passed(self) -> "Kind":
        """Return this kind with one answer per problem: whether any sample is right."""
        kind = copy(self)
        kind.pairs = {base: pair.passed() for base, pair in self.pairs.items()}
        return kind

    def once_for_each_of(self, first: "Kind") -> "Kind":
        """Return this kind with its only model beside each RL model of `first`, if all have the same base."""
        if len(self.pairs) > 1 or len(first.pairs) == 1 or not (self.bases == first.bases and len(self.bases) == 1):
            return self
        kind = copy(self)
        kind.pairs = dict.fromkeys(first.pairs, *self.pairs.values())
        return kind

    def level(self, mode: str) -> RunScores:
        """Return the scores of base or RL."""
        return self._scores(mode, {base: pair.levels[mode] for base, pair in self.pairs.items()})

    def point(self, criterion: str, i: int) -> RunScores:
        """Return the scores of the i-th point of a criterion."""
        return self._scores(
            f"{criterion} {i}", {base: pair.criteria[criterion][i][2] for base, pair in self.pairs.items()}
        )

    def control(self, criterion: str, i: int, name: str) -> RunScores | None:
        """Return the scores of the control of a point; None if a pair has none."""
        runs = {base: pair.control(criterion, i, name) for base, pair in self.pairs.items()}
        known = {base: right for base, right in runs.items() if right is not None}
        return self._scores(f"{name} of {criterion} {i}", known) if len(known) == len(runs) else None

    def way(self, criterion: str, i: int, name: str) -> RunScores | None:
        """Return the scores of base, of RL, of a point, or of its control of this name; None if there is none."""
        if name in ("base", "rl"):
            return self.level(name)
        return self.point(criterion, i) if name == "replace" else self.control(criterion, i, name)

    def step(self, criterion: str, i: int, name: str) -> RunScores | None:
        """Return a contrast of `STEPS`, or the interaction, as differences of answers; None if a side is missing."""
        if name == INTERACTION:
            sides = [self.step(criterion, i, each) for each in ("token", "token first")]
        else:
            sides = [self.way(criterion, i, each) for each in STEPS[name]]
        one, other = sides
        if one is None or other is None:
            return None
        return self._scores(
            f"{name} of {criterion} {i}",
            {str(base): x.astype(float) - other.runs[base] for base, x in one.runs.items()},
        )

    def at_changed(self, criterion: str, share: float) -> RunScores | None:
        """Return a criterion's scores at a share of changed tokens; None if a pair has none."""
        runs = {base: pair.at_changed(criterion, share) for base, pair in self.pairs.items()}
        known = {base: right for base, right in runs.items() if right is not None}
        return self._scores(f"{criterion} at {share:g}", known) if len(known) == len(runs) else None

    def shares(self, criterion: str, i: int) -> dict[str, float]:
        """Return the shares of flagged and of changed tokens of a point, as means over pairs."""
        each = [pair.criteria[criterion][i][:2] for pair in self.pairs.values()]
        flagged, changed = (sum(shares) / len(each) for shares in zip(*each, strict=True))
        return {"flagged": flagged, "changed": changed}

    def apart(self, criterion: str, i: int) -> float | None:
        """Return the mean of `OnePair.apart` over pairs; None if it is unknown for one."""
        known = [value for pair in self.pairs.values() if (value := pair.apart(criterion, i)) is not None]
        return sum(known) / len(known) if len(known) == len(self.pairs) else None

    def _scores(self, label: str, runs: Mapping[str, np.ndarray]) -> RunScores:
        means = np.array([right.mean() for right in runs.values()])
        return RunScores(f"{self.name}: {label}", "", tuple(runs), means, families=self.families, runs={**runs})
