"""What a sweep logs to MLflow: a run for each result, findable on its own, under one run for the sweep.

Nothing depends on it: what fails is a warning, and `sweep run` again writes what is missing.
"""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.spec.search import Search
from harness.spec.sweep import in_percent
from harness.sweep.folder import SweepFolder

_PARENT = "mlflow.parentRunId"


class SweepRun:
    """The run of a sweep in MLflow. `where` is a folder or a tracking URI; None logs nothing."""

    def __init__(self, spec: Search, where: Path | str | None) -> None:
        self._spec, self._where, self._run = spec, where, None
        self._client: Any = None
        if where is not None:
            self._try(self._open)

    def child(self, result: Any) -> None:
        """Log a result under the sweep, unless it is there."""
        if self._run is not None:
            self._try(lambda: self._child(result))

    def close(self, made: Any, folder: SweepFolder) -> None:
        """Log what is missing, then the sweep's own metrics, table and figures; end its run."""
        for result in (result for entry in made.entries for result in entry.results):
            self.child(result)
        if self._run is not None:
            self._try(lambda: self._close(made, folder))

    def attach(self, *files: Path) -> None:
        """Add files to the sweep's run and end it."""
        if self._run is not None:
            self._try(lambda: self._end(files))

    def interrupted(self) -> None:
        """End the sweep's run as KILLED; the next run of the sweep goes on in it."""
        if self._run is not None:
            self._try(lambda: self._client.set_terminated(self._run, "KILLED"))

    def _try(self, act: Any) -> None:
        try:
            act()
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            warnings.warn(
                f"MLflow at {self._where} was not told of the sweep ({type(error).__name__}: {reason}); its folder has "
                "everything, and running it again logs it",
                stacklevel=3,
            )

    @property
    def _experiment(self) -> str:
        return f"rlvr-dir-{self._spec.name}"

    def _open(self) -> None:
        from harness.tracking.store import TrackingStore, patience

        assert self._where is not None
        with patience():
            store = TrackingStore.at(self._where)
            self._client = client = store.client()
            with store.locked():
                experiment = store.experiment_id(client, self._experiment)
                found = client.search_runs([experiment], f"tags.kind = 'sweep' and tags.sweep = '{self._spec.name}'")
                if found:  # an interrupted sweep goes on in its own run
                    self._run = found[0].info.run_id
                    client.update_run(self._run, status="RUNNING")
                    return
                tags = {"kind": "sweep", "sweep": self._spec.name, "mlflow.source.name": "rlvr-dir"}
                run = client.create_run(experiment, run_name=f"sweep {self._spec.name}", tags=tags)
                self._run = run.info.run_id

    def _child(self, result: Any) -> None:
        """Log one result as a run of its own."""
        from harness.tracking import log_result

        assert self._where is not None
        run = log_result(result, self._where, self._experiment)
        if run is not None:
            self._client.set_tag(run, _PARENT, self._run)
            self._client.set_tag(run, "sweep", self._spec.name)

    def _params(self, made: Any) -> dict[str, str]:
        """Return what was asked, for people."""
        return {"pair": ", ".join(made.spec.pairs), "tasks": ", ".join(made.spec.tasks), "size": made.spec.size()}

    def _close(self, made: Any, folder: SweepFolder) -> None:
        from mlflow.entities import Metric, Param

        best = [entry for entry in made.best if len(made.spec.metric) == 1][:1]
        metrics, params = {"points": len(made.points)}, self._params(made)
        for entry in best:
            shown = {n: round(100 * v, 2) if in_percent(n) else round(v, 4) for n, v in entry.metrics.items()}
            metrics |= {f"best/{name}": value for name, value in shown.items()}
            metrics["best/mean_tokens"] = round(entry.metrics["mean_tokens"], 1)
        client, run = self._client, self._run
        client.log_batch(run, metrics=[Metric(name, value, 0, 0) for name, value in metrics.items()])
        stored = client.get_run(run).data.params
        client.log_batch(run, params=[Param(k, v) for k, v in params.items() if k not in stored])
        client.set_tag(run, "best", best[0].label if best else "")
        client.set_tag(run, "mlflow.note.content", (folder.path / "summary.md").read_text()[:8000])
        self._end(
            [folder.spec, *(folder.path / f"summary.{kind}" for kind in ("md", "json")), *folder.path.glob("*.svg")]
        )

    def _end(self, files: Iterable[Path]) -> None:
        for file in files:
            self._client.log_artifact(self._run, str(file))
        self._client.set_terminated(self._run, "FINISHED")
