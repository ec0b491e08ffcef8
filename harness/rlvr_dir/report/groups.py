"""Group the results that can be in one table, and name their pair."""

from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_dir.config.pair import model_name
from rlvr_dir.report.paper import PAIRS, pair_called
from rlvr_dir.results.answer import in_order
from rlvr_dir.results.matching import comparable_groups, distinguish
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.settings import Setting, settings_of


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Hold the results of one pair that can be compared. Its settings combine their seeds."""

    pair: str  # as in titles
    slug: str  # the beginning of its files' names, if a report has several groups
    base: str
    rl: str
    results: tuple[EvalResult, ...]
    settings: tuple[Setting, ...]

    @property
    def benchmarks(self) -> list[str]:
        """Return the benchmarks in order, marked if only some problems were used; there is a column for each."""
        return list(dict.fromkeys(setting.benchmark for setting in self.settings))

    @property
    def tasks(self) -> list[str]:
        """Return the names of the benchmarks in order."""
        return list(dict.fromkeys(setting.task for setting in self.settings))


def grouped(results: Sequence[EvalResult]) -> list[Group]:
    """Group results by pair, weights and what must match. The same result given twice counts once."""
    once = {(result.config_hash, result.name, result.pair): result for result in results}
    results_of_groups, groups = comparable_groups([*once.values()]), []
    for members in results_of_groups:
        base, rl = members[0].pair
        words = distinguish(members, [other for other in results_of_groups if other[0].pair == (base, rl)])
        names = {result.name for result in members}
        called = (names.pop() if len(names) == 1 else "") or pair_title(rl)
        title = f"{called} ({words})" if words else called
        groups.append(Group(title, "", base, rl, tuple(members), tuple(in_order(settings_of(members)))))
    return groups


def pair_title(rl: str) -> str:
    """Return the paper's name of a pair, or that of its RL checkpoint. A name that the user gave has priority."""
    if (name := pair_called(rl)) is not None:
        return f"{PAIRS[name]} ({rl.rpartition('/')[2]})"
    return model_name(rl)
