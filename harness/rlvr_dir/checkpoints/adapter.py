"""Read RL as a LoRA adapter of base, as PEFT writes it. PEFT merges it into a whole checkpoint before it is loaded."""

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr_dir.config import Pair
from rlvr_dir.errors import UserError

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
# A tensor of LoRA: the module that it changes, and its part.
_PART = re.compile(r"(.+)\.(lora_(?:embedding_)?[AB]|lora_magnitude_vector)(?:\.weight)?")


def trained_on(name: str, revision: str | None = None) -> str | None:
    """Return the name of the base model in an adapter's training; empty if unknown, None for a whole checkpoint.

    Raises:
        UserError: There is an adapter whose configuration cannot be read.
    """
    place = file_of(name, CONFIG, revision)
    if place is None:
        return None
    try:
        return str(dict(json.loads(Path(place).read_text())).get("base_model_name_or_path") or "")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"is an adapter whose {CONFIG} cannot be read ({error})",
            argument="rl",
            value=name,
            accepted="as PEFT writes it",
        ) from None


def has_tokenizer(name: str, revision: str | None = None) -> bool:
    """Return whether a directory or hub id contains a tokenizer."""
    return file_of(name, "tokenizer_config.json", revision) is not None


def adapter_fault(
    folder: Path, built: Mapping[str, tuple[int, ...]], tied: bool, where: str = "The adapter"
) -> UserError | None:
    """Return the error for a part of an adapter that PEFT would silently ignore; None if everything fits.

    Only the header of the adapter's file is read.

    Args:
        folder: The adapter's folder.
        built: The shapes of base's tensors, by name.
        tied: Whether base's output layer is its input embeddings.
        where: What the message begins with, such as `rl='runs/rl'`.
    """
    config = dict(json.loads((folder / CONFIG).read_text()))
    saved = config.get("modules_to_save") or []
    if tied and (both := [name for name in saved if name in ("lm_head", "embed_tokens")]):
        return UserError(
            f"{where}: its modules_to_save={both} would separate the output layer from the input embeddings, which "
            "are one matrix in base (tie_word_embeddings)",
            accepted="an adapter without them, or RL saved as a whole model",
        )
    names = _tensor_names(folder)
    if tied and any(f"{_PREFIX}lm_head." in name for name in names or ()):
        return UserError(
            f"{where}: it changes the output layer, which is also the input embeddings (tie_word_embeddings), so "
            "merging it would change both",
            accepted="an adapter without lm_head, or RL saved as a whole model",
        )
    if names is None:
        if (folder / "adapter_model.bin").is_file():
            return None  # a pickle, whose names are unknown before it is read
        return UserError(f"{where}: it has {CONFIG} and no {TENSORS}", accepted="both files, as PEFT writes them")
    modules = {name.removesuffix(".weight") for name in built}
    parts = {name: _PART.fullmatch(name.removeprefix(_PREFIX)) for name in names}
    unused = [
        name
        for name, part in parts.items()
        if (part[1] not in modules if part else name.removeprefix(_PREFIX) not in built)
    ]
    if unused and config.get("peft_type") == "LORA":
        return UserError(
            f"{where}: {len(unused)} of its {len(names)} tensors fit no module of base, such as {min(unused)}, and "
            "PEFT ignores them",
            accepted="an adapter that was trained on this base",
        )
    filled = {part[1] for part in parts.values() if part and part[2].endswith("B")}
    empty = sorted(_targets(folder, config, modules) - filled)
    if empty:
        return UserError(
            f"{where}: {len(empty)} of the modules that its target_modules name have no tensors in it, such as "
            f"{empty[0]}, and would stay as in base",
            accepted="a complete adapter",
        )
    return None


def changes_nothing(folder: Path) -> bool:
    """Return whether an adapter adds nothing to base: all of its B are zero, and it contains nothing else."""
    from safetensors import safe_open

    names = _tensor_names(folder)
    if not names:
        return False
    parts = {name: _PART.fullmatch(name.removeprefix(_PREFIX)) for name in names}
    if not all(
        part and part[2] in ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B") for part in parts.values()
    ):
        return False
    with safe_open(folder / TENSORS, "pt") as tensors:
        return not any(tensors.get_tensor(name).any() for name, part in parts.items() if part and part[2].endswith("B"))


def _tensor_names(folder: Path) -> list[str] | None:
    """Return the names of an adapter's tensors; None if it has no file of them, or one that cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / TENSORS, "pt") as tensors:
            return list(tensors.keys())
    except (OSError, SafetensorError):
        return None


def _targets(folder: Path, config: Mapping[str, Any], modules: set[str]) -> set[str]:
    """Return the modules of base that an adapter's configuration names, by PEFT's own rule; empty for other kinds."""
    targets = config.get("target_modules")
    if config.get("peft_type") != "LORA" or not targets or targets == "all-linear":
        return set()
    try:
        from peft import LoraConfig
        from peft.tuners.tuners_utils import check_target_module_exists
    except ImportError:  # loading reports it
        return set()
    lora = LoraConfig.from_pretrained(str(folder))
    return {module for module in modules if check_target_module_exists(lora, module)}


def merged(pair: Pair, dtype: Any) -> Any:
    """Return base, loaded in this torch dtype, with RL's adapter merged in.

    Raises:
        UserError: PEFT is not installed.
        Exception: PEFT cannot merge this adapter into this base.
    """
    from transformers import AutoModelForCausalLM

    try:
        from peft import PeftModel
    except ImportError:
        raise UserError(
            "is an adapter, and PEFT is not installed; run: pip install peft", argument="rl", value=pair.rl
        ) from None
    base, rl = pair.models["base"], pair.models["rl"]
    kwargs = {"trust_remote_code": pair.trust_remote_code, "dtype": dtype}
    model = AutoModelForCausalLM.from_pretrained(base.place, revision=base.revision, **kwargs)
    with warnings.catch_warnings():  # merging into a tied output layer would also change the embeddings
        warnings.filterwarnings("error", message="(?s).*tie_word_embeddings=True.*part of the adapter")
        adapted = PeftModel.from_pretrained(model, rl.place, revision=rl.revision)
        return adapted.merge_and_unload(safe_merge=True)


def file_of(name: str, file: str, revision: str | None) -> str | None:
    """Return the local path of a checkpoint's file, which is downloaded for a hub id; None if it has no such file."""
    if Path(name).is_dir():
        return str(Path(name, file)) if Path(name, file).is_file() else None
    from transformers.utils import cached_file

    try:
        return cached_file(name, file, revision=revision, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):  # there is no such place; reading the configuration reports it better
        return None
