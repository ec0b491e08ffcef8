"""Compare kinds of pairs, such as true pairs and placebos, by what replacing gains in them.

    pair_statistics({"RL": read_results(["runs/stage/seed"]), "random reward": read_results(["runs/stage/random"])})

A kind has several pairs, and every pair has the same decodings. Intervals are for other problems and other pairs
(`stats.difference_over_runs`), because a single pair may be a special case.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlvr_dir.analysis.result import Analysis, columns
from rlvr_dir.config import Decoding
from rlvr_dir.config.pair import model_name
from rlvr_dir.decode.trace import Trace
from rlvr_dir.errors import UserError
from rlvr_dir.policy.gates import Threshold
from rlvr_dir.results import read_results
from rlvr_dir.results.from_records import record_of
from rlvr_dir.results.matching import conflicting_weights, match_key
from rlvr_dir.results.result import EvalResult
from rlvr_dir.stats import Estimate, RunScores, common_families, corrected, count_families

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
GAIN = "replace"  # the gain itself, not a step
FIRST = "delta_logp"  # the others are compared with it
DIVERGENCES, ENTROPIES = ("kl", "kl_rl_base", "kl_base_rl"), ("entropy_base", "entropy_rl")
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

        The lines begin at base, where nothing changes. The result is None beyond the last point.
        """
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


Asked = tuple[dict[str, Any], RunScores, RunScores | None]  # a row's description, and the two sides to compare


def pair_statistics(
    results: Mapping[str, Sequence[EvalResult]], changed: Sequence[float] = (0.01,), *, one_pair: bool = False
) -> Analysis:
    """Compare what each criterion gains, in each kind of pairs and between kinds.

    Tables: `kinds` (base, RL and their difference); `rules` (the gain of each criterion over base at each of its
    points); both again in Pass@n of all n samples, `kinds_pass` and `rules_pass`; `against` (the gain of delta log p
    minus another criterion's: point by point, where `first` is the share that delta log p flags, and at equal shares of
    *changed* tokens, interpolated); `divergences` (the gain of each divergence minus that of each entropy, point by
    point); `controls` (each `step` of a point, see `STEPS`; for the token, how far both models are `apart` where they
    write); `cells` (the accuracy of base, of RL, and of each decoding at a point, pair by pair);
    `placebos` (the gain, and each `step`, in the first kind minus that in a kind of pairs with the same bases, point by
    point for criteria that have as many in both); `problems` (how many answers to each problem were right, by pair and
    decoding). The p values of a table and kind, and of a step, are corrected by Holm's method.

    Args:
        results: By kind, all on one benchmark and the same problems.
        changed: Shares of changed tokens at which criteria are compared.
        one_pair: Whether a kind may have a single pair. Its intervals are then over problems alone.

    Raises:
        UserError: A kind has fewer than two pairs without `one_pair`, or its pairs differ in their decodings; results
            differ in what must match (benchmark, problems, samples, seed, sampling, grader; within a pair also
            weights), or one is repeated.
    """
    every = [each for mine in results.values() for each in mine]
    if unlike := _unlike(every):
        raise UserError(
            f"The results differ in {unlike}", accepted="results that differ in their pair and decoding alone"
        )
    task, problems, samples = every[0].task, every[0].problem_ids, every[0].samples
    kinds = [Kind(name, mine, least=1 if one_pair else 2) for name, mine in results.items()]
    pairs = {kind.name: len(kind.pairs) for kind in kinds}
    passed = [kind.passed() for kind in kinds]
    return Analysis(
        kind="pairs",
        context={
            "task": task,
            "problems": len(problems),
            "families": count_families(kinds[0].families),
            "samples": samples,
            "pairs": pairs,
            "first": kinds[0].name,
        },
        tables={
            "kinds": _compared("gain", _learned(kinds)),
            "rules": _compared("gain", _gained(kinds)),
            "kinds_pass": _compared("gain", _learned(passed)),
            "rules_pass": _compared("gain", _gained(passed)),
            "against": _compared("difference", [each for kind in kinds for each in _rivals(kind, changed)]),
            "divergences": _compared("difference", [each for kind in kinds for each in _divergences(kind)]),
            "controls": _compared("difference", [each for kind in kinds for each in _over_controls(kind)]),
            "cells": tuple(row for kind in kinds for row in _cells(kind)),
            "placebos": _compared("difference", [each for kind in kinds[1:] for each in _beside(kinds[0], kind)]),
            "problems": tuple(row for kind in kinds for row in _problems(kind)),
        },
    )


