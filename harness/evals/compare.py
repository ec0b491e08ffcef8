"""Comparing finished results: settings side by side, paired by problem, and only where they are alike.

    settings = settings_of(read_results(["runs/demo"]))  # the seeds of a setting become one
    print(markdown(compare(settings)))

Results that differ in grader, gold answers, data, problems or sampling (`harness.evals.result.ALIKE`) never meet,
unless that is asked for by name.
"""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np

from harness import stats
from harness.errors import UserError, unknown
from harness.evals.foreign import LmEvalResult, read_result
from harness.evals.from_records import NoAnswersError, regraded, result_of_record
from harness.evals.result import ALIKE, EvalResult, config_hash_of, model_name
from harness.evals.trainings import TrainingPlace, trainings_at
from harness.markdown import interval, markdown_table
from harness.records import RecordStore
from harness.records.store import is_record
from harness.spec import Decoding

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
    def replacement_ratio(self) -> float:
        """Return positions where the criterion held over generated tokens, summed over all responses."""
        replaced = sum(int(result.n_replaced.sum()) for result in self.results)
        return replaced / max(1, sum(int(result.n_tokens.sum()) for result in self.results))

    def pass_at(self, k: int) -> float:
        """Return Pass@k from the samples of all seeds."""
        return stats.pass_at_k(self.values, k)


Comparison = stats.Comparison[Setting]
ComparisonKind = Literal["trained", "against rl", "against control", "other"]


def comparison_kind(row: Comparison) -> ComparisonKind:
    """Say what a comparison of `comparisons` is for: RL's gain over base, a decoding's over RL or over its control."""
    one, other = row.result.decoding, row.reference.decoding
    if other == one.control() != one:
        return "against control"
    if other.mode == "rl":
        return "against rl"
    return "trained" if (one.mode, other.mode) == ("rl", "base") else "other"


def read_results(
    places: Sequence[str | Path],
    store: str | Path | None = None,
    *,
    run: Callable[[str], EvalResult] | None = None,
    **how: Any,
) -> list[EvalResult]:
    """Read results from files and folders that `rlvr-dir eval` and `demo` wrote, from records, and from runs.

    A place is a result file, a folder of them, the folder of a sweep, of a training or of a sweep of trainings, a
    record's folder, a store of records, the beginning of a record's hash (with or without `/TASK`) in `store`, or
    `run:ID`, which `run` looks up; NAME=PLACE says what its RL model is called. `how` goes to `result_of_record`; files
    and runs that another grader made are graded again from their records.

    Raises:
        UserError: a place that is none of these, a file that is no result, a record that is not complete, or a result
            of another grader whose responses are gone.
    """
    found: list[EvalResult] = []
    for place in map(str, places):
        name, equals, path = place.partition("=")
        if not equals or Path(place).expanduser().exists():
            name, path = "", place
        if trainings := trainings_at(Path(path).expanduser()):
            if name and len(trainings) > 1:
                names = ", ".join(training.name for training in trainings)
                raise UserError(f"results: {place!r} gives one name to several trainings ({names}); leave the name out")
            found += _of_trainings(trainings, name, run, how)
            continue
        found += [replace(result, name=name) if name else result for result in _read(path, store, run, how)]
    if not found:
        raise UserError("results: nothing to read there; accepted: files or folders that eval has written, or records")
    return found


def _of_trainings(
    trainings: Sequence[TrainingPlace], name: str, run: Callable[[str], EvalResult] | None, how: dict[str, Any]
) -> list[EvalResult]:
    """Return the results of the seeds of trainings, each of which knows its training and its seed."""
    found: list[EvalResult] = []
    for training in trainings:
        given = name or (training.name if len(trainings) > 1 else "")
        folder, checkpoint = str(training.folder.resolve()), training.checkpoint
        seeds = [seed for seed in training.seeds if any(training.results(seed).glob("*.json"))]
        for seed in (seed for seed in training.seeds if seed not in seeds):
            print(f"rlvr-dir: left out: {training.folder} has no results of seed {seed} yet", file=sys.stderr)
        for seed in seeds:
            about = {"name": name or training.name, "seed": seed, "folder": folder, "checkpoint": checkpoint}
            about["named"] = bool(name)  # by the reader
            called = f"{given} seed {seed}" if given and len(seeds) > 1 else given
            for result in _read(str(training.results(seed)), None, run, how):
                found.append(replace(result, name=called, provenance={**result.provenance, "training": about}))
    return found


