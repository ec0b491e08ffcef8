"""Before anything is trained: the points, which of their seeds are done, and what the rest will cost."""

from dataclasses import dataclass
from pathlib import Path

from harness.evals.show import markdown_table
from harness.markdown import duration
from harness.price import rollouts, training_refusal
from harness.spec.search import LISTED
from harness.sweep.points import listed_points
from harness.sweep.training.spec import TrainingSweep
from harness.sweep.training.trial import folder_of
from harness.train.folder import TrainingFolder
from harness.train.spec import TrainSpec
from harness.training import gpu_lines


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """What a sweep of trainings will cost. `seconds` of a seed is measured on finished ones; None without any.

    `speed` is that of the rollouts, in tokens a second; None where nobody states one.
    """

    size: str
    rows: list[tuple[TrainSpec, int]]  # each training, and how many of its seeds are done
    seconds: float | None
    store: Path
    speed: float | None = None

    @property
    def refusal(self) -> str | None:
        """Say why this machine cannot hold the trainings that are missing; None where it can, or nobody can tell."""
        lacking = [spec for spec, done in self.rows if done < len(spec.seeds)]
        return training_refusal(lacking[0]) if lacking else None

    def text(self, *, points: bool) -> str:
        """Write it as a person reads it; `points` lists them one by one."""
        seeds = len(self.rows[0][0].seeds)
        lines = [f"{self.size}; with plain DAPO {len(self.rows)} trainings x {seeds} seed{'s' * (seeds > 1)}"]
        if points:
            cells = []
            for spec, done in self.rows:
                dapo, name = spec.dapo, folder_of(spec, self.store).name
                cells.append([dapo.label, str(dapo.steps), f"{dapo.steps * dapo.responses:,}", f"{done}/{seeds}", name])
            head = ["training", "steps", "responses learned from, a seed", "seeds done", "folder"]
            lines += ["", markdown_table(head, cells, left=1), ""]
        left = sum(seeds - done for _, done in self.rows)
        if self.seconds is not None:
            cost = f"{duration(self.seconds * left)} of steps ({duration(self.seconds)} a seed, as measured)"
        else:
            each = [spec.dapo.steps * spec.dapo.step_tokens * (seeds - done) for spec, done in self.rows]
            cost = rollouts(sum(each), self.speed)
        lines.append(f"seeds done: {sum(done for _, done in self.rows)}; to be trained: {left}, {cost}")
        if points:
            lines += gpu_lines(self.rows[0][0])
        return "\n".join(lines)


def estimate(
    spec: TrainingSweep, out: Path, records: Path | None = None, speed: float | None = None
) -> TrainingEstimate:
    """Estimate from the trainings that are there; load no weights, write nothing.

    Rollouts are not kept: `records` is unused.

    A search shows plain DAPO and as many times the file's own training as it may propose points.
    """
    store = out / "trainings"
    points = [spec.training(point) for point in listed_points(spec)]
    if spec.method not in LISTED:
        points = [spec.training({})] * (spec.run_cap or 0)
    reference = [] if any(each.same == spec.plain_dapo.same for each in points) else [spec.plain_dapo]
    rows, seconds = [], []
    for each in (*reference, *points):
        folder = TrainingFolder(folder_of(each, store))
        done = [facts for seed in each.seeds if (facts := folder.seed(seed).facts())]
        rows.append((each, len(done)))
        seconds += [facts["seconds"] for facts in done]
    return TrainingEstimate(spec.size(), rows, sum(seconds) / len(seconds) if seconds else None, store, speed)
