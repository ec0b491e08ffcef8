"""Check whether a pair fits together, with one table of checks, before any weights are loaded.

    checkpoints = check_pair(Pair(base="Qwen/Qwen2.5-7B", rl="Open-Reasoner-Zero/Open-Reasoner-Zero-7B"))

Every engine begins with it, and `rlvr-dir pair check` does the same, so that the two agree. A check in `REFUSED` yields
errors, of which the first is raised. A check in `WARNED` yields sentences, which all become warnings.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import TemplateSyntaxError

from rlvr_dir.checkpoints.adapter import CONFIG as ADAPTER_CONFIG
from rlvr_dir.checkpoints.adapter import adapter_fault, changes_nothing, trained_on
from rlvr_dir.checkpoints.chat_template import unread
from rlvr_dir.checkpoints.context import Context, positions, rope_extrapolates
from rlvr_dir.checkpoints.cuts import TEXTS, cut_otherwise
from rlvr_dir.checkpoints.memory import dtype_of
from rlvr_dir.checkpoints.read import (
    Checkpoint,
    Checkpoints,
    check_place,
    read_checkpoint,
    template_digest,
    ties_head,
)  # fmt: skip
from rlvr_dir.checkpoints.rewrite import GGUF, quantised_as, refuse_quantised
from rlvr_dir.checkpoints.weights import (
    HEAD,
    corners,
    has_weights,
    left_prefix,
    missing_weight,
    refuse_codes,
    rl_is_base,
    stored_tensors,
    surplus_weight,
    tensors_of,
)  # fmt: skip
from rlvr_dir.config import EngineSpec, Pair, zoo
from rlvr_dir.errors import UserError, mention, plain

# Configuration entries that may differ between the two models of a pair without a warning: names, provenance, ids that
# are read elsewhere, what only training reads, and whether the output layer is the input embeddings.
_MAY_DIFFER = {
    "_name_or_path", "architectures", "attention_dropout", "auto_map", "bos_token_id", "dtype", "eos_token_id",
    "initializer_range", "max_position_embeddings", "max_window_layers", "pad_token_id", "tie_word_embeddings",
    "torch_dtype", "transformers_version", "use_cache", "classifier_dropout", "embd_pdrop", "gradient_checkpointing",
    "hidden_dropout", "id2label", "label2id", "output_router_logits", "problem_type", "resid_pdrop",
    "router_aux_loss_coef",
}  # fmt: skip
_NO_LANGUAGE_MODEL = (
    r"For(\w+Classification|QuestionAnswering|MaskedLM|MultipleChoice|Reward\w*)$|(?<!LM)(?<!Head)Model$"
)
_DTYPES = ("bfloat16", "float16", "float32")


Refusal = Callable[[Checkpoints, EngineSpec], Iterator[UserError]]
Warned = Callable[[Checkpoints, EngineSpec], Iterator[str]]


def check_pair(pair: Pair, spec: EngineSpec | None = None, *, absent: bool = False) -> Checkpoints:
    """Read a pair's configurations and tokenizers and check everything that can be checked before weights are loaded.

    The models may have different sizes: each is built according to its own configuration. Their output layers may be
    padded differently, and one may have additional tokens after those that both have. Gates then decide over the ids
    that both tokenizers know.

    Args:
        absent: Whether a directory may have no weights yet.

    Raises:
        UserError: The first error of `REFUSED`, or a checkpoint cannot be read.
    """
    spec = spec or EngineSpec()
    for role in reversed(pair.models):
        check_place(role, *pair.models[role])
    adapter_of, quantised = trained_on(*pair.models["rl"]), quantised_as(*pair.models["rl"])
    of_base = adapter_of is not None or quantised == GGUF
    models: dict[str, Checkpoint] = {}
    for role in pair.models:
        refuse_quantised(pair, role)
        models[role] = read_checkpoint(pair, role, models["base"] if of_base and role == "rl" else None)
    lengths = {role: (pair.models[role].place, positions(model.config)) for role, model in models.items()}
    context = Context.of(lengths, spec.max_model_len, rope_extrapolates(models["base"].config))
    checkpoints = Checkpoints(pair, models, adapter_of, context, quantised=quantised)
    if absent:
        without = tuple(role for role, folder in checkpoints.folders(spec).items() if not has_weights(folder))
        checkpoints = replace(checkpoints, without_weights=without)
    for check in REFUSED:
        for error in check(checkpoints, spec):
            raise error
    for check in WARNED:
        for sentence in check(checkpoints, spec):
            warnings.warn(plain(sentence), stacklevel=3)
    return checkpoints


# Errors --------------------------------------------------------------------------------------------------------------


def other_tokenizers(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that a token has the same id and text is split the same way in all models. Added tokens must come last."""
    for role in _others(loaded):
        where, (lost, added, moved, _) = _beside_rl(loaded, role), loaded.difference(role)
        if lost and (not added or role != "base"):
            yield UserError(
                f"{where} have different tokenizers: {len(lost)} tokens are known to only one of them (such as "
                f"{lost[0]!r})",
                accepted="two checkpoints with the same vocabulary, or one with tokens added after all that both have",
            )
        if moved:
            yield UserError(
                f"{where} order their vocabulary differently: {len(moved)} tokens have another id (such as {moved[0]})",
                accepted="identical token ids",
            )
        if _merges(loaded.models[role].tokenizer) != _merges(loaded.tokenizer):
            yield UserError(
                f"{where} have different tokenizers: the vocabulary is the same, but text is split differently",
                accepted="two checkpoints with the same tokenizer",
            )


