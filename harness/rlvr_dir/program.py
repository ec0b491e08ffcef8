"""Start our own modules in separate processes, with the code of this installation."""

import os
import sys
from pathlib import Path
from typing import Any


def program(module: str, *words: object) -> dict[str, Any]:
    """Return the arguments of `subprocess.Popen`, `args` and `env`, that run a module of this installation.

    For `-m`, Python searches the current folder first, but not with `-P`.
    """
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"args": [sys.executable, "-P", "-m", module, *map(str, words)], "env": os.environ | {"PYTHONPATH": path}}
