"""Reads a file of responses of Every Eval Ever (`<uuid>_samples.jsonl`), and the scores beside it for the settings."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, unknown
from harness.exchange.eee import SAMPLES
from harness.exchange.foreign_run import (
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
from harness.records.row import FinishReason
from harness.spec.stored import read_json

_Rows = Sequence[tuple[str, dict[str, Any]]]
_ENDS: dict[Any, FinishReason] = {"stop": "stop", "length": "length"}


def is_eee(row: dict[str, Any]) -> bool:
    """Tell whether an object is a line of a file of responses."""
    return "schema_version" in row and "evaluation_id" in row and "sample_id" in row


def read_eee(path: Path, rows: _Rows, metric: str | None = None) -> ForeignRun:
    """Read the lines of one result; `metric` is its `evaluation_result_id` or `evaluation_name`, by default the first.

    Raises:
        UserError: a line is not of that form, is no single turn with one response, or there is no such result.
    """
    names = [str(row.get("evaluation_result_id") or row.get("evaluation_name")) for _, row in rows]
    known_names = list(dict.fromkeys(names))
    if metric and metric not in known_names:
        raise unknown("metric", metric, known_names)
    chosen = metric or known_names[0]
    mine = [each for each, name in zip(rows, names, strict=True) if name == chosen]
    remarks = [f"of the results {', '.join(known_names)} this is {chosen}"] if len(known_names) > 1 else []
    turns: Counter[str] = Counter()
    found = [_response(row, where, turns) for where, row in mine]
    model, task = (same(row.get(name) for _, row in mine) for name in ("model_id", "evaluation_name"))
    told, decoding = _beside(path, same(row.get("evaluation_id") for _, row in mine))
    known, more = sampling_of(told)
    return ForeignRun(
        "eee",
        task if isinstance(task, str) else None,
        model if isinstance(model, str) else None,
        numbered(found, path),
        chosen,
        known,
        decoding,
        (*remarks, *more),
    )


def _response(row: dict[str, Any], where: str, turns: Counter[str]) -> ForeignResponse:
    if (kind := row.get("interaction_type")) != "single_turn":
        raise DamagedError(f"{where} has interaction_type={str(kind)[:40]!r}; accepted: single_turn")
    given, output, verdict = (row.get(name) for name in ("input", "output", "evaluation"))
    raw = output.get("raw") if isinstance(output, dict) else None
    if not isinstance(raw, list) or len(raw) != 1 or not isinstance(raw[0], str):
        raise DamagedError(f"{where} has no single response in output.raw; accepted: a list with one text")
    correct = verdict.get("is_correct") if isinstance(verdict, dict) else None
    if not isinstance(correct, bool):
        raise DamagedError(f"{where} has evaluation.is_correct={str(correct)[:40]!r}; accepted: true or false")
    if not isinstance(given, dict) or not isinstance(given.get("raw"), str):
        raise DamagedError(f"{where} has no text in input.raw")
    key, meta = problem_id(row["sample_id"], where), row.get("metadata")
    meta, usage = meta if isinstance(meta, dict) else {}, row.get("token_usage")
    written = meta.get("n_tokens")
    if isinstance(written, str) and written.isascii() and written.isdecimal() and len(written) < 10:
        tokens = length(int(written), where)
    else:
        tokens = length(usage.get("output_tokens") if isinstance(usage, dict) else None, where)
    number = meta.get("sample")
    turns[key] += 1
    own = isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) < 7
    answers = row.get("answer_attribution")
    last = answers[-1] if isinstance(answers, list) and answers and isinstance(answers[-1], dict) else {}
    answer, ended = last.get("extracted_value"), meta.get("finish_reason")
    return ForeignResponse(
        key,
        int(number) if own and isinstance(number, str) else turns[key] - 1,
        raw[0],
        texts(given.get("reference"), where, "reference"),
        correct,
        answer if isinstance(answer, str) else None,
        given["raw"],
        _ENDS.get(ended, "unknown") if isinstance(ended, str) else "unknown",
        tokens,
        places(meta.get("replaced_at"), tokens, where),
        places(meta.get("changed_at"), tokens, where),
    )


def _beside(path: Path, evaluation: Any) -> tuple[dict[str, Any], Any]:
    """Return the sampling and the decoding that the scores beside a file tell, if they are of the same evaluation."""
    if not path.name.endswith(SAMPLES) or evaluation is None:
        return {}, None
    try:
        data = read_json(path.with_name(f"{path.name.removesuffix(SAMPLES)}.json"))
    except DamagedError:
        return {}, None
    if not isinstance(data, dict) or data.get("evaluation_id") != evaluation:
        return {}, None
    results = data.get("evaluation_results")
    result = results[0] if isinstance(results, list) and results and isinstance(results[0], dict) else {}
    config = result.get("generation_config")
    config = config if isinstance(config, dict) else {}
    drawn, more = config.get("generation_args"), config.get("additional_details")
    drawn, more = (value if isinstance(value, dict) else {} for value in (drawn, more))
    told, decoding = told_by_ours(more, path)
    return {**{name: drawn.get(name) for name in ("temperature", "top_p", "max_tokens")}, **told}, decoding