def _read(
    place: str, store: str | Path | None, run: Callable[[str], EvalResult] | None, how: dict[str, Any]
) -> list[EvalResult]:
    path = Path(place).expanduser()
    if place.startswith("run:") and run is not None:
        return [regraded(run(place.removeprefix("run:")), **how)]
    if path.is_file():
        return [regraded(_of_file(path), **how)]
    if path.is_dir():
        if is_record(path):
            return [result_of_record(RecordStore(path.parents[1]).read(path.parent.name, path.name), **how)]
        path = path / "results" if (path / "results").is_dir() else path
        if files := sorted(path.glob("*.json"), key=lambda file: (file.stat().st_mtime, file.name)):
            pruned = {str(path.resolve()): _pruned(path.parent / "summary.json")}
            found = [regraded(result, **how) for result in _newest([_of_file(file) for file in files])]
            return [replace(result, provenance={**result.provenance, "pruned": pruned}) for result in found]
        records = RecordStore(path if RecordStore(path).names() else path / "records")
        return _of_records(records, records.names(), how)
    if store is not None and RecordStore(store).names():
        return _of_records(RecordStore(store), RecordStore(store).find(place), how)
    raise UserError(f"results: {place!r} does not exist; accepted: result files or folders of them, records, or run:ID")


def _of_records(store: RecordStore, names: Sequence[tuple[str, str]], how: dict[str, Any]) -> list[EvalResult]:
    """Return the results of records; one whose right answers nobody knows here is left out, and said to be.

    Raises:
        UserError: what `result_of_record` refuses, or all of them are such records.
    """
    found, without = [], []
    for name in names:
        try:
            found.append(result_of_record(store.read(*name), **how))
        except NoAnswersError as error:
            without.append(error)
    if without and not found:
        raise without[0]
    for error in without:
        print(f"rlvr-dir: left out: {error}", file=sys.stderr)
    return found


