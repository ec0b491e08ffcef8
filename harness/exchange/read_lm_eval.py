"""Reads a samples file of lm-eval (`--log_samples`): a line a document and filter, with its responses in `resps`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, UserError, unknown
from harness.exchange.foreign_run import (
    DRAWN,
    ForeignResponse,
    ForeignRun,
    length,
    numbered,
    places,
    problem_id,
    same,
    sampling_of,
    texts,
    told_by_ours,
)
from harness.grading import VERDICT_KINDS
from harness.spec import Decoding
from harness.spec.stored import is_number, read_json

_NAMES = tuple(name for name in DRAWN if name != "max_tokens")  # those that lm-eval calls as we do
_LENGTHS = ("max_gen_toks", "max_tokens", "max_new_tokens", "max_completion_tokens")
_Rows = Sequence[tuple[str, dict[str, Any]]]


def is_lm_eval(row: dict[str, Any]) -> bool:
    """Tell whether an object is a line of a samples file."""
    return "doc_id" in row and "resps" in row


def read_lm_eval(path: Path, rows: _Rows, metric: str | None = None) -> ForeignRun:
    """Read the lines of one filter, by default the first; `metric` is `METRIC`, `METRIC/FILTER` or `/FILTER`.

    Their verdict on a response is the metric, where a document has one response and every value is 0 or 1; of ours,
    what `doc.samples` says.

    Raises:
        UserError: a line is not of that form, has log-likelihoods in place of texts, or there is no such filter.
    """
    name, _, wanted = (metric or "").partition("/")
    filters = list(dict.fromkeys(str(row.get("filter", "none")) for _, row in rows))
    if wanted and wanted not in filters:
        raise unknown("metric", f"/{wanted}", (f"/{each}" for each in filters))
    chosen = wanted or filters[0]
    mine = [(where, row) for where, row in rows if str(row.get("filter", "none")) == chosen]
    remarks = [f"of the filters {', '.join(filters)} this is {chosen}"] if len(filters) > 1 else []
    ids, told = _ids(mine), [_kwargs(row) for _, row in mine]
    known, more = sampling_of({key: same(each.get(key) for each in told) for key in told[0]})
    each = [_texts(row, where) for where, row in mine]
    judge = _judge(mine, name, max(map(len, each)))
    found = []
    for (where, row), key, responses in zip(mine, ids, each, strict=True):
        gold, samples = texts(row.get("target"), where, "target"), _samples(row, len(responses))
        question = _question(row)
        for i, text in enumerate(responses):
            facts = _facts(samples[i], where) if samples else {}
            if judge and not samples:
                facts["correct"] = bool(row[judge])
            found.append(ForeignResponse(key, i, text, gold, question=question, **facts))
    by = f"{judge}/{chosen}" if judge else None
    if not judge and all(response.correct is not None for response in found):
        by = "verdicts of rlvr-dir"
    model, (drawn, decoding) = _beside(path)
    known, more = sampling_of({**known, **drawn}) if drawn else (known, more)
    task = _task(path)
    return ForeignRun("lm-eval", task, model, numbered(found, path), by, known, decoding, (*remarks, *more))


def _texts(row: dict[str, Any], where: str) -> list[str]:
    resps = row["resps"] if isinstance(row["resps"], list) else []
    flat = [one for each in resps for one in (each if isinstance(each, list) else [each])]
    if not flat or not all(isinstance(one, str) for one in flat):
        raise DamagedError(
            f"{where} has no texts in resps (a task of log-likelihoods has none); accepted: generate_until's responses"
        )
    return flat


def _ids(rows: _Rows) -> list[str]:
    """Return the documents' own ids where each has one of its own, else their numbers."""
    own = [row["doc"].get("id") if isinstance(row.get("doc"), dict) else None for _, row in rows]
    if all(isinstance(one, str) or type(one) is int for one in own) and len(set(map(str, own))) == len(rows):
        return [problem_id(one, where) for one, (where, _) in zip(own, rows, strict=True)]
    return [problem_id(row["doc_id"], where) for where, row in rows]


