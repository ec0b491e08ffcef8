"""Measurements that the pages of `docs/` quote, each a program: `python -m benchmarks.grade --help`.

`checklist` looks at a machine where the engine has not run yet, a GPU above all; `fused` and `closed_form` are oracles,
of the tests too. What a user measures on a machine of his own is `rlvr-dir bench decode`.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("rlvr_dir") is None:  # a checkout that is not installed: a rented machine's
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "harness"))
