"""Sweeps of trainings: one trial after the other, each gone on with where it was interrupted.

`harness.sweep.kinds` says what each of these functions is for.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import stats
from harness.evals import preflight
from harness.sweep.bench import Bench
from harness.sweep.folder import Folder
from harness.sweep.points import Point, listed_points
from harness.sweep.study import Asked, Book
from harness.sweep.training.confirm import confirm
from harness.sweep.training.estimate import estimate
from harness.sweep.training.spec import TrainingSweep
from harness.sweep.training.summary import Entry, store_of, summarise, write
from harness.sweep.training.track import Parent as parent
from harness.sweep.training.trial import SeedResult, seeds_of, train
from harness.train.backends import TrainerError
from harness.train.spec import check_machine

if TYPE_CHECKING:
    from harness.sweep.run import Places

__all__ = [
    "best_so_far", "check", "confirm", "estimate", "hand", "parent", "planner", "results", "run_here", "store",
    "summarise", "words", "write",
]  # fmt: skip


def check(spec: TrainingSweep) -> None:
    """The benchmarks are there, and the machine has what is asked."""
    preflight(spec.plain_dapo.validation.tasks)
    check_machine(spec.plain_dapo)


def store(places: "Places") -> Path:
    """Of trainings, which all sweeps in one folder share."""
    return places.trainings


def planner(bench: Bench) -> Callable[[], None]:
    """Plain DAPO first, unless a point is just that."""
    spec, book = bench.spec, bench.book
    points = listed_points(spec)
    pair = next(iter(spec.pairs))
    among = any(spec.training(point).same == spec.plain_dapo.same for point in points)
    wanted: list[Point] = [] if among else [{"pair": pair, "reference": {"method": "none"}}]

    def plan() -> None:
        book.ensure([*wanted, *points, *(point for point in book.lost() if "reference" not in point)])

    return plan


def run_here(bench: Bench) -> None:
    """Everything in this process, trial after trial."""
    plan = planner(bench)
    plan()
    while (asked := bench.book.ask()) is not None:
        try:
            train(bench, asked)
        except TrainerError as error:
            bench.say(f"failed: {error}")
            bench.book.give_up(asked, str(error), counted=True)
        except BaseException as error:
            bench.book.give_up(asked, f"{type(error).__name__}: {error}", counted=False)
            raise
        plan()


@contextmanager
def hand(bench: Bench) -> Iterator[Callable[[Asked], None]]:
    """Trains one trial after the other."""
    yield lambda asked: train(bench, asked)


def results(folder: Folder, trial: Any) -> list[SeedResult] | None:
    """Its seeds."""
    spec = folder.stored()
    return seeds_of(spec.training(trial.user_attrs["point"]), store_of(folder))


def words(point: Point, results: Sequence[SeedResult]) -> list[str]:
    """Its label and the mean scores over its seeds."""
    entry = _entry(point, results)
    return [entry.label, *(_score(entry, task) for task in results[0].scores)]


def best_so_far(book: Book, folder: Folder) -> str:
    """The best complete point with the 95 % interval of its first benchmark over seeds."""
    if not (best := book.best()) or (found := results(folder, best[0])) is None:
        return ""
    entry = _entry(best[0].user_attrs["point"], found)
    many = f"Pareto set of {len(best)}, first" if len(book.spec.metric) > 1 else "best so far"
    return f"{many}: {entry.label} {_score(entry, next(iter(found[0].scores)))}"


def _entry(point: Point, results: Sequence[SeedResult]) -> Entry:
    return Entry(0, None if "reference" in point else point, results[0].spec, list(results), {})


def _score(entry: Entry, task: str) -> str:
    values = entry.values(task)
    low, high = stats.t_interval(float(values.mean()), stats.standard_error(values), len(values))
    interval = "" if low != low else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{task} {100 * values.mean():.1f}{interval}"
