"""A result is a function of records and a grader: made again from the store, by any grader, without an engine."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, UserError
from harness.evals.benchmark import Benchmark, BenchmarkFacts
from harness.evals.data import GOLDS, PUBLISHED, all_golds, find_benchmark, golds_name
from harness.evals.foreign import LmEvalResult
from harness.evals.lm_task import StoredScores, stored_scores
from harness.evals.metrics import verdict_facts
from harness.evals.result import EvalResult
from harness.evals.task_file import GRADER, is_task_file
from harness.grading import DEFAULT_GRADER, Gold, Verdict, grader_name
from harness.records import Key, RecordStore, Snapshot, judge_name
from harness.records.journal import header
from harness.records.verdicts import OFFICIAL, grade_record, judges, latest_verdicts, read_verdicts, versions
from harness.spec import Decoding, Presentation, Sampling, parse
from harness.spec.pair import places_of
from harness.spec.sampling import Drawing

_RECORD = re.compile(r"[0-9a-f]{16}/[A-Za-z0-9_][A-Za-z0-9._-]*")  # below its store, wherever a result points


class NoResultError(UserError):
    """No result can be made of a record: it is unfinished, or its right answers or decoding are not known here."""


class _AbsentError(NoResultError):
    """The file of a record's benchmark is not here."""


def result_of_record(
    snapshot: Snapshot,
    *,
    grader: str | None = None,
    golds: str = PUBLISHED,
    data_dir: str | None = None,
    partial: bool = False,
    problems: Sequence[str] | None = None,
    samples: int | None = None,
) -> EvalResult:
    """Return the result of a record, by stored verdicts where they hold and graded now where not; changes nothing.

    `grader` None is what the benchmark's own file says, else the default.

    `problems` (ids) and `samples` say what of it is asked; by default all that its commands finished, or where that is
    not the same samples of every problem, what the last one asked. What an interrupted command left beside it does not
    count: it is there because it was short. With `partial`, an unfinished record gives the first k samples of every
    problem that was asked last, k as large as it can be. That part is no selection: which samples come first does not
    depend on what was decoded. The result says so in `partial`.

    Raises:
        UserError: samples are missing and `partial` was not asked for (or not one sample of every problem is there),
            or the gold answers are not known (`NoResultError`).
    """
    if snapshot.config is None or snapshot.damaged:
        raise DamagedError(f"record {snapshot.name}: {'; '.join(snapshot.damaged)}; run its command again")
    if kept := stored_scores(snapshot):
        return _by_lm_eval(snapshot, kept, problems, samples, partial)
    answers, facts = _golds(snapshot, golds, data_dir)
    names, width, part = _extent(snapshot, [*next(iter(answers.values()))], problems, samples, partial)
    return _result(snapshot, names, width, answers, facts, _name(grader or facts.grader or DEFAULT_GRADER), part)


def record_of(result: EvalResult) -> Snapshot | None:
    """Return the record that a result was made from; None where it was kept in none, or that is gone."""
    folder, name = result.provenance.get("records"), result.provenance.get("record")
    if not folder or not _RECORD.fullmatch(str(name)):
        return None
    try:
        return RecordStore(str(folder)).read(*str(name).split("/", 1))
    except UserError:
        return None


def regraded(
    result: EvalResult, *, grader: str | None = None, golds: str | None = None, data_dir: str | None = None, **_: Any
) -> EvalResult:
    """Return a result by the grader and the version of the gold answers that are asked for, None being its own.

    Raises:
        UserError: they are not its own, and its responses are not at hand to be graded again.
    """
    if isinstance(result, LmEvalResult):
        return result
    own, version = result.provenance.get("grader"), str(result.provenance.get("golds", PUBLISHED)).split()[0]
    wanted = version if golds is None else golds if golds in GOLDS.get(result.task, ()) else PUBLISHED
    if (_name(grader) if grader else own, wanted) == (own, version):
        return result
    snapshot = record_of(result)
    if snapshot is None:
        raise UserError(
            f"{result.task}, {result.label}: graded by {judge_name(str(own), version)}, and its responses are not at "
            f"hand to be graded by {judge_name(grader or str(own), wanted)}: it has no record; accepted: its own grader"
        )
    how: dict[str, Any] = {"grader": grader or own, "golds": wanted, "data_dir": data_dir}
    return result_of_record(snapshot, **how, problems=result.problem_ids, samples=result.samples)


