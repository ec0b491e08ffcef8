"""Read training curves of several runs from trainers' logs: validations, and statistics of the rollouts.

A validation is Avg@k on held-out problems, which are the same for every run. The accuracy of the rollouts is on the
run's own training problems, with its own sampling settings. A reward is neither.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_dir import stats
from rlvr_dir.analysis.result import Analysis, columns
from rlvr_dir.config import Sampling, parse, read_yaml
from rlvr_dir.config.stored import is_number
from rlvr_dir.errors import UserError
from rlvr_dir.results.trainings import read_json
from rlvr_dir.stats import Estimate

# The names in each trainer's log (ours, TRL, verl), in order of preference.
NAMES = {
    "rollout_accuracy": ("accuracy", "rewards/accuracy/mean", "rlvr_dir/accuracy"),
    "reward": ("reward", "critic/score/mean", "critic/rewards/mean"),
    "entropy": ("entropy", "actor/entropy", "actor/entropy_loss"),
    "length": ("length", "completions/mean_length", "response_length/mean", "mean_tokens"),
}
MOST_VALUE = 1e30  # the largest value that a figure can show
STEPS = ("step", "training/global_step", "global_step", "update")
SHARES = ("token_share", "gradient_share")  # both by the probability of the tokens
KEPT = ("avg", "samples", "right", "limited")  # the columns of a validation that are kept
_FORMATS = "JSON lines, or a JSON list of records"
_VERL = re.compile(r"val-core/(?P<task>.+)/acc/mean@(?P<samples>\d+)")

Validations = dict[str, list[dict[str, Any]]]  # by benchmark: step, avg, samples and, where it is known, right


def curves(paths: Mapping[str, Sequence[Path]], step: int | None = None) -> Analysis:
    """Return every curve of every run, by method: `{"Ours": [run1.jsonl, run2.jsonl], ...}`.

    Args:
        paths: The logs of each method.
        step: The step whose gradient mass is returned. None averages over all steps.

    Raises:
        UserError: A log cannot be read, none has a known number, or none has the gradient mass of the step.
    """
    runs = [_Run.read(method, i, path) for method, files in paths.items() for i, path in enumerate(files, 1)]
    tables = {"curves": [row for run in runs for row in run.curves()], **_validated(runs)}
    tables["gradient"] = [{"method": method, **row} for method in paths for row in _gradient_of(runs, method, step)]
    if not tables["curves"] and not tables["runs"]:
        names = ", ".join(name for names in NAMES.values() for name in names)
        files = ", ".join(str(path) for paths_of_method in paths.values() for path in paths_of_method)
        accepted = f"logs with at least one of {names}"
        raise UserError("contains no known number", argument="logs", value=files, accepted=accepted)
    if step is not None and not tables["gradient"]:
        raise UserError(
            "is a step whose gradient mass no log contains",
            argument="step",
            value=step,
            hint="Leave it out to average over all steps.",
        )
    top_p: dict[str, set[float]] = {}
    for run in runs:
        if run.top_p:
            top_p.setdefault(run.method, set()).add(run.top_p)
    context = {"step": step, "rollout_top_p": {method: sorted(values) for method, values in top_p.items()}}
    context["learned_from"] = list(dict.fromkeys(run.method for run in runs if run.learned_from))
    return Analysis(kind="training", context=context, tables={name: tuple(rows) for name, rows in tables.items()})


@dataclass(frozen=True, eq=False)
class _Run:
    """Hold the log of one run, the `number`-th of its method, and the facts that its folder has."""

    method: str
    number: int
    records: Sequence[Mapping[str, Any]]
    base: Mapping[str, Any]  # the base's validation
    top_p: float | None  # the top-p of the rollouts
    learned_from: bool  # the log has only rollouts that were learned from, as in verl with dynamic sampling
    drawn: str  # the sampling settings of validations

    @classmethod
    def read(cls, method: str, number: int, path: Path) -> "_Run":
        folder = path.absolute().parents[1]
        settings = read_yaml(file) if (file := folder / "train.yaml").is_file() else {}
        sampling_fields, drawn = (settings.get("validation") or {}).get("sampling"), ""
        if sampling_fields:
            sampling = parse(Sampling, sampling_fields, f"{folder}: validation.sampling.")
            drawn = f"{sampling.words}, {sampling.max_tokens:,} tokens"
        dapo, verl = settings.get("dapo") or {}, settings.get("backend") == "verl"
        base, learned_from = read_json(folder / "base.json"), verl and bool(dapo.get("dynamic_sampling"))
        return cls(method, number, read_log(path), base, dapo.get("top_p"), learned_from, drawn)

    def curves(self) -> list[dict[str, Any]]:
        """Return its numbers step by step."""
        named = {"method": self.method, "run": self.number}
        return [
            {"curve": name, **named, "step": at, "value": value}
            for name in NAMES
            for at, value in curve(self.records, name)
        ]


def _validated(runs: Sequence[_Run]) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of validations: each run's, the means over a method's runs, and the checkpoint selections.

    Validations with other sampling settings or on other problems form another benchmark.
    """
    benchmarks: dict[tuple[Any, ...], dict[str, dict[int, list[dict[str, Any]]]]] = {}
    for run in runs:
        for task, rows in validations(run.base, run.records).items():
            last = rows[-1]
            samples = int(last.get("samples") or 0)
            key = (task, last.get("limited"), samples, run.drawn, _problems(last))
            benchmarks.setdefault(key, {}).setdefault(run.method, {})[run.number] = rows
    tables: dict[str, list[dict[str, Any]]] = {"runs": [], "means": [], "choices": []}
    often = Counter(task for task, *_ in benchmarks)
    for (task, limited, samples, drawn, _), methods in benchmarks.items():
        words = [word for word in (limited, drawn if often[task] > 1 else "") if word]
        labels = {"benchmark": task + (f" ({'; '.join(words)})" if words else ""), "samples": samples, "drawn": drawn}
        for method, by_run in methods.items():
            named, runs_of_name = {**labels, "method": method}, [*by_run.values()]
            tables["runs"] += [
                {**named, "run": number, "step": row["step"], "avg": row["avg"]}
                for number, rows in by_run.items()
                for row in rows
            ]
            tables["means"] += [
                {**named, "runs": len(runs_of_name), "step": at, **columns(avg=mean)}
                for at, mean in _means(runs_of_name)
            ]
            if chosen := _choices(runs_of_name):
                tables["choices"].append({**named, "runs": len(runs_of_name), **chosen})
    return tables


