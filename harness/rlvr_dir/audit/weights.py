"""List the claims about weights: what training changed in a checkpoint's tensors.

    changes = weight_changes(Pair(base="my-base", rl="my-rl"))     # one row per tensor

Tensors are read one by one, so two whole models are never in memory. They are compared as they are in the files. An
output layer that is tied to the embeddings is in neither file, so it is counted once, with the embeddings. If one
checkpoint is stored in a narrower type, both are rounded to it. An adapter is first merged by PEFT, as engines do to
decode with it, and a quantised RL is dequantised. A tensor with three dimensions, such as the experts of a layer, is a
stack of matrices, with one row for each. A tensor that is in one checkpoint only, or has another shape there, has a row
without numbers.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any

import numpy as np
import pandas
from safetensors import safe_open

from rlvr_dir import stats
from rlvr_dir.audit.claim import COUNT, Claim, Frame, Source
from rlvr_dir.checkpoints.low_rank import energies, is_stack
from rlvr_dir.checkpoints.rewrite import whole
from rlvr_dir.checkpoints.weights import FLOATS, Stored, refuse_codes, refuse_infinite, tensors_of
from rlvr_dir.config import Pair
from rlvr_dir.errors import UserError, mention
from rlvr_dir.stats import Estimate

BUDGET = 4e12  # sum over matrices of rows x columns x the smaller of both: spectra take a few minutes on two cores
LEAST = 8  # matrices whose spectra are always computed
SEED = 0
_PRECISION = ("F64", "F32", "F16", "BF16")  # types, the most precise first
ATOL, RTOL = 1e-5, 1e-3  # tolerances below which a weight counts as unchanged, in 2505.11711 and 2606.07082
KINDS = {"attention": "attn|attention", "MLP": "mlp|feed_forward|experts", "embeddings and head": "embed|lm_head|wte"}
VECTORS = "norms and biases"
_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")


def weight_changes(pair: Pair, *, budget: float = BUDGET) -> Frame:
    """Return one row per tensor: how many of its numbers are the same, how large its change is, and its spectrum.

    Spectra are computed for all matrices that change. If these are too many for the `budget`, a seeded sample is used,
    which the column `spectrum` marks. For the others they are missing.

    Raises:
        UserError: Less than half of RL's numbers have a counterpart in base, files are not safetensors, or they contain
            codes of an unsupported quantisation, NaN or infinity.
    """
    import torch

    with whole(pair) as plain, ExitStack() as stack:
        base, rl = (_tensors(plain, role) for role in ("base", "rl"))
        shapes = {name: base[name].shape for name in base if name in rl and base[name].shape == rl[name].shape}
        if 2 * sum(map(prod, shapes.values())) < sum(prod(tensor.shape) for tensor in rl.values()):
            raise UserError(
                (
                    f"and {mention('rl', pair.rl)} have {len(shapes)} of {len({*base, *rl})} tensors in "
                    "common, by name and shape"
                ),
                argument="base",
                value=pair.base,
                accepted="two checkpoints of one architecture",
            )
        parts = {name: [*range(shape[0])] if is_stack(shape) else [None] for name, shape in shapes.items()}
        sampled, rows = _sampled(shapes, parts, budget), []
        files = {tensor.file for tensor in (*base.values(), *rl.values())}
        opened = {file: stack.enter_context(safe_open(file, "pt")) for file in files}
        for name in sorted({*base, *rl}):
            layer, vector = _LAYER.search(name), len((base.get(name) or rl[name]).shape) < 2
            kind = next((kind for kind, words in KINDS.items() if re.search(words, name)), "others")
            row: dict[str, Any] = {"tensor": name, "kind": VECTORS if vector else kind}
            row["layer"] = int(layer[0]) if layer else None
            if name not in shapes:
                rows.append(row)
                continue
            both = [opened[tensors[name].file].get_tensor(name) for tensors in (base, rl)]
            for role, tensor in zip(("base", "rl"), both, strict=True):
                refuse_infinite(role, name, tensor)
            if plain is pair and both[0].dtype != both[1].dtype:  # merged or dequantised tensors have no own type
                row["rounded"] = FLOATS[narrow := max(base[name].dtype, rl[name].dtype, key=_PRECISION.index)]
                both = [tensor.to(getattr(torch, FLOATS[narrow])) for tensor in both]
            for part in parts[name]:
                one = both if part is None else [tensor[part] for tensor in both]
                rows.append({**row, **compare(*one, spectrum=(name, part) in sampled)})
    return pandas.DataFrame(rows)


def compare(base: Any, rl: Any, *, spectrum: bool) -> dict[str, float | bool]:
    """Return the numbers of two tensors of one shape.

    With `spectrum`, those of the singular values of their change are included. `change` and `size` are sums of squares,
    of ΔW and of W_base. An energy is a squared singular value, and `change` is the sum of all energies. `first`,
    `eight` and `hundredth` are sums of the largest energies. `smallest` counts the weights that differ in bfloat16
    among the 10 % with the smallest |W_base|.
    """
    import torch

    wide, delta, changed = base.float(), rl.float() - base.float(), base.bfloat16() != rl.bfloat16()
    smallest = wide.abs() <= wide.abs().flatten().kthvalue(-(-wide.numel() // 10)).values
    row: dict[str, float | bool] = {
        "numbers": base.numel(),
        "equal": int((base == rl).sum()),
        "equal_bf16": int((~changed).sum()),
        "smallest": int((changed & smallest).sum()),
        "within_atol": int((delta.abs() <= ATOL).sum()),
        "within_rtol": int((delta.abs() <= RTOL * torch.maximum(wide.abs(), rl.float().abs())).sum()),
        "change": float(delta.square().sum(dtype=torch.float64)),
        "size": float(wide.square().sum(dtype=torch.float64)),
        "matrix": delta.ndim == 2 and min(delta.shape) > 1,
        "spectrum": spectrum and bool(delta.any()),
    }
    if row["spectrum"]:
        energy = energies(delta)
        tolerance = max(delta.shape) * torch.finfo(torch.float32).eps  # for singular values, as in torch.matrix_rank
        shares = energy / energy.sum()
        row |= {"full_rank": len(energy), "rank": int((energy > energy[0] * tolerance**2).sum())}
        row["effective_rank"] = float(torch.exp(-torch.special.xlogy(shares, shares).sum()))
        for name, count in {"first": 1, "eight": 8, "hundredth": max(1, len(energy) // 100)}.items():
            row[name] = float(energy[:count].sum())
    return row


def _tensors(pair: Pair, role: str) -> dict[str, Stored]:
    """Return where each weight of a model is stored.

    Raises:
        UserError: A file is missing or damaged, none is safetensors, or a tensor contains codes.
    """
    place, revision = pair.models[role]
    if not (tensors := tensors_of(place, revision, fetch=True)):
        raise UserError("has no model*.safetensors", argument=role, value=place, accepted="weights in them")
    refuse_codes(mention(role, place), tensors)
    return {name: tensor for name, tensor in tensors.items() if tensor.dtype in FLOATS}


def _sampled(
    shapes: dict[str, tuple[int, ...]], parts: Mapping[str, Sequence[int | None]], budget: float
) -> set[tuple[str, int | None]]:
    """Draw the matrices whose spectra are computed: all if the budget allows it, otherwise a seeded sample.

    A matrix is identified by its tensor and, in a stack, by its index there.
    """
    costs = {
        (name, part): float(prod(shape[-2:])) * min(shape[-2:])
        for name, shape in sorted(shapes.items())
        for part in parts[name]
        if len(shape) == 2 + (part is not None) and min(shape[-2:]) > 1
    }
    names = [list(costs)[at] for at in np.random.default_rng(SEED).permutation(len(costs))]
    spent = np.cumsum([costs[name] for name in names])
    return {name for at, name in enumerate(names) if at < LEAST or spent[at] <= budget}


# How an estimate is computed from all tensors


def counted(name: str) -> Callable[[Frame], Estimate]:
    """Return the share of all numbers that are unchanged by one definition.

    It has no interval, because every number is counted.
    """
    return lambda weights: Estimate(float(weights[name].sum() / weights.numbers.sum()))


def smallest_share(weights: Frame) -> Estimate:
    """Return the share of the changed weights that are among the smallest weights of their tensor."""
    changed = weights.numbers.sum() - weights.equal_bf16.sum()
    return Estimate(float(weights.smallest.sum() / changed) if changed else None)


def relative_change(*kinds: str) -> Callable[[Frame], Estimate]:
    """Return the norm of ΔW divided by that of W, for the tensors of some `kinds`, or for all."""

    def of(weights: Frame) -> Estimate:
        chosen = weights[weights.kind.isin(kinds)] if kinds else weights
        if chosen.numbers.isna().sum() > chosen.numbers.notna().sum():  # if experts are split in one checkpoint
            return Estimate(None)
        size = float(chosen["size"].sum())
        return Estimate(float(np.sqrt(chosen.change.sum() / size)) if size else None)

    return of


def energy_share(name: str) -> Callable[[Frame], Estimate]:
    """Estimate the share of the total energy of ΔW that is in the first singular values of each matrix."""

    def of(weights: Frame) -> Estimate:
        spectra = _spectra(weights)
        return _sample_of(weights, stats.mass_share(spectra[name], spectra.change)) if len(spectra) else Estimate(None)

    return of


def rank_share(name: str) -> Callable[[Frame], Estimate]:
    """Estimate the rank of ΔW divided by the largest possible rank, averaged over matrices; 0 if nothing changes."""

    def of(weights: Frame) -> Estimate:
        spectra = _spectra(weights)
        if not len(spectra):
            return Estimate(None if weights.change.sum() else 0.0)
        shares = spectra[name] / spectra.full_rank
        error = stats.standard_error(shares)
        return _sample_of(weights, Estimate(float(shares.mean()), *stats.t_interval(shares.mean(), error, len(shares))))

    return of


def _spectra(weights: Frame) -> Frame:
    """Return the matrices whose spectra were computed."""
    return weights[weights.spectrum.fillna(False).astype(bool)]


def _sample_of(weights: Frame, estimate: Estimate) -> Estimate:
    """Return `estimate`, with its interval only if spectra come from a sample of the matrices."""
    changed = weights[weights.matrix.fillna(False).astype(bool) & (weights.change > 0)]
    return estimate if len(_spectra(weights)) < len(changed) else Estimate(estimate.value)


SUBNETWORKS = "2505.11711", "abstract", "10 models, 7 algorithms"
SAME = "Share of all parameters. Every one is counted, so there is no interval."
LENGTH = "Frobenius norms over all these tensors. A dash means that most of them are in only one checkpoint."
SPECTRA = "of ΔW of each matrix; {} There is an interval only if a sample of matrices was drawn."
SQUARES = f"Squares of singular values {SPECTRA.format('sums over matrices.')}"
CLAIMS: tuple[Claim, ...] = (
    Claim("weights/equal", "weights", "Weights that are identical", SAME, counted("equal"), digits=2),
    Claim("weights/equal_bf16", "weights", "Weights that are identical in bfloat16",
        f"Both are rounded first, as that paper's script does (with a tolerance of {ATOL:g} more). {SAME}",
        counted("equal_bf16"), (Source(*SUBNETWORKS, "70–95 %"),), digits=2),
    Claim("weights/within_atol", "weights", f"Weights that differ by at most {ATOL:g}",
        f"As they are stored, unlike the script of 2505.11711, which rounds to bfloat16. {SAME}",
        counted("within_atol"), digits=2),
    Claim("weights/within_rtol", "weights", f"Weights that differ by at most {100 * RTOL:g} % of the larger", SAME,
        counted("within_rtol"), (Source("2606.07082", "§3", "Qwen3-8B, RLVR (SFT 8.1 %)", "77.2 %"),), digits=2),
    *(Claim(f"weights/change/{name}", "weights", f"‖ΔW‖ / ‖W‖, {words}", LENGTH, relative_change(*kinds), digits=3)
        for name, words, kinds in (("all", "all tensors", ()), ("attention", "attention", ("attention",)),
            ("mlp", "MLP", ("MLP",)), ("embeddings", "embeddings and head", ("embeddings and head",)),
            ("vectors", VECTORS, (VECTORS,)))),
    Claim("weights/smallest", "weights", "Changed weights that are among the smallest tenth of their tensor",
        "Share of the weights that differ in bfloat16; the smallest tenth is by base's |W|. It is 10 % if training "
        "takes no account of size. Every weight is counted, so there is no interval.", smallest_share,
        (Source("2606.13657"),)),
    Claim("weights/rank", "weights", "Numerical rank of ΔW, relative to full rank",
        f"Singular values above float32's precision {SPECTRA.format('mean over matrices.')}", rank_share("rank"),
        (Source(*SUBNETWORKS, "“nearly full-rank”"),)),
    Claim("weights/effective_rank", "weights", "Effective rank of ΔW, relative to full rank",
        "Number of directions over which its energy (squared singular values) is spread: exp of the entropy "
        f"{SPECTRA.format('mean over matrices.')}", rank_share("effective_rank")),
    Claim("weights/first", "weights", "Energy of ΔW in the first singular value of each matrix",
        SQUARES, energy_share("first"), (Source("2510.00553", "abstract"),)),
    Claim("weights/eight", "weights", "Energy of ΔW in the first eight singular values of each matrix",
        SQUARES, energy_share("eight")),
    Claim("weights/hundredth", "weights", "Energy of ΔW in the first 1 % of the singular values of each matrix",
        f"At least one of them. {SQUARES}", energy_share("hundredth")),
    Claim("weights/apart", "weights", "Tensors in only one checkpoint, or with different shapes",
        "Excluded from all rows.",
        lambda weights: Estimate(int(weights.numbers.isna().sum())), **COUNT),
    Claim("weights/spectra", "weights", "Matrices whose singular values were computed",
        f"All matrices that changed, or a sample of them (seed {SEED}) if all would take too long.",
        lambda weights: Estimate(len(_spectra(weights))), **COUNT),
)  # fmt: skip
