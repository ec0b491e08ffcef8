"""Write a sharpened copy of a model, its logits divided by a temperature. It gains accuracy without any training.

Only the final norm changes, and with it all logits. `rlvr-dir pair sharpen` uses it.
"""

import json
from pathlib import Path
from typing import Any

from rlvr_dir.checkpoints.expo import write_changed
from rlvr_dir.checkpoints.weights import tensors_of
from rlvr_dir.config import Pair
from rlvr_dir.errors import UserError

# The names of final norms in the architectures of transformers, and of the vectors that are added after them.
NORMS = ("model.norm.weight", "final_layernorm.weight", "final_layer_norm.weight", "ln_f.weight")
ADDED = ("final_layernorm.bias", "final_layer_norm.bias", "ln_f.bias", "lm_head.bias", "embed_out.bias")
ONE_MORE = ("gemma", "gemma2", "gemma3", "gemma3_text")  # architectures whose norms multiply with 1 + weight


def write_sharpened(base: str, temperature: float, folder: Path, revision: str | None = None) -> None:
    """Write a checkpoint whose logits are those of `base` divided by `temperature`, in base's types.

    Raises:
        UserError: base has no known final norm, or caps its logits; or as for `write_changed`.
    """
    files = tensors_of(base, revision, fetch=True)
    names = [name for name in files if name.endswith(NORMS)]
    config = _config(next(iter(files.values())).file.parent if files else Path(base))
    if len(names) != 1 or config.get("final_logit_softcapping"):
        why = "caps its logits" if len(names) == 1 else "has no final norm that can be scaled"
        raise UserError(why, argument="base", value=base, accepted="a whole checkpoint of a decoder in safetensors")
    shift = 1.0 if config.get("model_type") in ONE_MORE else 0.0

    def scaled(name: str, theta: Any, _: Any) -> Any:
        if name == names[0]:
            return (theta + shift) / temperature - shift
        return theta / temperature if name.endswith(ADDED) else theta

    same = Pair(base=base, rl=base, base_revision=revision, rl_revision=revision)
    write_changed(same, scaled, folder, dtype=None)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
