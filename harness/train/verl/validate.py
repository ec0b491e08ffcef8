"""verl's arguments, checked in verl's own environment before anything starts; a mistake comes back as one sentence."""

import functools
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import harness
from harness.errors import UserError
from harness.grading import code_digest
from harness.train.verl.overrides import MODULES, Line

SECONDS = 600  # importing verl takes about 25 s on two cores


@dataclass(frozen=True)
class Checked:
    """What verl's environment is, once it has taken the arguments."""

    versions: dict[str, str | None]
    missing: tuple[str, ...]  # packages without which it can check and not train


def interpreter(python: str) -> Path:
    """Return the absolute path of verl's Python; not of what it links to, which would be another environment.

    Raises:
        UserError: there is no such program.
    """
    path = Path(os.path.abspath(os.path.expanduser(python)))
    if not os.access(path, os.X_OK) or path.is_dir():
        raise UserError(
            f"verl.python={python!r} is no program; accepted: the Python of an environment with verl, as "
            "`make verl-env` makes it"
        )
    return path


@functools.cache
def _asked(python: Path, request: str) -> str:
    done = subprocess.run(
        [str(python), str(Path(__file__).with_name("check.py"))],
        input=request,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=os.environ | {"RLVR_DIR_NO_AUTOLOAD": "1"},
    )
    if done.returncode or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UserError(f"verl.python={str(python)!r} could not check the training: {last[:300]}")
    return done.stdout.strip().splitlines()[-1]


def validate(python: str, lines: Sequence[Line]) -> Checked:
    """Compose and validate the arguments in verl's environment.

    Raises:
        UserError: no such environment, a version that does not fit, or an argument that verl does not take.
    """
    path = interpreter(python)
    request = {
        "overrides": [line.text for line in lines],
        "modules": MODULES,
        "versions": {"rlvr-dir": harness.__version__, "math-verify": version("math-verify")},
        "grading": code_digest(),
    }
    try:
        answer = json.loads(_asked(path, json.dumps(request)))
    except subprocess.TimeoutExpired:
        raise UserError(f"verl.python={python!r} did not check the training in {SECONDS} s") from None
    if answer["problems"]:
        raise UserError(f"verl.python={python!r}: {answer['problems'][0]}")
    return Checked(answer["versions"], tuple(answer["missing"]))
