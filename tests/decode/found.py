"""Runs a test module in a process of its own, in which vLLM has no other engine."""

import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from rlvr_dir.decode.vllm_pair.start import lasting


def found_apart(folder, module, *arguments):
    """Return what `main` of a module, such as `decode.apart_cuda`, returns there."""
    (folder / "asked").write_bytes(pickle.dumps((module, arguments)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.decode.found", folder],
        capture_output=True, cwd=Path(__file__).parents[2], text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return pickle.loads((folder / "found").read_bytes())


if __name__ == "__main__":
    place = Path(sys.argv[1])
    name, given = pickle.loads((place / "asked").read_bytes())
    with lasting():
        module = import_module(f"tests.{name}")
    (place / "found").write_bytes(pickle.dumps(module.main(*given)))
