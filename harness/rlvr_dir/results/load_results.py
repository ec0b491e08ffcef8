"""Read results from the places that commands accept: files, folders, records, runs.

results = read_results(["runs/demo", "DAPO=runs/dapo", "3f2a"], store="runs/records")
"""

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.records import Record, RecordStore
from rlvr_dir.records.store import SPREADS, is_record
from rlvr_dir.results.from_records import regraded, results_of_record
from rlvr_dir.results.result import EvalResult, NoResultError, read_result
from rlvr_dir.results.trainings import TrainingPlace, trainings_at
from rlvr_dir.text import visible


def read_results(
    places: Sequence[str | Path],
    store: str | Path | None = None,
    *,
    run: Callable[[str], EvalResult] | None = None,
    **options: Any,
) -> list[EvalResult]:
    """Read results from files and folders that `rlvr-dir eval` and `demo` wrote, from records, and from runs.

    A place is a result file, a folder of them, the folder of a sweep, of a training or of a sweep of trainings, a
    record's folder, a store of records, the first digits of a record's hash (with or without `/TASK`) in `store`, or
    `run:ID`, which `run` looks up. NAME=PLACE names its RL model. `options` are those of `result_of_record`. Results by
    another grader are graded again from their records.

    Raises:
        UserError: A place is none of these, a file is not a result, a record is incomplete, or a result has another
            grader and its responses are gone.
    """
    results: list[EvalResult] = []
    empty: list[str] = []
    for place in map(str, places):
        name, equals, path = place.partition("=")
        if not equals or Path(place).expanduser().exists():
            name, path = "", place
        if trainings_at(Path(path).expanduser()):
            results += _of_trainings(path, name, options)
        else:
            read = _read(path, store, run, options)
            results += [result.replace(name=name) if name else result for result in read]
            empty += [] if read else [place]
    if results and empty:
        print(f"warning: left out, nothing to read there: {', '.join(map(visible, empty))}", file=sys.stderr)
    if not results:
        raise UserError(
            f"results: nothing to read in {', '.join(repr(str(place)) for place in places)}",
            accepted="files or folders that eval has written, records, or trainings that were validated",
        )
    called: dict[Any, dict[str, None]] = defaultdict(dict)
    for result in results:
        called[result.config_hash, result.pair][result.name or "no name"] = None
    for same in dict.fromkeys(tuple(names) for names in called.values() if len(names) > 1):
        sentence = "the same results are given under several names, and each is compared as if it were another: "
        print(f"warning: {sentence}{', '.join(map(visible, same))}", file=sys.stderr)
    return results


def _of_trainings(place: str, name: str, options: dict[str, Any]) -> list[EvalResult]:
    """Return the results of the seeds of trainings, each with its training and its seed."""
    trainings = trainings_at(Path(place).expanduser())
    if name and len(trainings) > 1:
        names = ", ".join(training.name for training in trainings)
        raise UserError(
            f"gives one name to several trainings ({names})",
            argument="results",
            value=f"{name}={place}",
            hint="Leave the name out.",
        )
    several = len(trainings) > 1
    return [
        result
        for training in trainings
        for result in read_training(training, name or (training.name if several else ""), named=bool(name), **options)
    ]


def read_training(training: TrainingPlace, name: str = "", *, named: bool = False, **options: Any) -> list[EvalResult]:
    """Return the results of a training's seeds, each with its training and its seed.

    `name` is its name in tables, and `named` whether the user chose it. A seed without results is left out with a
    warning.
    """
    results: list[EvalResult] = []
    seeds = [seed for seed in training.seeds if any(training.results(seed).glob("*.json"))]
    for seed in {*training.seeds} - {*seeds}:
        print(f"warning: left out: {training.folder} has no validation of seed {seed}", file=sys.stderr)
    for seed in seeds:
        training_fields = {"name": name or training.name, "seed": seed, "folder": str(training.folder.resolve())}
        training_fields |= {"checkpoint": training.checkpoint, "named": named}
        called = f"{name} seed {seed}" if name and len(seeds) > 1 else name
        for result in _read(str(training.results(seed)), None, None, options):
            results.append(result.replace(name=called, provenance={**result.provenance, "training": training_fields}))
    return results


def _read(
    place: str, store: str | Path | None, run: Callable[[str], EvalResult] | None, options: dict[str, Any]
) -> list[EvalResult]:
    path = Path(place).expanduser()
    if place.startswith("run:") and run is not None:
        return [regraded(run(place.removeprefix("run:")), **options)]
    if path.is_file():
        return [regraded(read_result(path), **options)]
    if path.is_dir() and is_record(path):
        return results_of_record(Record(path.resolve()).read(), **options)
    if path.is_dir():
        path = path / "results" if (path / "results").is_dir() else path
        if files := sorted(
            (file for file in path.glob("*.json") if file.name != SPREADS),
            key=lambda file: (file.lstat().st_mtime, file.name),
        ):
            results = _newest(_readable([lambda file=file: [read_result(file)] for file in files]))
            return [regraded(result, **options) for result in results]
        records = RecordStore(path if RecordStore(path).names() else path / "records")
        names = records.names()
    elif store is not None and re.match("[0-9a-f]+(/|$)", place) and RecordStore(store).names():
        records = RecordStore(store)
        names = records.find(place)
    else:
        raise UserError(
            f"results: {place!r} does not exist", accepted="result files or folders of them, records, or run:ID"
        )
    return _readable([lambda name=name: results_of_record(records.read(*name), **options) for name in names])


def _readable(reads: Sequence[Callable[[], list[EvalResult]]]) -> list[EvalResult]:
    """Return the results of files or records; skip those that are damaged or without known answers, with a warning.

    If all are such, the error of the first is raised.
    """
    results, without = [], []
    for read in reads:
        try:
            results += read()
        except (DamagedError, NoResultError) as error:
            without.append(error)
    if without and not results:
        raise without[0]
    for error in without:
        print(f"warning: left out: {error}", file=sys.stderr)
    return results


def _newest(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Leave out results that a newer one replaces: results that differ only in the grader's version or in families."""
    kept: dict[str, EvalResult] = {}
    for result in results:
        by_name = {**result.provenance, "graded_with": {"grader": str(result.provenance.get("grader"))}}
        config_hash = result.replace(provenance=by_name, families=None).config_hash
        kept.pop(config_hash, None)
        kept[config_hash] = result
    return [*kept.values()]
