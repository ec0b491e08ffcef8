"""Read a pair's configurations and tokenizers, before any weights."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rlvr_dir.checkpoints.adapter import CONFIG as ADAPTER_CONFIG
from rlvr_dir.checkpoints.adapter import has_tokenizer, trained_on
from rlvr_dir.checkpoints.context import Context
from rlvr_dir.checkpoints.memory import ModelShape, dtype_of, narrowest
from rlvr_dir.checkpoints.rewrite import KEYS, gguf_file
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.digest import digest
from rlvr_dir.errors import UserError
from rlvr_dir.hub import SECONDS

# Files with a tokenizer's vocabulary, by their names in libraries.
_VOCABULARIES = ("tokenizer.json", "*.model", "vocab.json", "vocab.txt", "tekken.json", "*.tiktoken")
# The meaning of the hub library's errors, by the name of a class or its base. The last ones leave it open.
_NOT_ON_HUB = {
    "HFValidationError": "a model on the Hugging Face Hub cannot have this name",
    "RevisionNotFoundError": "the model on the Hugging Face Hub has no revision {revision!r}",
    "RepositoryNotFoundError": "the Hugging Face Hub has no such model, or you have no access to it",
    "OfflineModeIsEnabled": "it is not in the Hugging Face cache, and HF_HUB_OFFLINE forbids asking the Hub",
    "ConnectError": "the Hugging Face Hub is unreachable",
    "ConnectTimeout": "the Hugging Face Hub is unreachable",
    "ConnectionError": "the Hugging Face Hub is unreachable",
}
_UNREACHABLE = list(_NOT_ON_HUB.values())[3:]
_SMALL_BYTES = 2 * 2**30


class UnreachableError(UserError):
    """Report that a checkpoint is not on this machine and the hub is unreachable, so nothing is known of it."""


@dataclass(frozen=True)
class Checkpoint:
    """Store what a model has besides its weights. An adapter has its own values, and base's for the rest."""

    config: Any
    tokenizer: Any
    eos: frozenset[int]  # of tokenizer, configuration and generation settings

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Map each token to its id."""
        return self.tokenizer.get_vocab()


@dataclass(frozen=True)
class Checkpoints:
    """Hold the checkpoints of a pair, by role, and what an engine needs to know of them together."""

    pair: Pair
    models: dict[str, Checkpoint]
    adapter_of: str | None  # for a LoRA adapter: the name of its base in training, possibly empty
    context: Context
    without_weights: tuple[str, ...] = ()  # roles whose directory has no weights yet, if allowed
    quantised: str | None = None  # how RL's weights are quantised, if they are

    @property
    def rewritten(self) -> bool:
        """Return whether RL's weights are written as a whole checkpoint before they are loaded."""
        return self.adapter_of is not None or self.quantised is not None

    @property
    def tokenizer(self) -> Any:
        """Return RL's tokenizer, which all models share."""
        return self.models["rl"].tokenizer

    @cached_property
    def configs(self) -> dict[str, Any]:
        """Return the configurations by role."""
        return {role: model.config for role, model in self.models.items()}

    @cached_property
    def shapes(self) -> dict[str, ModelShape]:
        """Return the sizes by role. A model that transformers cannot build is left out; vLLM may know it."""
        shapes = {}
        for role, config in self.configs.items():
            with suppress(Exception):  # of many types; the engine reports what it cannot load
                shapes[role] = ModelShape.of(config, self.pair.trust_remote_code)
        return shapes

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Return the tokens that end a response: those of all models together."""
        return frozenset().union(*(model.eos for model in self.models.values()))

    @property
    def dtype(self) -> str:
        """Return the decoding type for "auto": the narrowest of the checkpoints' own types."""
        return narrowest(map(dtype_of, self.configs.values()))

    @cached_property
    def vocab_size(self) -> int:
        """Return the number of RL's real tokens; the logits may have padding after them."""
        return max(self.models["rl"].vocabulary.values()) + 1

    @cached_property
    def shared(self) -> int:
        """Return how many of them base knows too: `vocab_size`, unless RL has additional tokens."""
        base = self.difference("base")
        return base.shared if any(token in self.models["rl"].vocabulary for token in base.added) else self.vocab_size

    @property
    def stand_in(self) -> int:
        """Return the token that base reads instead of one it does not know: one that ends a text."""
        return min(token for token in self.eos_token_ids if token < self.shared)

    @property
    def small(self) -> bool:
        """Return whether all models are local and at most 2 GiB together, so that loading them is fast and needs no
        bar."""
        places = [place for place, _ in self.pair.models.values()] + [self.pair.base] * (self.adapter_of is not None)
        return sum(map(_weight_bytes, places)) <= _SMALL_BYTES

    def folders(self, spec: EngineSpec) -> dict[str, Path]:
        """Return the directory of each model's weights, by role; without those on the hub, or written temporarily."""
        if "load_format" in spec.vllm_args:
            return {}
        adapted = {"rl"} if self.rewritten else set()
        places = {role: Path(model.place).expanduser() for role, model in self.pair.models.items()}
        return {role: place for role, place in places.items() if place.is_dir() and role not in adapted}

    def difference(self, role: str) -> "Difference":
        """Return the differences between a model's vocabulary and RL's."""
        own, rl = self.models[role].vocabulary, self.models["rl"].vocabulary
        both, ids = own.keys() & rl.keys(), {**own, **rl}
        lost = sorted(own.keys() ^ rl.keys())
        moved = [f"{token!r}: {i} and {rl[token]}" for token, i in sorted(own.items()) if i != rl.get(token, i)]
        shared = 1 + max((max(own[token], rl[token]) for token in both), default=-1)
        of_one = len(both) in (len(own), len(rl)) and both
        return Difference(lost, lost if of_one and all(ids[token] >= shared for token in lost) else [], moved, shared)


