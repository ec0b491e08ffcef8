"""Group results into settings (one decoding on one benchmark, with any seeds), and label these.

settings = settings_of(read_results(["runs/demo"]))  # the seeds of a setting become one
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from rlvr_dir import stats
from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.config.pair import model_name
from rlvr_dir.errors import UserError, unknown
from rlvr_dir.results.matching import MATCH_FIELDS, describe, distinguishing, engine_facts, match_key, sampling_words
from rlvr_dir.results.result import EvalResult

# reports/coverage.md, for six families and for some five of unequal sizes
FEW_COVER = "97 to 100 % (shares of tokens 91 to 97 %)"


@dataclass(frozen=True, slots=True, eq=False)
class Setting(stats.Scores):
    """Hold the results of one decoding on one benchmark, which differ only in their seed.

    `values` is (problems, samples of all seeds), 0 and 1. `label` is the decoding's, with what distinguishes the
    setting from the others.
    """

    results: tuple[EvalResult, ...] = ()

    @classmethod
    def of(cls, results: Sequence[EvalResult]) -> "Setting":
        """Make a setting from the results of its seeds."""
        results = sorted(results, key=lambda result: result.sampling.seed)
        first, seeds = results[0], tuple(result.sampling.seed for result in results)
        values = np.hstack([result.correct for result in results])
        families = stats.common_families(result.families for result in results)
        return cls(first.label, first.task, first.problem_ids, values, seeds, families, results=tuple(results))

    @property
    def first(self) -> EvalResult:
        """Return the result of the first seed, for what all of them have in common."""
        return self.results[0]

    @property
    def decoding(self) -> Decoding:
        """Return its decoding."""
        return self.first.decoding

    @property
    def benchmark(self) -> str:
        """Return the benchmark, marked if only some of its problems were used."""
        return self.first.benchmark

    @property
    def partial(self) -> str | None:
        """Return the part that one of its seeds is; None if all are whole."""
        return next((result.partial for result in self.results if result.partial), None)

    @property
    def replacement_ratio(self) -> float:
        """Return flagged tokens divided by generated tokens, as a mean over problems."""
        return self.share("n_replaced").value or 0.0

    @property
    def changed_ratio(self) -> float:
        """Return changed tokens divided by generated tokens, as a mean over problems."""
        return self.share("n_changed").value or 0.0

    def share(self, name: str) -> stats.Estimate:
        """Return the share of tokens of one kind, `n_replaced` or `n_changed`: its mean over problems, with its
        interval."""
        hits, tokens = (self.all(table).sum(axis=1) for table in (name, "n_tokens"))
        return stats.problem_share(hits, tokens, self.families)

    def pooled(self, name: str) -> float:
        """Return the share of tokens of one kind, over all responses together, so that each token counts once."""
        return float(self.all(name).sum() / max(1, self.all("n_tokens").sum()))

    def all(self, name: str) -> np.ndarray:
        """Return a table of all seeds, side by side: (problems, samples of all seeds)."""
        return np.hstack([getattr(result, name) for result in self.results])

    def pass_at(self, k: int) -> float:
        """Return Pass@k from the samples of all seeds."""
        return stats.pass_at_k(self.values, k)


def settings_of(
    results: Iterable[EvalResult], across: Collection[str] = (), usual: Sampling | None = None
) -> list[Setting]:
    """Combine the seeds of each setting, and label settings by what distinguishes them.

    Labels do not contain the sampling if it is that of `usual`.

    If a seed has several results, the one with the most samples is used, because the others are its first samples.
    Results with other weights at the same place, or with another chat template or engine argument, are not seeds of the
    same setting. With `problems` in `across`, results are reduced to the problems that all results of their benchmark
    have.

    Raises:
        UserError: `across` has a name that is not in `MATCH_FIELDS`, or results of a benchmark share no problem.
    """
    if wrong := [name for name in across if name not in MATCH_FIELDS]:
        raise unknown("across", wrong[0], MATCH_FIELDS)
    results = _on_common_problems([*results]) if "problems" in across else results
    groups: dict[Any, list[EvalResult]] = defaultdict(list)
    for result in results:
        prompts = None if "problems" in across else result.provenance.get("shared")  # of other problems they are others
        key = result.task, result.decoding, result.name, result.pair, *sorted(result.read_weights.items()), prompts
        groups[*key, *match_key(result).values(), *engine_facts(result).items()].append(result)
    settings = [Setting.of(seeds) for group in groups.values() for seeds in _by_seed(group)]
    return [replace(setting, label=label) for setting, label in zip(settings, _labels(settings, usual), strict=True)]


def _on_common_problems(results: Sequence[EvalResult]) -> list[EvalResult]:
    common: dict[str, list[str]] = {}
    for result in results:
        available = set(result.problem_ids)
        common[result.task] = [key for key in common.get(result.task, result.problem_ids) if key in available]
        if not common[result.task]:
            raise UserError(
                f": results of {result.task} have no problem in common, so none can be paired",
                argument="across",
                value="problems",
            )
    return [result.only(common[result.task]) for result in results]


def _by_seed(group: Sequence[EvalResult]) -> list[list[EvalResult]]:
    """Group results by seed; if two share a seed but not the settings of their record, group by these instead."""
    by: dict[Any, dict[int, EvalResult]] = defaultdict(dict)
    for result in sorted(group, key=lambda result: -result.samples):
        by[result.provenance.get("settings")].setdefault(result.sampling.seed, result)
    records = [[*by_number.values()] for by_number in by.values()]
    every = [result for record in records for result in record]
    return [every] if len({result.sampling.seed for result in every}) == len(every) else records


def few_families(settings: Iterable[stats.Scores]) -> list[str]:
    """Describe how reliable intervals are if a benchmark has fewer than ten families."""
    few = {
        scores.benchmark: None
        for scores in settings
        if scores.families and stats.count_families(scores.families) < stats.FEW
    }
    return few_families_words([*few])


def few_families_words(few: Sequence[str]) -> list[str]:
    """Describe how reliable intervals are for these benchmarks, which have fewer than ten families; empty without
    any."""
    return [f"Few families: {', '.join(few)}. There 95 % intervals cover {FEW_COVER} in simulation."] if few else []


def taken_alone(settings: Iterable[stats.Scores]) -> list[str]:
    """Describe which problems a table treats as independent although they have families."""
    tasks = dict.fromkeys(scores.task for scores in settings if scores.families)
    sentence = f"Here problems count as independent, although they have families: {', '.join(tasks)}."
    return [sentence] if tasks else []


def cut_unlike(pairs: Iterable[tuple[Setting, Setting]]) -> list[str]:
    """Return a sentence per benchmark on which the context ended responses of one side of a pair earlier than the
    other's.

    Responses that end at the same length are treated alike, and `max_tokens` is the same for both.
    """
    cut_words: dict[str, dict[str, str]] = defaultdict(dict)
    for pair in pairs:
        cut = [_cut_by_context(setting) for setting in pair]
        lengths = {_context(result) for setting in pair for result in setting.results}
        if not any(cut) or (len(lengths) == 1 and None not in lengths):
            continue
        for setting, number in zip(pair, cut, strict=True):
            context = f", context {length:,}" if (length := _context(setting.first)) else ""
            cut_words[setting.benchmark][setting.label] = (
                f"{setting.label} {number:,} of {setting.values.size:,}{context}"
            )
    return [
        f"Not the same room: responses on {benchmark} that the context ended before max_tokens: "
        f"{'; '.join(words.values())}. One --max-model-len for both makes them alike."
        for benchmark, words in cut_words.items()
    ]


def _cut_by_context(setting: Setting) -> int:
    return int((setting.all("truncated") & (setting.all("n_tokens") < setting.first.sampling.max_tokens)).sum())


def _context(result: EvalResult) -> int | None:
    """Return how many tokens a prompt and its response could have together; None if it is not known."""
    length = result.engine.get("max_model_len")
    return length if isinstance(length, int) else None


def _labels(settings: Sequence[Setting], usual: Sampling | None) -> list[str]:
    """Return each decoding's label with, in brackets, what differs among the settings of its benchmark."""
    usual_words = _usual_words(settings) if usual is None else sampling_words(usual)
    models = _models([setting.first for setting in settings])
    descriptions, labels = [describe(setting.first, models) for setting in settings], []
    for setting, description in zip(settings, descriptions, strict=True):
        names = distinguishing(
            [
                words_of_other
                for other, words_of_other in zip(settings, descriptions, strict=True)
                if other.task == setting.task
            ]
        )
        words = [
            description[name] for name in names if description.get(name) and description[name] != usual_words.get(name)
        ]
        said_too = ", ".join([*words, *filter(None, [setting.partial])])
        labels.append(setting.decoding.label() + f" ({said_too})" * bool(said_too))
    often = Counter((setting.task, label) for setting, label in zip(settings, labels, strict=True))
    return [
        label + f" #{setting.first.config_hash[:6]}" * (often[setting.task, label] > 1)
        for setting, label in zip(settings, labels, strict=True)
    ]


