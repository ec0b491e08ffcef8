"""Measure what training did to the weights: how many changed, by how much, where; nothing is loaded whole.

    found = weight_statistics(Pair(base="runs/base", rl="runs/rl"))

The tensors of two checkpoints are read side by side, a few rows at a time.
"""

import math
import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.analysis.result import Analysis
from harness.decode.weights import header_shapes, tensor_files, tensor_shapes
from harness.errors import UserError
from harness.progress import Bar
from harness.spec import Pair

TOLERANCE = 1e-5  # a weight that moved by no more counts as unchanged (arXiv 2505.11711)
RANK = 16  # singular directions that are looked at
AT_ONCE = 2**24  # numbers of a tensor in memory
LARGEST = 2**28  # numbers of a matrix whose singular directions are looked for: embeddings are larger
_LAYER = re.compile(r"(.*?)\b(?:layers|h|blocks)\.([0-9]+)\.(.*)")


def weight_statistics(pair: Pair, *, spectra: bool = True, seed: int = 0, progress: bool = True) -> Analysis:
    """Compare the weights of base and RL, tensor by tensor.

    Of every tensor: its numbers, how many are another number (`changed`) and by more than 1e-5 (`moved`), the Frobenius
    norms of base and of the difference. Of every matrix, with `spectra`, by randomised singular value decomposition
    (arXiv 0909.4061, rank 16):

    - `drift`: how much the largest singular values moved, ||sigma_RL - sigma_base|| / ||sigma_base||;
    - `rotation`: 1 - ||U_base^T U_RL||^2 / k, the part of RL's leading left directions that base's do not span;
    - `principal`: the share of the difference's energy in base's leading left directions (arXiv 2511.08567 finds it
      small in RL); `chance` is what a difference without direction would have there;
    - `stable_rank`: ||D||_F^2 / ||D||_2^2 of the difference D.

    Raises:
        UserError: a side has no safetensors, is not whole, is an adapter or holds NaN or an infinity; or the two have
            no tensor in common.
    """
    import torch

    files = {role: _files(pair, role) for role in ("base", "rl")}
    shapes = {role: tensor_shapes(found) for role, found in files.items()}
    common = [name for name in shapes["base"] if shapes["rl"].get(name) == shapes["base"][name]]
    if not common:
        raise UserError(f"base={pair.base!r} and rl={pair.rl!r} have no tensor in common; accepted: one architecture")
    random = torch.Generator().manual_seed(seed)
    tensors = []
    with Bar(len(common), "tensor", "weights", enabled=progress) as bar, ExitStack() as stack:
        opened = _Opened(stack)
        for name in sorted(common, key=_place):
            sides = tuple(opened.slice(files[role][name], name) for role in ("base", "rl"))
            matrix = len(shapes["base"][name]) == 2
            row = {"name": name, "matrix": matrix, **_counted(sides[0], sides[1])}
            for role, norm in (("base", row["norm"]), ("rl", row["difference"])):
                if not math.isfinite(norm):
                    raise UserError(
                        f"{role}={getattr(pair, role)!r}: its {name} holds NaN or an infinity; accepted: finite weights"
                    )
            if spectra and matrix and row["numbers"] <= LARGEST and row["changed"]:
                row |= _spectrum(sides[0][:].float(), sides[1][:].float(), random)
            tensors.append(row | dict(zip(("layer", "kind"), _place(name)[1:], strict=True)))
            bar.update()
    facts = {
        "pair": {"base": pair.base, "rl": pair.rl},
        "tolerance": TOLERANCE,
        "rank": RANK,
        "other_shape": sorted(n for n in shapes["base"].keys() & shapes["rl"].keys() if n not in set(common)),
        "only_base": sorted(shapes["base"].keys() - shapes["rl"].keys()),
        "only_rl": sorted(shapes["rl"].keys() - shapes["base"].keys()),
    }
    return Analysis(kind="weights", facts=facts, tables={"tensors": tuple(tensors)})