def _pruned(summary: Path) -> int:
    """Return how many settings the search behind a folder of results has pruned; they left no result."""
    try:
        return int(json.loads(summary.read_text())["states"]["pruned"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _newest(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Leave out what a newer one was graded in place of: results that differ in the version of the grader only."""
    kept: dict[str, EvalResult] = {}
    for result in results:
        by_name = {**result.provenance, "graded_with": result.provenance.get("grader")}
        asked = config_hash_of(result.task, result.decoding, result.sampling, result.problem_ids, by_name)
        kept.pop(asked, None)
        kept[asked] = result
    return list(kept.values())


def _of_file(file: Path) -> EvalResult:
    try:
        return read_result(file.read_text())
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"results: {str(file)!r} is not a result of rlvr-dir ({type(error).__name__})") from None


def settings_of(results: Iterable[EvalResult], across: Collection[str] = ()) -> list[Setting]:
    """Put the seeds of each setting together, and label settings by what tells them apart.

    Of one seed the result with the most samples counts: the others are its first samples. With `problems` in `across`,
    results are cut to the problems that all results of their benchmark have.

    Raises:
        UserError: `across` has a name that is not in `ALIKE`, or results of a benchmark have no problem in common.
    """
    if wrong := [name for name in across if name not in ALIKE]:
        raise unknown("across", wrong[0], ALIKE)
    found = [each for result in results for each in result.by_metric()]
    groups: dict[str, list[EvalResult]] = {}
    for result in _on_common_problems(found) if "problems" in across else found:
        told = [result.subject, result.decoding.model_dump(), result.name, result.pair, result.alike(), _engine(result)]
        groups.setdefault(json.dumps(told, sort_keys=True), []).append(result)
    settings = [Setting.of(mine) for group in groups.values() for mine in _by_seed(group)]
    return [replace(setting, label=label) for setting, label in zip(settings, _labels(settings), strict=True)]


def _on_common_problems(results: Sequence[EvalResult]) -> list[EvalResult]:
    common: dict[str, list[str]] = {}
    for result in results:
        there = set(result.problem_ids)
        common[result.task] = [key for key in common.get(result.task, result.problem_ids) if key in there]
    for task, problems in common.items():
        if not problems:
            raise UserError(f"across=problems: results of {task} have no problem in common, so none can be paired")
    return [result.only(common[result.task]) for result in results]


def _by_seed(group: Sequence[EvalResult]) -> list[list[EvalResult]]:
    """Part results by seed; those that share one, but not the settings of their record, are settings of their own."""
    by: dict[Any, dict[int, EvalResult]] = {}
    for result in sorted(group, key=lambda result: -result.samples):
        by.setdefault(result.provenance.get("settings"), {}).setdefault(result.sampling.seed, result)
    seeds = [seed for mine in by.values() for seed in mine]
    if len(set(seeds)) < len(seeds):
        return [list(mine.values()) for mine in by.values()]
    return [[result for mine in by.values() for result in mine.values()]]


def _engine(result: EvalResult) -> dict[str, Any]:
    engine = result.provenance.get("engine")
    return {name: engine[name] for name in ENGINE if engine.get(name)} if isinstance(engine, dict) else {}


def _labels(settings: Sequence[Setting]) -> list[str]:
    """Return each decoding's label with, in brackets, what differs among the settings of its benchmark."""
    models = _models([setting.first for setting in settings])
    told = [facets(setting.first, models) for setting in settings]
    by_task: dict[str, list[dict[str, str]]] = {}
    for setting, mine in zip(settings, told, strict=True):
        by_task.setdefault(setting.task, []).append(mine)
    names_of, labels = {task: telling(each) for task, each in by_task.items()}, []
    for setting, mine in zip(settings, told, strict=True):
        words = [mine[name] for name in names_of[setting.task] if mine.get(name)]
        words += [setting.first.partial] if setting.first.partial else []
        labels.append(setting.decoding.label() + (f" ({', '.join(words)})" if words else ""))
    names = [(setting.task, label) for setting, label in zip(settings, labels, strict=True)]
    return [
        label + (f" #{setting.first.config_hash[:6]}" if names.count((setting.task, label)) > 1 else "")
        for setting, label in zip(settings, labels, strict=True)
    ]


def facets(result: EvalResult, models: Mapping[tuple[str, str], str] | None = None) -> dict[str, str]:
    """Return in words what can tell a result from others but its decoding; what it does not say is empty."""
    s, alike, graded = result.sampling, result.alike(), result.provenance.get("graded_with")
    versions = " ".join(map(str, (graded or {}).values())) if isinstance(graded, dict) else ""
    return {
        "model": result.name or (models or {}).get(result.pair, ""),
        "grader": str(result.provenance.get("grader") or ""),
        "versions": versions,
        "golds": f"{alike['golds']} answers" if alike["golds"] else "",
        "data": f"data {alike['data'][:6]}" if alike["data"] else "",
        "problems": result.limited or f"{len(result.problem_ids)} problems",
        "temperature": f"T = {s.temperature:g}",
        "top_p": f"top-p {s.top_p:g}",
        "max_tokens": f"{s.max_tokens} tokens",
        **{name: f"{value}" if name == "backend" else f"{name} {value}" for name, value in _engine(result).items()},
    }


def telling(told: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names of the facets in which some differ from others; of two graders not their versions too."""
    names = dict.fromkeys(name for each in told for name in each)
    found = [name for name in names if len({each.get(name) for each in told}) > 1]
    return [name for name in found if name != "versions" or "grader" not in found]


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


def comparisons(settings: Sequence[Setting], across: Collection[str] = ()) -> list[Comparison]:
    """Compare RL with base, every other decoding with RL, and each extrapolation with its gamma = 0 control as well.

    Only settings of one pair of models that are alike meet; what has no counterpart is left out. All of it is one
    family.
    """
    return stats.family(_natural(settings, across))


def compare(settings: Sequence[Setting], against: str | None = None, across: Collection[str] = ()) -> list[Comparison]:
    """Compare settings benchmark by benchmark, as one family; only those that are alike, but for what `across` names.

    Args:
        settings: of `settings_of`.
        against: the reference: a label as printed, a decoding's label, a mode, a model's name, or the beginning of a
            result's config hash (six digits or more). None takes the pairs of `comparisons`, or, where there is no RL
            among settings that are alike, the first of them as the reference, and the controls.
        across: names of `ALIKE` in which the two of a pair may differ.

    Raises:
        UserError: the reference is not there or ambiguous, or there is nothing that could be compared.
    """
    pairs: list[tuple[Setting, Setting]] = []
    for task in dict.fromkeys(setting.task for setting in settings):
        mine = [setting for setting in settings if setting.task == task]
        pairs += _default(mine, across) if against is None else _against(mine, against, across)
    if not pairs:
        reasons = left_out(settings, [], across)
        raise UserError(reasons[0] if reasons else "results: give at least two settings of one benchmark to compare")
    return stats.family(pairs)


_Pairs = list[tuple[Setting, Setting]]


def _natural(settings: Sequence[Setting], across: Collection[str]) -> _Pairs:
    """Return the pairs of `comparisons`, benchmark by benchmark, those with controls last."""
    pairs: _Pairs = []
    for task in dict.fromkeys(setting.task for setting in settings):
        mine = [setting for setting in settings if setting.task == task]
        for setting in mine:
            mode = {"rl": "base", "base": ""}.get(setting.decoding.mode, "rl")
            pairs += _nearest(setting, [other for other in mine if other.decoding.mode == mode], across)
        pairs += _controlled(mine, across)
    return pairs


def _controlled(settings: Sequence[Setting], across: Collection[str]) -> _Pairs:
    pairs: _Pairs = []
    for setting in settings:
        control = setting.decoding.control()
        if control != setting.decoding:
            pairs += _nearest(setting, [other for other in settings if other.decoding == control], across)
    return pairs


def _nearest(setting: Setting, references: Sequence[Setting], across: Collection[str]) -> _Pairs:
    """Pair a setting with the one of its pair's references that is alike, by engine and seeds the nearest, if any."""
    mine = setting.first
    found = [each for each in references if each.first.pair == mine.pair and each.first.name == mine.name]
    found = [each for each in found if not _unlike(setting, each, across)]

    def distance(each: Setting) -> tuple[Any, ...]:
        return len(_unlike(setting, each)), _engine(each.first) != _engine(mine), each.seeds != setting.seeds

    return [(setting, each) for each in sorted(found, key=distance)[:1]]


def _unlike(one: Setting, other: Setting, across: Collection[str] = ()) -> list[str]:
    return [name for name in one.first.unlike(other.first) if name not in across]


def _default(settings: Sequence[Setting], across: Collection[str]) -> _Pairs:
    """Return the natural pairs of each lot of settings that are alike; without RL all minus the first, and controls."""
    pairs, left = [], list(settings)
    while left:
        first = left[0]
        lot = [setting for setting in left if not _unlike(setting, first, across)]
        left = [setting for setting in left if all(setting is not each for each in lot)]
        found = _natural(lot, across) if any(setting.decoding.mode == "rl" for setting in lot) else []
        if not found:
            found = [(setting, first) for setting in lot[1:]]
            found += [pair for pair in _controlled(lot, across) if pair[1] is not first]
        pairs += found
    return pairs


def _against(settings: Sequence[Setting], against: str, across: Collection[str]) -> _Pairs:
    """Pair each setting with the reference that it is like.

    Raises:
        UserError: no setting is called so, or several that one setting is like.
    """
    references = _called(settings, against)
    if not references:
        labels = ", ".join(repr(setting.label) for setting in settings)
        raise UserError(f"against={against!r} names no result of {settings[0].task}; accepted: one of {labels}")
    pairs: _Pairs = []
    for setting in settings:
        if any(setting is each for each in references):
            continue
        alike = [each for each in references if not _unlike(setting, each, across)]
        least = min((len(_unlike(setting, each)) for each in alike), default=0)
        alike = [each for each in alike if len(_unlike(setting, each)) == least]
        own = [each for each in alike if each.first.pair == setting.first.pair] or alike
        if len(own) > 1:
            labels = " or ".join(repr(each.label) for each in own)
            raise UserError(
                f"against={against!r} names {len(own)} results of {setting.task} that {setting.label!r} could be "
                f"compared with; say which, as it is labelled: {labels}"
            )
        pairs += [(setting, each) for each in own]
    return pairs


def _called(settings: Sequence[Setting], name: str) -> list[Setting]:
    """Return the settings that a name means, by the first kind of name that fits any."""
    kinds: tuple[Callable[[Setting], bool], ...] = (
        lambda one: one.label == name,
        lambda one: one.decoding.label() == name,
        lambda one: one.decoding.mode == name,
        lambda one: one.first.name == name,
        lambda one: len(name) >= 6 and any(result.config_hash.startswith(name) for result in one.results),
    )
    return next((found for kind in kinds if (found := [one for one in settings if kind(one)])), [])


def left_out(settings: Sequence[Setting], rows: Sequence[Comparison], across: Collection[str] = ()) -> list[str]:
    """Say of each setting that is in no row, though its benchmark has others, what tells it from them."""
    shown = [id(side) for row in rows for side in (row.result, row.reference)]
    sentences = []
    for setting in settings:
        others = [other for other in settings if other.task == setting.task and other is not setting]
        if id(setting) in shown or not others:
            continue
        nearest = min(others, key=lambda other: len(_unlike(setting, other, across)))
        if differing := _unlike(setting, nearest, across):
            graded = [f"--{name}" for name in ("grader", "golds") if name in differing]
            again = f" ({' and '.join(graded)} grades records again)" if graded else ""
            sentences.append(
                f"{setting.label!r} and {nearest.label!r} on {setting.task} differ in {' and '.join(differing)}, so "
                f"they are not compared; give results that are alike{again}, or ask for it "
                f"(--across {','.join(differing)})"
            )
    return list(dict.fromkeys(sentences))


def markdown(rows: Sequence[Comparison], notes: Sequence[str] = ()) -> str:
    """Write the comparisons as Markdown tables with notes beneath: ours in percentage points, lm-eval's metrics in its
    own units.
    """
    theirs = [row for row in rows if is_lm_eval(row.result)]
    ours = [row for row in rows if row not in theirs]
    tables = [_table(ours, "Avg", 100, 2)] if ours else []
    tables += [_table(theirs, "mean", 1, 4)] if theirs else []
    lines = ["\n\n".join(tables), ""]
    lines += [f"Paired by problem; Holm's correction over these {len(rows)} comparisons."]
    lines += ["Scores of lm-eval's tasks are in its own units."] if theirs else []
    sides = [side for row in rows for side in (row.result, row.reference)]
    if any(len(side.seeds) > 1 for side in sides):
        seeds = sorted({seed for side in sides for seed in side.seeds})
        lines += [f"A score is the mean of all seeds that its setting has (of {', '.join(map(str, seeds))})."]
    if any(side.first.partial for side in sides):
        lines += ["Partial results are in it: they are marked, and will change when the rest is decoded."]
    return "\n".join([*lines, *(f"Left out: {note}." for note in notes)])


def is_lm_eval(setting: Setting) -> bool:
    """Tell whether a setting's scores are those of a metric of lm-eval's, in its own units."""
    return isinstance(setting.first, LmEvalResult)


def _table(rows: Sequence[Comparison], mean: str, unit: float, digits: int) -> str:
    cells = []
    for row in rows:
        d = row.difference
        cells.append(
            [
                row.result.benchmark,
                row.result.label,
                f"{row.reference.label} ({unit * row.reference.avg:.{digits}f})",
                f"{unit * row.result.avg:.{digits}f}",
                f"{unit * d.mean:+.{digits}f}",
                interval(d.low, d.high, digits, sign=True, unit=unit),
                f"{d.p:.3g}",
                f"{row.holm_p:.3g}",
            ]
        )
    head = ["benchmark", "decoding", "minus", mean, "difference", "95 % interval", "p", "p (Holm)"]
    return markdown_table(head, cells, left=3)
