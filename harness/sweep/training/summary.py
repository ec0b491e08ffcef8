"""What is complete of a sweep of trainings, handed to the report room, which puts it into words and draws it."""

from collections.abc import Sequence
from pathlib import Path

from harness.report.sweep import CompleteTrial, TrainingSummary, against
from harness.sweep.folder import SweepFolder
from harness.sweep.points import Point
from harness.sweep.training.spec import TrainingSweep
from harness.sweep.training.trial import SeedResult, folder_of, seeds_of
from harness.sweep.trials import Trials
from harness.train.folder import TrainingFolder


def store_of(folder: SweepFolder) -> Path:
    """Return the folder of the trainings of a sweep."""
    return folder.path.parents[1] / "trainings"


def summarise(spec: TrainingSweep, trials: Trials, folder: SweepFolder) -> TrainingSummary:
    """Return the summary of everything that is complete."""
    store = store_of(folder)
    entries = []
    for trial in trials.complete():
        if (results := seeds_of(spec.training(trial.point), store)) is not None:
            entries.append(entry_of(trial.point, results, trial.number, trial.metrics))
    plain = spec.plain_dapo
    reference = next((entry for entry in entries if entry.results[0].spec.same == plain.same), None)
    numbers = {trial.number for trial in trials.best()}
    dapo = plain.dapo
    return TrainingSummary(
        spec=spec,
        entries=entries,
        reference=reference,
        comparisons=[] if reference is None else against(reference, entries),
        best=[entry for entry in entries if entry.point is not None and entry.number in numbers],
        states=trials.states(),
        failed=sum(trial.state == "failed" for trial in trials),
        base=TrainingFolder(folder_of(entries[0].results[0].spec, store)).base_scores if entries else {},
        samples=plain.validation.sampling.samples,
        seeds=spec.seeds,
        training=f"{dapo.steps} steps of {dapo.prompts} x {dapo.samples} responses",
    )


def entry_of(point: Point, results: Sequence[SeedResult], number: int, metrics: dict[str, float]) -> CompleteTrial:
    """Return a finished training as summaries have it, with a label: `low_prob α0.2`, and what else the point sets."""
    spec, asked = results[0].spec, None if "reference" in point else point
    shown = ("train.method", "train.alpha", "train.top_p")
    more = [f"{n.partition('.')[2]} {v}" for n, v in (asked or {}).items() if n not in (*shown, "pair")]
    about = {
        "dapo": spec.dapo.model_dump(mode="json", exclude={"seed"}),
        "folder": str(results[0].folder.path.parent),
    }
    return CompleteTrial(
        point["pair"], number, asked, ", ".join([spec.dapo.label, *more]), tuple(results), metrics, about=about
    )
