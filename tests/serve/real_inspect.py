"""The real Inspect, in its own environment, as a program."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HOUSE = Path(__file__).parents[2]
PROGRAM = HOUSE / ".venv-inspect" / "bin" / "inspect"
needs_inspect = pytest.mark.skipif(not PROGRAM.exists(), reason="no .venv-inspect: `make inspect-env` makes it")

# Run by Inspect's Python: what its own reader finds in a log.
READ = """
import json, sys
from inspect_ai.log import read_eval_log
log = read_eval_log(sys.argv[1])
print(json.dumps({
    "status": log.status, "task": log.eval.task, "model": log.eval.model, "config": log.plan.config.model_dump(),
    "scores": {one.name: {name: each.value for name, each in one.metrics.items()} for one in log.results.scores},
    "samples": [{
        "key": [one.id, one.epoch], "text": one.output.completion, "target": one.target,
        "input": one.input if isinstance(one.input, str) else [each.text for each in one.input],
        "stopped": one.output.stop_reason, "right": [each.value for each in one.scores.values()], "error": one.error,
    } for one in log.samples],
}))
"""


def run(*words: Any, **environment: str) -> str:
    """Run `inspect` in the checkout and return what it prints; it asks nobody else but what it is told to."""
    return _run([PROGRAM, *words], environment)


def read_log(path: Path) -> dict[str, Any]:
    """Return what Inspect's own reader finds in a log."""
    return json.loads(_run([PROGRAM.with_name("python"), "-c", READ, path], {}))


def _run(words: list[Any], environment: dict[str, str]) -> str:
    own = {**os.environ, "INSPECT_DISPLAY": "none", "PYTHONPATH": str(HOUSE), **environment}
    done = subprocess.run([str(word) for word in words], env=own, cwd=HOUSE, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout
