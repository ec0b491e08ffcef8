"""Which results may stand in one table: those of one pair that are alike; and what the pair is called."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.evals.result import EvalResult
from harness.evals.settings import Setting, facets, settings_of, telling
from harness.report import paper
from harness.report.known import name_of
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
    """Group results by pair and likeness; the same result given twice counts once."""
    once = {(result.config_hash, result.name, result.pair): result for result in results}
    found = lots(list(once.values()), lambda result: result.pair)
    pairs = [mine[0].pair for mine in found]
    groups = []
    for mine in found:
        base, rl = mine[0].pair
        others = [lot for lot, pair in zip(found, pairs, strict=True) if pair == (base, rl)]
        told = f" ({words})" if (words := set_apart(mine, others)) else ""
        names = {result.name for result in mine}
        called = (names.pop() if len(names) == 1 else "") or pair_title(rl)
        groups.append(Group(called + told, "", base, rl, tuple(mine), tuple(settings_of(mine))))
    return groups


def lots(results: Sequence[EvalResult], of: Callable[[EvalResult], Hashable]) -> list[list[EvalResult]]:
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


def set_apart(lot: Sequence[EvalResult], others: Sequence[Sequence[EvalResult]]) -> str:
    """Return in words what sets a lot apart from others of its pair: sampling, grader, answers, or its problems."""
    names = ("grader", "versions", "golds", "temperature", "top_p", "max_tokens")
    mine, *rest = [{name: facets(one[0])[name] for name in names} for one in (lot, *others)]
    words = [mine[name] for name in telling([mine, *rest]) if mine[name]]
    if not words and len(others) > 1:
        words = list(dict.fromkeys(f"{result.task}: {facets(result)['problems']}" for result in lot))
    return ", ".join(words)


def pair_title(rl: str) -> str:
    """Return the paper's name of a pair, or that of its RL checkpoint; a name that the user gave goes before both."""
    if (name := name_of(rl)) is not None:
        return f"{paper.PAIRS[name]} ({rl.rpartition('/')[2]})"
    return model_name(rl)
