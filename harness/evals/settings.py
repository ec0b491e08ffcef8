"""Settings: the results of one way of decoding one benchmark, which differ in nothing but their seed, and their labels.

settings = settings_of(read_results(["runs/demo"]))  # the seeds of a setting become one
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from harness import stats
from harness.errors import UserError, unknown
from harness.evals.foreign import LmEvalResult
from harness.evals.result import ALIKE, EvalResult
from harness.spec import Decoding, Sampling
from harness.spec.pair import model_name

_UNKNOWN = {"temperature": "T unknown", "top_p": "truncation unknown", "max_tokens": "most tokens unknown"}
ENGINE = ("backend", "vllm", "transformers", "torch", "dtype", "device")  # what labels can say of an engine


@dataclass(frozen=True, slots=True, eq=False)
class Setting(stats.Scores):
    """The results of one way of decoding one benchmark, which differ in nothing but their seed.

    `values` is (problems, samples of all seeds), 0 and 1; of a metric of lm-eval's (problems,), the mean of the seeds.
    `label` is the decoding's, with what else tells the setting from the others.
    """

    results: tuple[EvalResult, ...] = ()

    @classmethod
    def of(cls, results: Sequence[EvalResult]) -> "Setting":
        """Make a setting of the results of its seeds."""
        results = sorted(results, key=lambda result: result.sampling.seed)
        first, seeds = results[0], tuple(result.sampling.seed for result in results)
        values = np.hstack([result.correct for result in results])
        values = values.mean(axis=1) if isinstance(first, LmEvalResult) else values
        return cls(first.label, first.subject, first.problem_ids, values, seeds, tuple(results))

    @property
    def first(self) -> EvalResult:
        """Return the result of the first seed, which stands for all of them in what they share."""
        return self.results[0]

    @property
    def decoding(self) -> Decoding:
        """Return how it was decoded."""
        return self.first.decoding

    @property
    def benchmark(self) -> str:
        """Return the benchmark, marked where only some of its problems were asked."""
        return self.first.benchmark

    @property
    def partial(self) -> str | None:
        """Return of what one of its seeds is a part; None where all are whole."""
        return next((result.partial for result in self.results if result.partial), None)

    @property
    def replacement_ratio(self) -> float:
        """Return positions where the criterion held over generated tokens, summed over all responses."""
        return self.share("n_replaced").value

    @property
    def changed_ratio(self) -> float:
        """Return positions where another token was drawn than the proposed one over generated tokens."""
        return self.share("n_changed").value

    def share(self, counted: str) -> stats.Share:
        """Return the share of tokens of one kind, `n_replaced` or `n_changed`, with its interval over problems."""
        hits, tokens = (
            sum(getattr(result, name).sum(axis=1) for result in self.results) for name in (counted, "n_tokens")
        )
        return stats.token_share(hits, tokens)

    def pass_at(self, k: int) -> float:
        """Return Pass@k from the samples of all seeds."""
        return stats.pass_at_k(self.values, k)


def settings_of(
    results: Iterable[EvalResult], across: Collection[str] = (), usual: Sampling | None = None
) -> list[Setting]:
    """Put the seeds of each setting together, and label settings by what tells them apart.

    Labels do not say what is drawn as in `usual`.

    Of one seed the result with the most samples counts: the others are its first samples. Results of other weights
    at the same place, or of another chat template or engine argument, are no seeds of one setting. With `problems` in
    `across`, results are cut to the problems that all results of their benchmark have.

    Raises:
        UserError: `across` has a name that is not in `ALIKE`, or results of a benchmark have no problem in common.
    """
    if wrong := [name for name in across if name not in ALIKE]:
        raise unknown("across", wrong[0], ALIKE)
    found = [each for result in results for each in result.by_metric()]
    groups: dict[str, list[EvalResult]] = {}
    for result in _on_common_problems(found) if "problems" in across else found:
        told = [
            result.subject,
            result.decoding.model_dump(),
            result.name,
            result.pair,
            result.alike(),
            engine_of(result),
        ]
        groups.setdefault(json.dumps(told, sort_keys=True), []).append(result)
    problems = "problems" in across  # then prompts of other problems are compared, which `shared` knows
    lots = [lot for group in groups.values() for lot in _alike_but_seed(group, not problems)]
    settings = [Setting.of(mine) for lot in lots for mine in _by_seed(lot)]
    return [replace(setting, label=label) for setting, label in zip(settings, _labels(settings, usual), strict=True)]


def _on_common_problems(results: Sequence[EvalResult]) -> list[EvalResult]:
    common: dict[str, list[str]] = {}
    for result in results:
        there = set(result.problem_ids)
        common[result.task] = [key for key in common.get(result.task, result.problem_ids) if key in there]
    for task, problems in common.items():
        if not problems:
            raise UserError(f"across=problems: results of {task} have no problem in common, so none can be paired")
    return [result.only(common[result.task]) for result in results]


def _alike_but_seed(group: Sequence[EvalResult], shared: bool) -> list[list[EvalResult]]:
    """Part results that differ in more than their seed: in their weights or, with `shared`, in anything else.

    Older and imported results do not tell: where they are beside one kind only, they are taken for it.
    """
    by: dict[str, list[EvalResult]] = {}
    for result in group:
        told = [result.read_weights, result.provenance.get("shared") if shared else None] if result.weights else None
        by.setdefault(json.dumps(told, sort_keys=True), []).append(result)
    return list(by.values()) if len(by.keys() - {"null"}) > 1 else [list(group)]


def _by_seed(group: Sequence[EvalResult]) -> list[list[EvalResult]]:
    """Part results by seed; those that share one, but not the settings of their record, are settings of their own."""
    by: dict[Any, dict[int, EvalResult]] = {}
    for result in sorted(group, key=lambda result: -result.samples):
        by.setdefault(result.provenance.get("settings"), {}).setdefault(result.sampling.seed, result)
    seeds = [seed for mine in by.values() for seed in mine]
    if len(set(seeds)) < len(seeds):
        return [list(mine.values()) for mine in by.values()]
    return [[result for mine in by.values() for result in mine.values()]]


def cut_unlike(pairs: Iterable[tuple[Setting, Setting]]) -> list[str]:
    """Say, a sentence a benchmark, where the context ended responses of one side of a pair earlier than the other's.

    What is cut at the same length is cut alike, and `max_tokens` is the same for both.
    """
    found: dict[str, dict[str, str]] = {}
    for pair in pairs:
        cut = [sum(result.cut_by_context for result in one.results) for one in pair]
        lengths = {result.context for one in pair for result in one.results}
        if not any(cut) or (len(lengths) == 1 and None not in lengths):
            continue
        for one, number in zip(pair, cut, strict=True):
            context = f", context {one.first.context:,}" if one.first.context else ""
            words = f"{one.label} {number:,} of {one.values.size:,}{context}"
            found.setdefault(one.benchmark, {})[one.label] = words
    return [
        f"Not the same room: responses on {benchmark} that the context ended before max_tokens: "
        f"{'; '.join(said.values())}. One --max-model-len for both makes them alike."
        for benchmark, said in found.items()
    ]


def engine_of(result: EvalResult) -> dict[str, Any]:
    """Return what is known of the engine that decoded a result, by the names of `ENGINE`."""
    engine = result.provenance.get("engine")
    return {name: engine[name] for name in ENGINE if engine.get(name)} if isinstance(engine, dict) else {}


def _labels(settings: Sequence[Setting], usual: Sampling | None) -> list[str]:
    """Return each decoding's label with, in brackets, what differs among the settings of its benchmark."""
    said = {} if usual is None else _drawn(usual)
    models = _models([setting.first for setting in settings])
    told = [facets(setting.first, models) for setting in settings]
    by_task: dict[str, list[dict[str, str]]] = {}
    for setting, mine in zip(settings, told, strict=True):
        by_task.setdefault(setting.task, []).append(mine)
    names_of, labels = {task: telling(each) for task, each in by_task.items()}, []
    for setting, mine in zip(settings, told, strict=True):
        words = [mine[name] for name in names_of[setting.task] if mine.get(name) and mine[name] != said.get(name)]
        words += [setting.partial] if setting.partial else []
        labels.append(setting.decoding.label() + (f" ({', '.join(words)})" if words else ""))
    names = [(setting.task, label) for setting, label in zip(settings, labels, strict=True)]
    return [
        label + (f" #{setting.first.config_hash[:6]}" if names.count((setting.task, label)) > 1 else "")
        for setting, label in zip(settings, labels, strict=True)
    ]


