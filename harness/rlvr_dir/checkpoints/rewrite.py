"""Write RL as a whole checkpoint in a common type, if it is stored as an adapter of base or quantised.

    with whole(pair) as plain:
        ...  # plain.rl is a temporary folder of float32 weights, or RL's own place if these are plain already

PEFT merges adapters; transformers and compressed-tensors dequantise. Only weights are dequantised. Activations, which a
server may quantise too, are computed in the decoding type.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlvr_dir.checkpoints.adapter import file_of, has_tokenizer, merged, trained_on
from rlvr_dir.checkpoints.beside_vllm import beside_vllm
from rlvr_dir.config import Pair
from rlvr_dir.errors import UserError, mention

GGUF = "gguf"
READ = ("compressed-tensors", GGUF)  # what can be dequantised here, as RL only
KEYS = ("quantization_config", "compression_config")  # keys of config.json that describe the quantisation
READ_WORDS = "a checkpoint in bfloat16, float16 or float32; or, as rl, int8 or fp8 of compressed-tensors, or GGUF"


def quantised_as(name: str, revision: str | None = None) -> str | None:
    """Return how a checkpoint's weights are quantised, by its config.json or as `gguf`; None if they are not."""
    if gguf_file(name) is not None:
        return GGUF
    place = file_of(name, "config.json", revision)
    try:
        config = dict(json.loads(Path(place).read_text())) if place else {}
    except (OSError, ValueError, TypeError):  # reading the configuration reports it
        return None
    key = next((key for key in KEYS if config.get(key)), None)
    return None if key is None else str(dict(config[key]).get("quant_method", key))


def gguf_file(name: str) -> Path | None:
    """Return the GGUF file that a local place is, or that is the only weights in it; None for all others."""
    place = Path(name).expanduser()
    if place.is_file():
        return place if place.suffix == ".gguf" else None
    files = sorted(place.glob("*.gguf")) if place.is_dir() else []
    return files[0] if len(files) == 1 and not [*place.glob("*.safetensors"), *place.glob("*.bin")] else None


def refuse_quantised(pair: Pair, role: str) -> None:
    """Refuse a quantised model, unless it is RL and of a kind that can be dequantised.

    Raises:
        UserError: It is such a model.
    """
    method, file = quantised_as(*pair.models[role]), gguf_file(pair.models[role].place)
    if method is not None and (role != "rl" or method not in READ):
        words = method if file is None else f"GGUF: {file.name}"
        raise UserError(f"is quantised ({words})", argument=role, value=pair.models[role].place, accepted=READ_WORDS)


@contextmanager
def whole(pair: Pair, dtype: str = "float32") -> Iterator[Pair]:
    """Yield the pair with RL as a whole checkpoint of this type, in a temporary folder if it is an adapter or
    quantised.

    Raises:
        UserError: A model is quantised in a way that is not supported, RL cannot be merged or dequantised, or a library
            for it is not installed.
    """
    import torch
    from transformers import AutoTokenizer

    for role in pair.models:
        refuse_quantised(pair, role)
    adapter, method = trained_on(*pair.models["rl"]), quantised_as(*pair.models["rl"])
    if adapter is None and method is None:
        yield pair
        return
    with TemporaryDirectory(prefix="rlvr-dir-whole-") as folder:
        try:
            model = (dequantised if adapter is None else merged)(pair, getattr(torch, dtype))
            model.save_pretrained(folder)
        except (torch.OutOfMemoryError, UserError):
            raise
        except Exception as error:  # of many types, depending on the library that reads the files
            reason = " ".join((str(error).strip() or type(error).__name__).split())[:300]
            base = f"an adapter that PEFT does not merge into {mention('base', pair.base)}"
            raise UserError(
                f"is {f'quantised ({method}) and cannot be dequantised' if method else base}: {reason}",
                argument="rl",
                value=pair.rl,
                accepted=READ_WORDS if method else "an adapter of this base, or RL saved whole",
            ) from None
        role = "rl" if method != GGUF and has_tokenizer(*pair.models["rl"]) else "base"
        place, revision = pair.models[role]
        AutoTokenizer.from_pretrained(place, revision=revision).save_pretrained(folder)
        yield pair.replace(rl=folder, rl_revision=None)


def dequantised(pair: Pair, dtype: Any) -> Any:
    """Return a quantised RL as a model with weights of this torch dtype.

    Raises:
        Exception: It cannot be read.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, CompressedTensorsConfig

    file, (place, revision) = gguf_file(pair.rl), pair.models["rl"]
    if file is None:
        source = {"revision": revision, "quantization_config": CompressedTensorsConfig(dequantize=True)}
    else:  # its configuration is base's, because llama.cpp stores less than transformers needs
        source, (place, revision) = {"gguf_file": file.name}, pair.models["base"]
    kwargs = {"trust_remote_code": pair.trust_remote_code}
    config = AutoConfig.from_pretrained(place, revision=revision, **kwargs)
    config.__dict__.pop("quantization_config", None)
    with warnings.catch_warnings(), redirect_stderr(StringIO()):  # bars; that the files' configuration is used
        warnings.simplefilter("ignore", UserWarning)
        read = AutoModelForCausalLM.from_pretrained(file.parent if file else place, **source, **kwargs, dtype=dtype)
    with torch.device("meta"), beside_vllm(config):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, **kwargs)
    weights = read.state_dict()
    model.load_state_dict({name: weights[name] for name in model.state_dict()}, assign=True)
    model.tie_weights()
    return model
