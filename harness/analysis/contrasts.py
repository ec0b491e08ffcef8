"""Which results to set against each other: RL against base, each way of decoding against RL and against its control."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from harness import stats
from harness.evals.result import EvalResult

Kind = Literal["trained", "against rl", "against control"]


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """`result` minus `reference` on the same problems; `holm_p` is corrected over all contrasts made together."""

    kind: Kind
    result: EvalResult
    reference: EvalResult
    difference: stats.PairedDifference
    holm_p: float


def contrasts(groups: Sequence[Sequence[EvalResult]]) -> list[Contrast]:
    """All contrasts within each group (one pair, one way of drawing); what has no counterpart is left out, and so is
    what a result with more samples holds.

    Holm's correction runs over all of them: they are one table.
    """
    found: list[tuple[Kind, EvalResult, EvalResult]] = []
    for group in groups:
        for result in group:
            if any(_holds(other, result) for other in group):
                continue
            mode = result.decoding.mode
            if mode == "rl":
                found += [("trained", result, one) for one in _like(group, result, "base")]
            elif mode != "base":
                found += [("against rl", result, one) for one in _like(group, result, "rl")]
            if mode == "extrapolate":
                control = [one for one in group if one.decoding == result.decoding.control()]
                found += [("against control", result, one) for one in _nearest(control, result)]
    differences = [result.minus(reference) for _, result, reference in found]
    corrected = stats.holm([one.p for one in differences]) if differences else ()
    return [
        Contrast(kind, result, reference, difference, float(p))
        for (kind, result, reference), difference, p in zip(found, differences, corrected, strict=True)
    ]


def _holds(other: EvalResult, result: EvalResult) -> bool:
    """Whether `result` is the first samples of `other`: counted twice it would weigh twice."""

    def key(one: EvalResult) -> tuple[Any, ...]:
        return one.task, one.problem_ids, one.decoding, one.sampling.replace(samples=1)

    return other.samples > result.samples and key(other) == key(result)


def _like(group: Sequence[EvalResult], result: EvalResult, mode: str) -> list[EvalResult]:
    return _nearest([one for one in group if one.decoding.mode == mode], result)


def _nearest(candidates: Sequence[EvalResult], result: EvalResult) -> list[EvalResult]:
    """The one candidate on the same problems that shares the seed, else the first such; none or one."""
    same = [one for one in candidates if (one.task, one.problem_ids) == (result.task, result.problem_ids)]
    same.sort(key=lambda one: (one.sampling.seed != result.sampling.seed, one.samples != result.samples))
    return same[:1]


@dataclass(frozen=True, slots=True)
class Pooled:
    """A mean difference over several settings and benchmarks, its t interval over problems, and its sign-flip `p`."""

    mean: float
    low: float
    high: float
    p: float
    settings: int
    benchmarks: int


def pooled(rows: Sequence[Contrast]) -> Pooled | None:
    """The mean over all settings, each benchmark counting once: no setting is picked, so nothing is selected for.

    Within a benchmark the differences of a problem are averaged over settings first; the standard error is over
    problems, and benchmarks are independent.
    """
    means, errors, weighted = [], [], []
    tasks = list(dict.fromkeys(row.result.task for row in rows))
    for task in tasks:
        mine = [row for row in rows if row.result.task == task]
        ids = mine[0].result.problem_ids
        mine = [row for row in mine if row.result.problem_ids == ids]
        each = np.mean([row.result.correct.mean(1) - row.reference.correct.mean(1) for row in mine], axis=0)
        means.append(float(each.mean()))
        errors.append(stats.standard_error(each))
        weighted.append(each / len(ids))
    if not tasks:
        return None
    mean, error = stats.mean_over_benchmarks(list(zip(means, errors, strict=True)))
    one = np.concatenate(weighted)
    low, high = stats.t_interval(mean, error, one.size - len(tasks) + 1)
    return Pooled(mean, low, high, stats.sign_flip_p(one), len({row.result.decoding for row in rows}), len(tasks))