class _Opened:
    """Files that stay open: a tensor is read where it lies."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack, self.files = stack, dict[Path, Any]()

    def slice(self, file: Path, name: str) -> Any:
        from safetensors import safe_open

        if file not in self.files:
            self.files[file] = self.stack.enter_context(safe_open(file, "pt"))
        return self.files[file].get_slice(name)


def _files(pair: Pair, role: str) -> dict[str, Path]:
    name = getattr(pair, role)
    if (Path(name).expanduser() / "adapter_config.json").is_file():
        raise UserError(
            f"{role}={name!r} is an adapter: its own matrices are all that changed; accepted: whole weights"
        )
    folder = Path(name).expanduser()
    if any(folder.glob("*.safetensors*")):
        header_shapes(f"{role}={name!r}", folder)
    found = tensor_files(name, getattr(pair, f"{role}_revision"), fetch=True)
    if not found:
        raise UserError(f"{role}={name!r} holds no model*.safetensors; accepted: a whole checkpoint in them")
    return found


def _place(name: str) -> tuple[bool, int | None, str]:
    """Return where a tensor stands: whether it is outside the layers, its layer, its kind.

    >>> _place("model.layers.3.self_attn.q_proj.weight"), _place("lm_head.weight")
    ((False, 3, 'self_attn.q_proj'), (True, None, 'lm_head'))
    """
    found = _LAYER.fullmatch(name)
    if found:
        return False, int(found[2]), found[3].removesuffix(".weight")
    return True, None, name.removeprefix("model.").removesuffix(".weight")


def _rows(slice_: Any) -> Iterator[Any]:
    """Yield a tensor in parts, of `AT_ONCE` numbers at most where a row has no more."""
    shape = slice_.get_shape()
    if not shape:
        yield slice_[...]
        return
    each = 1
    for size in shape[1:]:
        each *= size
    step = max(1, AT_ONCE // max(1, each))
    for begin, end in pairwise([*range(0, shape[0], step), shape[0]]):
        yield slice_[begin:end]


def _counted(base: Any, rl: Any) -> dict[str, Any]:
    """Count one tensor; norms are summed in float64."""
    numbers = changed = moved = 0
    squares = [0.0, 0.0]
    for one, other in zip(_rows(base), _rows(rl), strict=True):
        wide = one.double()
        difference = other.double() - wide
        numbers += one.numel()
        changed += int((difference != 0).sum())
        moved += int((difference.abs() > TOLERANCE).sum())
        squares[0] += float((wide * wide).sum())
        squares[1] += float((difference * difference).sum())
    return {
        "numbers": numbers, "changed": changed, "moved": moved,
        "norm": squares[0] ** 0.5, "difference": squares[1] ** 0.5,
    }  # fmt: skip


def _spectrum(base: Any, rl: Any, random: Any) -> dict[str, float]:
    """Compare the leading singular directions of two matrices, (m, n) float32.

    Nothing where one of them, or in float32 their difference, is zero throughout: it has no directions.
    """
    difference = rl - base
    if not (base.any() and rl.any() and difference.any()):
        return {}
    difference /= difference.abs().max()  # squares of small numbers vanish; what is told does not know the scale
    (u, s), (v, t), (_, d) = (_leading(each, random) for each in (base, rl, difference))
    s, t = s.double(), t.double()  # whose squares vanish otherwise
    k = u.shape[1]
    energy = float(difference.square().sum())
    return {
        "drift": float((t - s).norm() / s.norm()),
        "rotation": max(0.0, 1 - float((u.T @ v).square().sum()) / k),
        "principal": float((u.T @ difference).square().sum()) / energy,
        "chance": k / base.shape[0],
        "stable_rank": energy / float(d[0]) ** 2,
    }


def _leading(matrix: Any, random: Any) -> tuple[Any, Any]:
    """Return the leading left singular vectors (m, k) and values (k,), found by a random range and four iterations."""
    import torch

    k = min(RANK, *matrix.shape)
    wide = min(k + 8, *matrix.shape)
    q = torch.linalg.qr(matrix @ torch.randn(matrix.shape[1], wide, generator=random))[0]
    for _ in range(4):
        q = torch.linalg.qr(matrix @ torch.linalg.qr(matrix.T @ q)[0])[0]
    u, s, _ = torch.linalg.svd(q.T @ matrix, full_matrices=False)
    return (q @ u)[:, :k], s[:k]
