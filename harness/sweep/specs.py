"""The class that a sweep's file is read into, and the one that runs it, by the `kind` that it names."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from harness.errors import UserError, unknown
from harness.spec.base import parse
from harness.spec.search import Search

KINDS = {
    "decode": ("harness.spec.sweep:SweepSpec", "harness.sweep.decoding:Decodings"),
    "train": ("harness.sweep.training_spec:TrainingSweep", "harness.sweep.training:Trainings"),
}


def load(data: Mapping[str, Any]) -> Search:
    """Make a sweep of either kind from its YAML.

    Raises:
        UserError: there is no such kind, or what `parse` refuses.
    """
    if not isinstance(data, Mapping):
        raise UserError("the sweep is not a mapping of keys to values")
    if str(kind := data.get("kind", "decode")) not in KINDS:
        raise unknown("kind", kind, KINDS)
    return parse(class_of(KINDS[str(kind)][0]), data)


def class_of(name: str) -> Any:
    """Import `module:Class`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
