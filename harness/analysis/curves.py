"""Training curves from the logs that trainers leave: accuracy, entropy, length, gradient mass; of several runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import UserError

# What each trainer calls it (our own, TRL, verl), in this order of preference.
NAMES = {
    "accuracy": ("accuracy", "rewards/accuracy/mean", "reward", "critic/score/mean", "critic/rewards/mean"),
    "entropy": ("entropy", "actor/entropy", "actor/entropy_loss"),
    "length": ("length", "completions/mean_length", "response_length/mean", "mean_tokens"),
}
STEPS = ("step", "training/global_step", "global_step", "update")


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the records of a log: JSON lines, a JSON list (or an object with a list `log_history`), or our `build.json`.

    Raises:
        UserError: it is none of these.
    """
    text = path.read_text()
    try:
        data: Any = json.loads(text)
    except ValueError:
        try:
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            raise UserError(f"{path} is no log; accepted: JSON lines, or a JSON list of records") from None
    if isinstance(data, Mapping):
        dapo = data.get("dapo")
        if isinstance(dapo, Mapping) and "rollout_accuracy" in dapo:
            pairs = zip(dapo["rollout_accuracy"], dapo.get("rollout_tokens", []), strict=False)
            return [{"step": i + 1, "accuracy": a, "mean_tokens": n} for i, (a, n) in enumerate(pairs)]
        data = data.get("log_history", [data])
    records = [_flat(row) for row in data if isinstance(row, Mapping)]
    if not records:
        raise UserError(f"{path} holds no records; accepted: JSON lines, or a JSON list of records")
    return records


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lift the numbers of a row to its top: verl's file logger puts them under `data`."""
    inner = row.get("data")
    return {**row, **inner} if isinstance(inner, Mapping) else dict(row)


def curve(records: Sequence[Mapping[str, Any]], what: str) -> list[tuple[float, float]]:
    """Return (step, value) of `accuracy`, `entropy` or `length`; empty where the log has no such number."""
    name = next((n for n in NAMES[what] if any(_number(row.get(n)) for row in records)), None)
    if name is None:
        return []
    rows = [row for row in records if _number(row.get(name))]
    steps = next((n for n in STEPS if all(_number(row.get(n)) for row in rows)), None)
    return [(float(row[steps]) if steps else float(i), float(row[name])) for i, row in enumerate(rows, 1)]


def gradient(records: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return shares of tokens and of gradient mass by the tokens' probability, averaged over the steps of our log."""
    rows = [row for row in records if row.get("token_share") and row.get("gradient_share")]
    if not rows:
        return None
    means = {name: np.mean([row[name] for row in rows], axis=0).tolist() for name in ("token_share", "gradient_share")}
    return {**means, "steps": len(rows)}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def curves(logs: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
    """Return every curve of every run, by method: `{"Ours": [run1.jsonl, run2.jsonl], ...}` as plain JSON values.

    Raises:
        UserError: a log cannot be read, or none has a number that is known.
    """
    found: dict[str, Any] = {what: {} for what in NAMES}
    masses: dict[str, Any] = {}
    for method, paths in logs.items():
        for path in paths:
            records = read_log(path)
            if method not in masses and (mass := gradient(records)):
                masses[method] = mass
            for what in NAMES:
                if points := curve(records, what):
                    found[what].setdefault(method, []).append(points)
    found = {what: methods for what, methods in found.items() if methods}
    if not found:
        names = ", ".join(name for names in NAMES.values() for name in names)
        raise UserError(f"logs: none has a number that is known here; accepted: one of {names}")
    return {"kind": "training", "curves": found, "gradient": masses}