def _result(
    snapshot: Snapshot,
    names: Sequence[str],
    width: int,
    answers: Mapping[str, Mapping[str, Gold]],
    facts: BenchmarkFacts,
    grader: str,
    part: str | None = None,
) -> EvalResult:
    """Put together the first `width` samples of some problems; of the versions of the gold answers the first counts."""
    config, prefix = snapshot.config, f"{snapshot.task}/"
    assert config is not None
    keys = {name: [(name, sample) for sample in range(width)] for name in names}
    every = [key for row in keys.values() for key in row]
    verdicts = {version: _verdicts(snapshot, every, version, gold, grader) for version, gold in answers.items()}
    rows = {
        name.removeprefix(prefix): [
            {**snapshot.entry(key).counts(), **verdict_facts({version: verdicts[version][key] for version in verdicts})}
            for key in row
        ]
        for name, row in keys.items()
    }
    version, gold = next(iter(answers.items()))
    provenance = {
        **_provenance(snapshot, facts),
        "grader": grader,
        "graded_with": versions(grader),
        "golds": golds_name(version, {name.removeprefix(prefix): gold[name] for name in names}),
        **({"partial": part} if part else {}),
        **({"source": config.source} if config.source else {}),
    }
    if grader == OFFICIAL:
        answered = any(verdict.answer is not None for verdict in verdicts[version].values())
        provenance["graded_with"] = {**versions(grader), "judge": str(config.source.get("judge") or grader)}
        provenance["lacks"] = [*config.lacks, *([] if answered else ["no_box", "votes"])]
    elif config.source:
        provenance["lacks"] = [*config.lacks]
    decoding = config.decoding or _imported(config.source)
    return EvalResult.from_samples(snapshot.task, decoding, _sampling(config, width), rows, provenance=provenance)


def _by_lm_eval(
    snapshot: Snapshot, kept: Sequence[StoredScores], problems: Sequence[str] | None, samples: int | None, partial: bool
) -> LmEvalResult:
    """Return the result of a task of lm-eval: by the scores that were kept of what is asked, by default of the most.

    Scores by the task's code as it was last count alone. With `partial`, those stand for a larger lot that is asked.
    """
    config, asked, prefix = snapshot.config, snapshot.about.get("asked") or {}, f"{snapshot.task}/"
    assert config is not None
    now = [one for one in kept if one.graded_with == kept[0].graded_with]
    now.sort(key=lambda one: (-len(one.problems), -one.samples))
    width = samples or asked.get("samples", 1)
    if problems is None:
        number = asked.get("problems", 1)
        fits = [one for one in now if len(one.problems) >= number and one.samples >= width]
    else:
        number = len(problems)
        each = [({name.removeprefix(prefix) for name in one.problems}, one.samples) for one in now]
        fits = [one for one, told in zip(now, each, strict=True) if told == (set(problems), width)]
    if not fits and (not partial or problems is not None):
        raise NoResultError(
            f"record {snapshot.name} holds lm-eval's scores of {len(now[0].problems)} problems x {now[0].samples} "
            f"samples, and {number} x {width} are asked; run its command again, or take those (--partial)"
        )
    found = (fits or now)[0]
    rows = {
        name.removeprefix(prefix): [snapshot.entry((name, sample)).counts() for sample in range(found.samples)]
        for name in found.problems
    }
    provenance = {**_provenance(snapshot, found.facts), "grader": GRADER, "graded_with": found.graded_with}
    sampling = _sampling(config, found.samples)
    decoding = config.decoding or _imported(config.source)
    return LmEvalResult.of(snapshot.task, decoding, sampling, rows, found.scored, provenance=provenance)


def _provenance(snapshot: Snapshot, facts: BenchmarkFacts) -> dict[str, Any]:
    """Return what a record says of where a result's tokens and problems come from."""
    engine = snapshot.config.engine if snapshot.config else {}
    return {
        "settings": snapshot.record_hash,
        **({} if snapshot.config is None else snapshot.config.facts),
        "record": snapshot.name,
        "records": str(snapshot.folder.parents[1]),
        **({"chat": chat} if (chat := snapshot.about.get("chat")) else {}),
        **facts.provenance(),
        "engine": {**engine, "pair": _pair(snapshot)},
    }


def _pair(snapshot: Snapshot) -> dict[str, Any]:
    """Return the places of the models, as the record was told of them."""
    return {"base": None, "rl": None, **places_of(snapshot.about)}


