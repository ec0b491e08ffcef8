"""The files of a run: exact numbers, a table without text, and, where its record is at hand, samples and Δ log p."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from harness.analysis.histogram import Histogram, as_json
from harness.evals.foreign import COUNTED, LmEvalResult
from harness.evals.from_records import record_of
from harness.evals.result import EvalResult
from harness.records import Key, Record, judge_name
from harness.records.verdicts import StoredVerdict

RESULT, TABLE = "result.json", "per_problem.json"


def write_artifacts(result: EvalResult, folder: Path) -> None:
    """Write all files of a result into an empty folder.

    `samples.jsonl.gz` and `delta_logp_hist.json` come from the record that the provenance names, and only where every
    rollout of the result is in it with the length that was scored; otherwise there are none.
    """
    _write(folder / RESULT, result.to_json())
    _write(folder / "config.yaml", _config(result))
    _write(folder / TABLE, json.dumps(_table(result), ensure_ascii=False))
    _write(folder / "problem_ids.json", json.dumps(result.problem_ids, ensure_ascii=False))
    if not isinstance(result, LmEvalResult):
        np.save(folder / "correct.npy", result.correct.astype(np.uint8))
    record = _record(result)
    if record is not None:
        _write_samples(result, *record, folder)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace")  # a lone surrogate becomes JSON's escape of it


def _write_samples(result: EvalResult, stored: Record, keys: list[list[Key]], folder: Path) -> None:
    path = folder / "samples.jsonl.gz"
    everywhere, replaced = Histogram(), Histogram()
    told = {"n_tokens", "n_replaced"}.isdisjoint(result.lacks)
    grader = str(result.provenance.get("grader", "robust"))
    verdicts = stored.verdicts(judge_name(grader, result.task, stored.task))
    # Level 1 takes half the time of gzip's default and a few percent more space.
    with gzip.open(path, "wt", compresslevel=1, encoding="ascii") as out:
        for row, problem in enumerate(result.problem_ids):
            for column, key in enumerate(keys[row]):
                rollout = stored.rows[key].load()
                if rollout.n_tokens != result.n_tokens[row, column]:
                    path.unlink()
                    return
                line = {
                    "problem": problem,
                    "sample": column,
                    **_judged(result, row, column, verdicts.get(key)),
                    "finish_reason": rollout.finish_reason,
                    **{name: getattr(rollout, name) if told else None for name in COUNTED[:3]},
                    "text": rollout.text,
                }
                out.write(json.dumps(line) + "\n")
                if (delta := rollout.delta_logp) is not None:
                    everywhere.add(delta)
                    replaced.add(delta[rollout.replaced])
    if everywhere.tokens:
        _write(folder / "delta_logp_hist.json", json.dumps(as_json({"all": everywhere, "replaced": replaced})))


def _judged(result: EvalResult, row: int, column: int, verdict: StoredVerdict | None) -> dict[str, Any]:
    """Return what was said of a response; of lm-eval's tasks what its metrics say of the problem."""
    if isinstance(result, LmEvalResult):
        return {name: values[row] for name, values in result.scored.by_problem.items()}
    judged = bool(result.correct[row, column])
    kind, answer = (verdict.kind, verdict.answer) if verdict else (None, None)  # not at hand
    return {"correct": judged, "verdict": kind, "answer": answer}


def _config(result: EvalResult) -> str:
    """Write everything that was asked and known, as YAML."""
    config = {
        "task": result.task,
        "decoding": result.decoding.model_dump(mode="json"),
        "sampling": result.sampling.model_dump(mode="json"),
        "problems": len(result.problem_ids),
        "config_hash": result.config_hash,
        **result.provenance,
    }
    return yaml.safe_dump(json.loads(json.dumps(config, default=str)), sort_keys=False, allow_unicode=True)


def _table(result: EvalResult) -> dict[str, Any]:
    """Make one row a problem, in the form of MLflow's `log_table`; no model output, for a browser is to show it."""
    scores: dict[str, list[Any]]
    if isinstance(result, LmEvalResult):
        scores = {name: list(values) for name, values in result.scored.by_problem.items()}
    else:
        scores = {
            f"avg_at_{result.samples}": np.round(100 * result.correct.mean(axis=1), 2).tolist(),
            "correct": result.correct.sum(axis=1).tolist(),
            "no_box": result.no_box.sum(axis=1).tolist(),
            "ungraded": result.ungraded.sum(axis=1).tolist(),
        }
    columns: dict[str, list[Any]] = {
        "problem": list(result.problem_ids),
        **scores,
        "mean_tokens": np.round(result.n_tokens.mean(axis=1), 1).tolist(),
        **{
            name: np.round(100 * counted.sum(axis=1) / np.maximum(1, result.n_tokens.sum(axis=1)), 2).tolist()
            for name, counted in (("replacement_ratio", result.n_replaced), ("changed_ratio", result.n_changed))
        },
        "truncated": result.truncated.sum(axis=1).tolist(),
    }
    unknown = {"truncated", "no_box"} & {*result.lacks}
    if {"n_tokens", "n_replaced"} & {*result.lacks}:
        unknown |= {"mean_tokens", "replacement_ratio", "changed_ratio"}
    columns = {name: column for name, column in columns.items() if name not in unknown}
    return {"columns": list(columns), "data": [list(row) for row in zip(*columns.values(), strict=True)]}


def _record(result: EvalResult) -> tuple[Record, list[list[Key]]] | None:
    """Return the record behind a result and its rollouts' keys, (problems, samples); None where one is missing."""
    stored = record_of(result)
    if stored is None:
        return None
    # Our language model names a problem `<task>/<id>`; imported records keep their own names.
    for prefix in (f"{result.task}/", ""):
        keys = [[(prefix + problem, column) for column in range(result.samples)] for problem in result.problem_ids]
        if all(key in stored for row in keys for key in row):
            return stored, keys
    return None
