"""Training curves from the logs that trainers leave, of several runs: validations, and what was seen of the rollouts.

A validation is Avg@k on held-out problems, of every training alike; the accuracy of the rollouts is of the training's
own problems, drawn as that training draws them; a reward is neither.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness import stats
from harness.errors import UserError
from harness.evals.trainings import read_json
from harness.spec import read_yaml
from harness.spec.stored import is_number

# What each trainer calls it (our own, TRL, verl), in this order of preference.
NAMES = {
    "rollout_accuracy": ("accuracy", "rewards/accuracy/mean", "rlvr_dir/accuracy"),
    "reward": ("reward", "critic/score/mean", "critic/rewards/mean"),
    "entropy": ("entropy", "actor/entropy", "actor/entropy_loss"),
    "length": ("length", "completions/mean_length", "response_length/mean", "mean_tokens"),
}
MOST_VALUE = 1e30  # of what a figure can show
STEPS = ("step", "training/global_step", "global_step", "update")
_VERL = re.compile(r"val-core/(?P<task>.+)/acc/mean@(?P<samples>\d+)")


@dataclass(frozen=True)
class Log:
    """A log: its records, and what the folder of its training says of it, as far as it is one of ours."""

    records: list[dict[str, Any]]
    base: Mapping[str, Any]  # scores of the base by benchmark
    about: Mapping[str, Any]  # the training

    @classmethod
    def read(cls, path: Path) -> "Log":
        """Read a log, and the training it belongs to.

        Raises:
            UserError: it is no log.
        """
        folder = path.parent.parent
        about = read_yaml(file) if (file := folder / "train.yaml").is_file() else {}
        return cls(read_log(path), read_json(folder / "base.json"), about)

    @property
    def rollout_top_p(self) -> float | None:
        """Return the top-p of the rollouts; None where nobody says."""
        return (self.about.get("dapo") or {}).get("top_p")

    @property
    def drawn(self) -> str:
        """Say how validations were drawn, where the training says so."""
        s = (self.about.get("validation") or {}).get("sampling") or {}
        return f"T = {s['temperature']:g}, top-p {s['top_p']:g}, {s['max_tokens']:,} tokens" if s else ""


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the records of a log: JSON lines, a JSON list (or an object with a list `log_history`), or our `build.json`.

    Raises:
        UserError: it is none of these.
    """
    try:
        text = path.read_text(encoding="utf-8")
        try:
            data: Any = json.loads(text)
        except ValueError:
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError):
        raise UserError(f"{path} is no log; accepted: JSON lines, or a JSON list of records") from None
    if isinstance(data, Mapping):
        dapo = data.get("dapo")
        if isinstance(dapo, Mapping) and "rollout_accuracy" in dapo:
            columns = [dapo["rollout_accuracy"], dapo.get("rollout_tokens")]
            pairs = zip(*(each if isinstance(each, list) else [] for each in columns), strict=False)
            return [{"step": i + 1, "accuracy": a, "mean_tokens": n} for i, (a, n) in enumerate(pairs)]
        data = data.get("log_history", [data])
    data = data if isinstance(data, list) else []
    records = [_flat(row) for row in data if isinstance(row, Mapping)]
    if not records:
        raise UserError(f"{path} holds no records; accepted: JSON lines, or a JSON list of records")
    return records


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lift the numbers of a row to its top: verl's file logger puts them under `data`."""
    inner = row.get("data")
    return {**row, **inner} if isinstance(inner, Mapping) else dict(row)


def curve(records: Sequence[Mapping[str, Any]], what: str) -> list[tuple[float, float]]:
    """Return (step, value) of one of `NAMES`; empty where the log has no such number."""
    name = next((n for n in NAMES[what] if any(_number(row.get(n)) for row in records)), None)
    if name is None:
        return []
    rows = [row for row in records if _number(row.get(name))]
    steps = next((n for n in STEPS if all(_number(row.get(n)) for row in rows)), None)
    return [(float(row[steps]) if steps else float(i), float(row[name])) for i, row in enumerate(rows, 1)]


def validations(log: Log) -> dict[str, list[dict[str, Any]]]:
    """Return the validations of a log by benchmark, the base's first, at step 0; those that verl made by `TASK (verl)`.

    Each has `step`, `avg`, `samples` and, where the log has them, `right`: the right samples of each problem. Of verl's
    own `val-core/*` only the score is known.
    """
    found: dict[str, dict[float, dict[str, Any]]] = {}
    for row in [{"step": 0, "validation": log.base}, *log.records]:
        step = next((row[name] for name in STEPS if _number(row.get(name))), None)
        if step is None:
            continue
        verl = row.get("verl")
        for name, value in (verl if isinstance(verl, Mapping) else row).items():
            if (match := _VERL.fullmatch(str(name))) and _number(value):
                one = {"step": float(step), "avg": float(value), "samples": int(match["samples"])}
                found.setdefault(f"{match['task']} (verl)", {})[float(step)] = one
        scores = row.get("validation")
        for task, score in (scores if isinstance(scores, Mapping) else {}).items():
            if isinstance(score, Mapping) and _number(score.get("avg")):
                known = {name: score[name] for name in ("avg", "samples", "right", "limited") if score.get(name)}
                name = f"{task} (verl)" if isinstance(verl, Mapping) else task
                found.setdefault(name, {})[float(step)] = {"step": float(step), "avg": 0.0, **known}
    return {task: [by[step] for step in sorted(by)] for task, by in found.items() if set(by) - {0.0}}