def _extent(
    snapshot: Snapshot, order: Sequence[str], problems: Sequence[str] | None, samples: int | None, partial: bool
) -> tuple[list[str], int, str | None]:
    """Return which problems there are, how many samples of each, and of what that is a part.

    `order` has all problems of the benchmark.
    """
    held: dict[str, set[int]] = {}
    for problem, sample in snapshot.held:
        held.setdefault(problem, set()).add(sample)
    first = {name: next(k for k in range(len(row) + 1) if k not in row) for name, row in held.items()}  # before a gap
    asked: dict[str, Any] = snapshot.about.get("asked") or {}
    wanted = samples or asked.get("samples", 1)
    if problems is None:
        if not asked and snapshot.about.get("complete") == {}:
            raise NoResultError(f"record {snapshot.name} holds only what `rlvr-dir view` decoded to be looked at")
        if not asked and not snapshot.finished:
            raise NoResultError(
                f"record {snapshot.name}: its about.json is lost and it is not finished; run its command"
            )
        done = snapshot.complete if asked else first
        names = [*(name for name in order if name in done), *(name for name in done if name not in set(order))]
        latest = list(asked.get("names") or (order[: asked["problems"]] if asked else names))
        width = min(done.values(), default=0)
        if set(latest) <= set(names) and width >= wanted:
            return names, samples or width, None
    else:
        latest = [name if name in held else f"{snapshot.task}/{name}" for name in problems]
    width = min((first.get(name, 0) for name in latest), default=0)
    if latest and width >= wanted:
        return latest, wanted, None
    if not partial or problems is not None:
        there = sum(sample < wanted for name in latest for sample in held.get(name, ()))
        raise NoResultError(
            f"record {snapshot.name} has {there} of {len(latest) * wanted} rollouts, and an average of them would be "
            "of the short ones; run its command again, or ask for partial results (--partial), which are marked"
        )
    if not width:
        lacking = sum(not first.get(name) for name in latest)
        raise NoResultError(
            f"record {snapshot.name} has no sample yet of {lacking} of {len(latest)} problems, so not even a partial "
            "result; run its command again"
        )
    return latest, width, f"first {width} of {wanted} samples"


def _verdicts(
    snapshot: Snapshot, keys: Sequence[Key], version: str, gold: Mapping[str, Gold], grader: str
) -> Mapping[Key, Verdict]:
    if grader == OFFICIAL:
        stored = read_verdicts(snapshot.folder, OFFICIAL)
        if lacking := [key for key in keys if key not in stored]:
            raise UserError(f"record {snapshot.name} has no verdict by grader={grader!r} on {lacking[0]}")
        return {key: Verdict(stored[key]["kind"], stored[key].get("answer"), grader) for key in keys}
    head, judge = header(snapshot.record_hash, snapshot.task), judge_name(grader, version)
    return grade_record(snapshot.folder, head, map(snapshot.entry, keys), gold, judge, keep=False)


def _name(grader: str) -> str:
    """Return the name of a grader's verdicts; the authors' own keep theirs."""
    return grader if grader == OFFICIAL else grader_name(grader)


@dataclass(frozen=True, slots=True)
class Change:
    """An answer whose verdict is another one now; `before` is None where it had none."""

    problem: str
    sample: int
    gold: Gold
    answer: str | None
    before: str | None
    now: str


def grade_again(
    snapshot: Snapshot, *, grader: str = DEFAULT_GRADER, golds: str = PUBLISHED, data_dir: str | None = None
) -> tuple[str, int, list[Change]]:
    """Grade all that a record holds, store the verdicts, and return the judge, how many, and the changed ones.

    Compared with the verdicts that the same judge gave last, by whatever version or code; those stay as they are, in
    the file of their name.

    Raises:
        UserError: the gold answers are not known, no grader has that name, or the disk is full.
    """
    name = grader_name(grader)
    version, gold = next(iter(_golds(snapshot, golds, data_dir)[0].items()))
    judge = judge_name(name, version)
    before = latest_verdicts(snapshot.folder, judge)
    head = header(snapshot.record_hash, snapshot.task)
    now = grade_record(snapshot.folder, head, map(snapshot.entry, snapshot.held), gold, judge)
    changes = [
        Change(*key, gold[key[0]], verdict.answer, before[key]["kind"] if key in before else None, verdict.kind)
        for key, verdict in now.items()
        if not (key in before and before[key]["kind"] == verdict.kind)
    ]
    return judge, len(now), sorted(changes, key=lambda change: (change.problem, change.sample))


def _place(task: str, file: str, data_dir: str | None) -> Path | None:
    """Return where the file that a record names is read: in `data_dir`, or below the current folder.

    Others are not looked up because a record, perhaps a stranger's, names them. None: by the name of the task.
    """
    if data_dir:
        folder = Path(data_dir).expanduser()
        found = folder / Path(file).name
        return found if found.is_file() and not (folder / f"{task}.jsonl").is_file() else None
    here = Path.cwd()
    found = Path(os.path.normpath(here / file))
    return found if found.is_relative_to(here) and found.resolve().is_relative_to(here.resolve()) else None