class Difference(NamedTuple):
    """List the differences between two vocabularies."""

    lost: list[str]  # tokens that only one has
    added: list[str]  # these, if only one has any, and all of them are after the common ones
    moved: list[str]  # tokens with different ids, and the ids
    shared: int  # ids up to the last common token


def check_place(role: str, name: str, revision: str | None) -> None:
    """Reject a name that is neither a checkpoint's directory nor on the hub, at once; transformers would retry many
    times.

    Raises:
        UserError: It does not exist, or is a file, or a directory without a configuration.
        UnreachableError: It is not here, and the hub is unreachable.
    """
    accepted = "a checkpoint's directory, or a hub id"
    place = Path(name).expanduser()
    if role == "rl" and gguf_file(name) is not None:
        return
    if place.is_file():
        kind = "GGUF file, which only rl can be" if place.suffix == ".gguf" else "file"
        raise UserError(f"is a {kind}", argument=role, value=name, accepted=accepted)
    if place.is_dir():
        if not any((place / config).is_file() for config in ("config.json", ADAPTER_CONFIG)):
            inside = sorted(str(path.parent) for path in place.glob("*/config.json"))[:4]
            hint = f"Checkpoints inside it: {', '.join(inside)}" if inside else ""
            problem = "has no config.json, so it is not a checkpoint"
            raise UserError(problem, argument=role, value=name, accepted=accepted, hint=hint)
    elif name.startswith((".", "/", "~")) or name.count("/") > 1 or ("/" in name and place.parent.is_dir()):
        raise UserError("does not exist", argument=role, value=name, accepted=accepted)
    elif why := _not_on_hub(name, revision):
        if why in _UNREACHABLE and "/" not in name:  # such ids are rare, and only the hub knows them
            raise UserError(
                f"does not exist: there is no folder {name} here",
                argument=role,
                value=name,
                accepted="a checkpoint's directory, or a hub id, as ORGANISATION/NAME",
            )
        kind = UnreachableError if why in _UNREACHABLE else UserError
        raise kind(f"does not exist here, and {why}", argument=role, value=name, accepted=accepted)


