"""Which results may stand in one table: those of one pair that are alike; and what the pair is called."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.evals.result import EvalResult
from harness.evals.settings import Setting, facets, settings_of, telling
from harness.report.paper import PAIRS, pair_called
from harness.spec.pair import model_name


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The results of one pair that are alike: what may be compared. Its settings have their seeds together."""

    pair: str  # as titles have it
    slug: str  # what the names of its files begin with, where a report has several
    base: str
    rl: str
    results: tuple[EvalResult, ...]
    settings: tuple[Setting, ...]

    @property
    def benchmarks(self) -> list[str]:
        """Benchmarks in order, marked where only some problems were asked: as many as there are columns."""
        return list(dict.fromkeys(setting.benchmark for setting in self.settings))

    @property
    def tasks(self) -> list[str]:
        """Benchmarks in order, by their names alone."""
        return list(dict.fromkeys(setting.task for setting in self.settings))


def grouped(results: Sequence[EvalResult]) -> list[Group]:
    """Group results by pair, weights and likeness; the same result given twice counts once."""
    once = {(result.config_hash, result.name, result.pair): result for result in results}
    kinds = _by_weights(list(once.values()))
    found = comparable_groups(list(once.values()), lambda result: (result.pair, kinds[id(result)]))
    pairs = [mine[0].pair for mine in found]
    groups = []
    for mine in found:
        base, rl = mine[0].pair
        others = [lot for lot, pair in zip(found, pairs, strict=True) if pair == (base, rl)]
        told = f" ({words})" if (words := differing_settings(mine, others)) else ""
        names = {result.name for result in mine}
        called = (names.pop() if len(names) == 1 else "") or pair_title(rl)
        groups.append(Group(called + told, "", base, rl, tuple(mine), tuple(settings_of(mine))))
    return groups


def _by_weights(results: Sequence[EvalResult]) -> dict[int, int]:
    """Number the weights that lay at a pair's places, result by result (by `id`); what is not told is of the first."""
    kinds: dict[Any, list[dict[str, str]]] = {}
    numbers: dict[int, int] = {}
    for result in sorted(results, key=lambda one: -len(one.weights)):
        mine, known = result.weights.items(), kinds.setdefault(result.pair, [])
        fits = (i for i, one in enumerate(known) if all(one.get(role, name) == name for role, name in mine))
        numbers[id(result)] = at = next(fits, len(known))
        if at == len(known):
            known.append(result.weights)
    return numbers


def comparable_groups(results: Sequence[EvalResult], of: Callable[[EvalResult], Hashable]) -> list[list[EvalResult]]:
    """Part results into lots that are alike and share what `of` says, those with the most samples first in each.

    A lot has one set of problems of each benchmark. Where there are several, the largest sets are in the first lot.
    """
    results = sorted(results, key=lambda result: -result.samples)
    keys: dict[int, tuple[Any, ...]] = {}
    sets: dict[Any, list[Any]] = defaultdict(list)
    for result in results:
        alike = result.alike()
        problems = alike.pop("problems"), alike.pop("data")
        keys[id(result)] = key = (of(result), *alike.values())
        if problems not in sets[key, result.task]:
            sets[key, result.task].append(problems)
    found: dict[Any, list[EvalResult]] = defaultdict(list)
    for result in results:
        key, alike = keys[id(result)], result.alike()
        mine = sorted(sets[key, result.task], key=lambda problems: -len(problems[0]))
        found[key, mine.index((alike["problems"], alike["data"]))].append(result)
    return list(found.values())


def differing_settings(lot: Sequence[EvalResult], others: Sequence[Sequence[EvalResult]]) -> str:
    """Return in words what sets a lot apart from others of its pair: weights, sampling, grader, answers, problems."""
    names = ("grader", "versions", "temperature", "top_p", "max_tokens")
    every = [lot, *(one for one in others if one is not lot)]
    told = [_weights(one) | {name: facets(one[0])[name] for name in names} for one in every]
    found = telling(told)
    alike = words = [", ".join(each[name] for name in found if each.get(name)) for each in told]
    for more in (("problems",), ("problems", "examples"), ("problems", "examples", "data")):
        if len(every) == 1 or (words[0] and words[0] not in words[1:]):
            break
        words = [
            "; ".join(filter(None, [start, *_by_benchmark(one, more)])) for start, one in zip(alike, every, strict=True)
        ]
    return words[0]


def _by_benchmark(lot: Sequence[EvalResult], names: Sequence[str]) -> list[str]:
    """Return some facets of each benchmark of a lot in words."""
    told = {result.task: facets(result) for result in lot}
    return [f"{task}: {', '.join(each[name] for name in names if each[name])}" for task, each in told.items()]


def _weights(lot: Sequence[EvalResult]) -> dict[str, str]:
    """Return in words which weights of each model a lot has, as far as told."""
    told = max((result.weights for result in lot), key=len)
    return {role: f"{role} {name.replace('weights:', 'weights ')}" for role, name in told.items()}


def pair_title(rl: str) -> str:
    """Return the paper's name of a pair, or that of its RL checkpoint; a name that the user gave goes before both."""
    if (name := pair_called(rl)) is not None:
        return f"{PAIRS[name]} ({rl.rpartition('/')[2]})"
    return model_name(rl)
