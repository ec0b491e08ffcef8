"""The class that a sweep's file is read into, by the `kind` that it names."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from harness.errors import UserError, unknown
from harness.spec.base import parse
from harness.spec.search import Search

SPECS = {"decode": "harness.spec.sweep:SweepSpec", "train": "harness.sweep.training.spec:TrainingSweep"}


def load(data: Mapping[str, Any]) -> Search:
    """Make a sweep of either kind from its YAML.

    Raises:
        UserError: there is no such kind, or what `parse` refuses.
    """
    if not isinstance(data, Mapping):
        raise UserError("the sweep is not a mapping of keys to values")
    kind = data.get("kind", "decode")
    if str(kind) not in SPECS:
        raise unknown("kind", kind, SPECS)
    module, _, name = SPECS[str(kind)].partition(":")
    return parse(getattr(import_module(module), name), data)