def _benchmarks(logs: Mapping[str, Sequence[Log]]) -> list[dict[str, Any]]:
    """Return for each benchmark the validations of every method, alone and as a mean over its runs with an interval.

    What was drawn in another way, or on other problems, is another benchmark here.
    """
    found: dict[tuple[Any, ...], dict[str, list[list[dict[str, Any]]]]] = {}
    for method, runs in logs.items():
        for log in runs:
            for task, rows in validations(log).items():
                last = rows[-1]
                about = (task, last.get("limited"), int(last.get("samples") or 0), log.drawn, _problems(last))
                found.setdefault(about, {}).setdefault(method, []).append(rows)
    made = []
    for (task, limited, samples, drawn, _), methods in found.items():
        means = {method: list(_means(runs)) for method, runs in methods.items()}
        runs = {
            method: [[(row["step"], row["avg"]) for row in rows] for rows in each] for method, each in methods.items()
        }
        choices = {method: chosen for method, each in methods.items() if (chosen := _choices(each))}
        made.append(
            {"task": task, "limited": limited, "samples": samples, "drawn": drawn, "means": means, "runs": runs}
            | {"choices": choices}
        )
    return made


def _means(runs: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[tuple[float, float, float | None, float | None]]:
    """Give (step, Avg, low, high) of each step that all runs have; the interval is over problems and runs."""
    by = [{row["step"]: row for row in rows} for rows in runs]
    for step in sorted(set.intersection(*(set(each) for each in by))):
        rows = [each[step] for each in by]
        mean, low, high = float(np.mean([row["avg"] for row in rows])), float("nan"), float("nan")
        if len({_problems(row) for row in rows}) == 1 and rows[0].get("right"):
            tables = {i: samples_of(row) for i, row in enumerate(rows[:1] if step == 0 else rows)}
            one = stats.score_over_runs([tables])  # the base is one model, whatever was trained from it
            low, high = one.low, one.high
        yield step, mean, None if low != low else low, None if high != high else high


def _problems(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the problems of a validation; nothing where it does not tell."""
    return tuple(sorted(row.get("right") or ()))


def samples_of(row: Mapping[str, Any]) -> np.ndarray:
    """Return a validation as (problems, samples) of 0 and 1, by problem."""
    return stats.samples_of([row["right"][problem] for problem in sorted(row["right"])], int(row["samples"]))


def _choices(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any] | None:
    """Return what the ways of choosing a checkpoint score, as means over runs; None below two validations of a run."""
    found = []
    for rows in runs:
        trained = [row for row in rows if row["step"] > 0]
        if len(trained) < 2 or not trained[0].get("right") or len(set(map(_problems, trained))) > 1:
            return None
        shares = np.stack([samples_of(row).mean(axis=1) for row in trained])
        found.append((stats.choice(shares), [row["step"] for row in trained]))
    fields = ("last", "last_mean", "best", "elsewhere")
    means = {name: float(np.mean([getattr(one, name) for one, _ in found])) for name in fields}
    first = found[0][0]
    return {
        **{name: None if value != value else value for name, value in means.items()},
        "averaged": first.averaged,
        "validations": first.validations,
        "steps": [steps[one.at] for one, steps in found],
        "last_step": found[0][1][-1],
    }


def gradient(records: Sequence[Mapping[str, Any]], step: int | None = None) -> dict[str, Any] | None:
    """Return shares of tokens and of gradient mass by the tokens' probability: of a step, or the mean over all."""
    names = ("token_share", "gradient_share")
    rows = [row for row in records if all(_numbers(row.get(name)) for name in names)]
    rows = [row for row in rows if step is None or row.get("step") == step]
    if not rows or any(len({len(row[name]) for row in rows}) > 1 for name in names):
        return None
    means = {name: np.mean([row[name] for row in rows], axis=0).tolist() for name in names}
    return {**means, "steps": len(rows), "step": step}


def _number(value: Any) -> bool:
    return is_number(value) and abs(value) < MOST_VALUE


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_number, value))


def curves(paths: Mapping[str, Sequence[Path]], step: int | None = None) -> dict[str, Any]:
    """Return every curve of every run, by method: `{"Ours": [run1.jsonl, run2.jsonl], ...}` as plain JSON values.

    Args:
        step: that of the gradient mass; None: the mean over all steps.

    Raises:
        UserError: a log cannot be read, none has a number that is known, or none has the gradient mass of the step.
    """
    logs = {method: [Log.read(path) for path in each] for method, each in paths.items()}
    found: dict[str, Any] = {what: {} for what in NAMES}
    masses: dict[str, Any] = {}
    for method, runs in logs.items():
        for log in runs:
            if method not in masses and (mass := gradient(log.records, step)):
                masses[method] = mass
            for what in NAMES:
                if points := curve(log.records, what):
                    found[what].setdefault(method, []).append(points)
    found = {what: methods for what, methods in found.items() if methods}
    benchmarks = _benchmarks(logs)
    if not found and not benchmarks:
        names = ", ".join(name for names in NAMES.values() for name in names)
        raise UserError(f"logs: none has a number that is known here; accepted: one of {names}")
    if step is not None and not masses:
        raise UserError(f"step={step}: no log has the gradient mass of that step; leave it out for the mean over all")
    top_p = {method: sorted({p for log in runs if (p := log.rollout_top_p)}) for method, runs in logs.items()}
    return {
        "kind": "training",
        "curves": found,
        "validation": benchmarks,
        "gradient": masses,
        "rollout_top_p": {method: values for method, values in top_p.items() if values},
    }