def _golds(
    snapshot: Snapshot, golds: str, data_dir: str | None
) -> tuple[dict[str, Mapping[str, Gold]], BenchmarkFacts]:
    """Return the gold answers by version, the one asked for first, and the facts of their benchmark.

    Of an imported record they are those that it came with; of a user's benchmark they are in the file that the record
    names, unless `data_dir` says where else it is. Where that file is not here, they are those that its verdicts keep.
    """
    config, task = snapshot.config, snapshot.task
    if config is not None and config.source:
        if golds != PUBLISHED:
            raise UserError(f"golds={golds!r}: the imported record {snapshot.name} has the answers it came with only")
        return {PUBLISHED: _kept_golds(snapshot)[1]}, BenchmarkFacts()
    try:
        benchmark = benchmark_of(snapshot, data_dir=data_dir)
    except _AbsentError:
        judge, kept = _kept_golds(snapshot)
        every = {problem for problem, _ in snapshot.held} <= kept.keys()
        if golds != PUBLISHED or config is None or judge == OFFICIAL or not every:
            raise
        shown = Presentation.kept(snapshot.about.get("presentation", {})).shown()
        return {PUBLISHED: kept}, BenchmarkFacts(config.data, snapshot.about.get("problems"), None, shown, judge)
    found: dict[str, Mapping[str, Gold]] = {
        version: {f"{task}/{key}": gold for key, gold in answers.items()}
        for version, answers in all_golds(benchmark, golds).items()
    }
    return found, benchmark.facts


def _kept_golds(snapshot: Snapshot) -> tuple[str | None, dict[str, Gold]]:
    """Return the gold answers that verdicts beside a record were given for, and whose: the usual grader's first."""
    there = [judge for judge in judges(snapshot.folder) if "+" not in judge]
    for judge in sorted(there, key=[OFFICIAL, _name(DEFAULT_GRADER), *there].index):
        if rows := read_verdicts(snapshot.folder, judge).values():
            return judge, {r["problem"]: r["gold"] if isinstance(r["gold"], str) else tuple(r["gold"]) for r in rows}
    return None, {}


def _sampling(config: Any, samples: int) -> Sampling:
    """Return how a record was drawn; what an imported one does not say has the paper's value, and is in `lacks`."""
    if config.sampling is not None:
        return parse(Sampling, {"samples": samples, **config.sampling.model_dump()})
    known = {name: config.source[name] for name in Drawing.options() if name in config.source}
    return parse(Sampling, {"samples": samples, **known})


def _imported(source: Mapping[str, Any]) -> Decoding:
    """Return the decoding of an imported record, by what its folder's name says of it (w0 = -gamma).

    Raises:
        UserError: it does not say, or names a criterion whose counterpart here is not known.
    """
    try:
        criterion, gamma = source.get("criterion"), -float(source.get("w0") or 0.0)
        tau = float(source.get("tau") or 0.0)
    except (ValueError, TypeError, OverflowError):
        criterion, gamma, tau = None, 0.0, 0.0
    if criterion == "none":
        return Decoding(mode="base")
    if criterion == "all" and not gamma:
        return Decoding(mode="rl")
    if criterion == "neg_logp" and "tau" in source:
        mode = "extrapolate" if gamma else "replace"
        return parse(Decoding, {"mode": mode, "tau": tau, "gamma": gamma})
    raise NoResultError(
        f"the imported record of {source.get('folder', 'unknown origin')!r} cannot be compared: its folder's name does "
        f"not say how it was decoded, or by criterion={criterion!r}; accepted: none, all, neg_logp"
    )


def benchmark_of(snapshot: Snapshot, *, data_dir: str | None = None) -> Benchmark:
    """Return the benchmark that a record was decoded from, found as `_golds` says.

    Raises:
        NoResultError: it is not at hand, is not the one the record was decoded from, or would take code to be read.
    """
    task, config = snapshot.task, snapshot.config
    if config is not None and config.source:
        raise NoResultError(f"the imported record {snapshot.name} came without its benchmark")
    file = snapshot.about.get("file")
    place = _place(task, file, data_dir) if file else None
    asked = f"{task}={place}" if place else task
    if is_task_file(str(file or task)):
        raise NoResultError(f"record {snapshot.name}: no code is run because a record names it; run its command again")
    try:
        shown = Presentation.kept(snapshot.about.get("presentation", {}))
        benchmark = find_benchmark(asked, data_dir, shown)
    except UserError as error:
        reason, kind = str(error), NoResultError
        if file and not place and not data_dir:
            reason = f"{file}, which it names, is not below the current folder, so it is not read; give --data-dir"
        if file and not data_dir and not (place and place.is_file()):
            kind = _AbsentError
        raise kind(f"record {snapshot.name}: its right answers are not at hand ({reason})") from None
    if config is not None and config.data not in (None, here := benchmark.data):
        raise NoResultError(
            f"record {snapshot.name} was decoded from other questions of {task} than are here (data {config.data} and "
            f"{here}), so these gold answers are not its own; give the folder of its data as --data-dir"
        )
    return benchmark
