"""Weight extrapolation, the baseline of `mode=expo`: one model, theta_RL + gamma (theta_RL - theta_base).

After ExPO (Zheng et al., arXiv 2404.16792), there with alpha for gamma. The checkpoint is made tensor by tensor in a
temporary folder (TMPDIR says where; it is as large as RL's) and gone when its engine is closed.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.decode.plan import Plan
from harness.errors import UserError
from harness.spec import Pair

INDEX = "model.safetensors.index.json"


def groups_of_expo(plans: Sequence[Plan]) -> dict[float, list[Plan]]:
    """The plans of `mode=expo` by gamma: each gamma is a model of its own."""
    found: dict[float, list[Plan]] = {}
    for plan in plans:
        if plan.request.decoding.mode == "expo":
            found.setdefault(plan.request.decoding.gamma, []).append(plan)
    return found


@contextmanager
def expo_pair(pair: Pair, gamma: float) -> Iterator[Pair]:
    """The extrapolated model as a pair with itself, while the context lasts.

    Raises:
        UserError: the two checkpoints do not have the same tensors, or are not safetensors.
    """
    with tempfile.TemporaryDirectory(prefix="rlvr-dir-expo-") as folder:
        write_expo(pair, gamma, Path(folder))
        yield Pair(base=folder, rl=folder, trust_remote_code=pair.trust_remote_code)


def write_expo(pair: Pair, gamma: float, folder: Path) -> None:
    """Writes the extrapolated checkpoint: RL's files with other weights, in RL's types; computed in float32.

    Raises:
        UserError: as `expo_pair`.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    rl, base = _files(pair.rl, pair.rl_revision, "rl"), _files(pair.base, pair.base_revision, "base")
    for path in next(iter(rl.values())).parent.iterdir():
        if path.is_file() and not path.name.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf", INDEX)):
            shutil.copyfile(path, folder / path.name)
    ours, theirs = set(rl), set(base)
    if ours != theirs:
        raise UserError(
            f"mode=expo: base={pair.base!r} and rl={pair.rl!r} do not have the same tensors "
            f"({min(ours ^ theirs)} is in one only); accepted: a pair of whole checkpoints of one architecture"
        )
    places: dict[str, str] = {}
    for number, file in enumerate(dict.fromkeys(rl.values()), 1):
        moved = {}
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                theta = tensors.get_tensor(name)
                with safe_open(base[name], "pt") as others:
                    other = others.get_tensor(name)
                if theta.shape != other.shape:
                    raise UserError(
                        f"mode=expo: {name} is {tuple(other.shape)} in base={pair.base!r} and {tuple(theta.shape)} in "
                        f"rl={pair.rl!r}; accepted: the same shapes"
                    )
                if theta.is_floating_point():
                    wide = theta.float()
                    theta = (wide + gamma * (wide - other.float())).to(theta.dtype)
                moved[name] = theta
                places[name] = f"model-{number:05d}.safetensors"
        save_file(moved, folder / f"model-{number:05d}.safetensors", metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index))


def _files(name: str, revision: str | None, role: str) -> dict[str, Path]:
    """Each tensor of a checkpoint -> the file that holds it."""
    from safetensors import safe_open

    folder = Path(name).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        kinds = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.py"]
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=kinds))
    if (index := folder / INDEX).is_file():
        return {tensor: folder / file for tensor, file in json.loads(index.read_text())["weight_map"].items()}
    found = {}
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, "pt") as tensors:
            found |= dict.fromkeys(tensors.keys(), file)
    if not found:
        raise UserError(f"mode=expo: {role}={name!r} holds no model*.safetensors; accepted: a whole checkpoint in them")
    return found
