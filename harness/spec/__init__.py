"""What a person asks for, as validated data: the pair, how it decodes, how it samples, which engine runs it.

No torch here: reading a spec, printing `--help` and refusing a mistake stay instant.
"""

from harness.spec.base import Spec, parse
from harness.spec.decoding import CRITERIA, MODES, Criterion, Decoding, Mode, Primary, Sampling
from harness.spec.engine import BACKENDS, EngineSpec
from harness.spec.pair import PRESETS, Pair

__all__ = [
    "BACKENDS",
    "CRITERIA",
    "MODES",
    "PRESETS",
    "Criterion",
    "Decoding",
    "EngineSpec",
    "Mode",
    "Pair",
    "Primary",
    "Sampling",
    "Spec",
    "parse",
]