def _kwargs(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the arguments of a request say of its sampling, by our names."""
    arguments = row.get("arguments")
    first = arguments.get("gen_args_0") if isinstance(arguments, dict) else None
    said = first.get("arg_1") if isinstance(first, dict) else None
    if not isinstance(said, dict):
        return dict.fromkeys((*_NAMES, "max_tokens"))
    found = {name: said.get(name) for name in _NAMES}
    found["max_tokens"] = next((said[name] for name in _LENGTHS if said.get(name) is not None), None)
    if said.get("do_sample") is False or (found["temperature"] == 0 and is_number(found["temperature"])):
        found |= {**dict.fromkeys(_NAMES), "temperature": 0}
    return found


def _question(row: dict[str, Any]) -> str | None:
    arguments = row.get("arguments")
    first = arguments.get("gen_args_0") if isinstance(arguments, dict) else None
    said = first.get("arg_0") if isinstance(first, dict) else None
    return said if isinstance(said, str) else None


def _judge(rows: _Rows, wanted: str, responses: int) -> str | None:
    """Return the metric that says of each response whether it is right; None where there is none.

    Raises:
        UserError: the one that is wanted does not say so.
    """
    listed = rows[0][1].get("metrics")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    if responses == 1:
        fitting = [
            name
            for name in names
            if all(is_number(row.get(name)) or isinstance(row.get(name), bool) for _, row in rows)
            and {float(row[name]) for _, row in rows} <= {0.0, 1.0}
        ]
    else:
        fitting = []
    if wanted and wanted not in fitting:
        raise UserError(
            f"metric={wanted!r} is not 0 or 1 for every single response; accepted: {', '.join(fitting) or 'none here'}"
        )
    return wanted or next(iter(fitting), None)


def _samples(row: dict[str, Any], responses: int) -> list[dict[str, Any]]:
    """Return what our own files say of each response; empty where they are not ours."""
    doc = row.get("doc")
    found = doc.get("samples") if isinstance(doc, dict) else None
    if not isinstance(found, list) or len(found) != responses:
        return []
    ours = all(isinstance(one, dict) and one.get("verdict") in VERDICT_KINDS for one in found)
    return found if ours else []


def _facts(said: dict[str, Any], where: str) -> dict[str, Any]:
    tokens = length(said.get("n_tokens"), where)
    found: dict[str, Any] = {"correct": said["verdict"] == "correct", "n_tokens": tokens}
    found |= {name: places(said.get(f"{name}_at"), tokens, where) for name in ("replaced", "changed")}
    if isinstance(said.get("answer"), str):
        found["answer"] = said["answer"]
    if said.get("finish_reason") in ("stop", "length"):
        found["finish_reason"] = said["finish_reason"]
    return found


def _task(path: Path) -> str | None:
    """Return the task that a file's name says: `samples_TASK_2026-11-23T01-53-59.jsonl`."""
    name = path.stem.removeprefix("samples_")
    task, _, date = name.rpartition("_")
    return (task if task and date[:1].isdigit() else name) if path.stem.startswith("samples_") else None


def _beside(path: Path) -> tuple[str | None, tuple[dict[str, Any], Decoding | None]]:
    """Return what `results_<date>.json` beside it says: the model, and of our own exports how it was decoded."""
    date = path.stem.rpartition("_")[2]
    try:
        data = read_json(path.with_name(f"results_{date}.json"))
    except DamagedError:
        return None, ({}, None)
    data = data if isinstance(data, dict) else {}
    model, config = data.get("model_name"), data.get("config")
    told = config.get("metadata") if isinstance(config, dict) and data.get("model_source") == "rlvr_dir" else None
    return model if isinstance(model, str) else None, told_by_ours(told, path)
