"""Decide which results can be combined in a comparison, a setting or a table. No other code does.

    mismatches(result, reference)                # ["grader"]: they are not compared
    comparable_groups(results)                   # what can be in one table
    distinguishing(map(describe, results))       # the columns that a label has to contain

Two results match if they agree in `MATCH_FIELDS`, and do not have other weights for the same model. Results are
compared across decodings, seeds, numbers of samples and pairs.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rlvr_dir.config import Sampling
from rlvr_dir.config.engine import kwargs_words
from rlvr_dir.results.result import EvalResult

MATCH_FIELDS = ("grader", "data", "problems", "temperature", "top_p", "max_tokens")
ENGINE_FIELDS = ("backend", "vllm", "transformers", "torch", "dtype", "device")  # what labels can say of an engine
T = TypeVar("T")


def match_key(result: EvalResult) -> dict[str, Any]:
    """Return what must be equal in results that match, by the names of `MATCH_FIELDS`, as hashable values.

    The grader is its name with the versions that it graded with; `top_p` covers every kind of truncation.
    """
    provenance, sampling = result.provenance, result.sampling
    return {
        "grader": (provenance.get("grader"), json.dumps(provenance.get("graded_with"), sort_keys=True)),
        "data": provenance.get("data"),
        "problems": result.problem_ids,
        "temperature": sampling.temperature,
        "top_p": sampling.nucleus,
        "max_tokens": sampling.max_tokens,
    }


def mismatches(result: EvalResult, reference: EvalResult, across: Collection[str] = ()) -> list[str]:
    """Return the names of `MATCH_FIELDS` in which two results differ, except those of `across`.

    Data that one of them does not name is ignored, because problems are compared by their ids.
    """
    own, other = match_key(result), match_key(reference)
    differing = [name for name in MATCH_FIELDS if name not in across and own[name] != other[name]]
    return [name for name in differing if name != "data" or None not in (own[name], other[name])]


def conflicting_weights(weights: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """Return the roles (`base`, `rl`) for which both name weights, and these differ."""
    return [role for role, name in others.items() if weights.get(role, name) != name]


def partition(items: Iterable[T], meet: Callable[[T, T], bool]) -> list[list[T]]:
    """Divide items into groups; each consists of the first remaining item and those that `meet` it."""
    groups: list[list[T]] = []
    for item in items:
        group = next((group for group in groups if meet(item, group[0])), None)
        if group is None:
            groups.append([item])
        else:
            group.append(item)
    return groups


def comparable_groups(results: Sequence[EvalResult], *, of_one_pair: bool = True) -> list[list[EvalResult]]:
    """Divide results into groups that can be in one table, each with the results with the most samples first.

    A group has one set of problems for each benchmark; if there are several sets, the largest are in the first group.
    With `of_one_pair` a group has one pair of models, by their places and weights.
    """
    results = sorted(results, key=lambda result: -result.samples)
    fullest = sorted(results, key=lambda result: -len(result.weights))  # the others do not name all of their weights
    pairs = partition(
        fullest, lambda a, b: a.pair == b.pair and not conflicting_weights(a.weights, b.weights)
    ) if of_one_pair else [fullest]  # fmt: skip
    pair_of = {id(result): i for i, group in enumerate(pairs) for result in group}
    keys: dict[int, tuple[Any, ...]] = {}
    questions: dict[Any, dict[Any, None]] = defaultdict(dict)  # sets of problems, by group and benchmark
    for result in results:
        key = match_key(result)
        question = key.pop("problems"), key.pop("data")
        keys[id(result)] = (pair_of[id(result)], *key.values()), question
        questions[keys[id(result)][0], result.task][question] = None
    groups: dict[Any, list[EvalResult]] = defaultdict(list)
    for result in results:
        key, question = keys[id(result)]
        by_size = sorted(questions[key, result.task], key=lambda question: -len(question[0]))
        groups[key, by_size.index(question)].append(result)
    return list(groups.values())


# In words


def describe(result: EvalResult, models: Mapping[tuple[str, str], str] | None = None) -> dict[str, str]:
    """Return in words, column by column, what can distinguish a result from others except its decoding; empty if
    unknown.

    `models` are short names of pairs.
    """
    provenance, data = result.provenance, result.provenance.get("data")
    examples = provenance.get("examples")
    return {
        "model": result.name or (models or {}).get(result.pair, ""),
        "grader": str(provenance.get("grader") or ""),
        "versions": " ".join(map(str, (provenance.get("graded_with") or {}).values())),
        "examples": "" if examples is None else f"{examples or 'no'} example{'' if examples == 1 else 's'}",
        "template": kwargs_words(result.engine.get("chat_template_kwargs") or {}),
        "data": f"data {data[:6]}" if data else "",
        "problems": result.limited or f"{len(result.problem_ids)} problems",
        **sampling_words(result.sampling),
        "max_tokens": f"{result.sampling.max_tokens} tokens",
        **{name: value if name == "backend" else f"{name} {value}" for name, value in engine_facts(result).items()},
    }


def sampling_words(sampling: Sampling) -> dict[str, str]:
    """Return in words how tokens are sampled."""
    if sampling.greedy:
        return {"temperature": "greedy", "top_p": ""}
    return {"temperature": f"T = {sampling.temperature:g}", "top_p": sampling.nucleus}


def engine_facts(result: EvalResult) -> dict[str, str]:
    """Return what is known of the engine of a result, by the names of `ENGINE_FIELDS`."""
    return {name: str(result.engine[name]) for name in ENGINE_FIELDS if result.engine.get(name)}


def distinguishing(descriptions: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the columns in which descriptions differ; for two graders not their versions too.

    Other examples are other data. Which of the two is named depends on whether the number of examples is sufficient to
    distinguish all.
    """
    descriptions = list(descriptions)
    names = dict.fromkeys(name for description in descriptions for name in description)
    differing = [name for name in names if len({words.get(name) for words in descriptions}) > 1]
    both = {(words.get("examples"), words.get("data")) for words in descriptions}
    alone = all(len(set(column)) == len(both) for column in zip(*both, strict=True))
    implied = {"versions" if "grader" in differing else "", "data" if alone else "examples"}
    return [name for name in differing if name not in implied]


