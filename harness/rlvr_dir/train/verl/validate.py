"""Check before verl starts: its environment, its arguments, and the positions of the base."""

import json
import os
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from packaging.specifiers import SpecifierSet

from rlvr_dir.errors import UserError, mention
from rlvr_dir.grading import code_digest
from rlvr_dir.hub import hub_or_cache
from rlvr_dir.train.spec import TrainSpec
from rlvr_dir.train.verl.overrides import Line, environment
from rlvr_dir.train.verl.spec import Verl

VERL_VERSIONS = ">=0.9.1,<0.10"
_EQUAL_VERSIONS = ("rlvr-dir", "math-verify")  # # these must have the same version in both environments
_VERSIONS = f"""
import json
from importlib.metadata import version
from rlvr_dir.grading import code_digest
names = ("verl", "vllm", "ray", "torch", "transformers", *{_EQUAL_VERSIONS})
print(json.dumps([{{name: version(name) for name in names}}, code_digest()]))
"""


def interpreter(python: str) -> Path:
    """Return the absolute path of verl's Python. Links are not resolved, because their target is another environment.

    Raises:
        UserError: There is no such program.
    """
    path = Path(os.path.abspath(os.path.expanduser(python)))
    if not os.access(path, os.X_OK) or path.is_dir():
        raise UserError(
            "is not a program",
            argument="verl.python",
            value=python,
            accepted="the Python of an environment with verl, as `make verl-env` makes it",
        )
    return path


def check_versions(python: str) -> dict[str, str]:
    """Return the versions of the packages that train in verl's environment.

    Raises:
        UserError: A package is missing there, verl's version is not supported, or rlvr-dir or the grader differs from
            the one here.
    """
    done = _run(python, ["-c", _VERSIONS])
    if done.returncode:
        raise UserError(
            f"fails: {_error(done.stderr)}",
            argument="verl.python",
            value=python,
            accepted="an environment with verl's extras and rlvr-dir",
        )
    versions, grader = json.loads(done.stdout)
    if versions["verl"] not in SpecifierSet(VERL_VERSIONS):
        raise UserError(
            f"has verl {versions['verl']}", argument="verl.python", value=python, accepted=f"verl {VERL_VERSIONS}"
        )
    for name in _EQUAL_VERSIONS:
        if versions[name] != version(name):
            raise UserError(
                f"has {name} {versions[name]}",
                argument="verl.python",
                value=python,
                accepted=f"{version(name)}, as in this environment",
            )
    if grader != code_digest():
        raise UserError(
            "grades with different code of rlvr-dir",
            argument="verl.python",
            value=python,
            accepted="the same code as in this environment",
        )
    return versions


def check_arguments(python: str, lines: Sequence[Line]) -> None:
    """Make verl compose its configuration with these arguments (`--cfg job`) and load our plugins. It starts nothing.

    Raises:
        UserError: verl does not accept them; the error has verl's own words.
    """
    done = _run(python, ["-m", "verl.trainer.main_ppo", "--cfg", "job", *(line.text for line in lines)])
    if done.returncode:
        raise UserError(f"verl does not accept the training: {_error(done.stderr)}")


def check_context(spec: TrainSpec, base: str) -> None:
    """Check that sequences are not longer than the base's positions, if its configuration can be read.

    Raises:
        UserError: They are longer.
    """
    from transformers import AutoConfig

    verl = spec.verl or Verl()
    longest = verl.max_prompt_tokens + spec.dapo.max_response_tokens
    positions = verl.max_position_embeddings
    if positions is None:
        try:
            with hub_or_cache():
                config = AutoConfig.from_pretrained(base, trust_remote_code=spec.trust_remote_code)
        except Exception:  # # there are many kinds; verl reads the configuration where the models are
            return
        positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if positions is not None and positions < longest:
        raise UserError(
            f"with {mention('verl.max_prompt_tokens', verl.max_prompt_tokens)} is beyond the {positions} positions of "
            f"{mention('base', base)}",
            argument="dapo.max_response_tokens",
            value=spec.dapo.max_response_tokens,
            accepted=f"up to {max(0, positions - verl.max_prompt_tokens)}, or "
            f"{mention('verl.max_position_embeddings', longest)} or more",
        )


def _run(python: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    variables = {"RLVR_DIR_NO_AUTOLOAD": "1", "PYTHONWARNINGS": "ignore", **environment(Path(os.devnull))}
    return subprocess.run(
        [str(interpreter(python)), *arguments], capture_output=True, text=True, env=os.environ | variables
    )


def _error(output: str) -> str:
    """Return the error of a traceback, else everything that a program printed except noise, on one line."""
    noise = ("WARNING", "Set the environment variable HYDRA_FULL_ERROR")
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(noise)]
    traceback = any(line.startswith("Traceback") for line in lines)
    return " ".join(lines[-1:] if traceback else lines)[:300] or "it printed nothing"
