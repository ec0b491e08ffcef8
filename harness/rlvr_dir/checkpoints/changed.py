"""Count the weights that differ between two local checkpoints, and those that become equal in the decoding dtype.

counted = changed_weights("my-base", "my-rl", "bfloat16")
print(counted.differ, counted.lost)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from rlvr_dir.checkpoints.weights import Stored, tensors_of

MOST = 400_000_000  # parameters to read; for larger checkpoints a sample of tensors, evenly spaced by name


@dataclass(frozen=True)
class ChangedWeights:
    """Store shares of parameters: those that `differ` as stored, and the share of these that is `lost` in the decoding
    dtype.

    `tensors` is how many tensors were compared, and `of` how many there are. They differ if only a sample was read.
    """

    differ: float
    lost: float
    dtype: str
    tensors: int
    of: int

    def sentence(self) -> str:
        """Return it as a sentence."""
        sample = "" if self.tensors == self.of else f" (in a sample of {self.tensors} of {self.of} tensors)"
        if not self.differ:
            return f"No weight differs between the two checkpoints{sample}."
        return (
            f"{100 * self.differ:.1f} % of the weights differ{sample}. In {self.dtype}, in which the pair is decoded, "
            f"{100 * self.lost:.1f} % of these changes disappear."
        )


def changed_weights(base: str, rl: str, dtype: str, most: int = MOST) -> ChangedWeights | None:
    """Compare the weights of two local checkpoints, tensor by tensor, as they are stored and in a decoding dtype.

    Args:
        base, rl: Directories with safetensors files.
        dtype: The dtype in which the pair is decoded, such as `bfloat16`.
        most: Parameters to read at most.

    Returns:
        None if one of the checkpoints is not a local folder with safetensors, or if they share no tensor.
    """
    import torch
    from safetensors import safe_open

    folders = [Path(place).expanduser() for place in (base, rl)]
    if not all(folder.is_dir() for folder in folders):
        return None
    first, second = (tensors_of(str(folder)) for folder in folders)
    names = [name for name in first if name in second and first[name].shape == second[name].shape]
    if not names or any(stored.file.suffix != ".safetensors" for stored in (*first.values(), *second.values())):
        return None
    narrow = getattr(torch, dtype)
    total = differ = lost = 0
    chosen = _sample(names, first, most)
    for name in chosen:
        with safe_open(first[name].file, "pt") as first_file, safe_open(second[name].file, "pt") as second_file:
            tensor, other_tensor = first_file.get_tensor(name), second_file.get_tensor(name)
        if not (tensor.is_floating_point() and other_tensor.is_floating_point()):
            continue
        changed = tensor.to(torch.float32) != other_tensor.to(torch.float32)
        total += tensor.numel()
        differ += int(changed.sum())
        lost += int((changed & (tensor.to(narrow) == other_tensor.to(narrow))).sum())
    if not total:
        return None
    return ChangedWeights(differ / total, lost / differ if differ else 0.0, dtype, len(chosen), len(names))


def _sample(names: Sequence[str], stored: dict[str, Stored], most: int) -> list[str]:
    """Return names, evenly spaced, of about as many parameters as may be read."""
    step = -(-sum(prod(stored[name].shape) for name in names) // most)
    return list(names)[:: max(1, step)]
