"""What two checkpoints must share before they can decode together, and the facts an engine needs about them."""

import json
import warnings
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from harness.decode.adapter import CONFIG as ADAPTER_CONFIG
from harness.decode.adapter import Adapter, has_tokenizer, is_adapter, read_adapter
from harness.decode.weights import check_shapes, check_weights_there, has_weights
from harness.digest import digest
from harness.errors import UserError
from harness.hub import SECONDS
from harness.spec import Pair

# Configuration entries of which no word is said where they differ between the two models of a pair: names, provenance,
# ids read elsewhere, what only training reads, and whether the output layer is the input embeddings.
_MAY_DIFFER = {
    "_name_or_path", "architectures", "attention_dropout", "auto_map", "bos_token_id", "dtype", "eos_token_id",
    "initializer_range", "max_position_embeddings", "max_window_layers", "pad_token_id", "tie_word_embeddings",
    "torch_dtype", "transformers_version", "use_cache", "classifier_dropout", "embd_pdrop", "gradient_checkpointing",
    "hidden_dropout", "id2label", "label2id", "output_router_logits", "problem_type", "resid_pdrop",
    "router_aux_loss_coef",
}  # fmt: skip

_QUANTISED = ("quantization_config", "compression_config")  # where a configuration says how its weights are quantised

# Files with a tokenizer's vocabulary, as libraries name them.
_VOCABULARIES = ("tokenizer.json", "*.model", "vocab.json", "vocab.txt", "tekken.json", "*.tiktoken")

_UNREACHABLE = (
    "the hub cannot be reached",
    "the hub's cache does not hold it, while HF_HUB_OFFLINE forbids to ask the hub",
)

_SMALL_BYTES = 2 * 2**30

_PROBES = (
    "Let $x^2+3x=\\frac{1}{2}$. Find the value of 12345 + 67.890.\n\n",
    "  def f(n):\n\treturn n**2  # naïve — 漢字, emoji 🎲, \u00a0",
)


class UnreachableError(UserError):
    """A checkpoint is not on this machine, and the hub could not be asked for it: nothing is known of it."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a pair, and of the model that its change is carried over to; found to fit together."""

    pair: Pair
    tokenizer: Any  # the RL model's
    configs: dict[str, Any]  # of each role; RL's is base's where RL is base and a LoRA adapter
    vocab_size: int  # real tokens; the models' logits may be padded beyond
    shared: int  # of these, the ids that base knows too: `vocab_size`, unless RL has tokens of its own after them
    eos_token_ids: frozenset[int]  # the union over both models' tokenizers, configurations and generation settings
    architecture: str  # the class name vLLM knows the models by
    dtype: str  # "auto" resolved: the narrower of the two checkpoints' own types
    adapter: Adapter | None = None  # where RL is base and a LoRA adapter

    @property
    def stand_in(self) -> int:
        """The token that base reads in place of one it does not know: one that ends a text."""
        return min(token for token in self.eos_token_ids if token < self.shared)

    @property
    def small(self) -> bool:
        """Tell whether all models are local and at most 2 GiB together: cheap to load once more, no bar needed."""
        twice = [self.pair.base] if self.adapter else []
        return sum(map(_weight_bytes, [*twice, *(place for place, _ in self.pair.models.values())])) <= _SMALL_BYTES


