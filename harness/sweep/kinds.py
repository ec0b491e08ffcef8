"""The kinds of sweep: of decodings and of trainings. Each is a module with the same functions.

    spec = load(yaml.safe_load(text))
    kind_of(spec).run_here(bench)

What a kind has:

    check(spec)                         refuses what cannot be run here, before anything loads
    store(places) -> Path               where that is kept which is not done twice
    estimate(spec, out, store, speed)   what it will cost, with `text(points=...)`
    run_here(bench)                     everything, in this process
    planner(bench) -> plan              readies what workers cannot find out; `plan()` enqueues what is wanted
    hand(bench) -> do                   a context; `do(asked)` finishes one claimed trial
    results(folder, trial)              those of a complete trial; None where one is missing
    words(point, results)               what is said of a trial that has just been completed
    best_so_far(book, folder)           one line; empty while there is none
    write(spec, book, folder, seconds)  the summary, written; `summarise` only makes it
    parent(spec, where)                 all that is said to MLflow
    confirm(...)                        what is left of the winner's lead
"""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from harness.errors import UserError, unknown
from harness.spec.base import parse
from harness.spec.search import Search

KINDS = {"decode": "harness.sweep.decoding", "train": "harness.sweep.training.kind"}
SPECS = {"decode": "harness.spec.sweep:SweepSpec", "train": "harness.sweep.training.spec:TrainingSweep"}


def load(data: Mapping[str, Any]) -> Search:
    """Make a sweep of either kind from its YAML.

    Raises:
        UserError: there is no such kind, or what `parse` refuses.
    """
    if not isinstance(data, Mapping):
        raise UserError("the sweep is not a mapping of keys to values")
    kind = data.get("kind", "decode")
    if kind not in SPECS:
        raise unknown("kind", kind, SPECS)
    module, _, name = SPECS[kind].partition(":")
    return parse(getattr(import_module(module), name), data)


def kind_of(spec: Search) -> ModuleType:
    """The module of a sweep's kind."""
    return import_module(KINDS[spec.kind])
