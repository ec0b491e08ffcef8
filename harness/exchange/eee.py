"""Every Eval Ever 0.3.0: a JSON of scores for each result, and beside it a JSONL with a line for each response.

The schemas are those of https://github.com/evaleval/every_eval_ever; files lie as its datastore wants them,
`data/<benchmark>/<developer>/<model>/<uuid>.json` and `<uuid>_samples.jsonl`.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, unknown
from harness.evals.data import SOURCES
from harness.exchange.material import Material, Score, Target, Written, slug
from harness.exchange.responses import (
    ForeignRun,
    Response,
    Rows,
    at,
    mapping,
    numbered,
    same,
    sampling_of,
    text,
    told_by_ours,
)
from harness.files import make_folder, write_file
from harness.spec.stored import check_stored, read_json

VERSION = "0.3.0"
SAMPLES = "_samples.jsonl"
CANNOT = (
    "Every Eval Ever has no field for a decoding rule, a seed or replaced tokens (they are in additional_details and "
    "metadata, as text), and none for token ids, log-probabilities or the prompt after the chat template"
)


def write_eee(material: Material, out: Path, target: Target) -> Written:
    """Write one result below `out` as Every Eval Ever has it."""
    result, system, why = material.result, material.system, material.why_none
    folder = Path("data", slug(result.task), slug(system.developer), slug(system.model))
    digest = sha256(f"{result.config_hash} {system.id}".encode()).digest()
    name = str(uuid.UUID(bytes=digest[:16], version=4))  # that the same result always has
    made = str(int(target.now.timestamp()))
    about = {"evaluation_id": f"{result.task}/{system.id}/{made}", "model_id": system.id}
    make_folder(out / folder)
    files, data = [out / folder / f"{name}.json"], _aggregate(material, target, about["evaluation_id"], made)
    if not why:
        samples, found, rows = folder / f"{name}{SAMPLES}", sha256(), 0

        def lines() -> Iterator[bytes]:
            nonlocal rows
            for response in material.responses():
                line = json.dumps(_instance(material, response, about), allow_nan=False).encode() + b"\n"
                found.update(line)
                rows += 1
                yield line

        write_file(out / samples, lines())
        files.append(out / samples)
        told = {"format": "jsonl", "file_path": samples.as_posix(), "hash_algorithm": "sha256"}
        data["detailed_evaluation_results"] = {**told, "checksum": found.hexdigest(), "total_rows": rows}
    write_file(files[0], json.dumps(data, indent=1, allow_nan=False) + "\n")
    return Written(tuple(files), (f"{material.name}: no line a response: {why}",) if why else ())


def _aggregate(material: Material, target: Target, evaluation: str, made: str) -> dict[str, Any]:
    result, system, engine = material.result, material.system, material.result.engine
    imported, backend = bool(result.provenance.get("source")), str(engine.get("backend") or "")
    running = {"name": backend, "version": str(engine.get(backend) or "unknown")}
    data: dict[str, Any] = {
        "schema_version": VERSION,
        "evaluation_id": evaluation,
        "retrieved_timestamp": made,
        "source_metadata": {
            "source_name": "rlvr-dir",
            "source_type": "evaluation_run",
            "source_organization_name": target.organization,
            "evaluator_relationship": target.relationship,
        },
        "eval_library": {
            "name": "rlvr-dir",
            "version": str((result.provenance.get("versions") or {}).get("rlvr-dir") or "unknown"),
        },
        "model_info": {
            "name": system.name,
            "id": system.id,
            "developer": system.developer,
            **({"inference_engine": running} if backend else {}),
            "additional_details": {
                "deployment_type": "unknown" if imported else "self_deployed",
                "model_availability": "unknown",
                **material.facts(),
            },
        },
        "evaluation_results": [_score(material, score, i == 0) for i, score in enumerate(material.scores())],
    }
    return data | ({"evaluation_timestamp": str(int(material.when.timestamp()))} if material.when else {})


def _score(material: Material, score: Score, first: bool) -> dict[str, Any]:
    result, grader = material.result, material.result.provenance.get("grader")
    details: dict[str, Any] = {"score": score.value}
    if score.error is not None:
        error = {"value": score.error, "method": "standard deviation of problem means / sqrt(problems)"}
        details["uncertainty"] = {"standard_error": error, "num_samples": len(result.problem_ids)}
    if first:
        details["details"] = {name: repr(value) for name, value in material.counts().items()}
    unit = {"metric_unit": "proportion", "score_type": "continuous", "min_score": 0, "max_score": 1}
    data, limited = result.provenance.get("data"), result.limited
    source: dict[str, Any] = {"dataset_name": result.task, "source_type": "other"}
    if (hub := SOURCES.get(result.task)) and not (material.record and material.record.about.file):
        source |= {"source_type": "hf_dataset", "hf_repo": hub.hub, "hf_split": hub.split}
        source |= {"samples_number": hub.rows, "sample_ids": [*result.problem_ids]}
    more = {**({"data_digest": str(data)} if data else {}), **({"part": limited} if limited else {})}
    known = {name: value for name, value in material.drawn.items() if name in ("temperature", "top_p", "max_tokens")}
    return {
        "evaluation_result_id": score.name,
        "evaluation_name": result.task,
        "source_data": {**source, **({"additional_details": more} if more else {})},
        "metric_config": {
            "metric_id": score.id,
            "metric_name": score.shown,
            "metric_kind": score.id,
            "lower_is_better": score.lower_is_better,
            **(unit if score.proportion else {}),
            **({"metric_parameters": dict(score.parameters)} if score.parameters else {}),
            **({"additional_details": {"grader": str(grader)}} if grader else {}),
        },
        "score_details": details,
        "generation_config": {
            "generation_args": known,
            "additional_details": {
                "samples": str(result.samples),
                "decoding": result.decoding.model_dump_json(),
                "sampling": json.dumps(material.drawn),
            },
        },
    }


def _instance(material: Material, response: Response, about: dict[str, str]) -> dict[str, Any]:
    """Return the line of one response; its sample's number is in `metadata`, which the schema wants as text."""
    result, tokens, read = material.result, response.n_tokens, response.prompt_tokens
    metadata = {
        "sample": str(response.sample),
        "verdict": response.kind,
        "decoding": result.decoding.label(),
        "seed": None if "seed" in result.lacks else str(result.sampling.seed),
        "finish_reason": None if response.finish_reason == "unknown" else response.finish_reason,
    }
    if tokens is not None:
        places = {f"{name}_at": " ".join(map(str, getattr(response, name))) for name in ("replaced", "changed")}
        metadata |= {"n_tokens": str(tokens), **places}
    raw = (response.question or "") + "".join(response.gold)
    line: dict[str, Any] = {
        "schema_version": VERSION,
        **about,
        "evaluation_name": result.task,
        "evaluation_result_id": f"avg@{result.samples}",
        "sample_id": response.problem,
        "sample_hash": sha256(raw.encode("utf-8", "surrogatepass")).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": response.question, "reference": list(response.gold)},
        "output": {"raw": [response.text]},
        "answer_attribution": [],
        "evaluation": {"score": float(bool(response.correct)), "is_correct": response.correct},
        "metadata": {name: value for name, value in metadata.items() if value is not None},
    }
    if response.answer is not None:
        read_from = {"turn_idx": 0, "source": "output.raw", "extracted_value": response.answer, "is_terminal": True}
        line["answer_attribution"] = [{**read_from, "extraction_method": "last closed box, as the grader reads it"}]
    if tokens is not None and read is not None:
        line["token_usage"] = {"input_tokens": read, "output_tokens": tokens, "total_tokens": read + tokens}
    if response.kind in ("timed_out", "grader_error"):
        line["error"] = f"the grader gave no verdict ({response.kind}); it counts as wrong"
    return line