def read_checkpoints(pair: Pair) -> Checkpoints:
    """Load tokenizers and configurations (no weights) and check that they belong together.

    The two may be of different sizes: each is built as its own configuration says. Their output layers may be padded
    differently, and one may have tokens of its own after those that both have: what both decide over are the ids that
    both tokenizers know.

    Raises:
        UserError: a checkpoint cannot be read or is quantised, the two differ in tokenizer, vocabulary order or type
            of model, or RL is an adapter that cannot be served.
    """
    for role in reversed(pair.models):
        _check_place(role, *pair.models[role])
    adapter = read_adapter(pair.rl, pair.rl_revision)
    if adapter is None:
        _warn_of_one(pair)
        rl, base = (_read(pair, role) for role in ("rl", "base"))
    else:
        base = _read(pair, "base")
        rl = _read(pair, "rl", of=base)
        adapter.check_fits(pair.base, base["config"])
        _warn_of_another_base(pair, adapter)
    shared = _check_tokenizers(pair, "base", base["tokenizer"], rl["tokenizer"])
    _warn_of_templates(pair, base["tokenizer"], rl["tokenizer"])
    _check_configs(pair, base["config"], rl["config"])
    models = {"base": base, "rl": rl}
    third = [role for role in pair.models if role not in models]
    for role in third:
        models[role] = other = _read_third(pair, role, adapter)
        _check_tokenizers(pair, role, other["tokenizer"], rl["tokenizer"])
        _check_types(pair, role, other["config"], rl["config"])
    vocab_size = max(rl["tokenizer"].get_vocab().values()) + 1
    shared = vocab_size if shared is None else shared
    for role, model in models.items():
        needed = shared if role == "base" else vocab_size
        if needed > (config := model["config"]).vocab_size:
            ids = {i: token for token, i in rl["tokenizer"].get_vocab().items()}
            first = ids.get(config.vocab_size)
            without = f", none for {first!r}" if first is not None else ""
            raise UserError(
                f"{role}={getattr(pair, role)!r}: its tokenizer has ids up to {needed - 1} but the model has "
                f"{config.vocab_size} outputs{without}; accepted: a tokenizer whose ids the model can produce"
            )
    if shared < vocab_size and (adapter is not None or third):
        what = "an adapter" if adapter is not None else pair.named(third[0])
        raise UserError(
            f"rl={pair.rl!r} has {vocab_size - shared} ids that base={pair.base!r} does not know, which is refused "
            f"with {what}; accepted: a pair of full checkpoints, or one with the same vocabulary"
        )
    eos = frozenset().union(*(model["eos"] for model in models.values()))
    if not any(token < shared for token in eos):
        raise UserError(f"base={pair.base!r}: no end-of-text token (eos_token_id) is one that both models know")
    if not eos:
        raise UserError(f"rl={pair.rl!r}: no model names an end-of-text token (eos_token_id), so nothing would stop")
    return Checkpoints(
        pair=pair,
        tokenizer=rl["tokenizer"],
        configs={role: model["config"] for role, model in models.items()},
        vocab_size=vocab_size,
        shared=shared,
        eos_token_ids=eos,
        architecture=(rl["config"].architectures or ["unknown"])[0],
        dtype=reduce(narrower, (_dtype_name(model["config"]) for model in models.values())),
        adapter=adapter,
    )


def check_weights(found: Checkpoints, *, absent: bool = False) -> list[str]:
    """Refuse weights that cannot be loaded, by the headers of local files; see `check_weights_there`, `check_shapes`.

    Args:
        absent: whether a directory may have no weights yet; those roles are returned.

    Raises:
        UserError: a directory's weights are not there, or not whole, or of other shapes than its configuration says.
    """
    without = []
    for role, config in found.configs.items():
        name = getattr(found.pair, role)
        if not Path(name).is_dir() or (role == "rl" and found.adapter):
            continue
        if absent and not has_weights(Path(name)):
            without.append(role)
        else:
            check_weights_there(f"{role}={name!r}", Path(name))
            check_shapes(f"{role}={name!r}", name, config, found.pair.trust_remote_code)
    return without


