"""Run by the Python of verl's environment, by path: would verl take these arguments, and do what they say?

    PYTHON check.py < request.json      {"overrides": [...], "versions": {"rlvr-dir": "0.1.0", ...}, "grading": DIGEST}

Composes verl's shipped configuration, runs verl's own validation, and looks for what the configuration names: plugin,
trainer, reward. Prints one line of JSON: `problems` (sentences), `missing` (packages that only training needs), and
`versions`. Needs nothing to be installed beside Python; what is missing is among its answers.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from difflib import get_close_matches
from typing import Any

OLDEST, BEFORE = (0, 9, 1), (0, 10)
TRAINING = ("vllm",)  # imported by the workers on GPUs alone


def check(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request: which versions there are, what is missing, and the problems found."""
    versions = {name: _version(name) for name in ("verl", "rlvr-dir", "math-verify", "ray", "torch", "transformers")}
    missing = [name for name in TRAINING if importlib.util.find_spec(name) is None]
    found = {"versions": versions, "missing": missing, "problems": _versions(versions, request)}
    if not found["problems"]:
        os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join(request["modules"])
        try:
            found["problems"] = _problems(request)
        except Exception as error:  # whatever verl raises is the answer
            found["problems"] = [f"verl refuses the training: {_one_line(error)}"]
    return found


def _versions(versions: dict[str, str | None], request: dict[str, Any]) -> list[str]:
    verl = versions["verl"]
    if verl is None:
        return ["verl is not installed there"]
    if not OLDEST <= _numbers(verl) < BEFORE:
        least, below = (".".join(map(str, each)) for each in (OLDEST, BEFORE))
        return [f"verl {verl} is refused; accepted: at least {least} and below {below}"]
    for name, ours in request["versions"].items():
        if versions[name] is None:
            return [f"{name} is not installed there; accepted: {name} {ours}"]
        if versions[name] != ours:
            return [f"{name} is {versions[name]} there and {ours} here; install the same in both"]
    from harness.grading import code_digest

    if code_digest() != request["grading"]:
        return ["its copy of rlvr-dir grades by other code than this one; install the same in both"]
    return []


def _problems(request: dict[str, Any]) -> list[str]:
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf
    from verl.protocol import DataProto  # noqa: F401  (loads our plugin, or raises)

    with initialize_config_module("verl.trainer.config", version_base=None):
        config, stock = compose("ppo_trainer", overrides=request["overrides"]), compose("ppo_trainer")
    for text in request["overrides"]:  # hydra refuses unknown keys, and takes any behind a `+`
        if text.startswith("+") and (near := _nearest(text.lstrip("+").partition("=")[0], stock)):
            return [f"{text.partition('=')[0]} is not known to verl; its nearest is {near}"]
    OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.config import validate_config

    validate_config(config, need_reference_policy(config), need_critic(config))
    get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode)
    get_trainer_cls(config.trainer.v1.trainer_mode)
    reward = get_custom_reward_fn(config)
    if reward is not None:
        reward(data_source="check", solution_str="\\boxed{1}", ground_truth="1", extra_info={})
    return [
        f"trainer.logger has {name}, and {package} is not installed there"
        for name, package in (("mlflow", "mlflow"), ("wandb", "wandb"), ("tensorboard", "tensorboard"))
        if name in config.trainer.logger and importlib.util.find_spec(package) is None
    ]


def _nearest(key: str, stock: Any) -> str | None:
    """Return the key of verl's that an added one is most likely misspelt for; None where it is none like it."""
    node, known = stock, []
    for part in key.split("."):
        if not hasattr(node, "keys"):
            return None
        if part not in node.keys():  # noqa: SIM118  (a mandatory value that is missing is a key, and not `in`)
            return next((".".join([*known, near]) for near in get_close_matches(part, list(node), 1, 0.85)), None)
        known.append(part)
        node = node._get_node(part)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return (0, 9, 1) of 0.9.1 and of 0.9.1.post2."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text or type(error).__name__


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path = [
        path for path in sys.path if os.path.abspath(path or ".") != here
    ]  # `reward`, `log`: not by those names
    with contextlib.redirect_stdout(sys.stderr):
        answer = check(json.load(sys.stdin))
    print(json.dumps(answer))
