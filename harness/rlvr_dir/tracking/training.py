"""Log a training as MLflow runs, one per seed, step by step while it trains. Nothing is logged twice.

    runs = Training("runs", "DAPO", {"seeds": [0], ...})
    runs.record(0, {"step": 1, "accuracy": 0.3})
    runs.done(0, outcome, records, [Path("runs/train/DAPO/seed-0/log.jsonl")])

The training does not depend on it. A failure is a warning, and `done`, now or in the next run, logs what is missing.
"""

import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlvr_dir.digest import digest_of
from rlvr_dir.tracking.log import git_sha
from rlvr_dir.tracking.store import TrackingStore, patience, reason

EXPERIMENT = "rlvr-dir-train"
_LONGEST = 6000  # characters of a parameter
_NAMES = ("accuracy", "reward", "length", "truncated", "entropy", "clip_fraction", "weight", "loss", "grad_norm")
_BINS = 3  # of ten: tokens with a probability below 0.3
_INVALID = re.compile(r"[^\w./: -]")  # in a metric's name, such as verl's `acc/mean@32`


class Training:
    """Log the runs of one training. `where` is a folder or a tracking URI; None logs nothing.

    Args:
        label: The run's name, such as `low_prob α0.2`; the seed is added.
        training: All settings as plain values, including `seeds`; without these it identifies the training.
        parent: The id of a run that these belong under.
    """

    def __init__(
        self,
        where: Path | str | None,
        label: str,
        training: Mapping[str, Any],
        *,
        experiment: str = EXPERIMENT,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self._where, self._label, self._experiment = where, label, experiment
        self._training = {name: value for name, value in training.items() if name != "seeds"}
        self._tags = {**(tags or {}), **({"mlflow.parentRunId": parent} if parent else {})}
        self._runs: dict[int, tuple[str, int]] = {}  # by seed: the run's id and its last step
        self._failed = where is None
        self._client: Any = None

    def record(self, seed: int, record: Mapping[str, Any]) -> None:
        """Log one line of a seed's log."""
        if not self._failed:
            with self._trying():
                self._log_records(seed, [record])

    def done(
        self, seed: int, outcome: Mapping[str, Any], records: Sequence[Mapping[str, Any]], files: Sequence[Path] = ()
    ) -> None:
        """Log the missing steps of a finished seed, its scores and its files, and end its run."""
        if self._where is None:
            return
        with self._trying():
            self._log_records(seed, records)
            if seed not in self._runs:  # finished earlier
                return
            run, scores = self._runs.pop(seed)[0], outcome.get("scores") or {}
            self._log(run, [(name, value, 0) for name, value in scores_of(scores).items()])
            self._log(run, [("seconds", outcome["seconds"], 0)])
            if parts := {task: score["limited"] for task, score in scores.items() if score.get("limited")}:
                self._client.set_tag(run, "problems", "; ".join(f"{task}: {part}" for task, part in parts.items()))
            for file in files:
                self._client.log_artifact(run, str(file))
            self._client.set_terminated(run, "FINISHED")

    def interrupted(self) -> None:
        """End unfinished runs as KILLED. The same command continues them."""
        for run, _ in self._runs.values():
            with self._trying():
                self._client.set_terminated(run, "KILLED")
        self._runs.clear()

    @contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            with patience():
                yield
        except Exception as error:
            self._failed = True
            why = reason(error, self._where or "")
            warnings.warn(
                f"MLflow at {self._where} missed a part of the training ({why}); its folder has everything, and the "
                "same command logs what is missing",
                stacklevel=4,
            )

    def _open(self, seed: int) -> None:
        """Find the run of a seed, or create it, and its last step. Ignore finished ones."""
        assert self._where is not None
        store, key = TrackingStore.at(self._where), digest_of([self._training, seed])
        self._client = client = self._client or store.client()
        with store.locked():
            experiment = store.experiment_id(client, self._experiment)
            runs = client.search_runs([experiment], f"tags.config_hash = '{key}'", max_results=1)
            if not runs:
                git = git_sha()
                tags = {"kind": "train", "config_hash": key, "label": self._label, "mlflow.source.name": "rlvr-dir"}
                tags |= {"seed": str(seed), **({"git_sha": git, "mlflow.source.git.commit": git} if git else {})}
                named = {"run_name": f"{self._label} seed {seed}", "tags": {**tags, **self._tags}}
                run = client.create_run(experiment, **named).info.run_id
                for name, value in {"seed": seed, **dict(_flat(self._training))}.items():
                    client.log_param(run, name, str(value)[:_LONGEST])
                self._runs[seed] = run, 0
            elif runs[0].info.status != "FINISHED":
                run = runs[0].info.run_id
                client.update_run(run, status="RUNNING")
                steps = [metric.step for metric in client.get_metric_history(run, "length")]
                self._runs[seed] = run, max(steps, default=0)

    def _log_records(self, seed: int, records: Sequence[Mapping[str, Any]]) -> None:
        if seed not in self._runs:
            self._open(seed)
        if seed not in self._runs:
            return
        run, last = self._runs[seed]
        for record in records:
            step, values = record["step"], metrics_of(record)
            if "validation" in record:
                metric = next(iter(values), None)
                new = metric and step not in {value.step for value in self._client.get_metric_history(run, metric)}
            else:
                new = step > last
                self._runs[seed] = run, max(self._runs[seed][1], step)
            self._log(run, [(name, value, step) for name, value in values.items()] if new else [])

    def _log(self, run: str, values: Sequence[tuple[str, float, int]]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        if values:
            self._client.log_batch(run, metrics=[Metric(name, value, now, step) for name, value, step in values])


def metrics_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Convert a line of a training's log into MLflow metrics: fractions stay as they are, validation scores become
    percent."""
    verl_metrics = {
        f"verl/{_INVALID.sub('_', name)}": float(value) for name, value in (record.get("verl") or {}).items()
    }
    if "validation" in record:
        return {
            **{f"validation/{name}": value for name, value in scores_of(record["validation"]).items()},
            **verl_metrics,
        }
    metrics = {name: record.get(name) for name in _NAMES}
    metrics |= {f"groups/{name}": value for name, value in (record.get("groups") or {}).items()}
    for name in ("gradient_share", "token_share"):
        if sum(bins := record.get(name) or ()):  # a step that learned from nothing has none
            metrics[f"{name}_below_0.3"] = sum(bins[:_BINS])
    return {**{name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}, **verl_metrics}


def scores_of(scores: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return scores by benchmark as `tiny_medium/avg_at_8`, in percent with two decimals."""
    metrics: dict[str, float] = {}
    for task, score in scores.items():
        samples = int(score["samples"])
        metrics[f"{task}/avg_at_{samples}"] = round(100 * score["avg"], 2)
        metrics[f"{task}/pass_at_{max(1, samples // 2)}"] = round(100 * score["pass"], 2)
        if "tokens" in score:
            metrics[f"{task}/mean_tokens"] = round(score["tokens"], 1)
    return metrics


def _flat(values: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{where}{name}.")
        elif value is not None:
            yield where + name, value
