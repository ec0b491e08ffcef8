"""Log a sweep to MLflow: a run for each result, which can be found by itself, under one run for the sweep.

The sweep does not depend on it. Failures are warnings, and `sweep run` logs again what is missing.
"""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr_dir.config.search import Search
from rlvr_dir.config.sweep import in_percent
from rlvr_dir.results import EvalResult
from rlvr_dir.sweep.folder import SweepFolder

_REFUSED = re.compile(r"[^\w. -]")  # in a part of a metric's name


class SweepRun:
    """Represent the run of a sweep in MLflow: `id` of `experiment` at `where`, a folder or a URI; None logs nothing."""

    def __init__(self, spec: Search, folder: SweepFolder, where: Path | str | None) -> None:
        self._spec, self._folder, self.where, self.id = spec, folder, where, None
        self.name = spec.name
        self.experiment = f"rlvr-dir-{self.name}"
        self._client: Any = None
        if self.where is not None:
            self._try(self._open)

    def child(self, result: Any) -> None:
        """Log a result, or a seed of a training, under the sweep, unless it is already logged."""
        if self.id is not None:
            self._try(lambda: self._log(result) if isinstance(result, EvalResult) else result.log(self))

    def _log(self, result: EvalResult) -> None:
        from rlvr_dir.tracking import log_result

        assert self.where is not None
        if (run := log_result(result, self.where, self.experiment)) is not None:
            self._client.set_tag(run, "mlflow.parentRunId", self.id)
            self._client.set_tag(run, "sweep", self.name)

    def close(self, summary: Any) -> None:
        """Log what is missing, then the sweep's own metrics, table and figures; end its run."""
        for result in (result for entry in summary.entries for result in entry.results):
            self.child(result)
        if self.id is not None:
            self._try(lambda: self._close(summary))

    def attach(self, *files: Path, status: str = "FINISHED") -> None:
        """Add files to the sweep's run and end it. The next run of a sweep that was KILLED continues it."""

        def end() -> None:
            for file in files:
                self._client.log_artifact(self.id, str(file))
            self._client.set_terminated(self.id, status)

        if self.id is not None:
            self._try(end)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            warnings.warn(
                f"MLflow at {self.where} did not log the sweep ({type(error).__name__}: {reason}). Its folder contains "
                "everything, and the next run logs it",
                stacklevel=3,
            )

    def _open(self) -> None:
        from rlvr_dir.tracking.store import TrackingStore, patience

        assert self.where is not None
        with patience():
            store = TrackingStore.at(self.where)
            self._client = client = store.client()
            with store.locked():
                experiment = store.experiment_id(client, self.experiment)
                runs = client.search_runs([experiment], f"tags.kind = 'sweep' and tags.sweep = '{self.name}'")
                if runs:  # an interrupted sweep continues in its own run
                    self.id = runs[0].info.run_id
                    client.update_run(self.id, status="RUNNING")
                    return
                tags = {"kind": "sweep", "sweep": self.name, "mlflow.source.name": "rlvr-dir"}
                self.id = client.create_run(experiment, run_name=f"sweep {self.name}", tags=tags).info.run_id

    def _close(self, summary: Any) -> None:
        from mlflow.entities import Metric, Param

        folder, best, several = self._folder, summary.best, len(self._spec.pairs) > 1
        metrics, params = {"points": len(summary.points)}, {**self._spec.run_params, "size": self._spec.size()}
        for entry in best:
            place = f"best/{_REFUSED.sub('_', entry.pair)}" if several else "best"
            for name, value in entry.metrics.items():
                metrics[f"{place}/{name}"] = round(100 * value, 2) if in_percent(name) else round(value, 1)
        self._client.log_batch(self.id, metrics=[Metric(name, value, 0, 0) for name, value in metrics.items()])
        stored = self._client.get_run(self.id).data.params
        self._client.log_batch(self.id, params=[Param(k, v) for k, v in params.items() if k not in stored])
        labels = [f"{entry.pair}: {entry.label}" if several else entry.label for entry in best]
        self._client.set_tag(self.id, "best", "; ".join(labels))
        self._client.set_tag(self.id, "mlflow.note.content", (folder.path / "summary.md").read_text()[:8000])
        files = [folder.path / f"summary.{kind}" for kind in ("md", "json")]
        self.attach(folder.spec, *files, *folder.path.glob("*.svg"))