def is_eee(row: dict[str, Any]) -> bool:
    """Tell whether an object is a line of a file of responses."""
    return {"schema_version", "evaluation_id", "sample_id"} <= row.keys()


def read_eee(path: Path, rows: Rows, metric: str | None = None) -> ForeignRun:
    """Read the lines of one result; `metric` is its `evaluation_result_id` or `evaluation_name`, by default the first.

    Raises:
        UserError: a line is not of that form, is no single turn with one response, or there is no such result.
    """
    names = [str(row.get("evaluation_result_id") or row.get("evaluation_name")) for _, row in rows]
    known_names = [*dict.fromkeys(names)]
    if metric and metric not in known_names:
        raise unknown("metric", metric, known_names)
    chosen = metric or known_names[0]
    mine = [row for row, name in zip(rows, names, strict=True) if name == chosen]
    remarks = [f"of the results {', '.join(known_names)} this is {chosen}"] if len(known_names) > 1 else []
    turns: Counter[str] = Counter()
    found = []
    for where, row in mine:
        raw = at(row, "output", "raw")
        if row.get("interaction_type") != "single_turn" or not isinstance(raw, list) or len(raw) != 1:
            raise DamagedError(
                f"{where} is no single turn; accepted: interaction_type single_turn, one text in output.raw"
            )
        meta, place = mapping(row, "metadata"), str(row["sample_id"])
        number, written, judged = (
            text(meta, "sample") or "",
            text(meta, "n_tokens") or "",
            at(row, "evaluation", "is_correct"),
        )
        said = {
            "problem": row["sample_id"],
            "sample": int(number) if number.isascii() and number.isdecimal() and len(number) < 7 else turns[place],
            "text": raw[0],
            "gold": at(row, "input", "reference"),
            "correct": judged if isinstance(judged, bool) else str(judged),  # there has to be one
            "answer": at(row, "answer_attribution", -1, "extracted_value"),
            "question": at(row, "input", "raw"),
            "finish_reason": at(meta, "finish_reason"),
            "n_tokens": int(written)
            if written.isascii() and written.isdecimal()
            else at(row, "token_usage", "output_tokens"),
            "replaced": at(meta, "replaced_at"),
            "changed": at(meta, "changed_at"),
        }
        turns[place] += 1
        found.append(check_stored(said, Response, where))
    told, decoding = _beside(path, same(row.get("evaluation_id") for _, row in mine))
    known, more = sampling_of(told)
    about = {name: same(row.get(name) for _, row in mine) for name in ("model_id", "evaluation_name")}
    task, model = text(about, "evaluation_name"), text(about, "model_id")
    return ForeignRun("eee", task, model, numbered(found, path), chosen, known, decoding, (*remarks, *more))


def _beside(path: Path, evaluation: Any) -> tuple[dict[str, Any], Any]:
    """Return the sampling and the decoding that the scores beside a file tell, if they are of the same evaluation."""
    try:
        data = read_json(path.with_name(f"{path.name.removesuffix(SAMPLES)}.json"))
    except DamagedError:
        return {}, None
    if evaluation is None or not path.name.endswith(SAMPLES) or at(data, "evaluation_id") != evaluation:
        return {}, None
    config = mapping(data, "evaluation_results", 0, "generation_config")
    told, decoding = told_by_ours(at(config, "additional_details"))
    drawn = {name: at(config, "generation_args", name) for name in ("temperature", "top_p", "max_tokens")}
    return {**drawn, **told}, decoding
