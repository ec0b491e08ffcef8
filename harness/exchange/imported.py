"""Makes a record of other programs' files: what they say is kept, what they lack is named, what we say stands beside.

import_foreign("runs/records", [Path("samples_gsm8k_2026-05-01.jsonl")], decoding=Decoding(mode="rl"))
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from harness.digest import digest
from harness.errors import DamagedError, UserError
from harness.exchange.foreign_run import DRAWN, ForeignResponse, ForeignRun, numbered, read_bytes, rows_of, same
from harness.exchange.read_eee import is_eee, read_eee
from harness.exchange.read_inspect import is_inspect, read_inspect, unzipped
from harness.exchange.read_lm_eval import is_lm_eval, read_lm_eval
from harness.files import folder_name
from harness.grading import Gold, Verdict, grader_name
from harness.records import RecordConfig, RecordStore, Row
from harness.records.summary import agreement, counts, scores
from harness.records.verdicts import OFFICIAL
from harness.spec import Decoding, Sampling, parse
from harness.spec.sampling import TRUNCATIONS
from harness.spec.stored import parse_json

ACCEPTED = (
    "a samples file of lm-eval (.jsonl), a log of Inspect (.json or .eval), a file of responses of Every Eval Ever "
    "(_samples.jsonl), or a result folder of the authors' script"
)


def read_foreign(path: Path, metric: str | None = None) -> ForeignRun:
    """Read a file of one of the formats, which it tells by its content.

    Raises:
        UserError: it is of none of them, or of one and damaged.
    """
    data = read_bytes(path)
    if data[:4] == b"PK\x03\x04":
        log = unzipped(path, data)
        if not is_inspect(log):
            raise DamagedError(f"{path} is a zip without a log of Inspect; accepted: {ACCEPTED}")
        return read_inspect(path, log, metric)
    if path.suffix != ".jsonl":
        log = parse_json(data, path)
        if not is_inspect(log):
            raise DamagedError(f"{path} is no log of Inspect; accepted: {ACCEPTED}")
        return read_inspect(path, log, metric)
    rows = rows_of(path, data)
    for known, read in ((is_lm_eval, read_lm_eval), (is_eee, read_eee)):
        if all(known(row) for _, row in rows):
            return read(path, rows, metric)
    where = next((where for where, row in rows if not (is_lm_eval(row) or is_eee(row))), rows[0][0])
    raise DamagedError(f"{where} is no line of a known form; accepted: {ACCEPTED}")


def import_foreign(
    store: str | Path,
    paths: Sequence[Path],
    *,
    task: str | None = None,
    decoding: Decoding | None = None,
    base: str | None = None,
    rl: str | None = None,
    metric: str | None = None,
    graders: Sequence[str] = ("robust",),
) -> dict[str, Any]:
    """Make a record of some files, which are only read; several are further samples of the same problems.

    Their verdicts are kept as grader `official`, where they gave one on each response; each of `graders` grades the
    same texts. `base` and `rl` say whose pair it is, so that two imports meet; unsaid, the file's own model stands for
    the one that decoded.

    Returns:
        The record's name, the counts, scores by them and by ours, how these agree, what the files lack, and remarks.

    Raises:
        UserError: a file is refused, files do not fit together, or the task or the decoding is not told.
    """
    paths, files = _in_order(paths)
    runs = [read_foreign(path, metric) for path in paths]
    run = _once(_together(runs, paths))
    if not (name := task or run.task):
        raise UserError(f"{paths[0]} does not say which benchmark it is; give --task")
    name = folder_name("task", name)
    told = run.decoding
    if told and decoding and told != decoding:
        raise UserError(f"decoding={decoding.label()!r} is not how {paths[0]} says it was decoded: {told.label()!r}")
    how = decoding or told
    if how is None:
        raise UserError(f"{paths[0]} does not say how it was decoded; give --decoding base or --decoding rl")
    graders = [grader_name(grader) for grader in graders]
    responses = [replace(each, problem=f"{name}/{each.problem}") for each in run.responses]
    drawn, remarks = _drawn(run, max(each.sample for each in responses) + 1)
    source = {
        "format": run.form,
        "files": files,
        "dataset": name,
        "model": run.model,
        "judge": run.judge,
        "lacks": _lacks(run, how, drawn),
        **drawn,
    }
    config = RecordConfig(kind="imported", decoding=how, source=source)
    gold: dict[str, Gold] = {each.problem: each.gold[0] if len(each.gold) == 1 else each.gold for each in responses}
    asked = max(each.sample for each in responses) + 1
    with RecordStore(store).open(config, name, list(gold), asked, about=_pair(run, how, base, rl)) as record:
        rows = [_row(each) for each in responses]
        record.add(*rows)
        record.finish()
        if run.judge is not None:
            theirs = [Verdict("correct" if each.correct else "wrong", each.answer) for each in responses]
            told = zip(rows, theirs, strict=True)
            record.judge(OFFICIAL, [(row, gold[row.problem], verdict) for row, verdict in told])
        for grader in graders:
            record.grade(gold, grader)
    judges = [*([OFFICIAL] if run.judge else []), *graders]
    found: dict[str, Any] = {
        "record": record.name,
        "decoding": how.label(),
        "judge": run.judge,
        "counts": counts(record),
        "scores": {judge: _finite(scores(record, judge)) for judge in judges},
        "lacks": list(config.lacks),
        "remarks": [*run.remarks, *remarks],
    }
    if run.judge:
        found["agreement"] = {grader: agreement(record, OFFICIAL, grader) for grader in graders}
    return found


def _in_order(paths: Sequence[Path]) -> tuple[list[Path], dict[str, str]]:
    """Return the files in one order, however they were given, and the digest of each by its name.

    So the same files are the same samples of the same record. Of several with one name, in other folders, each is named
    with its digest.

    Raises:
        UserError: a file is given twice, or cannot be read.
    """
    digests = {path: digest(read_bytes(path)) for path in paths}
    ordered = sorted(paths, key=lambda path: (path.name, digests[path]))
    for i, path in enumerate(ordered):
        if digests[path] in (digests[each] for each in ordered[:i]):
            raise UserError(f"{path} is given twice, by what it holds; accepted: further samples of one run")
    names = [path.name for path in ordered]
    return ordered, {
        path.name if names.count(path.name) == 1 else f"{path.name} {digests[path][:8]}": digests[path]
        for path in ordered
    }


def _finite(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what one sample cannot tell (an error of sampling)."""
    return {name: value for name, value in found.items() if not isinstance(value, float) or isfinite(value)}


