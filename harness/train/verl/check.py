"""Run by the Python of verl's environment, by path: would verl take these arguments, and do what they say?

    PYTHON check.py < request.json      {"overrides": [...], "versions": {"rlvr-dir": "0.1.0", ...}, "grading": DIGEST}

Composes verl's shipped configuration, runs verl's own validation, and looks for what the configuration names: plugin,
trainer, reward. Prints one line of JSON: `problems` (sentences), `missing` (packages that only training needs), and
`versions`. Needs nothing to be installed beside Python; what is missing is among its answers.
"""

import contextlib
import difflib
import functools
import importlib.metadata
import importlib.util
import json
import os
import sys
from typing import Any

OLDEST, BEFORE = (0, 9, 1), (0, 10)
TRAINING = ("vllm",)  # imported by the workers on GPUs alone
# Free-form in verl, and without an empty mapping in its configuration to show it.
OPEN = ("reward.reward_kwargs", "reward.custom_reward_function.reward_kwargs", "ray_kwargs.ray_init", "rlvr_dir")


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
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf
    from verl.protocol import DataProto  # noqa: F401  (loads our plugin, or raises)

    asked = request["overrides"]
    with initialize_config_module("verl.trainer.config", version_base=None):
        stock = _stock()
        parsed = OverridesParser.create().parse_overrides(asked)
        added = [each.key_or_group for each in parsed if each.is_add() or each.is_force_add()]
        if unknown := [text for each in parsed if (text := _unknown(each.key_or_group, stock, added, OmegaConf))]:
            return unknown
        config = compose("ppo_trainer", overrides=asked)
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


@functools.cache  # half a second
def _stock() -> Any:
    """Compose verl's shipped configuration, where hydra knows its folder."""
    from hydra import compose

    return compose("ppo_trainer")


def _unknown(key: str, stock: Any, added: list[str], omegaconf: Any) -> str | None:
    """Say what is wrong with a key: verl's configuration does not have it, and no place for it either."""
    parts = key.split(".")
    node: Any = stock
    for depth, part in enumerate(parts):
        where = ".".join(parts[:depth])
        if not omegaconf.is_dict(node):
            return f"{key} is not known to verl: {where} is a value"
        if part not in node.keys():  # noqa: SIM118  (a mandatory value that is missing is a key, and not `in`)
            break
        node = None if omegaconf.is_missing(node, part) else node[part]
    else:
        return None
    is_open = where in OPEN or any(key.startswith(f"{each}.") for each in OPEN) or (depth and not node)
    if key in added and (is_open or part in _fields(node, parts)):
        return None
    names = list(_names(stock))
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    near = near or [name for name in names if name.endswith("." + parts[-1])][:1]
    plus = f"; accepted: +{key}" if is_open or part in _fields(node, parts) else ""
    return f"{key} is not known to verl" + plus + (f"; its nearest is {near[0]}" if near and not plus else "")


def _fields(node: Any, parts: list[str]) -> set[str]:
    """Return the fields of the dataclass that a node becomes: verl's, or ours where an argument names it."""
    import dataclasses

    from verl.utils.import_utils import load_class_from_fqn

    targets = [str(node["_target_"])] if "_target_" in node else []
    if parts[:3] == ["actor_rollout_ref", "actor", "policy_loss"]:
        targets.append("harness.train.verl.plugin.ReweightedLossConfig")
    return {field.name for target in targets for field in dataclasses.fields(load_class_from_fqn(target))}


def _names(node: Any, where: str = "") -> Any:
    for name in node:
        yield where + name
        try:
            inner = node[name]
        except Exception:  # an interpolation or a value that is still missing
            continue
        if hasattr(inner, "keys"):
            yield from _names(inner, f"{where}{name}.")


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
