"""What verl would find out late, before anything starts: arguments it does not take, positions the base lacks."""

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
from harness.hub import hub_or_cache
from harness.train.spec import TrainSpec
from harness.train.verl.overrides import MODULES, Line
from harness.train.verl.spec import Verl

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


def check_context(spec: TrainSpec, base: str) -> str | None:
    """Refuse a training whose sequences are longer than the base's positions; say why if that is not known here.

    Raises:
        UserError: they are.
    """
    from transformers import AutoConfig

    verl = spec.verl or Verl()
    longest = verl.max_prompt_tokens + spec.dapo.max_response_tokens
    positions = verl.max_position_embeddings
    if positions is None:
        try:
            with hub_or_cache():
                config = AutoConfig.from_pretrained(base, trust_remote_code=spec.trust_remote_code)
            positions = getattr(config.get_text_config(), "max_position_embeddings", None)
        except Exception as error:  # of many kinds, by what reads it
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            return f"the configuration of base={base!r} ({reason}); whether {longest} tokens fit is not checked"
    if positions is not None and positions < longest:
        raise UserError(
            f"dapo.max_response_tokens={spec.dapo.max_response_tokens} behind verl.max_prompt_tokens="
            f"{verl.max_prompt_tokens} is beyond the {positions} positions of base={base!r}; accepted: up to "
            f"{max(0, positions - verl.max_prompt_tokens)}, or verl.max_position_embeddings={longest} or more"
        )
    return None
