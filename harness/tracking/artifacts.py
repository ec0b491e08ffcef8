"""The files of a run: the exact result, and a table of its problems without any model output."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from harness.evals.result import FLAGS, EvalResult

RESULT, TABLE = "result.json", "per_problem.json"


def write_artifacts(result: EvalResult, folder: Path) -> None:
    """Write both files of a result into an empty folder; its responses are in the records, once."""
    for name, text in ((RESULT, result.to_json()), (TABLE, json.dumps(_table(result), ensure_ascii=False))):
        path = folder / name
        path.write_text(text, encoding="utf-8", errors="backslashreplace")  # a lone surrogate becomes JSON's escape


def _table(result: EvalResult) -> dict[str, Any]:
    """Make one row a problem, in the form of MLflow's `log_table`; no model output, for a browser is to show it."""
    scores = {name: table[:, 0] for name, table in result.values.items()}
    if result.shares:
        shares = np.round(100 * result.correct.mean(axis=1), 2)
        scores = {f"avg_at_{result.samples}": shares, "correct": result.correct.sum(axis=1)}
    total, lacks = np.maximum(1, result.n_tokens.sum(axis=1)), {*result.lacks}
    tokens = {
        "mean_tokens": np.round(result.n_tokens.mean(axis=1), 1),
        "replacement_ratio": np.round(100 * result.n_replaced.sum(axis=1) / total, 2),
        "changed_ratio": np.round(100 * result.n_changed.sum(axis=1) / total, 2),
    }
    flags = {name: table for name in FLAGS if (table := getattr(result, name)) is not None and name not in lacks}
    counts = {name: table.sum(axis=1) for name, table in flags.items()}
    columns = {**scores, **({} if {"n_tokens", "n_replaced"} & lacks else tokens), **counts}
    rows = zip(result.problem_ids, *(column.tolist() for column in columns.values()), strict=True)
    return {"columns": ["problem", *columns], "data": [list(row) for row in rows]}