def distinguish(group: Sequence[EvalResult], others: Sequence[Sequence[EvalResult]]) -> str:
    """Return in words what distinguishes a group from others of its pair: weights, sampling, grader, answers,
    problems."""
    columns = ("grader", "versions", "temperature", "top_p", "max_tokens")
    groups = [group, *(other for other in others if other is not group)]
    shared = [_weight_words(group) | {name: describe(group[0])[name] for name in columns} for group in groups]
    names = distinguishing(shared)
    start = words = [", ".join(filter(None, map(description.get, names))) for description in shared]
    for more in (("problems",), ("problems", "examples"), ("problems", "examples", "data")):
        if len(groups) == 1 or (words[0] and words[0] not in words[1:]):
            break
        words = [
            "; ".join(filter(None, [first, *_by_benchmark(group, more)]))
            for first, group in zip(start, groups, strict=True)
        ]
    return words[0]


def _by_benchmark(group: Sequence[EvalResult], names: Sequence[str]) -> list[str]:
    """Return some columns of each benchmark of a group in words."""
    tasks = {result.task: describe(result) for result in group}
    return [f"{task}: {', '.join(filter(None, map(words.get, names)))}" for task, words in tasks.items()]


def _weight_words(group: Sequence[EvalResult]) -> dict[str, str]:
    """Return in words which weights of each model a group has, if its results name them."""
    weights = max((result.weights for result in group), key=len)
    return {role: f"{role} {name.replace('weights:', 'weights ')}" for role, name in weights.items()}
