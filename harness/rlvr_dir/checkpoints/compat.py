"""Does this pair fit together? One table of checks, asked once, before any weights are loaded.

    found = check_pair(Pair(base="Qwen/Qwen2.5-7B", rl="Open-Reasoner-Zero/Open-Reasoner-Zero-7B"))

Every engine begins with it, and `rlvr-dir pair check` is nothing else, so that the two say the same. A check is a
function that yields the sentence of what is wrong, naming the argument, its value and what would be accepted: it stands
in `REFUSED`, where the first sentence is raised, or in `WARNED`, where all are warned of.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import TemplateSyntaxError

from rlvr_dir.checkpoints.adapter import CONFIG as ADAPTER_CONFIG
from rlvr_dir.checkpoints.adapter import has_tokenizer, trained_on
from rlvr_dir.checkpoints.chat_template import unread
from rlvr_dir.checkpoints.context import Context, positions, rope_extrapolates
from rlvr_dir.checkpoints.memory import ModelShape, dtype_of, narrowest
from rlvr_dir.checkpoints.weights import has_weights, header_shapes, missing_weight, surplus_layer
from rlvr_dir.digest import digest
from rlvr_dir.errors import UserError
from rlvr_dir.hub import SECONDS
from rlvr_dir.spec import EngineSpec, Pair, zoo

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
# What an error of the hub's library means, by the name of its class or of one above it; the last ones tell nothing.
_NOT_ON_HUB = {
    "HFValidationError": "no model of the hub can be called so",
    "RevisionNotFoundError": "the hub's model has no revision {revision!r}",
    "RepositoryNotFoundError": "the hub has no such model, or not for you",
    "OfflineModeIsEnabled": "the hub's cache does not hold it, while HF_HUB_OFFLINE forbids to ask the hub",
    "ConnectError": "the hub cannot be reached",
    "ConnectTimeout": "the hub cannot be reached",
    "ConnectionError": "the hub cannot be reached",
}
_NO_LANGUAGE_MODEL = (
    r"For(\w+Classification|QuestionAnswering|MaskedLM|MultipleChoice|Reward\w*)$|(?<!LM)(?<!Head)Model$"
)
_DTYPES = ("bfloat16", "float16", "float32")
_UNREACHABLE = list(_NOT_ON_HUB.values())[3:]
_SMALL_BYTES = 2 * 2**30
_PROBES = (
    "Let $x^2+3x=\\frac{1}{2}$. Find the value of 12345 + 67.890.\n\n",
    "  def f(n):\n\treturn n**2  # naïve — 漢字, emoji 🎲, \u00a0",
)


class UnreachableError(UserError):
    """A checkpoint is not on this machine, and the hub could not be asked for it: nothing is known of it."""


@dataclass(frozen=True)
class Checkpoint:
    """Hold what there is of one model beside its weights; of an adapter what it has of its own, and base's."""

    config: Any
    tokenizer: Any
    eos: frozenset[int]  # of tokenizer, configuration and generation settings

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Map each token to its id."""
        return self.tokenizer.get_vocab()


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a pair, by role, and what an engine needs to know of them together."""

    pair: Pair
    models: dict[str, Checkpoint]
    adapter_of: str | None  # where RL is a LoRA adapter: what its training called its base, perhaps nothing
    context: Context
    without_weights: tuple[str, ...] = ()  # roles whose directory has none yet, where that was allowed

    @property
    def tokenizer(self) -> Any:
        """RL's tokenizer, which all models share."""
        return self.models["rl"].tokenizer

    @cached_property
    def configs(self) -> dict[str, Any]:
        """Map each role to its configuration."""
        return {role: model.config for role, model in self.models.items()}

    @cached_property
    def shapes(self) -> dict[str, ModelShape]:
        """Map each role to its sizes. A model that transformers cannot build has none: vLLM may know it."""
        shapes = {}
        for role, config in self.configs.items():
            with suppress(Exception):  # of many kinds, by whatever builds it; the engine says what it cannot load
                shapes[role] = ModelShape.of(config, self.pair.trust_remote_code)
        return shapes

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Return what ends a response: the union over all models."""
        return frozenset().union(*(model.eos for model in self.models.values()))

    @property
    def dtype(self) -> str:
        """ "auto" resolved: the narrowest of the checkpoints' own types."""
        return narrowest(map(dtype_of, self.configs.values()))

    @cached_property
    def vocab_size(self) -> int:
        """Real tokens of RL; the models' logits may be padded beyond."""
        return max(self.models["rl"].vocabulary.values()) + 1

    @cached_property
    def shared(self) -> int:
        """Count those that base knows too: `vocab_size`, unless RL has tokens of its own after them."""
        base = self.difference("base")
        return base.shared if any(token in self.models["rl"].vocabulary for token in base.added) else self.vocab_size

    @property
    def stand_in(self) -> int:
        """The token that base reads in place of one it does not know: one that ends a text."""
        return min(token for token in self.eos_token_ids if token < self.shared)

    @property
    def small(self) -> bool:
        """Tell whether all models are local and at most 2 GiB together: cheap to load once more, no bar needed."""
        places = [place for place, _ in self.pair.models.values()] + [self.pair.base] * (self.adapter_of is not None)
        return sum(map(_weight_bytes, places)) <= _SMALL_BYTES

    def folders(self, spec: EngineSpec) -> dict[str, Path]:
        """Map each role to the directory that its weights are loaded from; without those of the hub, or made up."""
        if "load_format" in spec.vllm_args:
            return {}
        adapted = {"rl"} if self.adapter_of is not None else set()
        places = {role: Path(model.place).expanduser() for role, model in self.pair.models.items()}
        return {role: place for role, place in places.items() if place.is_dir() and role not in adapted}

    def difference(self, role: str) -> "Difference":
        """Return in what a model's vocabulary and RL's differ."""
        own, rl = self.models[role].vocabulary, self.models["rl"].vocabulary
        both, ids = own.keys() & rl.keys(), {**own, **rl}
        lost = sorted(own.keys() ^ rl.keys())
        moved = [f"{token!r}: {i} and {rl[token]}" for token, i in own.items() if i != rl.get(token, i)]
        shared = 1 + max((max(own[token], rl[token]) for token in both), default=-1)
        of_one = len(both) in (len(own), len(rl)) and both
        return Difference(lost, lost if of_one and all(ids[token] >= shared for token in lost) else [], moved, shared)


