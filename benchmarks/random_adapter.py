"""Make random LoRA adapters of any base, to measure and test engines (not for accuracy)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.config import Pair

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def random_adapter(
    directory: Path,
    base: str,
    *,
    rank: int = 4,
    step: float = 0.02,
    targets: Sequence[str] = PROJECTIONS,
    seed: int = 0,
    **config: Any,
) -> Pair:
    """Write a LoRA adapter of `base` into `directory`, in PEFT's format, without a tokenizer.

    Args:
        directory: The folder for `adapter_config.json` and `adapter_model.safetensors`.
        base: The checkpoint it adapts, a directory with one weight file.
        rank: The rank of every term.
        step: The size of the change, as a share of the spread of a projection's weights.
        targets: Projections to adapt, in every layer.
        seed: The seed of the terms.
        config: Further entries of PEFT's configuration, such as `use_rslora=True`, which do not change the terms.
    """
    import torch
    from safetensors.torch import load_file, save_file

    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": rank,
        "lora_alpha": 2 * rank, "target_modules": list(targets), "bias": "none", **config,
    }  # fmt: skip
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for name, weight in sorted(load_file(Path(base, "model.safetensors")).items()):
        path = name.removesuffix(".weight")
        if path.rsplit(".", 1)[-1] in targets and weight.ndim == 2:
            outputs, inputs = weight.shape
            spread = weight.std().item() * step / 2 / rank**0.5  # B A has `rank` summands, alpha / rank is 2
            for side, shape, scale in (("A", (rank, inputs), 1.0), ("B", (outputs, rank), spread)):
                tensors[f"base_model.model.{path}.lora_{side}.weight"] = torch.randn(shape, generator=generator) * scale
    save_file(tensors, directory / "adapter_model.safetensors")
    (directory / "adapter_config.json").write_text(json.dumps(config, indent=2))
    return Pair(base=base, rl=str(directory))