def _check_place(role: str, name: str, revision: str | None) -> None:
    """Refuse at once what is no checkpoint's directory and not on the hub, which transformers asks again and again.

    Raises:
        UserError: there is nothing of that name, or it is a file, or a directory without a configuration.
        UnreachableError: it is not here, and the hub cannot be asked.
    """
    accepted = "accepted: a checkpoint's directory, or a hub id"
    place = Path(name).expanduser()
    if place.is_file():
        gguf = place.suffix == ".gguf"
        convert = " (AutoModelForCausalLM.from_pretrained(folder, gguf_file=...) of transformers converts it)"
        raise UserError(
            f"{role}={name!r} is a {'GGUF ' if gguf else ''}file; "
            f"accepted: a checkpoint's directory{convert if gguf else ''}, or a hub id"
        )
    if place.is_dir():
        if not any((place / config).is_file() for config in ("config.json", ADAPTER_CONFIG)):
            inside = sorted(str(each.parent) for each in place.glob("*/config.json"))[:4]
            hint = f"; those in it that are: {', '.join(inside)}" if inside else ""
            raise UserError(f"{role}={name!r} holds no config.json, so it is no checkpoint{hint}; {accepted}")
    elif name.startswith((".", "/", "~")) or name.count("/") > 1 or ("/" in name and place.parent.is_dir()):
        raise UserError(f"{role}={name!r} does not exist; {accepted}")
    elif why := _not_on_hub(name, revision):
        kind = UnreachableError if why in _UNREACHABLE else UserError
        raise kind(f"{role}={name!r} does not exist here, and {why}; {accepted}")


def _not_on_hub(name: str, revision: str | None) -> str | None:
    """Say why the hub, or its cache, does not give a model; None where it may. It is asked once."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import (
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        for config in ("config.json", ADAPTER_CONFIG):
            if isinstance(try_to_load_from_cache(name, config, cache_dir=HF_HUB_CACHE, revision=revision), str):
                return None
        HfApi().model_info(name, revision=revision, timeout=SECONDS)
    except HFValidationError:
        return "no model of the hub can be called so"
    except RepositoryNotFoundError:
        return "the hub has no such model, or not for you"
    except RevisionNotFoundError:
        return f"the hub's model has no revision {revision!r}"
    except OfflineModeIsEnabled:
        return _UNREACHABLE[1]
    except Exception as error:  # of the library that is spoken through, which is another one in each version
        return _UNREACHABLE[0] if "Connect" in type(error).__name__ else None
    return None


def _read(pair: Pair, role: str, of: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read a checkpoint's configuration, tokenizer and end-of-text ids; an adapter takes what it lacks from `of`."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    name = getattr(pair, role)
    options = {"revision": getattr(pair, f"{role}_revision"), "trust_remote_code": pair.trust_remote_code}
    if role == "base" and is_adapter(name, options["revision"]):
        raise UserError(f"base={name!r} is an adapter; accepted: a whole checkpoint (an adapter can be rl)")
    if of is None or has_tokenizer(name, options["revision"]):
        _check_vocabulary(role, name, pair.trust_remote_code)
    try:
        if of is None:
            config = AutoConfig.from_pretrained(name, **options)
            tokenizer = AutoTokenizer.from_pretrained(name, **options)
        else:
            config, own = of["config"], has_tokenizer(name, options["revision"])
            tokenizer = AutoTokenizer.from_pretrained(name, config=config, **options) if own else of["tokenizer"]
    except Exception as error:  # transformers and tokenizers raise many kinds, down to bare Exception
        if "trust_remote_code" in str(error):
            reason = "it contains code of its own; accepted: trust_remote_code=True, if you have read and trust it"
        else:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{role}={name!r} cannot be read as a checkpoint: {reason}") from None
    _check_unquantised(role, name, config)
    try:
        generation = GenerationConfig.from_pretrained(name, revision=options["revision"])
    except OSError:  # a checkpoint need not have generation settings
        generation = None
    eos = _ids(tokenizer.eos_token_id) | _ids(getattr(config, "eos_token_id", None))
    return {"config": config, "tokenizer": tokenizer, "eos": eos | _ids(getattr(generation, "eos_token_id", None))}


def _check_vocabulary(role: str, name: str, trust_remote_code: bool) -> None:
    """Refuse a directory without a tokenizer, for which transformers would make up one that knows no words.

    Raises:
        UserError: no file of it holds a vocabulary.
    """
    if trust_remote_code or not Path(name).is_dir():
        return
    if not any(file for pattern in _VOCABULARIES for file in Path(name).glob(pattern)):
        raise UserError(
            f"{role}={name!r} holds no tokenizer: none of {', '.join(_VOCABULARIES)} is there; accepted: a checkpoint "
            "with its tokenizer (save_pretrained of a tokenizer writes it)"
        )


def _check_unquantised(role: str, name: str, config: Any) -> None:
    """Refuse quantised weights: both engines would load them, and nobody has compared what then comes out."""
    for key in _QUANTISED:
        if how := getattr(config, key, None):
            method = (how if isinstance(how, dict) else how.to_dict()).get("quant_method", key)
            raise UserError(
                f"{role}={name!r} is quantised ({method}), which has not been tested with a pair; "
                "accepted: a checkpoint in bfloat16, float16 or float32"
            )


def _read_third(pair: Pair, role: str, adapter: Adapter | None) -> dict[str, Any]:
    """Read what there is of the third model beside weights; refuse it beside an adapter."""
    if adapter is not None:
        raise UserError(
            f"{pair.named(role)} is refused where rl={pair.rl!r} is an adapter; accepted: RL with its adapter "
            "merged (merge_and_unload of PEFT)"
        )
    return _read(pair, role)


def _warn_of_another_base(pair: Pair, adapter: Adapter) -> None:
    """Warn where the adapter names another base model; places move, so their last part decides."""
    named, given = (str(name).rstrip("/").split("/")[-1] for name in (adapter.trained_on or pair.base, pair.base))
    if named != given:
        warnings.warn(
            f"rl={pair.rl!r} says it was trained on {adapter.trained_on!r}; it is applied to base={pair.base!r}",
            stacklevel=3,
        )


def _warn_of_one(pair: Pair) -> None:
    """Warn where base and RL are one checkpoint: the pair is well formed, and says nothing."""
    (base, of_base), (rl, of_rl) = pair.models["base"], pair.models["rl"]
    folders = [Path(name).expanduser() for name in (base, rl)]
    one = folders[0].samefile(folders[1]) if all(map(Path.is_dir, folders)) else (base, of_base) == (rl, of_rl)
    if one:
        warnings.warn(
            f"base={base!r} and rl={rl!r} are one checkpoint: Δ log p is 0 everywhere, no gate on it replaces a token",
            stacklevel=3,
        )


def template_digest(tokenizer: Any) -> str | None:
    """Return the first 16 hexadecimal digits of the SHA-256 of the chat template; None where there is none."""
    template = tokenizer.chat_template
    return digest(str(template)) if template else None


def _warn_of_templates(pair: Pair, base: Any, rl: Any) -> None:
    """Warn where the two checkpoints would be talked to in other ways; both are, as RL's tokenizer says."""
    ours, theirs = (template_digest(each) for each in (base, rl))
    if ours == theirs:
        return
    if ours is None:
        said = f"rl={pair.rl!r} has a chat template and base={pair.base!r} none; with chat=auto both models get it"
    elif theirs is None:
        said = f"base={pair.base!r} has a chat template and rl={pair.rl!r} none; none is used, prompts go as they are"
    else:
        said = (
            f"base={pair.base!r} and rl={pair.rl!r} have different chat templates (sha256 {ours} and {theirs}); with "
            "chat=auto both models get RL's"
        )
    warnings.warn(said, stacklevel=3)