def _together(runs: Sequence[ForeignRun], paths: Sequence[Path]) -> ForeignRun:
    """Put several files together, each the further samples of the same problems.

    Raises:
        UserError: they are of different formats, tasks, models, decodings or problems.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    problems = {each.problem: (each.question, each.gold) for each in first.responses}
    found: list[ForeignResponse] = []
    for run, path in zip(runs, paths, strict=True):
        for what in ("form", "task", "model", "decoding", "judge"):
            if getattr(run, what) != getattr(first, what):
                raise UserError(f"{path} differs in its {what} from {paths[0]}; accepted: further samples of one run")
        if {each.problem: (each.question, each.gold) for each in run.responses} != problems:
            raise UserError(f"{path} has other problems than {paths[0]}; accepted: further samples of the same")
        start = max((each.sample for each in found), default=-1) + 1
        found += [replace(each, sample=start + each.sample) for each in run.responses]
    drawn = {name: value for name in DRAWN if (value := same(run.sampling.get(name) for run in runs)) is not None}
    remarks = [remark for run in runs for remark in run.remarks]
    return replace(first, responses=numbered(found, paths[0]), sampling=drawn, remarks=tuple(dict.fromkeys(remarks)))


def _once(run: ForeignRun) -> ForeignRun:
    """Return a run whose responses to each problem are all equal with one of each, if it is greedy; remark on it.

    Greedy responses are one draw however often they are asked for, under whatever seed; as more they would be evidence
    of a spread, and of a Pass@k, that nobody looked for.
    """
    texts: dict[str, set[str]] = {}
    for each in run.responses:
        texts.setdefault(each.problem, set()).add(each.text)
    samples = max(each.sample for each in run.responses) + 1
    if samples == 1 or any(len(own) > 1 for own in texts.values()):
        return run
    same = f"the {samples} responses to each problem are equal"
    if run.sampling.get("temperature") != 0:
        remark = f"{same}: if nothing was left to chance, or all have one seed, they are one sample; then import one"
        return replace(run, remarks=(*run.remarks, remark))
    once = tuple(each for each in run.responses if each.sample == 0)
    return replace(run, responses=once, remarks=(*run.remarks, f"{same}, as temperature 0 has it: they count once"))


def _drawn(run: ForeignRun, samples: int) -> tuple[dict[str, Any], list[str]]:
    """Return what is told of the sampling, if it can be that of so many samples, and remarks."""
    try:
        parse(Sampling, {"samples": samples, **run.sampling})
    except UserError as error:
        return {}, [f"what is told of the sampling is left out: {error}"]
    return dict(run.sampling), []


def _lacks(run: ForeignRun, how: Decoding, drawn: dict[str, Any]) -> list[str]:
    """Name what the files do not say, in the words of results."""
    greedy = drawn.get("temperature") == 0
    truncated = greedy or not TRUNCATIONS.isdisjoint(drawn)
    names = ["temperature", *([] if truncated else ["top_p"]), *([] if greedy else ["seed"]), "max_tokens"]
    found = [name for name in names if name not in drawn]
    if any(each.n_tokens is None for each in run.responses):
        found.append("n_tokens")
    if how.gated and run.decoding is None:
        found.append("n_replaced")
    if any(each.finish_reason == "unknown" for each in run.responses):
        found.append("truncated")
    return [*found, "token_ids", "delta_logp", *([] if run.judge else ["verdicts"])]


def _pair(run: ForeignRun, how: Decoding, base: str | None, rl: str | None) -> dict[str, str]:
    own = {how.mode: run.model} if how.mode in ("base", "rl") else {}
    found = {"base": base or own.get("base"), "rl": rl or own.get("rl")}
    return {role: name for role, name in found.items() if name}


def _row(each: ForeignResponse) -> Row:
    tokens = each.n_tokens or 0
    replaced, changed = np.zeros(tokens, dtype=bool), np.zeros(tokens, dtype=bool)
    replaced[list(each.replaced)] = True
    changed[list(each.changed)] = True
    prompt = None if each.question is None else digest(each.question)
    return Row.make(each.problem, each.sample, each.text, each.finish_reason, replaced, changed, prompt=prompt)
