"""RL as a LoRA adapter of base, as PEFT writes it: merged by PEFT into a whole checkpoint before it is loaded."""

import json
import warnings
from pathlib import Path

from rlvr_dir.errors import UserError
from rlvr_dir.spec import Pair

CONFIG = "adapter_config.json"


def trained_on(name: str, revision: str | None = None) -> str | None:
    """Return what an adapter's training called its base model; empty where it does not say, None of a whole checkpoint.

    Raises:
        UserError: there is an adapter whose configuration cannot be read.
    """
    place = _file(name, CONFIG, revision)
    if place is None:
        return None
    try:
        return str(dict(json.loads(Path(place).read_text())).get("base_model_name_or_path") or "")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"rl={name!r} is an adapter whose {CONFIG} cannot be read ({error}); accepted: as PEFT writes it"
        ) from None


def has_tokenizer(name: str, revision: str | None = None) -> bool:
    """Tell whether a directory or hub id holds a tokenizer."""
    return _file(name, "tokenizer_config.json", revision) is not None


def merge_adapter(pair: Pair, dtype: str, folder: Path) -> None:
    """Write base with RL's adapter merged in as a whole checkpoint of this type, without a tokenizer.

    Raises:
        UserError: PEFT is not installed, or does not merge this adapter into this base.
    """
    import torch
    from transformers import AutoModelForCausalLM

    base, rl = pair.models["base"], pair.models["rl"]
    kwargs = {"trust_remote_code": pair.trust_remote_code, "dtype": getattr(torch, dtype)}
    try:
        from peft import PeftModel

        model = AutoModelForCausalLM.from_pretrained(base.place, revision=base.revision, **kwargs)
        with warnings.catch_warnings():  # merging into a head that is the embeddings too would change these as well
            warnings.filterwarnings("error", message="(?s).*tie_word_embeddings=True.*part of the adapter")
            adapted = PeftModel.from_pretrained(model, rl.place, revision=rl.revision)
            adapted.merge_and_unload(safe_merge=True).save_pretrained(folder)
    except ImportError:
        raise UserError(f"rl={pair.rl!r} is an adapter, and PEFT is not installed; run: pip install peft") from None
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of many kinds, by what reads the files
        reason = " ".join((str(error).strip() or type(error).__name__).split())[:300]
        raise UserError(
            f"rl={pair.rl!r} is an adapter that PEFT does not merge into base={pair.base!r}: {reason}; accepted: an "
            "adapter of this base, or RL saved whole"
        ) from None


def _file(name: str, file: str, revision: str | None) -> str | None:
    """Return the local path of a checkpoint's file, fetched where it is a hub id; None where it has no such file."""
    if Path(name).is_dir():
        return str(Path(name, file)) if Path(name, file).is_file() else None
    from transformers.utils import cached_file

    try:
        return cached_file(name, file, revision=revision, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):  # no such place: whoever reads the checkpoint's configuration says it better
        return None