def _ids(value: int | list[int] | None) -> set[int]:
    return set() if value is None else {value} if isinstance(value, int) else set(value)


def _check_tokenizers(pair: Pair, role: str, other: Any, rl: Any) -> int | None:
    """Refuse a tokenizer that is not RL's; warn of tokens that one alone has, after all that both have.

    Returns:
        How many ids both know, where RL has more; None where it has no more.

    Raises:
        UserError: both have tokens of their own, or one has them among the others' ids, or ids or merges differ.
    """
    where = _both(pair, role)
    ours, theirs = other.get_vocab(), rl.get_vocab()
    lost = sorted(set(ours) ^ set(theirs))
    both = set(ours) & set(theirs)
    shared = max((max(ours[token], theirs[token]) for token in both), default=-1) + 1
    added = lost if all({**ours, **theirs}[token] >= shared for token in lost) and shared else []
    if lost and (not added or (set(ours) - both and set(theirs) - both) or role != "base"):
        raise UserError(
            f"{where} have different tokenizers: {len(lost)} tokens are known to only one of them "
            f"(such as {lost[0]!r}); accepted: two checkpoints with the same vocabulary, or one with tokens added "
            "after all that both have"
        )
    moved = [token for token in ours if token in both and ours[token] != theirs[token]]
    if moved:
        raise UserError(
            f"{where} order their vocabulary differently: {len(moved)} tokens have another id "
            f"(such as {moved[0]!r}: {ours[moved[0]]} and {theirs[moved[0]]}); accepted: identical token ids"
        )
    same = all(
        other.encode(text, add_special_tokens=False) == rl.encode(text, add_special_tokens=False) for text in _PROBES
    )
    if not same or _merges(other) != _merges(rl):
        raise UserError(
            f"{where} have different tokenizers: the same vocabulary, but text is cut into tokens differently; "
            "accepted: two checkpoints with the same tokenizer"
        )
    if not added:
        return None
    own = "rl" if added[0] in theirs else role
    listed = ", ".join(map(repr, added[:8])) + (", …" if len(added) > 8 else "")
    said = f"{where}: only {own} has {len(added)} tokens ({listed}); rules of both decode over the {shared} ids of both"
    if own != "rl":
        warnings.warn(f"{said}, and {own} alone never writes the others", stacklevel=4)
        return None
    warnings.warn(
        f"{said}; mode=rl may still write the others, and base reads an end of text in their place", stacklevel=4
    )
    return shared


