"""Compare kinds of pairs by what replacing gains in them: true ones with placebos, pairs with fillers with pairs without.

    pair_statistics({"RL": read_results(["runs/stage/seed"]), "random reward": read_results(["runs/stage/random"])})

A kind has several pairs, and every pair the same decodings. Intervals are for other problems and other pairs
(`stats.difference_over_runs`): what one pair shows may be its own.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.analysis.result import Analysis, columns
from harness.errors import UserError
from harness.evals.result import EvalResult
from harness.stats import Comparison, Estimate, RunScores, family

FIRST = "delta_logp"  # which the others are compared with
Point = tuple[float, float, np.ndarray]  # shares of flagged and of changed tokens; right answers, (problems, samples)


@dataclass(slots=True)
class OnePair:
    """The results of one pair: of base, of RL, and of each criterion from the fewest flagged tokens to the most."""

    levels: dict[str, np.ndarray] = field(default_factory=dict)
    criteria: dict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))

    def add(self, result: EvalResult) -> None:
        """Add a result; extrapolations and ways on RL are left out."""
        how = result.decoding
        if how.mode in ("base", "rl"):
            self.levels[how.mode] = result.correct
        elif how.mode == "replace" and how.primary == "base":
            points = self.criteria[how.criterion]
            points.append((result.replacement_ratio, result.changed_ratio, result.correct))
            points.sort(key=lambda point: point[0])

    def at_changed(self, criterion: str, share: float) -> np.ndarray | None:
        """Return a criterion's right answers at a share of changed tokens, on straight lines between its points.

        The lines begin at base, where nothing changes. None beyond the last point.
        """
        known = [(0.0, self.levels["base"]), *((changed, right) for _, changed, right in self.criteria[criterion])]
        known.sort(key=lambda point: point[0])
        for (before, low), (after, high) in itertools.pairwise(known):
            if before <= share <= after and after > before:
                weight = (share - before) / (after - before)
                return (1 - weight) * low + weight * high
        return None


Kind = dict[str, OnePair]  # by what identifies the base, and so the pair


def pair_statistics(kinds: Mapping[str, Sequence[EvalResult]], changed: Sequence[float] = (0.01,)) -> Analysis:
    """Compare what each criterion gains, in each kind of pairs and between kinds.

    Tables: `kinds` (base, RL and their difference); `rules` (the gain of each criterion over base at each of its
    points); `against` (the gain of delta log p less another criterion's, at equally many flagged tokens, and at equal
    shares of *changed* ones, interpolated); `placebos` (the gain in the first kind less that in a kind of pairs with
    the same bases). Each table's p values are corrected by Holm's method.

    Args:
        kinds: results by kind, all of one benchmark and of the same problems.
        changed: shares of changed tokens at which criteria are compared.

    Raises:
        UserError: a kind has fewer than two pairs, or its pairs differ in their decodings; there are several
            benchmarks or sets of problems.
    """
    asked = {(each.task, each.problem_ids, each.samples) for results in kinds.values() for each in results}
    if len(asked) != 1:
        told = ", ".join(sorted({f"{task} ({len(ids)} problems, {n} samples)" for task, ids, n in asked}))
        raise UserError(f"results: they are of {told or 'nothing'}; accepted: one benchmark and the same problems")
    ((task, problems, samples),) = asked
    found = {name: _read(name, results) for name, results in kinds.items()}

    def scores(kind: str, label: str, runs: Mapping[str, np.ndarray]) -> RunScores:
        mean = np.array([right.mean() for right in runs.values()])
        return RunScores(f"{kind}: {label}", task, tuple(runs), mean, runs=dict(runs))

    levels = {
        (kind, mode): scores(kind, mode, {base: pair.levels[mode] for base, pair in pairs.items()})
        for kind, pairs in found.items()
        for mode in ("base", "rl")
    }
    points = {
        (kind, criterion, i): scores(
            kind, f"{criterion} {i}", {base: pair.criteria[criterion][i][2] for base, pair in pairs.items()}
        )
        for kind, pairs in found.items()
        for criterion, count in _counts(pairs).items()
        for i in range(count)
    }
    matched = {
        (kind, criterion, share): scores(kind, f"{criterion} at {share:g}", runs)
        for kind, pairs in found.items()
        for criterion in _counts(pairs)
        for share in changed
        if (runs := _matched(pairs, criterion, share))
    }
    first = next(iter(found))
    rivals = [key for key in points if key[1] != FIRST and (key[0], FIRST, key[2]) in points]
    rivals = [key for key in rivals if _counts(found[key[0]])[key[1]] == _counts(found[key[0]])[FIRST]]
    equals = [key for key in matched if key[1] != FIRST and (key[0], FIRST, key[2]) in matched]
    same = [kind for kind in found if kind != first and found[kind].keys() <= found[first].keys()]
    tells = [key for key in points if key[0] in same and (first, *key[1:]) in points]
    gains = family((levels[kind, "rl"], levels[kind, "base"]) for kind in found)
    over_base = family((points[key], levels[key[0], "base"]) for key in points)
    against = family(
        [(points[kind, FIRST, i], points[kind, criterion, i]) for kind, criterion, i in rivals]
        + [(matched[kind, FIRST, share], matched[kind, criterion, share]) for kind, criterion, share in equals]
    )
    placebos = family((points[first, *key[1:]], points[key]) for key in tells)

    def shares(key: tuple[str, str, int]) -> dict[str, float]:
        each = [pair.criteria[key[1]][key[2]] for pair in found[key[0]].values()]
        return {name: float(np.mean([point[i] for point in each])) for i, name in enumerate(("flagged", "changed"))}

    return Analysis(
        kind="pairs",
        facts={
            "task": task,
            "problems": len(problems),
            "samples": samples,
            "pairs": {kind: len(pairs) for kind, pairs in found.items()},
            "first": first,
        },
        tables={
            "kinds": tuple(
                {
                    "kind": kind,
                    "pairs": len(pairs),
                    **columns(
                        **{
                            mode: Estimate(levels[kind, mode].avg, *levels[kind, mode].interval)
                            for mode in ("base", "rl")
                        }
                    ),
                    **_difference("gain", row),
                }
                for (kind, pairs), row in zip(found.items(), gains, strict=True)
            ),
            "rules": tuple(
                {"kind": key[0], "criterion": key[1], "point": key[2], **shares(key), **_difference("gain", row)}
                for key, row in zip(points, over_base, strict=True)
            ),
            "against": tuple(
                {"kind": kind, "criterion": criterion, "at": at, **where, **_difference("difference", row)}
                for (kind, criterion, at, where), row in zip(
                    [(*key[:2], "flagged", shares(key)) for key in rivals]
                    + [(*key[:2], "changed", {"flagged": None, "changed": key[2]}) for key in equals],
                    against,
                    strict=True,
                )
            ),
            "placebos": tuple(
                {"kind": key[0], "criterion": key[1], "point": key[2], **shares(key), **_difference("difference", row)}
                for key, row in zip(tells, placebos, strict=True)
            ),
        },
    )


def _read(name: str, results: Iterable[EvalResult]) -> Kind:
    """Put the results of a kind's pairs together.

    Raises:
        UserError: see `pair_statistics`.
    """
    several: dict[tuple[str, str], OnePair] = defaultdict(OnePair)
    bases: dict[tuple[str, str], str] = {}
    for result in results:
        several[result.pair].add(result)
        bases[result.pair] = result.weights.get("base", result.pair[0])
    if len({*bases.values()}) < len(several):  # several RL models of one base: each pair stands for itself
        bases = {pair: "/".join(pair) for pair in bases}
    pairs = {bases[pair]: one for pair, one in several.items()}
    if len(pairs) < 2:
        raise UserError(f"{name}: {len(pairs)} pair; accepted: two or more, of which intervals over pairs can tell")
    for (base, rl), one in several.items():
        if one.levels.keys() != {"base", "rl"} or _shape(one) != _shape(next(iter(pairs.values()))):
            raise UserError(
                f"{name}: {rl} (on {base}) was not decoded as the other pairs of its kind; finish its sweep"
            )
    return dict(sorted(pairs.items()))


def _shape(one: OnePair) -> dict[str, int]:
    return {criterion: len(points) for criterion, points in one.criteria.items()}


def _counts(pairs: Kind) -> dict[str, int]:
    """Return how many points each criterion has."""
    return _shape(next(iter(pairs.values())))


def _matched(pairs: Kind, criterion: str, share: float) -> dict[str, np.ndarray]:
    """Return a criterion's right answers at a share of changed tokens by pair; nothing where one pair has none."""
    runs = {base: pair.at_changed(criterion, share) for base, pair in pairs.items()}
    known = {base: right for base, right in runs.items() if right is not None}
    return known if len(known) == len(runs) else {}


def _difference(name: str, row: Comparison[Any]) -> dict[str, Any]:
    """Return a comparison as columns."""
    found = row.difference
    return {**columns(**{name: Estimate(found.mean, found.low, found.high)}), "p": found.p, "holm_p": row.holm_p}
