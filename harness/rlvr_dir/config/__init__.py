"""Validate what a user requests: the pair, how it decodes, how it samples, and which engine runs it.

This package does not import torch, so that reading a spec, printing `--help` and rejecting a mistake are fast.
"""

from rlvr_dir.config.base import Spec, parse, read_yaml, yaml_mapping
from rlvr_dir.config.decoding import (
    Decoding,
    Mode,
    Primary,
    check_together,
    parse_decoding,
    with_controls,
)  # fmt: skip
from rlvr_dir.config.engine import EngineSpec
from rlvr_dir.config.evaluation import EvalSpec, ProblemPart, load_eval
from rlvr_dir.config.pair import TINY, TINY_BASE, TINY_RL, TINY_STEPS, Pair, find_pair, preset
from rlvr_dir.config.presentation import Presentation
from rlvr_dir.config.sampling import Sampling
from rlvr_dir.config.zoo import zoo

__all__ = [
    "TINY",
    "TINY_BASE",
    "TINY_RL",
    "TINY_STEPS",
    "Decoding",
    "EngineSpec",
    "EvalSpec",
    "Mode",
    "Pair",
    "Presentation",
    "Primary",
    "ProblemPart",
    "Sampling",
    "Spec",
    "check_together",
    "find_pair",
    "load_eval",
    "parse",
    "parse_decoding",
    "preset",
    "read_yaml",
    "with_controls",
    "yaml_mapping",
    "zoo",
]
