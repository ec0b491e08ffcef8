"""The two kinds of sweep, of decodings and of trainings, opened by what their file says."""

from collections.abc import Callable
from typing import Any

from harness.spec.search import Search
from harness.spec.sweep import SweepSpec
from harness.sweep.base import Places, Sweep
from harness.sweep.specs import load

__all__ = ["load", "open_sweep"]


def open_sweep(
    spec: Search, places: Places, say: Callable[[str], None] = print, *, progress: bool = False
) -> Sweep[Any]:
    """Return a sweep, whose models are not loaded yet."""
    if isinstance(spec, SweepSpec):
        from harness.sweep.decoding import Decodings

        return Decodings(spec, places, say, progress=progress)
    from harness.sweep.training.kind import Trainings
    from harness.sweep.training.spec import TrainingSweep

    assert isinstance(spec, TrainingSweep)
    return Trainings(spec, places, say, progress=progress)
