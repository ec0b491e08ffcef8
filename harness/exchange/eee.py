"""Every Eval Ever 0.3.0: a JSON of scores for each result, and beside it a JSONL with a line for each response.

The schemas are those of https://github.com/evaleval/every_eval_ever; files lie as its datastore wants them,
`data/<benchmark>/<developer>/<model>/<uuid>.json` and `<uuid>_samples.jsonl`.
"""

import json
import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness.evals.data import SOURCES
from harness.exchange.material import Material, Response
from harness.exchange.scores import Score, counts_of, scores_of
from harness.exchange.system import slug
from harness.exchange.target import Target, Written
from harness.files import make_folder, write_file

VERSION = "0.3.0"
SAMPLES = "_samples.jsonl"
CANNOT = (
    "Every Eval Ever has no field for a decoding rule, a seed or replaced tokens (they are in additional_details and "
    "metadata, as text), and none for token ids, log-probabilities or the prompt after the chat template"
)


def write_eee(material: Material, out: Path, target: Target) -> Written:
    """Write one result below `out` as Every Eval Ever has it."""
    result, system = material.result, material.system
    folder = Path("data", slug(result.task), slug(system.developer), slug(system.model))
    digest = sha256(f"{result.config_hash} {system.id}".encode()).digest()
    name = str(uuid.UUID(bytes=digest[:16], version=4))  # that the same result always has
    made = str(int(target.now.timestamp()))
    about = {"evaluation_id": f"{result.task}/{system.id}/{made}", "model_id": system.id}
    make_folder(out / folder)
    files, data = [out / folder / f"{name}.json"], _aggregate(material, target, about["evaluation_id"], made)
    if not material.why_none:
        samples, found = folder / f"{name}{SAMPLES}", sha256()
        rows = 0

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
    return Written(
        tuple(files), (f"{material.name}: no line a response: {material.why_none}",) if material.why_none else ()
    )


def _aggregate(material: Material, target: Target, evaluation: str, made: str) -> dict[str, Any]:
    result, system, engine = material.result, material.system, material.result.provenance.get("engine") or {}
    versions = result.provenance.get("versions") or {}
    imported = bool(result.provenance.get("source"))
    backend = str(engine.get("backend") or "")
    info = {
        "deployment_type": "unknown" if imported else "self_deployed",
        "model_availability": "unknown",
        **material.facts(),
    }
    model: dict[str, Any] = {"name": system.name, "id": system.id, "developer": system.developer}
    if backend:
        model["inference_engine"] = {"name": backend, "version": str(engine.get(backend) or "unknown")}
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
        "eval_library": {"name": "rlvr-dir", "version": str(versions.get("rlvr-dir") or "unknown")},
        "model_info": {**model, "additional_details": info},
        "evaluation_results": [_score(material, score, i == 0) for i, score in enumerate(scores_of(result))],
    }
    if material.when is not None:
        data["evaluation_timestamp"] = str(int(material.when.timestamp()))
    return data


def _score(material: Material, score: Score, first: bool) -> dict[str, Any]:
    result = material.result
    metric: dict[str, Any] = {
        "metric_id": score.id,
        "metric_name": score.shown,
        "metric_kind": score.id,
        "lower_is_better": score.lower_is_better,
    }
    if score.proportion:
        metric |= {"metric_unit": "proportion", "score_type": "continuous", "min_score": 0, "max_score": 1}
    if score.parameters:
        metric["metric_parameters"] = dict(score.parameters)
    if grader := result.provenance.get("grader"):
        metric["additional_details"] = {"grader": str(grader)}
    details: dict[str, Any] = {"score": score.value}
    if score.error is not None:
        error = {"value": score.error, "method": "standard deviation of problem means / sqrt(problems)"}
        details["uncertainty"] = {"standard_error": error, "num_samples": len(result.problem_ids)}
    if first:
        details["details"] = {name: repr(value) for name, value in counts_of(result).items()}
    known = {name: value for name, value in material.drawn.items() if name in ("temperature", "top_p", "max_tokens")}
    more = {"samples": str(result.samples), "decoding": result.decoding.model_dump_json()}
    more["sampling"] = json.dumps(material.drawn)
    return {
        "evaluation_result_id": score.name,
        "evaluation_name": result.task,
        "source_data": _source(material),
        "metric_config": metric,
        "score_details": details,
        "generation_config": {"generation_args": known, "additional_details": more},
    }


def _source(material: Material) -> dict[str, Any]:
    """Return where the questions are from: the hub, for a shipped benchmark that is there, else in words."""
    result = material.result
    more = {"data_digest": str(digest)} if (digest := result.provenance.get("data")) else {}
    if result.limited:
        more["part"] = result.limited
    found: dict[str, Any] = {"dataset_name": result.task, "source_type": "other"}
    if (hub := SOURCES.get(result.task)) and not (material.record and material.record.about.file):
        ids = list(result.problem_ids)
        found |= {"source_type": "hf_dataset", "hf_repo": hub.hub, "hf_split": hub.split}
        found |= {"samples_number": hub.rows, "sample_ids": ids}
    return {**found, "additional_details": more} if more else found


def _instance(material: Material, response: Response, about: dict[str, str]) -> dict[str, Any]:
    """Return the line of one response; its sample's number is in `metadata`, which the schema wants as text."""
    rollout, result = response.rollout, material.result
    known = "n_tokens" not in result.lacks
    metadata = {"sample": str(response.sample), "verdict": response.kind, "decoding": result.decoding.label()}
    if "seed" not in result.lacks:
        metadata["seed"] = str(result.sampling.seed)
    if rollout.finish_reason != "unknown":
        metadata["finish_reason"] = rollout.finish_reason
    if known:
        metadata["n_tokens"] = str(rollout.n_tokens)
        for name in ("replaced", "changed"):
            metadata[f"{name}_at"] = " ".join(map(str, getattr(rollout, name).nonzero()[0].tolist()))
    raw, text = response.question + "".join(response.gold), rollout.text
    line: dict[str, Any] = {
        "schema_version": VERSION,
        **about,
        "evaluation_name": result.task,
        "evaluation_result_id": f"avg@{result.samples}",
        "sample_id": response.problem,
        "sample_hash": sha256(raw.encode("utf-8", "surrogatepass")).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": response.question, "reference": list(response.gold)},
        "output": {"raw": [text]},
        "answer_attribution": [],
        "evaluation": {"score": float(response.correct), "is_correct": response.correct},
        "metadata": metadata,
    }
    if response.answer is not None:
        line["answer_attribution"] = [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": response.answer,
                "extraction_method": "last closed box, as the grader reads it",
                "is_terminal": True,
            }
        ]
    if known and rollout.prompt_token_ids is not None:
        read = len(rollout.prompt_token_ids)
        total = read + rollout.n_tokens
        line["token_usage"] = {"input_tokens": read, "output_tokens": rollout.n_tokens, "total_tokens": total}
    if response.kind in ("timed_out", "grader_error"):
        line["error"] = f"the grader gave no verdict ({response.kind}); it counts as wrong"
    return line
