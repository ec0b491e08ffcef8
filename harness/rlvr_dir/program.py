"""Programs of ours that run in processes of their own, with this very code."""

import os
import sys
from pathlib import Path
from typing import Any


def program(module: str, *words: object) -> dict[str, Any]:
    """Return the arguments of `subprocess.Popen`, `args` and `env`, that run a module of this very code.

    Python puts the current folder before all else for `-m`, but not with `-P`.
    """
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"args": [sys.executable, "-P", "-m", module, *map(str, words)], "env": os.environ | {"PYTHONPATH": path}}
