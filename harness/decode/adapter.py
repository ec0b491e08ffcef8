"""A LoRA adapter in PEFT's format: found, checked, and read as the low-rank terms that make RL out of base."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.errors import UserError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")  # their layers are named and shaped alike
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

# Entries of PEFT's configuration that change the model in another way than by W + scale B A, and what each must be.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),  # the others rewrite base's weights
    **dict.fromkeys(
        (
            "alora_invocation_tokens", "arrow_config", "fan_in_fan_out", "kasa_config", "layer_replication",
            "lora_bias", "modules_to_save", "monteclora_config", "target_parameters", "trainable_token_indices",
            "use_bdlora", "use_dora", "use_qalora",
        ),
        (None, False),
    ),
}  # fmt: skip
_DEFAULTS = {"bias": "none", "init_lora_weights": True}
_KEY = re.compile(
    r"base_model\.model\.(model\.layers\.\d+\.(?:self_attn|mlp)\.(?:" + "|".join(PROJECTIONS) + r"))"
    r"\.lora_([AB])\.weight"
)


@dataclass(frozen=True)
class Adapter:
    """An adapter that can be served: RL's weight of a projection is W + scale · B A."""

    name: str
    weights: str  # the path of its file of tensors
    trained_on: str | None  # what its training called the base model
    scales: Mapping[str, float]  # of each projection, by its path in the base model
    shapes: Mapping[str, tuple[int, int, int]]  # of each projection: inputs, rank, outputs

    def terms(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Read the terms of each projection, by its path: A (rank, inputs) and scale · B (outputs, rank), float32."""
        from safetensors import safe_open

        with safe_open(self.weights, "pt") as file:

            def tensor(path: str, side: str) -> torch.Tensor:
                return file.get_tensor(f"base_model.model.{path}.lora_{side}.weight").float()

            return {path: (tensor(path, "A"), tensor(path, "B") * scale) for path, scale in self.scales.items()}

    @torch.no_grad()
    def merge_into(self, model: nn.Module) -> None:
        """Add the terms to the weights of a transformers model of the base, in float32, then round to its dtype."""
        for path, (a, b) in self.terms().items():
            weight = model.get_parameter(f"{path}.weight")
            weight.copy_(weight.float() + (b @ a).to(weight.device))


def read_adapter(name: str, revision: str | None = None) -> Adapter | None:
    """Read the adapter in a directory or of a hub id (its two small files are fetched); None where there is none.

    Raises:
        UserError: there is one that is more than W + scale · B A on a language model's projections, or is incomplete.
    """
    place = _file(name, CONFIG, revision)
    if place is None:
        return None
    where = f"rl={name!r} is an adapter"
    try:
        config = dict(json.loads(Path(place).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{where} whose {CONFIG} cannot be read ({error}); accepted: as PEFT writes it") from None
    for entry, accepted in _PLAIN.items():
        value = config.get(entry, _DEFAULTS.get(entry))
        if value not in accepted and value not in ([], {}):
            wanted = " or ".join(map(repr, accepted))
            raise UserError(
                f"{where} with {entry}={value!r}; accepted: {wanted}, or RL merged with base and saved whole"
            )
    if Path(name).is_dir() and any(Path(name).glob("model*.safetensors")):
        raise UserError(f"{where} and a whole model in one directory; accepted: one of the two")
    weights = _file(name, WEIGHTS, revision)
    if weights is None:
        raise UserError(f"{where} without {WEIGHTS}; accepted: an adapter saved by PEFT as safetensors")
    shapes = _shapes(where, weights)
    try:
        scales = {path: _scale(config, path, rank) for path, (_, rank, _) in shapes.items()}
    except (KeyError, TypeError, ValueError, AttributeError, re.error) as error:
        raise UserError(
            f"{where} whose {CONFIG} has no usable lora_alpha or alpha_pattern ({error!r}); accepted: numbers"
        ) from None
    return Adapter(name, weights, config.get("base_model_name_or_path"), scales, shapes)


def is_adapter(name: str, revision: str | None = None) -> bool:
    """Tell whether a directory or hub id holds an adapter, of whatever kind."""
    return _file(name, CONFIG, revision) is not None


def has_tokenizer(name: str, revision: str | None = None) -> bool:
    """Tell whether a directory or hub id holds a tokenizer."""
    return _file(name, "tokenizer_config.json", revision) is not None


def _file(name: str, file: str, revision: str | None) -> str | None:
    """Return the local path of a checkpoint's file, fetched where it is a hub id; None where it has no such file."""
    if Path(name).is_dir():
        return str(Path(name, file)) if Path(name, file).is_file() else None
    from transformers.utils import cached_file

    try:
        return cached_file(name, file, revision=revision, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):  # no such place: whoever reads the checkpoint's configuration says it better
        return None


def _scale(config: Mapping[str, Any], path: str, rank: int) -> float:
    """Return the scale as PEFT computes it: alpha / rank, or alpha / sqrt(rank) where it is rank-stabilised."""
    patterns = (config.get("alpha_pattern") or {}).items()
    alpha = next((own for key, own in patterns if re.match(rf"(.*\.)?({key})$", path)), config["lora_alpha"])
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _shapes(where: str, weights: str) -> dict[str, tuple[int, int, int]]:
    """Read inputs, rank and outputs of every adapted projection, from the header of the adapter's file."""
    from safetensors import SafetensorError, safe_open

    sides: dict[str, dict[str, tuple[int, ...]]] = {}
    try:
        with safe_open(weights, "pt") as file:
            for key in file.keys():  # noqa: SIM118 - no mapping
                match = _KEY.fullmatch(key)
                if match is None:
                    raise UserError(
                        f"{where} with a tensor {key!r}; accepted: lora_A and lora_B of a language model's "
                        f"{', '.join(PROJECTIONS)}"
                    )
                sides.setdefault(match[1], {})[match[2]] = tuple(file.get_slice(key).get_shape())
    except (OSError, SafetensorError) as error:
        raise UserError(f"{where} whose {WEIGHTS} cannot be read ({error}); accepted: as PEFT writes it") from None
    shapes = {}
    for path, side in sorted(sides.items()):
        a, b = side.get("A", ()), side.get("B", ())
        if len(a) != 2 or len(b) != 2 or a[0] != b[1]:
            raise UserError(
                f"{where} whose {path} has lora_A of shape {a} and lora_B of shape {b}; "
                "accepted: (rank, inputs) and (outputs, rank)"
            )
        shapes[path] = (a[1], a[0], b[0])
    if not shapes:
        raise UserError(f"{where} without a single tensor in {WEIGHTS}; accepted: lora_A and lora_B of projections")
    return shapes