class Difference(NamedTuple):
    """In what two vocabularies differ."""

    lost: list[str]  # tokens that one alone has
    added: list[str]  # these, where one alone has any, after all that both have
    moved: list[str]  # tokens that have two ids, with them
    shared: int  # ids up to the last token that both have


Check = Callable[[Checkpoints, EngineSpec], Iterator[str]]


def check_pair(pair: Pair, spec: EngineSpec | None = None, *, absent: bool = False) -> Checkpoints:
    """Read a pair's configurations and tokenizers and check all that can be checked before weights are loaded.

    The models may be of different sizes: each is built as its own configuration says. Their output layers may be padded
    differently, and one may have tokens of its own after those that both have: what both decide over are the ids that
    both tokenizers know.

    Args:
        absent: whether a directory may have no weights yet.

    Raises:
        UserError: the first sentence of `REFUSED`, or a checkpoint cannot be read.
    """
    spec = spec or EngineSpec()
    for role in reversed(pair.models):
        _check_place(role, *pair.models[role])
    adapter_of = trained_on(*pair.models["rl"])
    models: dict[str, Checkpoint] = {}
    for role in pair.models:
        models[role] = _read(pair, role, models["base"] if adapter_of is not None and role == "rl" else None)
    lengths = {role: (pair.models[role].place, positions(model.config)) for role, model in models.items()}
    context = Context.of(lengths, spec.max_model_len, rope_extrapolates(models["base"].config))
    checkpoints = Checkpoints(pair, models, adapter_of, context)
    if absent:
        without = tuple(role for role, folder in checkpoints.folders(spec).items() if not has_weights(folder))
        checkpoints = replace(checkpoints, without_weights=without)
    for check in REFUSED:
        for sentence in check(checkpoints, spec):
            raise UserError(sentence)
    for check in WARNED:
        for sentence in check(checkpoints, spec):
            warnings.warn(sentence, stacklevel=3)
    return checkpoints


# What is refused ---------------------------------------------------------------------------------------------------