def _not_on_hub(name: str, revision: str | None) -> str | None:
    """Explain why the hub, or its cache, does not have a model; None if it may. The hub is queried once."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        for config in ("config.json", ADAPTER_CONFIG):
            if isinstance(try_to_load_from_cache(name, config, cache_dir=HF_HUB_CACHE, revision=revision), str):
                return None
        HfApi().model_info(name, revision=revision, timeout=SECONDS)
    except Exception as error:  # also of the HTTP library, which differs between versions
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return next((why.format(revision=revision) for kind, why in _NOT_ON_HUB.items() if kind in kinds), None)
    return None


def read_checkpoint(pair: Pair, role: str, base: Checkpoint | None) -> Checkpoint:
    """Read a checkpoint's configuration, tokenizer and end-of-text ids. An adapter takes missing parts from `base`."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    name, revision = pair.models[role]
    if base and (file := gguf_file(name)) is not None:
        return _of_gguf(name, file, base)
    if role == "base" and trained_on(name, revision) is not None:
        raise UserError(
            "is an adapter", argument="base", value=name, accepted="a whole checkpoint (an adapter can be rl)"
        )
    own = base is None or has_tokenizer(name, revision)
    here = Path(name).is_dir() and not pair.trust_remote_code
    if own and here and not any(file for pattern in _VOCABULARIES for file in Path(name).glob(pattern)):
        raise UserError(
            f"has no tokenizer: none of {', '.join(_VOCABULARIES)} is there",
            argument=role,
            value=name,
            accepted="a checkpoint with its tokenizer (save_pretrained of a tokenizer writes it)",
        )
    kwargs = {"revision": revision, "trust_remote_code": pair.trust_remote_code}
    try:
        config = base.config if base else AutoConfig.from_pretrained(name, **kwargs)
        if base:
            kwargs["config"] = config
        tokenizer = AutoTokenizer.from_pretrained(name, **kwargs) if own or base is None else base.tokenizer
    except Exception as error:  # transformers and tokenizers raise many types, down to bare Exception
        code = "trust_remote_code" in str(error)
        reason = "it contains its own code" if code else (str(error).strip() or type(error).__name__).splitlines()[0]
        accepted = "trust_remote_code=True, if you have read the code and trust it" if code else ""
        problem = f"cannot be read as a checkpoint: {reason}"
        raise UserError(problem, argument=role, value=name, accepted=accepted) from None
    try:
        generation = GenerationConfig.from_pretrained(name, revision=revision)
    except OSError:  # a checkpoint may have no generation settings
        generation = None
    for key in KEYS if role == "rl" else ():  # RL is dequantised before it is loaded; for other roles this is an error
        if hasattr(config, key):
            delattr(config, key)
    ends: set[int] = set()
    for part in (tokenizer, config, generation):
        ids = getattr(part, "eos_token_id", None)
        ends |= {ids} if isinstance(ids, int) else set(ids or ())
    return Checkpoint(config, tokenizer, frozenset(ends))


def _of_gguf(name: str, file: Path, base: Checkpoint) -> Checkpoint:
    """Read a GGUF file's vocabulary, which must be base's; its configuration and tokenizer are base's too.

    Raises:
        UserError: It cannot be read, or a token has another id than in base.
    """
    try:
        from gguf import GGUFReader  # pyright: ignore[reportMissingImports]

        own = {token: i for i, token in enumerate(GGUFReader(file).fields["tokenizer.ggml.tokens"].contents())}
    except Exception as error:  # of many types, depending on the library that reads the file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f": {file.name} cannot be read as GGUF: {reason}",
            argument="rl",
            value=name,
            hint="It needs: pip install gguf.",
        ) from None
    if moved := [token for token, i in base.vocabulary.items() if own.get(token) != i]:
        raise UserError(
            f"has another vocabulary than base: {len(moved)} of base's tokens have another id in it, such as "
            f"{moved[0]!r}",
            argument="rl",
            value=name,
            accepted="a GGUF file that was made of a checkpoint with base's tokenizer",
        )
    return base


def template_digest(tokenizer: Any) -> str | None:
    """Return the first 16 hexadecimal digits of the SHA-256 of the chat template; None if there is none."""
    template = tokenizer.chat_template
    return digest(str(template)) if template else None


def ties_head(config: Any) -> bool:
    """Return whether a configuration ties the output layer to the input embeddings."""
    return bool(getattr(config, "tie_word_embeddings", False))


def _weight_bytes(name: str) -> float:
    """Count the bytes of a local checkpoint's weights; a hub checkpoint counts as large."""
    directory = Path(name).expanduser()
    return sum(f.stat().st_size for f in directory.glob("*.safetensors")) if directory.is_dir() else float("inf")