def _gradient_of(runs: Sequence[_Run], method: str, step: int | None) -> list[dict[str, float]]:
    """Return the gradient mass from the first run of a method that logged it."""
    gradients = (_gradient(run.records, step) for run in runs if run.method == method)
    return next((rows for rows in gradients if rows), [])


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the records of a log: JSON lines, a JSON list, or an object with a list `log_history`.

    Raises:
        UserError: The file has none of these forms.
    """
    try:
        text = path.read_text(encoding="utf-8")
        try:
            data: Any = json.loads(text)
        except ValueError:
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError):
        raise UserError("cannot be read as a log", argument="logs", value=path, accepted=_FORMATS) from None
    if isinstance(data, Mapping):
        data = data.get("log_history", [data])
    rows = [row for row in data if isinstance(row, Mapping)] if isinstance(data, list) else []
    if not rows:
        raise UserError("contains no records", argument="logs", value=path, accepted=_FORMATS)
    # verl's file logger writes the numbers of a row under `data`
    return [{**row, **inner} if isinstance(inner := row.get("data"), Mapping) else dict(row) for row in rows]


def curve(records: Sequence[Mapping[str, Any]], column: str) -> list[tuple[float, float]]:
    """Return the (step, value) pairs of one of `NAMES`. The list is empty if the log has no such number."""
    name = next((n for n in NAMES[column] if any(_number(row.get(n)) for row in records)), None)
    if name is None:
        return []
    rows = [row for row in records if _number(row.get(name))]
    steps = next((n for n in STEPS if all(_number(row.get(n)) for row in rows)), None)
    return [(float(row[steps]) if steps else float(i), float(row[name])) for i, row in enumerate(rows, 1)]


def validations(base: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Validations:
    """Return the validations of a log by benchmark, beginning with base's at step 0.

    Validations that verl made itself are named `TASK (verl)`. Its `val-core/*` numbers have only the score.
    """
    by_task: dict[str, dict[float, dict[str, Any]]] = {}
    for row in [{"step": 0, "validation": base}, *records]:
        step = next((row[name] for name in STEPS if _number(row.get(name))), None)
        if step is None:
            continue
        verl = row.get("verl")
        for name, value in (verl if isinstance(verl, Mapping) else row).items():
            if (match := _VERL.fullmatch(str(name))) and _number(value):
                point = {"step": float(step), "avg": float(value), "samples": int(match["samples"])}
                by_task.setdefault(f"{match['task']} (verl)", {})[float(step)] = point
        scores = row.get("validation")
        for task, score in (scores if isinstance(scores, Mapping) else {}).items():
            if isinstance(score, Mapping) and _number(score.get("avg")):
                kept = {name: score[name] for name in KEPT if score.get(name)}
                name = f"{task} (verl)" if isinstance(verl, Mapping) else task
                by_task.setdefault(name, {})[float(step)] = {"step": float(step), "avg": 0.0, **kept}
    return {task: [by[step] for step in sorted(by)] for task, by in by_task.items() if set(by) - {0.0}}


def _means(runs: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[tuple[float, Estimate]]:
    """Yield the mean at each step that all runs have, with an interval over problems and runs."""
    by = [{row["step"]: row for row in rows} for rows in runs]
    for step in sorted(set.intersection(*(set(by_step) for by_step in by))):
        rows = [by_step[step] for by_step in by]
        mean = float(np.mean([row["avg"] for row in rows]))
        if len({_problems(row) for row in rows}) == 1 and rows[0].get("right"):
            # all runs start from the same base
            score = stats.score_over_runs([dict(enumerate(map(samples_of, rows[:1] if step == 0 else rows)))])
            yield step, Estimate(mean, score.low, score.high)
        else:
            yield step, Estimate(mean)


def _problems(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the problems of a validation; empty if the row does not list them."""
    return tuple(sorted(row.get("right") or ()))


