"""Makes a record of other programs' files: what they say is kept, what they lack is named, what we say stands beside.

import_foreign("runs/records", [Path("samples_gsm8k_2026-05-01.jsonl")], decoding=Decoding(mode="rl"))
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.digest import digest
from harness.errors import DamagedError, UserError
from harness.evals.from_records import judged, result_of_record
from harness.exchange.eee import is_eee, read_eee
from harness.exchange.inspect_log import is_inspect, read_inspect, unzipped
from harness.exchange.lm_eval import is_lm_eval, read_lm_eval
from harness.exchange.official import read_official
from harness.exchange.responses import DRAWN, ForeignRun, Response, numbered, rows_of, same
from harness.files import folder_name
from harness.grading import Gold, Verdict, grader_name
from harness.records import Record, RecordConfig, RecordStore, Row
from harness.records.commands import counts
from harness.records.verdicts import OFFICIAL
from harness.spec import Decoding, Sampling, parse
from harness.spec.sampling import TRUNCATIONS
from harness.spec.stored import parse_json, read_bytes

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
    zipped = data[:4] == b"PK\x03\x04"
    if zipped or path.suffix != ".jsonl":
        log = unzipped(path, data) if zipped else parse_json(data, path)
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
    graders: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Make a record of some files, which are only read; several are further samples of the same problems.

    A folder is one of the authors'. Their verdicts are kept as grader `official`, where they gave one on each response;
    each of `graders` grades the same texts (`robust`; those of the authors `plain` too). `base` and `rl` say whose pair
    it is, so that two imports meet; unsaid, the file's own model stands for the one that decoded.

    Returns:
        The record's name, the counts, scores by them and by ours, how these agree, what the files lack, and remarks.

    Raises:
        UserError: a file is refused, files do not fit together, or the task or the decoding is not told.
    """
    if authors := len(paths) == 1 and paths[0].is_dir():
        run, files = read_official(paths[0], task), {}
    else:
        paths, files = _in_order(paths)
        run = _once(_together([read_foreign(path, metric) for path in paths], paths))
    if not (name := task or run.task):
        raise UserError(f"{paths[0]} does not say which benchmark it is; give --task")
    name, told, how = folder_name("task", name), run.decoding, decoding or run.decoding
    if told and decoding and told != decoding:
        raise UserError(f"decoding={decoding.label()!r} is not how {paths[0]} says it was decoded: {told.label()!r}")
    if how is None:
        raise UserError(f"{paths[0]} does not say how it was decoded; give --decoding base or --decoding rl")
    if graders is None:
        graders = ("plain", "robust") if authors else ("robust",)
    graders = [grader_name(each) for each in graders]
    responses = [each.model_copy(update={"problem": f"{name}/{each.problem}"}) for each in run.responses]
    asked, remarks = max(each.sample for each in responses) + 1, [*run.remarks]
    drawn = run.sampling
    try:
        parse(Sampling, {"samples": asked, **drawn})
    except UserError as error:
        drawn = {}
        remarks.append(f"what is told of the sampling is left out: {error}")
    source = {"format": run.form, "files": files, "dataset": name, "model": run.model, "judge": run.judge}
    config = RecordConfig(
        kind="imported", decoding=how, source={**source, "lacks": _lacks(run, how, drawn), **drawn, **run.source}
    )
    gold: dict[str, Gold] = {each.problem: each.gold[0] if len(each.gold) == 1 else each.gold for each in responses}
    own = run.model if how.mode in ("base", "rl") else None
    pair = {"base": base or (own if how.mode == "base" else None), "rl": rl or (own if how.mode == "rl" else None)}
    with RecordStore(store).open(config, name, list(gold), asked, about={k: v for k, v in pair.items() if v}) as record:
        rows = [_row(each) for each in responses]
        record.add(*rows)
        record.finish()
        if run.judge is not None:
            theirs = [Verdict("correct" if each.correct else "wrong", each.answer) for each in responses]
            both = zip(rows, theirs, strict=True)
            record.judge(OFFICIAL, [(row, gold[row.problem], verdict) for row, verdict in both])
        for grader in graders:
            record.grade(gold, grader)
    judges = [*([OFFICIAL] if run.judge else []), *graders]
    return {
        "record": record.name,
        "decoding": how.label(),
        "judge": run.judge,
        "counts": counts(record),
        "scores": {judge: judged(record, judge) for judge in judges},
        "lacks": list(config.lacks),
        "remarks": remarks,
        **({"agreement": {each: _agreement(record, each) for each in graders}} if run.judge else {}),
    }


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
    said = {path: f" {digests[path][:8]}" * (names.count(path.name) > 1) for path in ordered}
    return ordered, {path.name + more: digests[path] for path, more in said.items()}


