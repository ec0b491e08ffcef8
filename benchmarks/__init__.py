"""Measure what the pages of `docs/` quote, each in a program: `python -m benchmarks.grade --help`.

`checklist` tests a machine where the engine has not run yet, such as a GPU; `fused` and `closed_form` are oracles that
the tests use, too. On their own machine, users measure with `rlvr-dir bench decode`.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("rlvr_dir") is None:  # a checkout that is not installed, as on a rented machine
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "harness"))
