"""Reading results from the places that commands are given: files, folders, records, runs.

results = read_results(["runs/demo", "DAPO=runs/dapo", "3f2a"], store="runs/records")
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import DamagedError, UserError
from harness.evals.foreign import read_result
from harness.evals.from_records import NoResultError, regraded, results_of_record
from harness.evals.result import EvalResult, config_hash_of
from harness.evals.trainings import TrainingPlace, trainings_at
from harness.records import Record, RecordStore
from harness.records.store import is_record
from harness.spec.stored import Count, Stored, read_stored
from harness.text import visible

_P = TypeVar("_P")
_R = TypeVar("_R")


def read_results(
    places: Sequence[str | Path],
    store: str | Path | None = None,
    *,
    run: Callable[[str], EvalResult] | None = None,
    **how: Any,
) -> list[EvalResult]:
    """Read results from files and folders that `rlvr-dir eval` and `demo` wrote, from records, and from runs.

    A place is a result file, a folder of them, the folder of a sweep, of a training or of a sweep of trainings, a
    record's folder, a store of records, the beginning of a record's hash (with or without `/TASK`) in `store`, or
    `run:ID`, which `run` looks up; NAME=PLACE says what its RL model is called. `how` goes to `result_of_record`; files
    and runs that another grader made are graded again from their records.

    Raises:
        UserError: a place that is none of these, a file that is no result, a record that is not complete, or a result
            of another grader whose responses are gone.
    """
    found: list[EvalResult] = []
    for place in map(str, places):
        name, equals, path = place.partition("=")
        if not equals or Path(place).expanduser().exists():
            name, path = "", place
        if trainings := trainings_at(Path(path).expanduser()):
            if name and len(trainings) > 1:
                names = ", ".join(training.name for training in trainings)
                raise UserError(f"results: {place!r} gives one name to several trainings ({names}); leave the name out")
            found += _of_trainings(trainings, name, run, how)
            continue
        found += [replace(result, name=name) if name else result for result in _read(path, store, run, how)]
    if not found:
        raise UserError("results: nothing to read there; accepted: files or folders that eval has written, or records")
    called: dict[Any, dict[str, None]] = {}
    for result in found:
        called.setdefault((result.config_hash, result.pair), {})[result.name or "no name"] = None
    for same in dict.fromkeys(tuple(each) for each in called.values() if len(each) > 1):
        told = "the same results are given under several names, and each is compared as if it were another: "
        print(f"rlvr-dir: {told}{', '.join(map(visible, same))}", file=sys.stderr)
    return found


def _of_trainings(
    trainings: Sequence[TrainingPlace], name: str, run: Callable[[str], EvalResult] | None, how: dict[str, Any]
) -> list[EvalResult]:
    """Return the results of the seeds of trainings, each of which knows its training and its seed."""
    found: list[EvalResult] = []
    for training in trainings:
        given = name or (training.name if len(trainings) > 1 else "")
        folder, checkpoint = str(training.folder.resolve()), training.checkpoint
        seeds = [seed for seed in training.seeds if any(training.results(seed).glob("*.json"))]
        for seed in (seed for seed in training.seeds if seed not in seeds):
            print(f"rlvr-dir: left out: {training.folder} has no results of seed {seed} yet", file=sys.stderr)
        for seed in seeds:
            about = {"name": name or training.name, "seed": seed, "folder": folder, "checkpoint": checkpoint}
            about["named"] = bool(name)  # by the reader
            called = f"{given} seed {seed}" if given and len(seeds) > 1 else given
            for result in _read(str(training.results(seed)), None, run, how):
                found.append(replace(result, name=called, provenance={**result.provenance, "training": about}))
    return found


def _read(
    place: str, store: str | Path | None, run: Callable[[str], EvalResult] | None, how: dict[str, Any]
) -> list[EvalResult]:
    path = Path(place).expanduser()
    if place.startswith("run:") and run is not None:
        return [regraded(run(place.removeprefix("run:")), **how)]
    if path.is_file():
        return [regraded(read_result(path), **how)]
    if path.is_dir():
        if is_record(path):
            return results_of_record(Record(path.resolve()).read(), **how)
        path = path / "results" if (path / "results").is_dir() else path
        if files := sorted(path.glob("*.json"), key=lambda file: (file.lstat().st_mtime, file.name)):
            pruned = {str(path.resolve()): _pruned(path.parent / "summary.json")}
            found = [regraded(result, **how) for result in _newest(_readable(files, read_result))]
            return [replace(result, provenance={**result.provenance, "pruned": pruned}) for result in found]
        records = RecordStore(path if RecordStore(path).names() else path / "records")
        return _of_records(records, records.names(), how)
    if store is not None and re.match("[0-9a-f]+(/|$)", place) and RecordStore(store).names():
        return _of_records(RecordStore(store), RecordStore(store).find(place), how)
    raise UserError(f"results: {place!r} does not exist; accepted: result files or folders of them, records, or run:ID")


def _of_records(store: RecordStore, names: Sequence[tuple[str, str]], how: dict[str, Any]) -> list[EvalResult]:
    return [each for lot in _readable(names, lambda name: results_of_record(store.read(*name), **how)) for each in lot]


def _readable(places: Iterable[_P], read: Callable[[_P], _R]) -> list[_R]:
    """Return the results of files or records; a damaged one, or a record whose right answers nobody knows here, is left
    out, and said to be.

    Raises:
        UserError: what `read` refuses otherwise, or all of them are such.
    """
    found, without = [], []
    for place in places:
        try:
            found.append(read(place))
        except (DamagedError, NoResultError) as error:
            without.append(error)
    if without and not found:
        raise without[0]
    for error in without:
        print(f"rlvr-dir: left out: {error}", file=sys.stderr)
    return found


class _SearchFile(Stored, frozen=True):
    """Hold what is read of the summary of a sweep."""

    states: dict[str, Count]


def _pruned(summary: Path) -> int:
    """Return how many settings the search behind a folder of results has pruned; they left no result."""
    if not summary.is_file():
        return 0
    try:
        return read_stored(summary, _SearchFile).states.get("pruned", 0)
    except DamagedError:  # of anything else that is called so
        return 0


def _newest(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Leave out what a newer one was graded in place of: results that differ in the version of the grader only."""
    kept: dict[str, EvalResult] = {}
    for result in results:
        by_name = {**result.provenance, "graded_with": result.provenance.get("grader")}
        asked = config_hash_of(result.task, result.decoding, result.sampling, result.problem_ids, by_name)
        kept.pop(asked, None)
        kept[asked] = result
    return list(kept.values())