def samples_of(row: Mapping[str, Any]) -> np.ndarray:
    """Return a validation as (problems, samples) of 0 and 1, with problems in the order of their names."""
    return stats.samples_of([row["right"][problem] for problem in sorted(row["right"])], int(row["samples"]))


def _choices(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any] | None:
    """Return the score of each way to select a checkpoint, as means over runs, from the validations that all runs have.

    Return None if there are fewer than two such validations.
    """
    choices, shared = [], set.intersection(*({row["step"] for row in rows} for rows in runs))
    for rows in runs:
        trained = [row for row in rows if row["step"] > 0 and row["step"] in shared]
        if len(trained) < 2 or not trained[0].get("right") or len(set(map(_problems, trained))) > 1:
            return None
        chosen = stats.choice(np.stack([samples_of(row).mean(axis=1) for row in trained]))
        choices.append((chosen, trained[chosen.at]["step"], trained[-1]["step"]))
    first, _, last_step = choices[0]
    means = {
        name: Estimate(float(np.mean([getattr(chosen, name) for chosen, *_ in choices]))).value
        for name in ("last", "last_mean", "best", "elsewhere")
    }
    steps = sorted(step for _, step, _ in choices)
    counts = {"averaged": first.averaged, "validations": first.validations, "last_step": last_step}
    return {**means, **counts, "first_best_step": steps[0], "last_best_step": steps[-1]}


def _gradient(records: Sequence[Mapping[str, Any]], step: int | None) -> list[dict[str, float]]:
    """Return the shares of tokens and of gradient mass by token probability, at a step or averaged over all steps.

    Steps that learned from nothing are skipped.
    """
    rows = [row for row in records if all(_numbers(row.get(name)) and sum(row[name]) for name in SHARES)]
    rows = [row for row in rows if step is None or row.get("step") == step]
    if not rows or len({len(row[name]) for row in rows for name in SHARES}) > 1:
        return []
    histogram = [np.mean([row[name] for row in rows], axis=0).tolist() for name in SHARES]
    bins = len(histogram[0])
    return [
        {"p_from": i / bins, "p_to": (i + 1) / bins, "token_share": tokens, "gradient_share": mass}
        for i, (tokens, mass) in enumerate(zip(*histogram, strict=True))
    ]


def _number(value: Any) -> bool:
    return is_number(value) and abs(value) < MOST_VALUE


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_number, value))
