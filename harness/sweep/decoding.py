"""Sweeps of decodings: pair by pair, everything that can be claimed in one stream of one engine.

`harness.sweep.kinds` says what each of these functions is for.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.decode import Engine, open_engine
from harness.evals import EvalResult, preflight
from harness.evals.show import score
from harness.spec import Decoding
from harness.spec.search import LISTED
from harness.spec.sweep import SweepSpec
from harness.sweep.bench import Bench
from harness.sweep.confirm import confirm
from harness.sweep.estimate import estimate
from harness.sweep.folder import Folder
from harness.sweep.measure import Taus, decoding_of, measure
from harness.sweep.points import Point, listed_points, reference
from harness.sweep.progress import best_so_far
from harness.sweep.study import Asked
from harness.sweep.summary import summarise, write
from harness.sweep.taus import find_taus, stored_taus, wanted
from harness.sweep.track import Parent as parent
from harness.tiny import checkpoints

if TYPE_CHECKING:
    from harness.sweep.run import Places

__all__ = [
    "best_so_far", "check", "confirm", "estimate", "hand", "parent", "planner", "results", "run_here", "store",
    "summarise", "words", "write",
]  # fmt: skip


def check(spec: SweepSpec) -> None:
    """The benchmarks and their data are there."""
    preflight(spec.tasks, spec.data_dir, spec.golds)


def store(places: "Places") -> Path:
    """Of rollouts."""
    return places.records


def planner(bench: Bench) -> Callable[[], None]:
    """Finds the thresholds before there are workers, in an engine of this process where it must."""
    taus = {pair: _taus(bench, pair) for pair in bench.spec.pairs}

    def plan_all() -> None:
        for pair in bench.spec.pairs:
            plan(bench, pair, taus[pair])

    return plan_all


def _taus(bench: Bench, pair: str) -> Taus:
    spec = bench.spec
    taus = stored_taus(spec, bench.folder, pair)
    if all(each in taus for each in wanted(spec)):
        return taus
    with _engine(spec, pair) as engine:
        return find_taus(spec, bench.folder, pair, engine, bench.store, progress=bench.progress)


@contextmanager
def hand(bench: Bench) -> Iterator[Callable[[Asked], None]]:
    """Decodes one trial after the other, in an engine that is changed only with the pair."""
    engine, loaded = None, ""

    def do(asked: Asked) -> None:
        nonlocal engine, loaded
        spec, pair = bench.spec, asked.point["pair"]
        if loaded != pair:
            _close(engine)
            engine, loaded = open_engine(checkpoints(spec.pairs[pair]), spec.engine, lazily=True), pair
        measure(bench, engine, [asked], stored_taus(spec, bench.folder, pair))

    try:
        yield do
    finally:
        _close(engine)


def _close(engine: Engine | None) -> None:
    if engine is not None:
        engine.close()


def results(folder: Folder, trial: Any) -> list[EvalResult] | None:
    """Its result files."""
    found = [folder.result(name) for name in trial.user_attrs["results"]]
    return None if None in found else found


def words(point: Point, results: Sequence[EvalResult]) -> list[str]:
    """Its decoding and its scores."""
    return [
        f"{point['pair']}: {results[0].label}",
        *(f"{result.task} {score(result)}" for result in results),
    ]


def run_here(bench: Bench) -> None:
    """Pair by pair, all that can be claimed in one stream of one engine."""
    held: dict[str, list[Asked]] = {}  # claimed, waiting for their pair's engine
    try:
        for pair in bench.spec.pairs:
            with _engine(bench.spec, pair) as engine:
                taus = find_taus(bench.spec, bench.folder, pair, engine, bench.store, progress=bench.progress)
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
    engine = open_engine(checkpoints(spec.pairs[pair]), spec.engine, lazily=True)
    try:
        yield engine
    finally:
        engine.close()
