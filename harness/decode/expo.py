"""Weight extrapolation, the baseline of `mode=expo`: one model, theta_RL + gamma (theta_RL - theta_base).

After ExPO (Zheng et al., arXiv 2404.16792), there with alpha for gamma. The checkpoint is made tensor by tensor in a
temporary folder (TMPDIR says where; it is as large as RL's) and gone when its engine is closed.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.decode.weights import INDEX, tensor_files, tensor_shapes
from harness.errors import UserError
from harness.spec import Pair


@contextmanager
def expo_pair(pair: Pair, gamma: float, eos_token_ids: frozenset[int] = frozenset()) -> Iterator[Pair]:
    """Give the extrapolated model as a pair with itself while the context lasts; it ends at `eos_token_ids` as well.

    Raises:
        UserError: the two checkpoints do not have the same tensors, or are not safetensors.
    """
    with tempfile.TemporaryDirectory(prefix="rlvr-dir-expo-") as folder:
        write_expo(pair, gamma, Path(folder))
        _add_ends(Path(folder) / "generation_config.json", eos_token_ids)
        yield Pair(base=folder, rl=folder, trust_remote_code=pair.trust_remote_code)


def check_expo(pair: Pair) -> None:
    """Check that the weights can be extrapolated, from the files' headers alone: nothing large is read.

    Raises:
        UserError: as `expo_pair`.
    """
    for role in list(pair.models)[2:]:
        raise UserError(
            f"mode=expo is refused with {pair.named(role)}: its one model is made of base and rl; accepted: "
            "mode=extrapolate"
        )
    _both(pair)


def _add_ends(file: Path, more: frozenset[int]) -> None:
    settings = json.loads(file.read_text()) if file.is_file() else {}
    ends = settings.get("eos_token_id")
    known = {ends} if isinstance(ends, int) else set(ends or ())
    if more - known:
        file.write_text(json.dumps(settings | {"eos_token_id": sorted(known | more)}))


def write_expo(pair: Pair, gamma: float, folder: Path) -> None:
    """Write the extrapolated checkpoint: RL's files with other weights, in RL's types; computed in float32.

    Raises:
        UserError: as `expo_pair`.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    rl, base = _both(pair)
    for path in next(iter(rl.values())).parent.iterdir():
        if path.is_file() and not path.name.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf", INDEX)):
            shutil.copyfile(path, folder / path.name)
    places: dict[str, str] = {}
    for number, file in enumerate(dict.fromkeys(rl.values()), 1):
        moved = {}
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                theta = tensors.get_tensor(name)
                with safe_open(base[name], "pt") as others:
                    other = others.get_tensor(name)
                if theta.is_floating_point():
                    wide = theta.float()
                    theta = (wide + gamma * (wide - other.float())).to(theta.dtype)
                moved[name] = theta
                places[name] = f"model-{number:05d}.safetensors"
        save_file(moved, folder / f"model-{number:05d}.safetensors", metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index))


def _both(pair: Pair) -> tuple[dict[str, Path], dict[str, Path]]:
    """Find the files of RL's tensors and of base's, which are the same tensors in the same shapes."""
    rl, base = _files(pair.rl, pair.rl_revision, "rl"), _files(pair.base, pair.base_revision, "base")
    if other := set(rl) ^ set(base):
        raise UserError(
            f"mode=expo: base={pair.base!r} and rl={pair.rl!r} do not have the same tensors "
            f"({min(other)} is in one only); accepted: a pair of whole checkpoints of one architecture"
        )
    ours, theirs = tensor_shapes(rl), tensor_shapes(base)
    for name, shape in ours.items():
        if shape != theirs[name]:
            raise UserError(
                f"mode=expo: {name} is {theirs[name]} in base={pair.base!r} and {shape} in rl={pair.rl!r}; "
                "accepted: the same shapes"
            )
    return rl, base


def _files(name: str, revision: str | None, role: str) -> dict[str, Path]:
    """Map each tensor of a checkpoint to the file that holds it."""
    found = tensor_files(name, revision, fetch=True)
    if not found:
        raise UserError(f"mode=expo: {role}={name!r} holds no model*.safetensors; accepted: a whole checkpoint in them")
    return found