def _merges(tokenizer: Any) -> Any:
    """Return the merge rules of a BPE tokenizer, None for other kinds."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return json.loads(backend.to_str())["model"].get("merges") if backend else None


def _both(pair: Pair, role: str) -> str:
    return f"{pair.named(role)} and rl={pair.rl!r}"


def _check_types(pair: Pair, role: str, other: Any, rl: Any) -> None:
    if other.model_type != rl.model_type:
        raise UserError(
            f"{_both(pair, role)} are of different model types ({other.model_type} and {rl.model_type}); "
            "accepted: one type"
        )


def _check_configs(pair: Pair, base: Any, rl: Any) -> None:
    """Refuse models of two types; warn of what else differs, and of what that means.

    Raises:
        UserError: the two are of different types.
    """
    where = _both(pair, "base")
    _check_types(pair, "base", base, rl)
    ours, theirs = base.to_dict(), rl.to_dict()
    differ = [k for k in sorted({*ours, *theirs} - _MAY_DIFFER) if ours.get(k) != theirs.get(k)]
    rounded = [key for key in differ if _equal_in_float32(ours.get(key), theirs.get(key))]
    matter = [key for key in differ if key not in rounded]
    for keys, why in (
        (matter, "each is built as its own configuration says; was rl trained from this base?"),
        (rounded, "equal in single precision; that changes nothing"),
    ):
        if keys:
            each = ", ".join(f"{key} ({ours.get(key)!r} and {theirs.get(key)!r})" for key in keys)
            warnings.warn(f"{where} differ in {each}{',' if keys is not matter else ':'} {why}", stacklevel=4)


def _equal_in_float32(one: Any, other: Any) -> bool:
    """Tell whether two values, or all numbers within them, are equal once they are float32."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal_in_float32(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal_in_float32, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.float32(one) == np.float32(other))
    return bool(one == other)


def ties_head(config: Any) -> bool:
    """Tell whether a configuration says that the output layer is the input embeddings."""
    return bool(getattr(config, "tie_word_embeddings", False))


def _weight_bytes(name: str) -> float:
    """Count the bytes of a local checkpoint's weights; a hub checkpoint counts as large."""
    directory = Path(name).expanduser()
    return sum(f.stat().st_size for f in directory.glob("*.safetensors")) if directory.is_dir() else float("inf")


def _dtype_name(config: Any) -> str:
    return str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")


def narrower(one: str, other: str) -> str:
    """Return the narrower of two checkpoints' types, in which both are decoded; `other` where neither is float32."""
    return one if other == "float32" else other