def other_types(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that all models have the same model type, because one class of vLLM builds them."""
    for role in _others(loaded):
        own, rl = (loaded.configs[name].model_type for name in (role, "rl"))
        if own != rl:
            yield UserError(
                f"{_beside_rl(loaded, role)} have different model types ({own} and {rl})", accepted="the same type"
            )


def tokens_without_an_output(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that a model has an output for each token it may write. Tokens of RL only need two full checkpoints."""
    rl = loaded.models["rl"].vocabulary
    for role, config in reversed(loaded.configs.items()):
        needed = loaded.shared if role == "base" else loaded.vocab_size
        if needed > config.vocab_size:
            first = next((token for token, i in rl.items() if i == config.vocab_size), None)
            yield UserError(
                f"{loaded.pair.argument(role)}: its tokenizer has ids up to {needed - 1} but the model has "
                f"{config.vocab_size} outputs{f', none for {first!r}' if first is not None else ''}",
                accepted="a tokenizer whose ids the model can produce",
            )
    if loaded.shared < loaded.vocab_size and len(loaded.models) > 2:
        models = loaded.pair.argument([*loaded.models][2])
        yield UserError(
            f"{loaded.pair.argument('rl')} has {loaded.vocab_size - loaded.shared} ids that "
            f"{loaded.pair.argument('base')} does not know, so {models} cannot be used",
            accepted="a pair of full checkpoints, or one with the same vocabulary",
        )


def no_end_of_text(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that all models know a token that ends a response."""
    if not any(token < loaded.shared for token in loaded.eos_token_ids):
        yield UserError(f"{loaded.pair.argument('base')}: both models share no end-of-text token (eos_token_id)")


def unreadable_weights(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check from the files' headers that local weights are complete and have the shapes of config.json."""
    for role, folder in loaded.folders(spec).items():
        if role in loaded.without_weights:
            continue
        where, shape = loaded.pair.argument(role), loaded.shapes.get(role)
        stored, expected = stored_tensors(where, folder), shape.tensors if shape else {}
        refuse_codes(where, stored)
        for weight in sorted(expected.keys() & stored.keys()):  # one of another name in the model is left to the engine
            if stored[weight].shape != expected[weight]:
                yield other_shape(where, weight, stored[weight].shape, expected[weight])
        if (prefix := left_prefix(stored)) is not None:
            yield UserError(
                f"{where}: the names of its weights {prefix}",
                accepted="the model's own names, as in a merged checkpoint",
            )
        if not stored or not shape:
            continue
        if (weight := missing_weight(stored, expected)) is not None:
            yield UserError(
                f"{where}: its files do not contain {weight}", accepted="a checkpoint with every weight of its model"
            )
        drafts = any("nextn" in key or "mtp" in key for key in loaded.configs[role].to_dict())
        if not drafts and (weight := surplus_weight(stored, shape.names, shape.passed_over)) is not None:
            yield UserError(
                f"{where}: its files contain {weight}, which a model with its config.json does not have "
                f"(num_hidden_layers={shape.layers})",
                accepted="weights and configuration of the same model",
            )


def adapter_beside_a_model(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that a folder does not contain both, because the adapter would be merged into base and the model
    ignored."""
    folder = Path(loaded.pair.models["rl"].place).expanduser()
    if loaded.adapter_of is not None and folder.is_dir():
        whole = [file.name for kind in ("model*.safetensors", "pytorch_model*.bin") for file in folder.glob(kind)]
        if whole:
            yield UserError(
                f"{loaded.pair.argument('rl')} contains a whole model ({min(whole)}) and an adapter ({ADAPTER_CONFIG})",
                accepted="one of them",
                hint="Move the other one to another folder",
            )


def misfit_adapter(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that an adapter fits, because PEFT ignores tensors without a module, and modules without a tensor."""
    folder = Path(loaded.pair.models["rl"].place).expanduser()
    if loaded.adapter_of is None or not folder.is_dir() or "base" not in loaded.shapes:
        return
    tied = ties_head(loaded.configs["base"])
    if error := adapter_fault(folder, loaded.shapes["base"].tensors, tied, loaded.pair.argument("rl")):
        yield error


def other_than_language_models(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that all models generate text. Classifiers, encoders and encoder-decoder models do not."""
    for role, config in loaded.configs.items():
        where, name = loaded.pair.argument(role), (config.architectures or [None])[0]
        accepted, problem = "a causal language model, such as Qwen3ForCausalLM", None
        if getattr(config, "is_encoder_decoder", False):
            problem = f"{where} is an encoder-decoder model ({name or config.model_type})"
        elif name is not None and re.search(_NO_LANGUAGE_MODEL, name):
            problem = f"{where} does not generate text: the architecture in its config.json is {name}"
        elif name is None and _on_vllm(spec):
            problem = f"{where}: its config.json has no architectures, and vLLM needs them"
        if problem:
            yield UserError(problem, accepted=accepted)


def other_number_types(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that the checkpoints have one of the three types in which the engines compute."""
    for role, config in loaded.configs.items():
        if spec.dtype == "auto" and (dtype := dtype_of(config)) not in _DTYPES:
            yield UserError(
                f"{loaded.pair.argument(role)}: its config.json has dtype={dtype}",
                accepted=f"{', '.join(_DTYPES)}, there or as --dtype",
            )


def ends_outside_the_vocabulary(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that each token that ends a response is one that the model can write."""
    for role, model in loaded.models.items():
        outputs = model.config.get_text_config().vocab_size
        if wrong := sorted(token for token in model.eos if not 0 <= token < outputs):
            yield UserError(
                f"{loaded.pair.argument(role)}: eos_token_id={wrong[0]} is not a token of the model, which has "
                f"{outputs} outputs",
                accepted=f"ids from 0 to {outputs - 1}, in config.json and generation_config.json",
            )


def too_long_contexts(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that a context is not longer than position embeddings that have an end."""
    for role, (name, built) in loaded.context.beyond.items() if loaded.context.stated else ():
        if not rope_extrapolates(loaded.configs[role]):
            rope = getattr(loaded.configs[role], "rope_parameters", None) or {}
            whole = int(rope.get("factor", 1) * rope.get("original_max_position_embeddings", 0))
            more = f", or max_position_embeddings={whole} (factor x original) there" if whole > built else ""
            yield UserError(
                f"is more than the {built} positions that {mention(role, name)} was built for, by the "
                "max_position_embeddings and rotary scaling in its config.json",
                argument="max_model_len",
                value=spec.max_model_len,
                accepted=f"up to {built}{more}",
            )


def unread_template_arguments(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that the chat template reads all arguments, because it would ignore a misspelt one."""
    with suppress(TemplateSyntaxError):  # the first prompt reports it
        if error := unread(spec.chat_template_kwargs, loaded.tokenizer):
            yield error


def heads_of_two_sizes(loaded: Checkpoints, spec: EngineSpec) -> Iterator[UserError]:
    """Check that attention heads have the same size if vLLM uses Triton's attention.

    Its workspace has the size of the first model's heads (vLLM 0.32.0). FlashAttention and FlashInfer, which run the
    16-bit types, use each layer's own heads.
    """
    dtype = loaded.dtype if spec.dtype == "auto" else spec.dtype
    triton = dtype == "float32" or "TRITON_ATTN" in str(spec.vllm_args)
    sizes = {
        role: getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        for role, config in loaded.configs.items()
        if (text := config.get_text_config())
    }
    padded = {(size - 1).bit_length() for size in sizes.values()}  # rounded up to powers of two
    if not triton or len(padded) < 2 or not _on_vllm(spec):
        return
    from rlvr_dir.checkpoints.beside_vllm import on_cpu

    if not on_cpu():
        yield UserError(
            "is not supported on a GPU for models whose attention heads differ in size "
            f"({', '.join(f'{role}: {size}' for role, size in sizes.items())}), because vLLM's Triton attention would "
            "write outside its memory",
            argument="dtype",
            value=dtype,
            accepted="dtype=bfloat16 without TRITON_ATTN, or models with heads of the same size",
        )


def _on_vllm(spec: EngineSpec) -> bool:
    """Return whether vLLM is the engine."""
    return spec.backend == "vllm" or (spec.backend == "auto" and find_spec("vllm") is not None)


REFUSED: tuple[Refusal, ...] = (
    other_tokenizers, other_types, other_than_language_models, other_number_types,
    tokens_without_an_output, no_end_of_text, adapter_beside_a_model, unreadable_weights, misfit_adapter,
    ends_outside_the_vocabulary, too_long_contexts, heads_of_two_sizes, unread_template_arguments,
)  # fmt: skip


# Warnings ------------------------------------------------------------------------------------------------------------


def one_checkpoint(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn if base and RL are the same, so that no gate can flag anything."""
    base, rl = (loaded.pair.models[role] for role in ("base", "rl"))
    folders = [Path(model.place).expanduser() for model in (base, rl)]
    local, both = all(map(Path.is_dir, folders)), _beside_rl(loaded, "base")
    nothing = "Δ log p is 0 everywhere, so a gate on it flags no token"
    if folders[0].samefile(folders[1]) if local else base == rl:
        yield f"{both} are one checkpoint: {nothing}"
    elif loaded.adapter_of is not None:
        if folders[1].is_dir() and changes_nothing(folders[1]):
            yield f"{loaded.pair.argument('rl')} is an adapter that changes nothing (its B are zero): {nothing}"
    elif local and not loaded.without_weights and rl_is_base(base.place, rl.place):
        yield f"{both} have the same weights: {nothing}"


def untied_head(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn if the files have an output layer that the configuration ties to the embeddings. The one in the files is
    used."""
    for role, folder in loaded.folders(spec).items():
        if role in loaded.without_weights or not ties_head(loaded.configs[role]):
            continue
        files = tensors_of(str(folder))
        embedding = next((name for name in files if name.endswith("embed_tokens.weight")), None)
        if embedding is None or HEAD not in files:
            continue
        (_, head), (_, first) = corners(files, [HEAD, embedding])
        if bool((head.float() != first.float()).any()):
            yield (
                f"{loaded.pair.argument(role)}: its files hold {HEAD}, and its config.json ties the head to the "
                "embeddings (tie_word_embeddings), which are other numbers: the head in the files is taken here, and "
                "dropped by programs that go by config.json"
            )


def other_dtypes(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn if a model is rounded to the narrower type of another one: what training changed may be lost in that."""
    types = {role: dtype_of(config) for role, config in loaded.configs.items()}
    if spec.dtype == "auto" and len({*types.values()}) > 1:
        listed = " and ".join(f"{role} is {dtype}" for role, dtype in types.items())
        yield (
            f"{_beside_rl(loaded, 'base')} are stored in different types ({listed}); both are decoded in "
            f"{loaded.dtype}. Pass dtype=float32 to round neither"
        )


def swapped_names(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn where names say so, the zoo's or one that ends in `base`: no file says which was trained from which."""
    names = (loaded.pair.rl, loaded.pair.base)
    rl, base = (re.split(r"[^a-z0-9]", Path(name).name.lower())[-1] == "base" for name in names)
    if names in {(pair.base, pair.rl) for pair in zoo().values()} or (rl and not base):
        yield f"{_beside_rl(loaded, 'base')} look swapped, by their names: the signs of all Δ log p would be, too"


def another_base(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn if an adapter was trained on another base. Places may change, so only the last part of the name is
    compared."""
    base = loaded.pair.base
    own = loaded.adapter_of or base
    if len({name.rstrip("/").split("/")[-1] for name in (own, base)}) > 1:
        yield f"{loaded.pair.argument('rl')} says it was trained on {own!r}; it is merged into {mention('base', base)}"


def added_tokens(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn if one model has additional tokens, because decodings with both models use the ids that both know."""
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
    """Warn if the two checkpoints have different chat templates, because RL's tokenizer writes the prompts of both."""
    base, rl = (template_digest(loaded.models[role].tokenizer) for role in ("base", "rl"))
    if base != rl:
        used = "with chat=auto both models get RL's" if rl else "none is used, prompts go as they are"
        yield f"{_beside_rl(loaded, 'base')} have different chat templates (sha256 {base} and {rl}); {used}"


def other_cuts(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn if one vocabulary splits text in two ways: digits in threes, another normaliser, a token before it."""
    if sentence := cut_otherwise(loaded, TEXTS):
        yield sentence


def other_configurations(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn about other differences between the configurations, beyond single precision."""
    base, rl = (
        json.loads(loaded.configs[role].to_json_string(use_diff=False), parse_float=np.float32)
        for role in ("base", "rl")
    )
    differ = [key for key in sorted({*base, *rl} - _MAY_DIFFER) if base.get(key) != rl.get(key)]
    if differ:
        configs = [config.to_dict() for config in loaded.configs.values()]
        differences = ", ".join(f"{key} ({configs[0].get(key)!r} and {configs[1].get(key)!r})" for key in differ)
        yield (
            f"{_beside_rl(loaded, 'base')} differ in {differences}. Each is built according to its own "
            "configuration. Was RL trained from this base?"
        )


def extrapolated_positions(loaded: Checkpoints, spec: EngineSpec) -> Iterator[str]:
    """Warn if the context is longer than a model's positions, which rotary embeddings extrapolate."""
    if loaded.context.stated and (beyond := loaded.context.beyond):
        built = " and ".join(f"{role}={name!r} was built for {n} positions" for role, (name, n) in beyond.items())
        yield f"max_model_len={spec.max_model_len}: {built}; what is beyond them is extrapolation"


WARNED: tuple[Warned, ...] = (
    one_checkpoint, untied_head, other_dtypes, swapped_names, another_base, added_tokens, other_cuts, other_templates,
    other_configurations, extrapolated_positions,
)  # fmt: skip


# Reading -----------------------------------------------------------------------------------------------------------


def other_shape(where: str, weight: str, stored: tuple[int, ...], built: tuple[int, ...]) -> UserError:
    """Return the error for a tensor whose shape in the files differs from that by the configuration."""
    return UserError(
        f"{where}: its files contain {weight} of shape {stored}, and by its config.json it has shape {built}",
        accepted="weights and configuration of the same model",
    )


def _others(loaded: Checkpoints) -> list[str]:
    return [role for role in loaded.models if role != "rl"]


def _beside_rl(loaded: Checkpoints, role: str) -> str:
    return f"{loaded.pair.argument(role)} and {loaded.pair.argument('rl')}"


def _merges(tokenizer: Any) -> Any:
    """Return the merge rules of a BPE tokenizer, None for other kinds."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return json.loads(backend.to_str())["model"].get("merges") if backend else None