def nearest_of(target: Path, places: Sequence[Path], skip: int) -> Path:
    """Return the place whose RL checkpoint's accuracy is closest to that of the RL checkpoint in `target`.

    Args:
        target: Results of one RL checkpoint.
        places: Results of others on the same problems.
        skip: How many problems, from the first, are left out.
    """

    def accuracy(place: Path) -> float:
        (result,) = [each for each in read_results([str(place)]) if each.decoding.mode == "rl"]
        return float(result.correct[skip:].mean())

    wanted = accuracy(target)
    return min(places, key=lambda place: abs(accuracy(place) - wanted))


def _unlike(results: Sequence[EvalResult]) -> str:
    """Return the first property that must match but differs between results; empty if there is none."""
    told = [
        {"benchmark": each.task, "samples": each.samples, "seed": each.sampling.seed, **match_key(each)}
        for each in results
    ]
    return next((name for name in told[0] if len({each[name] for each in told}) > 1), "")


def _learned(kinds: Sequence[Kind]) -> list[Asked]:
    """Compare RL with base in each kind."""
    return [
        ({"kind": kind.name, "pairs": len(kind.pairs), **_levels(kind)}, kind.level("rl"), kind.level("base"))
        for kind in kinds
    ]


def _gained(kinds: Sequence[Kind]) -> list[Asked]:
    """Compare each point of each criterion with base in each kind."""
    return [(_about(kind, *each), kind.point(*each), kind.level("base")) for kind in kinds for each in kind.points]


def _levels(kind: Kind) -> dict[str, float | None]:
    both = {mode: kind.level(mode) for mode in ("base", "rl")}
    return columns(**{mode: Estimate(scores.avg, *scores.interval) for mode, scores in both.items()})


def _about(kind: Kind, criterion: str, i: int) -> dict[str, Any]:
    return {"kind": kind.name, "criterion": criterion, "point": i, **kind.shares(criterion, i)}


def _rivals(kind: Kind, changed: Sequence[float]) -> list[Asked]:
    """Compare delta log p with each criterion: point by point, if both have as many, and at shares of changed
    tokens."""
    counts = Counter(criterion for criterion, _ in kind.points)
    rivals = [criterion for criterion in counts if criterion != FIRST]
    found: list[Asked] = [
        (
            {**_about(kind, criterion, i), "at": "flagged", "first": kind.shares(FIRST, i)["flagged"]},
            kind.point(FIRST, i),
            kind.point(criterion, i),
        )
        for criterion in rivals
        if counts[criterion] == counts[FIRST]
        for i in range(counts[FIRST])
    ]
    for share in changed:
        about = {"kind": kind.name, "point": None, "flagged": None, "changed": share, "at": "changed", "first": share}
        if FIRST in counts and (first := kind.at_changed(FIRST, share)):
            found += [({**about, "criterion": each}, first, kind.at_changed(each, share)) for each in rivals]
    return found


def _divergences(kind: Kind) -> list[Asked]:
    """Compare each divergence with each entropy, point by point, if both have as many points."""
    counts = Counter(criterion for criterion, _ in kind.points)
    return [
        ({**_about(kind, one, i), "minus": other}, kind.point(one, i), kind.point(other, i))
        for one, other in product(DIVERGENCES, ENTROPIES)
        if counts[one] == counts[other]
        for i in range(counts[one])
    ]