def _usual_words(settings: Sequence[Setting]) -> dict[str, str]:
    """Return how most settings are sampled, in words; empty if no sampling is that of more than half of them."""
    often = Counter(setting.first.sampling.replace(seed=0, samples=1) for setting in settings)
    sampling, count = often.most_common(1)[0] if often else (None, 0)
    if sampling is None or 2 * count <= len(settings):
        return {}
    return {**sampling_words(sampling), "max_tokens": f"{sampling.max_tokens} tokens"}


def _models(results: Sequence[EvalResult]) -> dict[tuple[str, str], str]:
    """Return short names of pairs of checkpoints: RL's own name, or as much of its path as is needed to distinguish
    them."""
    pairs = {result.pair for result in results}
    paths = {rl: PurePath(rl).parts for _, rl in pairs}
    own = {rl: model_name(rl) for rl in paths}
    parts = next((n for n in range(1, 9) if len({path[-n:] for path in paths.values()}) == len(paths)), 9)
    distinct = len(set(own.values())) == len(own)
    names = {pair: own[pair[1]] if distinct else "/".join(paths[pair[1]][-parts:]) for pair in pairs}
    return {
        (base, rl): name + (f" of {base}" if sum(other == rl for _, other in pairs) > 1 else "")
        for (base, rl), name in names.items()
    }
