"""All that a sweep of trainings says to MLflow: a run a seed, under one run for the sweep."""

from typing import Any

from harness.sweep import track
from harness.sweep.training.trial import SeedResult
from harness.train.spec import plain


class TrainingSweepRun(track.SweepRun):
    """The run of a sweep of trainings."""

    def _child(self, result: Any) -> None:
        from harness.tracking import Training

        each: SeedResult = result
        label, folder = each.spec.dapo.label, each.folder
        told = Training(
            self._where,
            label,
            plain(each.spec),
            experiment=self._experiment,
            parent=self._run,
            tags={"sweep": self._spec.name},
        )
        files = [folder.log, folder.done, folder.rl / "README.md"]
        told.done(each.seed, each.facts, folder.records(), files)

    def _params(self, made: Any) -> dict[str, str]:
        tasks = ", ".join(made.spec.plain_dapo.validation.tasks)
        return {"base": made.spec.plain_dapo.base, "tasks": tasks, "size": made.spec.size()}