def quantised_weights(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Both engines would load them, and nobody has compared what then comes out."""
    for role, config in loaded.configs.items():
        for key in _QUANTISED:
            if quantisation := getattr(config, key, None):
                method = (quantisation if isinstance(quantisation, dict) else quantisation.to_dict()).get(
                    "quant_method", key
                )
                yield (
                    f"{loaded.pair.argument(role)} is quantised ({method}), which has not been tested with a pair; "
                    "accepted: a checkpoint in bfloat16, float16 or float32"
                )


def other_tokenizers(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """A token has one id in all models, and a text one way to be cut; RL or base may have tokens after all of both."""
    for role in _others(loaded):
        where, (lost, added, moved, _) = _beside_rl(loaded, role), loaded.difference(role)
        if lost and (not added or role != "base"):
            yield (
                f"{where} have different tokenizers: {len(lost)} tokens are known to only one of them (such as "
                f"{lost[0]!r}); accepted: two checkpoints with the same vocabulary, or one with tokens added after all "
                "that both have"
            )
        if moved:
            yield (
                f"{where} order their vocabulary differently: {len(moved)} tokens have another id (such as {moved[0]})"
                "; accepted: identical token ids"
            )
        own, rl = loaded.models[role].tokenizer, loaded.tokenizer
        if _merges(own) != _merges(rl) or any(_cut(own, text) != _cut(rl, text) for text in _PROBES):
            yield (
                f"{where} have different tokenizers: the same vocabulary, but text is cut into tokens differently; "
                "accepted: two checkpoints with the same tokenizer"
            )


def other_types(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Check that one class of vLLM's builds all models."""
    for role in _others(loaded):
        own, rl = (loaded.configs[name].model_type for name in (role, "rl"))
        if own != rl:
            yield f"{_beside_rl(loaded, role)} are of different model types ({own} and {rl}); accepted: one type"


def tokens_without_an_output(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """A model has an output for each token that it may write; ids of RL's own go with two full checkpoints only."""
    rl = loaded.models["rl"].vocabulary
    for role, config in reversed(loaded.configs.items()):
        needed = loaded.shared if role == "base" else loaded.vocab_size
        if needed > config.vocab_size:
            first = next((token for token, i in rl.items() if i == config.vocab_size), None)
            yield (
                f"{loaded.pair.argument(role)}: its tokenizer has ids up to {needed - 1} but the model has "
                f"{config.vocab_size} outputs{f', none for {first!r}' if first is not None else ''}; accepted: a "
                "tokenizer whose ids the model can produce"
            )
    if loaded.shared < loaded.vocab_size and len(loaded.models) > 2:
        models = loaded.pair.argument([*loaded.models][2])
        yield (
            f"{loaded.pair.argument('rl')} has {loaded.vocab_size - loaded.shared} ids that "
            f"{loaded.pair.argument('base')} does not know, which is refused with {models}; accepted: a pair of full "
            "checkpoints, or one with the same vocabulary"
        )


def no_end_of_text(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """A response ends by a token that all models know."""
    if not any(token < loaded.shared for token in loaded.eos_token_ids):
        yield f"{loaded.pair.argument('base')}: no end-of-text token (eos_token_id) is one that both models know"


def unreadable_weights(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Local weights are there, whole, and of the shapes that config.json makes them: read from the files' headers."""
    for role, folder in loaded.folders(spec).items():
        if role in loaded.without_weights:
            continue
        where = loaded.pair.argument(role)
        stored, expected = (
            header_shapes(where, folder),
            loaded.shapes[role].tensors if role in loaded.shapes else {},
        )
        for weight in sorted(expected.keys() & stored.keys()):  # one of another name in the model is left to the engine
            if stored[weight] != expected[weight]:
                yield other_shape(where, weight, stored[weight], expected[weight])
        if not stored or not expected:
            continue
        if (weight := missing_weight(stored, expected)) is not None:
            yield f"{where}: its files lack {weight}; accepted: a checkpoint with every weight of its model"
        drafts = any("nextn" in key or "mtp" in key for key in loaded.configs[role].to_dict())
        if not drafts and (weight := surplus_layer(stored, expected)) is not None:
            yield (
                f"{where}: its files hold {weight}, a layer that its config.json does not make "
                f"(num_hidden_layers={loaded.shapes[role].layers}); accepted: weights and configuration of one model"
            )


def other_than_language_models(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """A model that writes text reads what it has written; a classifier, an encoder or an encoder-decoder does not."""
    for role, config in loaded.configs.items():
        where, name = loaded.pair.argument(role), (config.architectures or [None])[0]
        accepted = "accepted: a causal language model, such as Qwen3ForCausalLM"
        if getattr(config, "is_encoder_decoder", False):
            yield f"{where} is an encoder with a decoder ({name or config.model_type}); {accepted}"
        if name is not None and re.search(_NO_LANGUAGE_MODEL, name):
            yield f"{where} writes no text: its config.json names the architecture {name}; {accepted}"
        if name is None and _on_vllm(spec):
            yield f"{where}: its config.json names no architecture (architectures), which vLLM needs; {accepted}"


def other_number_types(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Both engines compute in one of three types; of others, as int8, nothing is known here."""
    for role, config in loaded.configs.items():
        if spec.dtype == "auto" and (dtype := dtype_of(config)) not in _DTYPES:
            yield (
                f"{loaded.pair.argument(role)}: its config.json says dtype={dtype}; accepted: {', '.join(_DTYPES)}, "
                "there or as --dtype"
            )


def ends_outside_the_vocabulary(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """A token that ends a response is one that the model can write."""
    for role, model in loaded.models.items():
        outputs = model.config.get_text_config().vocab_size
        if wrong := sorted(token for token in model.eos if not 0 <= token < outputs):
            yield (
                f"{loaded.pair.argument(role)}: eos_token_id={wrong[0]} is no token of the model, which has {outputs} "
                "outputs; accepted: ids from 0 to that, in config.json and generation_config.json"
            )


def too_long_contexts(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Position embeddings that end cannot be read beyond."""
    for role, (name, built) in loaded.context.beyond.items() if loaded.context.stated else ():
        if not rope_extrapolates(loaded.configs[role]):
            rope = getattr(loaded.configs[role], "rope_parameters", None) or {}
            whole = int(rope.get("factor", 1) * rope.get("original_max_position_embeddings", 0))
            more = f", or max_position_embeddings={whole} (factor x original) there" if whole > built else ""
            yield (
                f"max_model_len={spec.max_model_len} is refused: {role}={name!r} was built for {built} positions, by "
                "max_position_embeddings and the rotary scaling of its config.json, and its position embeddings end "
                f"there; accepted: up to {built}{more}"
            )


def unread_template_arguments(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """A template ignores what it does not read, so that a misspelt argument would change nothing."""
    with suppress(TemplateSyntaxError):  # which the first prompt says
        if sentence := unread(spec.chat_template_kwargs, loaded.tokenizer):
            yield sentence


def heads_of_two_sizes(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Triton's attention in vLLM has scratch for the heads of the first model alone (0.32.0).

    FlashAttention and FlashInfer, which run the 16-bit types, plan with each layer's own heads.
    """
    dtype = loaded.dtype if spec.dtype == "auto" else spec.dtype
    triton = dtype == "float32" or "TRITON_ATTN" in str(spec.vllm_args)
    sizes = {
        role: getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        for role, config in loaded.configs.items()
        if (text := config.get_text_config())
    }
    padded = {(size - 1).bit_length() for size in sizes.values()}  # to powers of two
    if not triton or len(padded) < 2 or not _on_vllm(spec):
        return
    from rlvr_dir.checkpoints.beside_vllm import on_cpu

    if not on_cpu():
        yield (
            f"dtype={dtype} is refused on a GPU for models whose attention heads differ in size "
            f"({', '.join(f'{role}: {size}' for role, size in sizes.items())}): vLLM's Triton attention would write "
            "beyond its memory; accepted: dtype=bfloat16 without TRITON_ATTN, or heads of one size"
        )


def _on_vllm(spec: EngineSpec) -> bool:
    """Tell whether vLLM is the engine."""
    return spec.backend == "vllm" or (spec.backend == "auto" and find_spec("vllm") is not None)


REFUSED: tuple[Check, ...] = (
    quantised_weights, other_tokenizers, other_types, other_than_language_models, other_number_types,
    tokens_without_an_output, no_end_of_text, unreadable_weights, ends_outside_the_vocabulary, too_long_contexts,
    heads_of_two_sizes, unread_template_arguments,
)  # fmt: skip


# What is warned of -------------------------------------------------------------------------------------------------


def one_checkpoint(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """The pair is well formed, and says nothing."""
    base, rl = (loaded.pair.models[role] for role in ("base", "rl"))
    folders = [Path(model.place).expanduser() for model in (base, rl)]
    if folders[0].samefile(folders[1]) if all(map(Path.is_dir, folders)) else base == rl:
        both = _beside_rl(loaded, "base")
        yield f"{both} are one checkpoint: Δ log p is 0 everywhere, no gate on it replaces a token"


def swapped_names(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn where names say so, the zoo's or one that ends in `base`: no file says which was trained from which."""
    names = (loaded.pair.rl, loaded.pair.base)
    rl, base = (re.split(r"[^a-z0-9]", Path(name).name.lower())[-1] == "base" for name in names)
    if names in {(pair.base, pair.rl) for pair in zoo().values()} or (rl and not base):
        yield f"{_beside_rl(loaded, 'base')} look swapped, by their names: the signs of all Δ log p would be, too"


def another_base(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """An adapter names the base it was trained on; places move, so their last part decides."""
    base = loaded.pair.base
    own = loaded.adapter_of or base
    if len({name.rstrip("/").split("/")[-1] for name in (own, base)}) > 1:
        yield f"{loaded.pair.argument('rl')} says it was trained on {own!r}; it is merged into base={base!r}"


def added_tokens(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Rules of both models decode over the ids of both."""
    _, added, _, shared = loaded.difference("base")
    if added:
        own = "rl" if added[0] in loaded.models["rl"].vocabulary else "base"
        listed = ", ".join(map(repr, added[:8])) + (", …" if len(added) > 8 else "")
        yield (
            f"{_beside_rl(loaded, 'base')}: only {own} has {len(added)} tokens ({listed}); rules of both decode over "
            f"the {shared} ids of both"
            + (
                "; mode=rl may still write the others, and base reads an end of text in their place"
                if own == "rl"
                else f", and {own} alone never writes the others"
            )
        )


def other_templates(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """The two checkpoints would be talked to in other ways; both are, as RL's tokenizer says."""
    base, rl = (template_digest(loaded.models[role].tokenizer) for role in ("base", "rl"))
    if base != rl:
        used = "with chat=auto both models get RL's" if rl else "none is used, prompts go as they are"
        yield f"{_beside_rl(loaded, 'base')} have different chat templates (sha256 {base} and {rl}); {used}"


def other_configurations(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Say what else differs, beyond single precision."""
    base, rl = (
        json.loads(loaded.configs[role].to_json_string(use_diff=False), parse_float=np.float32)
        for role in ("base", "rl")
    )
    differ = [key for key in sorted({*base, *rl} - _MAY_DIFFER) if base.get(key) != rl.get(key)]
    if differ:
        configs = [config.to_dict() for config in loaded.configs.values()]
        differences = ", ".join(f"{key} ({configs[0].get(key)!r} and {configs[1].get(key)!r})" for key in differ)
        yield (
            f"{_beside_rl(loaded, 'base')} differ in {differences}: each is built as its own configuration says; was "
            "rl trained from this base?"
        )


def extrapolated_positions(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Rotary embeddings go on by themselves, where no model has been."""
    if loaded.context.stated and (beyond := loaded.context.beyond):
        built = " and ".join(f"{role}={name!r} was built for {n} positions" for role, (name, n) in beyond.items())
        yield f"max_model_len={spec.max_model_len}: {built}; what is beyond them is extrapolation"


WARNED: tuple[Check, ...] = (
    one_checkpoint, swapped_names, another_base, added_tokens, other_templates, other_configurations,
    extrapolated_positions,
)  # fmt: skip


# Reading -----------------------------------------------------------------------------------------------------------


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
            inside = sorted(str(path.parent) for path in place.glob("*/config.json"))[:4]
            hint = f"; those in it that are: {', '.join(inside)}" if inside else ""
            raise UserError(f"{role}={name!r} holds no config.json, so it is no checkpoint{hint}; {accepted}")
    elif name.startswith((".", "/", "~")) or name.count("/") > 1 or ("/" in name and place.parent.is_dir()):
        raise UserError(f"{role}={name!r} does not exist; {accepted}")
    elif why := _not_on_hub(name, revision):
        if why in _UNREACHABLE and "/" not in name:  # such ids are few, and only the hub knows them
            raise UserError(
                f"{role}={name!r} does not exist: there is no folder {name} here; accepted: a checkpoint's directory, "
                "or a hub id, as ORGANISATION/NAME"
            )
        kind = UnreachableError if why in _UNREACHABLE else UserError
        raise kind(f"{role}={name!r} does not exist here, and {why}; {accepted}")


def _not_on_hub(name: str, revision: str | None) -> str | None:
    """Say why the hub, or its cache, does not give a model; None where it may. It is asked once."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        for config in ("config.json", ADAPTER_CONFIG):
            if isinstance(try_to_load_from_cache(name, config, cache_dir=HF_HUB_CACHE, revision=revision), str):
                return None
        HfApi().model_info(name, revision=revision, timeout=SECONDS)
    except Exception as error:  # also of the library that is spoken through, which is another one in each version
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return next((why.format(revision=revision) for kind, why in _NOT_ON_HUB.items() if kind in kinds), None)
    return None


def _read(pair: Pair, role: str, base: Checkpoint | None) -> Checkpoint:
    """Read a checkpoint's configuration, tokenizer and end-of-text ids; an adapter takes what it lacks from `base`."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    name, revision = pair.models[role]
    if role == "base" and trained_on(name, revision) is not None:
        raise UserError(f"base={name!r} is an adapter; accepted: a whole checkpoint (an adapter can be rl)")
    own = base is None or has_tokenizer(name, revision)
    here = Path(name).is_dir() and not pair.trust_remote_code
    if own and here and not any(file for pattern in _VOCABULARIES for file in Path(name).glob(pattern)):
        raise UserError(  # transformers would make up one that knows no words
            f"{role}={name!r} holds no tokenizer: none of {', '.join(_VOCABULARIES)} is there; accepted: a checkpoint "
            "with its tokenizer (save_pretrained of a tokenizer writes it)"
        )
    kwargs = {"revision": revision, "trust_remote_code": pair.trust_remote_code}
    try:
        config = base.config if base else AutoConfig.from_pretrained(name, **kwargs)
        if base:
            kwargs["config"] = config
        tokenizer = AutoTokenizer.from_pretrained(name, **kwargs) if own or base is None else base.tokenizer
    except Exception as error:  # transformers and tokenizers raise many kinds, down to bare Exception
        if "trust_remote_code" in str(error):
            reason = "it contains code of its own; accepted: trust_remote_code=True, if you have read and trust it"
        else:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{role}={name!r} cannot be read as a checkpoint: {reason}") from None
    try:
        generation = GenerationConfig.from_pretrained(name, revision=revision)
    except OSError:  # a checkpoint need not have generation settings
        generation = None
    ends: set[int] = set()
    for part in (tokenizer, config, generation):
        ids = getattr(part, "eos_token_id", None)
        ends |= {ids} if isinstance(ids, int) else set(ids or ())
    return Checkpoint(config, tokenizer, frozenset(ends))


def template_digest(tokenizer: Any) -> str | None:
    """Return the first 16 hexadecimal digits of the SHA-256 of the chat template; None where there is none."""
    template = tokenizer.chat_template
    return digest(str(template)) if template else None


def ties_head(config: Any) -> bool:
    """Tell whether a configuration says that the output layer is the input embeddings."""
    return bool(getattr(config, "tie_word_embeddings", False))


def other_shape(where: str, weight: str, stored: tuple[int, ...], built: tuple[int, ...]) -> str:
    """Say that a tensor is not of the shape that the configuration makes it."""
    return (
        f"{where}: its files hold {weight} of shape {stored} and its config.json makes it {built}; "
        "accepted: weights and configuration of one model"
    )


def _others(loaded: Checkpoints) -> list[str]:
    return [role for role in loaded.models if role != "rl"]


def _beside_rl(loaded: Checkpoints, role: str) -> str:
    return f"{loaded.pair.argument(role)} and {loaded.pair.argument('rl')}"


def _cut(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def _merges(tokenizer: Any) -> Any:
    """Return the merge rules of a BPE tokenizer, None for other kinds."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return json.loads(backend.to_str())["model"].get("merges") if backend else None


def _weight_bytes(name: str) -> float:
    """Count the bytes of a local checkpoint's weights; a hub checkpoint counts as large."""
    directory = Path(name).expanduser()
    return sum(f.stat().st_size for f in directory.glob("*.safetensors")) if directory.is_dir() else float("inf")