def facets(result: EvalResult, models: Mapping[tuple[str, str], str] | None = None) -> dict[str, str]:
    """Return in words what can tell a result from others but its decoding; what it does not say is empty."""
    s, alike, graded = result.sampling, result.alike(), result.provenance.get("graded_with")
    shown = result.provenance.get("examples")
    versions = " ".join(map(str, (graded or {}).values())) if isinstance(graded, dict) else ""
    return {
        "model": result.name or (models or {}).get(result.pair, ""),
        "grader": str(result.provenance.get("grader") or ""),
        "versions": versions,
        "examples": "" if shown is None else f"{shown or 'no'} example{'' if shown == 1 else 's'}",
        "data": f"data {alike['data'][:6]}" if alike["data"] else "",
        "problems": result.limited or f"{len(result.problem_ids)} problems",
        **_drawn(s),
        "max_tokens": f"{s.max_tokens} tokens",
        **{name: words for name, words in _UNKNOWN.items() if name in result.lacks},
        **{name: f"{value}" if name == "backend" else f"{name} {value}" for name, value in engine_of(result).items()},
    }


def _drawn(sampling: Sampling) -> dict[str, str]:
    """Return in words how tokens are drawn."""
    if sampling.greedy:
        return {"temperature": "greedy", "top_p": ""}
    return {"temperature": f"T = {sampling.temperature:g}", "top_p": sampling.truncation.words}


def telling(told: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names of the facets in which some differ from others; of two graders not their versions too.

    Other examples are other data: which of both is said depends on whether the number of examples tells all apart.
    """
    names = dict.fromkeys(name for each in told for name in each)
    found = [name for name in names if len({each.get(name) for each in told}) > 1]
    both = {(each.get("examples"), each.get("data")) for each in told}
    alone = all(len(set(one)) == len(both) for one in zip(*both, strict=True))
    implied = {"versions" if "grader" in found else "", "data" if alone else "examples"}
    return [name for name in found if name not in implied]


def _models(results: Sequence[EvalResult]) -> dict[tuple[str, str], str]:
    """Return short names of pairs of checkpoints: RL's own name, or as much of its path as tells the paths apart."""
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
