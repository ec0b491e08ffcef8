"""Write a checkpoint with extrapolated weights, theta_RL + gamma (theta_RL - theta_base), as a one-model baseline.

It follows ExPO (Zheng et al., arXiv 2404.16792), which calls gamma alpha. `rlvr-dir pair expo` uses it.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rlvr_dir.checkpoints.rewrite import whole
from rlvr_dir.checkpoints.weights import INDEX, Stored, refuse_codes, refuse_infinite, tensors_of
from rlvr_dir.config import Pair
from rlvr_dir.errors import UserError, mention


def write_expo(pair: Pair, gamma: float, folder: Path) -> None:
    """Write the extrapolated checkpoint in float32, because rounding to a narrower type would remove a small step.

    Raises:
        UserError: As for `write_changed`.
    """
    write_changed(pair, lambda _, base, rl: rl + gamma * (rl - base), folder)


def write_changed(
    pair: Pair, change: Callable[[str, Any, Any], Any], folder: Path, dtype: str | None = "float32"
) -> None:
    """Write RL's files with other weights, one tensor at a time. An adapter is merged first, and a quantised RL
    dequantised.

    Args:
        pair: The two checkpoints.
        change: Makes each tensor from its name and from base's and RL's, both float32.
        folder: The folder for the checkpoint.
        dtype: The type of the new weights, by default float32; None keeps RL's types. Buffers stay RL's.

    Raises:
        UserError: The two checkpoints do not have the same tensors, are not safetensors, or contain quantisation codes,
            NaN or infinity. No checkpoint is written then.
    """
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    with whole(pair) as plain, ExitStack() as unfinished:
        rl, base = _both(plain)
        folder.mkdir(parents=True, exist_ok=True)
        unfinished.callback(shutil.rmtree, folder)
        for path in next(iter(rl.values())).file.parent.iterdir():
            if path.is_file() and not path.name.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf", INDEX)):
                shutil.copyfile(path, folder / path.name)
        if dtype is not None and (path := folder / "config.json").is_file():
            config = json.loads(path.read_text())
            path.write_text(json.dumps({**config, "torch_dtype": dtype, "dtype": dtype}, indent=2))
        places: dict[str, str] = {}
        for number, file in enumerate(dict.fromkeys(tensor.file for tensor in rl.values()), 1):
            moved = {}
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a mapping
                    theta = tensors.get_tensor(name)
                    with safe_open(base[name].file, "pt") as others:
                        other = others.get_tensor(name)
                    if theta.is_floating_point():
                        refuse_infinite("base", name, other)
                        refuse_infinite("rl", name, theta)
                        wanted = theta.dtype if dtype is None else getattr(torch, dtype)
                        theta = change(name, other.float(), theta.float()).to(wanted).contiguous()
                    moved[name] = theta
                    places[name] = f"model-{number:05d}.safetensors"
            save_file(moved, folder / f"model-{number:05d}.safetensors", metadata={"format": "pt"})
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
        unfinished.pop_all()


def _both(pair: Pair) -> tuple[dict[str, Stored], dict[str, Stored]]:
    """Find the files of RL's tensors and of base's, which are the same tensors in the same shapes."""
    rl, base = _files(pair.rl, pair.rl_revision, "rl"), _files(pair.base, pair.base_revision, "base")
    if only := set(rl) ^ set(base):
        raise UserError(
            f"and {mention('rl', pair.rl)} do not have the same tensors ({min(only)} is in one only)",
            argument="base",
            value=pair.base,
            accepted="a pair of whole checkpoints of one architecture",
        )
    for name, tensor in rl.items():
        if (shape := tensor.shape) != (other := base[name].shape):
            raise UserError(
                (f"{name} is {other} in {mention('base', pair.base)} and {shape} in {mention('rl', pair.rl)}"),
                accepted="the same shapes",
            )
    return rl, base


def _files(name: str, revision: str | None, role: str) -> dict[str, Stored]:
    """Return the file of each tensor of a checkpoint."""
    files = tensors_of(name, revision, fetch=True)
    if not files:
        raise UserError("has no model*.safetensors", argument=role, value=name, accepted="a whole checkpoint in them")
    refuse_codes(mention(role, name), files)
    return files
