"""The files of a run: the exact result, and a table of its problems without any model output."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from harness.evals.foreign import LmEvalResult
from harness.evals.result import EvalResult

RESULT, TABLE = "result.json", "per_problem.json"


def write_artifacts(result: EvalResult, folder: Path) -> None:
    """Write both files of a result into an empty folder; its responses are in the records, once."""
    for name, text in ((RESULT, result.to_json()), (TABLE, json.dumps(_table(result), ensure_ascii=False))):
        path = folder / name
        path.write_text(text, encoding="utf-8", errors="backslashreplace")  # a lone surrogate becomes JSON's escape


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
