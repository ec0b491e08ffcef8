"""A sweep from its spec to its summary: in this process with one engine, or with a fleet of workers.

    run_sweep(load_sweep(yaml.safe_load(text)), out=Path("runs"))

It may be killed at any moment; the same call goes on. Whoever runs holds the lock of the sweep's folder.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.decode import Engine, open_engine
from harness.evals import EvalResult, preflight
from harness.records.lock import Lock
from harness.spec import Decoding
from harness.spec.sweep import LISTED, SweepSpec
from harness.sweep import summary, track
from harness.sweep.folder import Folder
from harness.sweep.measure import Bench, Taus, checkpoints, decoding_of, measure
from harness.sweep.owner import beat
from harness.sweep.points import Point, listed_points, reference
from harness.sweep.progress import Progress
from harness.sweep.storage import mend
from harness.sweep.study import Asked, Book
from harness.sweep.taus import find_taus
from harness.tracking import resolve_store


@dataclass(frozen=True)
class Places:
    """Where a sweep's files, the rollouts and the MLflow runs go; `tracking` None logs nothing."""

    out: Path
    records: Path
    tracking: Path | str | None

    @classmethod
    def under(cls, out: Path, *, records: Path | None = None, track: bool = True) -> "Places":
        """The usual places in one folder; MLflow's is RLVR_DIR_TRACKING_URI where that is set."""
        return cls(out, records or out / "records", resolve_store(out) if track else None)


def run_sweep(
    spec: SweepSpec, places: Places, *, extend: bool = False, say: Callable[[str], None] = print, progress: bool = True
) -> "summary.Summary":
    """Runs what is left of a sweep to its end, and writes its summary.

    Raises:
        UserError: the sweep was begun with other settings, another process runs it, or an engine refuses.
    """
    preflight(spec.tasks, spec.data_dir, spec.golds)
    folder = Folder.of(spec, places.out)
    folder.make()
    lock = Lock(folder.lock, f"sweep {spec.name!r}")
    try:
        folder.settle(spec, extend=extend)
        mend(folder.journal)
        beat(folder.workers)
        book = Book(spec, folder, extend=extend)
        retired = book.reclaim()
        if retired:
            say(f"{len(retired)} trials of an interrupted run were retired; what they decoded is kept")
        parent = track.Parent(spec, places.tracking)
        shown = Progress(spec, book, folder, say)

        def finished(point: Point, results: Sequence[EvalResult]) -> None:
            for result in results:
                parent.child(result)
            shown.finished(point, results)

        bench = Bench(spec, book, folder, places.records, say, finished, progress)
        try:
            if spec.workers.count == 1:
                run_here(bench)
            else:
                from harness.sweep.fleet import run_fleet

                run_fleet(bench)
        except BaseException:
            parent.interrupted()
            raise
        made = summary.write(spec, book, folder, seconds=shown.seconds)
        parent.close(made, folder)
        return made
    finally:
        lock.release()


def run_here(bench: Bench) -> None:
    """Everything in this process: pair by pair, all that can be claimed in one stream of one engine."""
    held: dict[str, list[Asked]] = {}  # claimed, waiting for their pair's engine
    try:
        for pair in bench.spec.pairs:
            with _engine(bench.spec, pair) as engine:
                taus = find_taus(bench.spec, bench.folder, pair, engine, bench.records, progress=bench.progress)
                plan(bench, pair, taus)
                while batch := _claim(bench, pair, held, taus):
                    measure(bench, engine, batch, taus)
                    held[pair] = []
                    plan(bench, pair, taus)
    except BaseException as error:
        for asked in (each for batch in held.values() for each in batch):
            bench.book.give_up(asked, f"{type(error).__name__}: {error}", counted=False)
        raise


def plan(bench: Bench, pair: str, taus: Taus) -> None:
    """Enqueues what is known to be wanted of a pair: references, controls, listed points, and points that were lost.

    With a pruner, a point's control waits until the point is complete: those that are pruned need none.
    """
    spec, book = bench.spec, bench.book
    mine: dict[str, list[Point]] = {"PRUNED": [], "COMPLETE": [], "": []}
    for trial in book.trials():
        point = trial.user_attrs.get("point")
        if point is not None and point["pair"] == pair:
            mine[trial.state.name if trial.state.name in mine else ""].append(point)
    listed = [point for point in listed_points(spec) if point["pair"] == pair]
    points = [point for point in (*listed, *mine["COMPLETE"], *mine[""]) if point not in mine["PRUNED"]]
    book.ensure(references(spec, pair, points, taus, mine["COMPLETE"] if spec.pruner else points))
    book.ensure([*listed, *(point for point in book.lost() if point["pair"] == pair)])


def references(
    spec: SweepSpec, pair: str, points: Sequence[Point], taus: Taus, controlled: Sequence[Point] | None = None
) -> list[Point]:
    """Base, RL, those asked for, and the gamma = 0 control of `controlled` (default all points), but no point twice."""
    mine = {decoding_of(spec, point, taus) for point in points}
    gates = [decoding_of(spec, point, taus) for point in (points if controlled is None else controlled)]
    wanted = [Decoding(mode="base"), Decoding(mode="rl"), *spec.references, *(each.control() for each in gates)]
    return [reference(pair, each) for each in dict.fromkeys(wanted) if each not in mine]


def _claim(bench: Bench, pair: str, held: dict[str, list[Asked]], taus: Taus) -> list[Asked]:
    """The next trials of a pair: all there are, or `batch` of them where later ones depend on what comes out."""
    spec, book = bench.spec, bench.book
    listed = spec.method in LISTED
    most = len(book.trials()) if listed and spec.pruner is None else spec.batch
    mine = held.setdefault(pair, [])
    while (asked := book.ask(references_only=sum(not each.is_reference for each in mine) >= most)) is not None:
        held.setdefault(asked.point["pair"], []).append(asked)
        if not asked.is_reference and not listed:  # its control runs beside it
            plan(bench, pair, taus)
    return mine


@contextmanager
def _engine(spec: SweepSpec, pair: str) -> Iterator[Engine]:
    engine = open_engine(checkpoints(spec, pair), spec.engine, lazily=True)
    try:
        yield engine
    finally:
        engine.close()
