"""Compare kinds of pairs, such as true pairs and placebos, by what replacing gains in them.

    pair_statistics({"RL": read_results(["runs/stage/seed"]), "random reward": read_results(["runs/stage/random"])})

A kind has several pairs, and every pair has the same decodings. Intervals are for other problems and other pairs
(`stats.difference_over_runs`), because a single pair may be a special case.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from examples.stage.pairs import CELLS, COIN, INTERACTION, STEPS, Kind
from rlvr_dir.analysis.result import Analysis, columns
from rlvr_dir.config.pair import model_name
from rlvr_dir.errors import UserError
from rlvr_dir.results import read_results
from rlvr_dir.results.matching import match_key
from rlvr_dir.results.result import EvalResult
from rlvr_dir.stats import Estimate, RunScores, corrected, count_families

GAIN = "replace"  # the gain itself, not a step
FIRST = "delta_logp"  # the others are compared with it
DIVERGENCES, ENTROPIES = ("kl", "kl_rl_base", "kl_base_rl"), ("entropy_base", "entropy_rl")

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