def _over_controls(kind: Kind) -> list[Asked]:
    """Divide the gain of each point by the contrasts of `STEPS` and their interaction."""
    rows: list[Asked] = []
    for name in (*STEPS, INTERACTION):
        for each in kind.points:
            about = {**_about(kind, *each), "step": name} | ({"apart": kind.apart(*each)} if name == "token" else {})
            if name == INTERACTION:
                sides = [kind.step(*each, part) for part in ("token", "token first")]
            else:
                sides = [kind.way(*each, side) for side in STEPS[name]]
            if sides[0] is not None:
                rows.append((about, sides[0], sides[1]))
    return rows


def _cells(kind: Kind) -> list[dict[str, Any]]:
    """List the accuracy of each decoding at each point that has a control, pair by pair."""
    rows = []
    for criterion, i in kind.points:
        for key, pair in kind.pairs.items():
            known = {name: pair.control(criterion, i, name) for name in (*CELLS, COIN)}
            if all(right is None for right in known.values()):
                continue
            right = {**pair.levels, "replace": pair.criteria[criterion][i][2], **known}
            means = {name: None if x is None else float(x.mean()) for name, x in right.items()}
            about = {"kind": kind.name, "criterion": criterion, "point": i, "pair": model_name(key)}
            rows.append({**about, "flagged": pair.criteria[criterion][i][0], **means})
    return rows


def _problems(kind: Kind) -> list[dict[str, Any]]:
    """Count the right answers to each problem, in the order of the problems, by pair and decoding."""
    rows = []
    for key, pair in kind.pairs.items():
        about = {"kind": kind.name, "pair": model_name(key)}
        for mode, right in pair.levels.items():
            rows.append({**about, "criterion": "", "point": None, "decoding": mode, "right": _counts(right)})
        for criterion, i in kind.points:
            ways = {"replace": pair.criteria[criterion][i][2]}
            ways |= {name: x for name in (*CELLS, COIN) if (x := pair.control(criterion, i, name)) is not None}
            at = {**about, "criterion": criterion, "point": i}
            rows += [{**at, "decoding": name, "right": _counts(right)} for name, right in ways.items()]
    return rows


def _counts(right: np.ndarray) -> str:
    return " ".join(str(int(each)) for each in right.sum(axis=1))


def _beside(first: Kind, kind: Kind) -> list[Asked]:
    """Compare the first kind's points with those of a kind with the same bases, for criteria with as many points."""
    kind = kind.once_for_each_of(first)
    if not kind.pairs.keys() <= first.pairs.keys():
        return []
    counts, others = (Counter(criterion for criterion, _ in one.points) for one in (first, kind))
    both = [each for each in kind.points if counts[each[0]] == others[each[0]]]
    rows: list[Asked] = [
        ({**_about(first, *each), "kind": kind.name, "step": GAIN}, first.point(*each), kind.point(*each))
        for each in both
    ]
    for name in STEPS:
        for each in both:
            sides = first.step(*each, name), kind.step(*each, name)
            if sides[0] is not None:
                rows.append(({**_about(first, *each), "kind": kind.name, "step": name}, sides[0], sides[1]))
    return rows


def _column(about: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the kind and, for controls and placebos, the step of a row."""
    return about["kind"], about.get("step")


def _compared(name: str, asked: Sequence[Asked]) -> tuple[dict[str, Any], ...]:
    """Compare, and return the rows with the results. Unknown ones are left out.

    A kind of pairs is one set for Holm's method, and so is a step in it: a column of a table.
    """
    rows = []
    for column in dict.fromkeys(_column(about) for about, *_ in asked):
        known = [(about, one, other) for about, one, other in asked if _column(about) == column and other is not None]
        for (about, *_), row in zip(known, corrected((one, other) for _, one, other in known), strict=True):
            found = row.difference
            estimate = columns(**{name: Estimate(found.mean, found.low, found.high)})
            rows.append({**about, **estimate, "p": found.p, "holm_p": row.holm_p})
    return tuple(rows)
