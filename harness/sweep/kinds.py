"""The two kinds of sweep: of decodings and of trainings.

spec = load(yaml.safe_load(text))
kind_of(spec).check(spec)
"""

from typing import Any

from harness.spec.search import Search
from harness.spec.sweep import SweepSpec
from harness.sweep.context import SweepKind
from harness.sweep.specs import load

__all__ = ["kind_of", "load"]


def kind_of(spec: Search) -> SweepKind[Any]:
    """Return what is particular to a sweep's kind."""
    if isinstance(spec, SweepSpec):
        from harness.sweep.decoding import DECODINGS

        return DECODINGS
    from harness.sweep.training.kind import TRAININGS

    return TRAININGS