def _agreement(record: Record, grader: str) -> dict[str, int]:
    """Count how often a grader agrees with the verdicts that came along, and which way they differ."""
    theirs, ours = (result_of_record(record, judge=judge).correct for judge in (OFFICIAL, grader))
    counted = {"both": theirs & ours, "neither": ~(theirs | ours)}
    counted |= {f"only {OFFICIAL}": theirs & ~ours, f"only {grader}": ours & ~theirs}
    return {name: int(table.sum()) for name, table in counted.items()}


def _together(runs: Sequence[ForeignRun], paths: Sequence[Path]) -> ForeignRun:
    """Put several files together, each the further samples of the same problems.

    Raises:
        UserError: they are of different formats, tasks, models, decodings or problems.
    """
    first, found = runs[0], list[Response]()
    for run, path in zip(runs, paths, strict=True):
        for what in ("form", "task", "model", "decoding", "judge"):
            if getattr(run, what) != getattr(first, what):
                raise UserError(f"{path} differs in its {what} from {paths[0]}; accepted: further samples of one run")
        problems = [{each.problem: (each.question, each.gold) for each in one.responses} for one in (first, run)]
        if problems[0] != problems[1]:
            raise UserError(f"{path} has other problems than {paths[0]}; accepted: further samples of the same")
        start = max((each.sample for each in found), default=-1) + 1
        found += [each.model_copy(update={"sample": start + each.sample}) for each in run.responses]
    drawn = {name: value for name in DRAWN if (value := same(run.sampling.get(name) for run in runs)) is not None}
    remarks = dict.fromkeys(remark for run in runs for remark in run.remarks)
    return replace(first, responses=numbered(found, paths[0]), sampling=drawn, remarks=tuple(remarks))


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
    equal, kept = f"the {samples} responses to each problem are equal", run.responses
    if run.sampling.get("temperature") == 0:
        equal, kept = f"{equal}, as temperature 0 has it: they count once", tuple(r for r in kept if r.sample == 0)
    else:
        equal += ": if nothing was left to chance, or all have one seed, they are one sample; then import one"
    return replace(run, responses=kept, remarks=(*run.remarks, equal))


def _lacks(run: ForeignRun, how: Decoding, drawn: dict[str, Any]) -> list[str]:
    """Name what the files do not say, in the words of results."""
    greedy = drawn.get("temperature") == 0
    unsaid = {
        "temperature": "temperature" not in drawn,
        "top_p": not greedy and TRUNCATIONS.isdisjoint(drawn),
        "seed": not greedy and "seed" not in drawn and "seeds" not in run.source,
        "max_tokens": "max_tokens" not in drawn,
        "n_tokens": any(each.n_tokens is None for each in run.responses),
        "n_replaced": how.gated and run.decoding is None,
        "truncated": any(each.finish_reason == "unknown" for each in run.responses),
        "token_ids": True,
        "delta_logp": True,
        "verdicts": not run.judge,
    }
    return [name for name, lacking in unsaid.items() if lacking]


def _row(each: Response) -> Row:
    flags = {name: np.zeros(each.n_tokens or 0, dtype=bool) for name in ("replaced", "changed")}
    for name, of in flags.items():
        of[list(getattr(each, name))] = True
    prompt = None if each.question is None else digest(each.question)
    where = (each.problem, each.sample, each.text, each.finish_reason)
    return Row.make(*where, flags["replaced"], flags["changed"], prompt=prompt)
