"""Compute the GPU memory of a training before anything loads, and the settings with which it fits.

    fit = fit_here(spec, base, prompts)

Nothing of this applies on a CPU, where trainings run exactly with their own settings.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlvr_dir.checkpoints.memory import GIB, VLLM_OWN, ModelShape, gib, vllm_bytes
from rlvr_dir.errors import UserError, mention
from rlvr_dir.train.spec import TrainSpec, Vllm

SEVERAL_GPUS = "backend: verl, on several GPUs"
USABLE = 0.9  # # of the GPU; the rest is for CUDA, for the allocator, and for what this estimate does not include
_LOGIT = 16  # # bytes per logit of the loss, in float32 before and after the temperature, each with a gradient


@dataclass(frozen=True)
class Gpu:
    """Hold the memory of a GPU."""

    total: int  # bytes
    free: int
    bf16: bool = True

    @classmethod
    def here(cls) -> "Gpu":
        """Return this machine's first GPU."""
        import torch

        free, total = torch.cuda.mem_get_info()
        return cls(total, free, torch.cuda.is_bf16_supported())


@dataclass(frozen=True)
class Fit:
    """Hold the settings with which a training fits a GPU, and what was changed to make it."""

    bf16: bool
    accumulation: int
    gradient_checkpointing: bool
    gpu_memory_utilization: float | None = None  # # of vLLM, if it shares the GPU
    max_model_length: int | None = None
    changes: tuple[str, ...] = ()


def fit_gpu(spec: TrainSpec, shape: ModelShape, prompt_tokens: int, gpu: Gpu) -> Fit:
    """Return the settings with which `spec` fits a GPU. Its own settings are changed only if they must be.

    An update is computed in more parts, and as a last resort without storing activations (`gradient_checkpointing`).
    The update is the same, except for the order of its sums.

    Args:
        prompt_tokens: Tokens of the longest prompt.

    Raises:
        UserError: It cannot fit. The error names what needs how much memory, and what would fit.
    """
    dapo = spec.dapo
    bf16 = gpu.bf16 if spec.bf16 is None else spec.bf16
    length = prompt_tokens + dapo.max_response_tokens
    if length > shape.context:
        raise UserError(
            f"with the longest prompt, {prompt_tokens} tokens, is beyond the {shape.context} positions of "
            f"{mention('base', spec.base)}",
            argument="dapo.max_response_tokens",
            value=dapo.max_response_tokens,
            accepted=f"up to {max(0, shape.context - prompt_tokens)}",
        )
    usable = min(int(USABLE * gpu.total), gpu.free)
    kept, updating = weight_bytes(spec, shape, bf16=bf16)
    if updating > usable:
        weights = "all weights with" if spec.lora is None else "adapters beside the weights, with"
        raise UserError(
            f"is too large for this GPU: training {weights} gradients and Adam's moments takes {gib(updating)} GiB of "
            f"its {gib(usable)}",
            argument="base",
            value=spec.base,
            accepted=("lora: {rank: 16}, " if spec.lora is None else "") + f"a smaller base, or {SEVERAL_GPUS}",
        )
    fit = Fit(bf16, dapo.accumulation, dapo.gradient_checkpointing)
    if spec.vllm is None:
        _check_generation(spec, shape, length, usable - kept)
    elif spec.vllm.mode == "colocate":
        fit = _beside_vllm(spec, spec.vllm, shape, length, kept, usable, gpu, fit)
        if not spec.vllm.enable_sleep_mode:
            usable -= int((fit.gpu_memory_utilization or 0.0) * gpu.total)
    validating = kept + 2 * 4 * shape.parameters  # # base and the trained model, as they are saved
    if spec.validation.every and spec.validation.engine.device != "cpu" and validating > usable:
        raise UserError(
            f"does not fit this GPU: two more models take {gib(validating - kept)} GiB, and the training leaves "
            f"{gib(usable - kept)}",
            argument="validation.every",
            value=spec.validation.every,
            accepted="0, or validation.engine.device: cpu",
        )
    return _pieces(spec, shape, prompt_tokens, usable - updating, fit)


def planned_gpu(spec: TrainSpec, gib_of_gpu: float | None) -> Gpu | None:
    """Return the GPU to plan a training for: one of this many GiB, or this machine's; None for a CPU."""
    import torch

    if gib_of_gpu is not None:
        return Gpu(int(gib_of_gpu * GIB), int(gib_of_gpu * GIB))
    return Gpu.here() if spec.device != "cpu" and torch.cuda.is_available() else None


def weight_bytes(spec: TrainSpec, shape: ModelShape, *, bf16: bool) -> tuple[int, int]:
    """Return the bytes of everything that belongs to the weights: between updates, and during an update.

    Between updates, these are float32 weights with Adam's two moments, and the KL term's reference model. An update
    adds gradients and the copies that autocast makes.
    """
    trained = shape.parameters if spec.lora is None else _adapter(shape, spec.lora.rank)
    kept = 4 * shape.parameters + 8 * trained + (4 * trained if spec.lora else 0)
    kept += 4 * shape.parameters if spec.dapo.beta else 0
    return kept, kept + 4 * trained + (2 * shape.parameters if bf16 else 0)


def update_bytes(
    spec: TrainSpec, shape: ModelShape, prompt_tokens: int, rows: int, *, bf16: bool, checkpointing: bool
) -> int:
    """Estimate the bytes of the activations and logits of `rows` responses of an update, each of maximal length.

    With `checkpointing`, the activations inside a layer are stored for one layer at a time.
    """
    width = 2 if bf16 else 4
    inside = width * shape.layer_activations
    layers = inside + width * shape.hidden * shape.layers if checkpointing else inside * shape.layers
    new = spec.dapo.max_response_tokens
    return rows * ((prompt_tokens + new) * layers + (new + 1) * shape.vocab * _LOGIT)


def describe_memory(spec: TrainSpec, base: str, prompts: Iterable[Any], gpu: Gpu | None) -> list[str]:
    """Return sentences on the memory that a training of `base` on these prompts takes, and whether it fits a GPU.

    Args:
        base: A folder; nothing is downloaded.
        prompts: Messages or text.
        gpu: The GPU to plan for; None plans for a CPU.
    """
    if not Path(base).is_dir():
        return [f"Memory: unknown, because the configuration of {base} is not on this machine."]
    shape, tokenizer = _read_shape(spec, base)
    prompt, dapo = longest(tokenizer, prompts), spec.dapo
    bf16 = gpu is not None and (gpu.bf16 if spec.bf16 is None else spec.bf16)
    try:
        fit = fit_gpu(spec, shape, prompt, gpu) if gpu else None
    except UserError as error:
        return [f"Memory: this training does not fit a GPU of {gib(gpu.total)} GiB. {error}" if gpu else str(error)]
    accumulation, checkpointing = dapo.accumulation, dapo.gradient_checkpointing
    if fit:
        accumulation, checkpointing = fit.accumulation, fit.gradient_checkpointing
    rows = dapo.minibatch // accumulation
    _, weights = weight_bytes(spec, shape, bf16=bf16)
    update = update_bytes(spec, shape, prompt, rows, bf16=bf16, checkpointing=checkpointing)
    lines = [
        f"Memory: at least {gib(weights + update)} GiB. Weights, gradients and Adam's moments take {gib(weights)} GiB, "
        f"and the activations of {rows} responses at once {gib(update)} GiB (prompts of up to {prompt:,} tokens)."
    ]
    if gpu:
        changes = "".join(f" {change}." for change in fit.changes) if fit else ""
        lines.append(f"It fits a GPU of {gib(gpu.total)} GiB.{changes}")
    else:
        lines.append("Pass --gpu-memory 79.1 to see whether and how it fits a GPU of 80 GB.")
    return lines


def _read_shape(spec: TrainSpec, base: str) -> tuple[ModelShape, Any]:
    """Return a model's shape and its tokenizer."""
    from transformers import AutoConfig, AutoTokenizer

    config = AutoConfig.from_pretrained(base, trust_remote_code=spec.trust_remote_code)
    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=spec.trust_remote_code)
    return ModelShape.of(config, spec.trust_remote_code), tokenizer


def fit_here(spec: TrainSpec, base: str, prompts: Iterable[Any]) -> Fit | None:
    """Return how a training of `base` on these prompts (messages or text) fits this machine's GPU.

    It is None if the training runs on the CPU.

    Raises:
        UserError: It does not fit.
    """
    import torch

    if spec.device == "cpu" or not torch.cuda.is_available():
        return None
    shape, tokenizer = _read_shape(spec, base)
    return fit_gpu(spec, shape, longest(tokenizer, prompts), Gpu.here())


def longest(tokenizer: Any, prompts: Iterable[Any]) -> int:
    """Count the tokens of the longest prompt. Messages pass through the chat template, as in TRL."""
    texts = {
        prompt
        if isinstance(prompt, str)
        else tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        for prompt in prompts
    }
    return max(len(ids) for ids in tokenizer(sorted(texts), add_special_tokens=True)["input_ids"])


def _pieces(spec: TrainSpec, shape: ModelShape, prompt_tokens: int, room: int, fit: Fit) -> Fit:
    """Find the smallest number of parts of an update whose activations and logits fit."""
    dapo = spec.dapo

    def piece(rows: int, checkpointing: bool) -> int:
        return update_bytes(spec, shape, prompt_tokens, rows, bf16=fit.bf16, checkpointing=checkpointing)

    least = fit.accumulation
    steps = [n for n in range(least, dapo.minibatch + 1) if dapo.minibatch % n == 0]
    for checkpointing in dict.fromkeys((fit.gradient_checkpointing, True)):
        for accumulation in steps:
            if piece(dapo.minibatch // accumulation, checkpointing) <= room:
                changes = []
                if accumulation != least:
                    changes.append(f"accumulation={accumulation} in place of {least}")
                if checkpointing != fit.gradient_checkpointing:
                    changes.append("gradient_checkpointing=True")
                if changes:
                    changes = [f"dapo: {' and '.join(changes)}, so that an update fits the GPU"]
                return replace(
                    fit,
                    accumulation=accumulation,
                    gradient_checkpointing=checkpointing,
                    changes=(*fit.changes, *changes),
                )
    raise UserError(
        f"is too large for this GPU: the update of a single response takes {gib(piece(1, True))} GiB, and the weights "
        f"leave {gib(room)}",
        argument="dapo.max_response_tokens",
        value=dapo.max_response_tokens,
        accepted=f"fewer tokens, or {SEVERAL_GPUS}",
    )


def _beside_vllm(
    spec: TrainSpec, vllm: Vllm, shape: ModelShape, length: int, kept: int, usable: int, gpu: Gpu, fit: Fit
) -> Fit:
    """Find vLLM's share of the GPU, with a context for a prompt and a response."""
    context = vllm.max_model_length or length
    if context < length:
        raise UserError(
            f"is less than the longest prompt and a response, {length} tokens",
            argument="vllm.max_model_length",
            value=context,
            accepted=f"at least {length}, or nothing",
        )
    least = (vllm_bytes(shape, 2, context) + VLLM_OWN) / gpu.total  # # bfloat16, a single response
    most = (usable - kept) / gpu.total
    # # all responses of a step at once, if they fit; without sleep mode vLLM keeps its share during an update
    wanted = least + 2 * shape.kv * context * (spec.dapo.responses - 1) / gpu.total
    share = vllm.gpu_memory_utilization
    if share is None:
        share = min(wanted, most if vllm.enable_sleep_mode else max(least, most / 2))
        share = int(1000 * share) / 1000
    if not least <= share <= most:
        raise UserError(
            f"does not fit: vLLM needs {least:.2f} of this GPU for its weights and one response of {context} tokens, "
            f"and the training leaves {max(most, 0):.2f}",
            argument="vllm.gpu_memory_utilization",
            value=f"{share:.3g}",
            accepted=f"{least:.2f} to {most:.2f}" if least <= most else "lora, a smaller base, or vllm: {mode: server}",
        )
    return replace(fit, gpu_memory_utilization=share, max_model_length=context)


def _check_generation(spec: TrainSpec, shape: ModelShape, length: int, room: int) -> None:
    """Check that the keys and values of all responses of a step, which transformers decodes at once, fit."""
    cache = length * shape.kv * 4 * 2 + shape.vocab * 8  # # the cache is copied as it grows
    if spec.dapo.responses * cache > room:
        some = f"up to {room // cache}, " if room >= cache else ""
        raise UserError(
            "is too large for this GPU: transformers decodes them at once, which takes "
            f"{gib(spec.dapo.responses * cache)} GiB, and the weights leave {gib(room)}",
            argument="dapo.prompts x samples",
            value=spec.dapo.responses,
            accepted=f"{some}fewer max_response_tokens, or vllm: {{}}",
        )


def _adapter(shape: ModelShape, rank: int) -> int:
    """Count the parameters of an adapter of all projections, approximately."""
    keys = shape.kv_heads * shape.head_dim
    inputs_and_outputs = 4 * shape.hidden + 2 * (shape.hidden + keys) + 3 * (shape.hidden + shape.intermediate)
    return rank * shape.layers * inputs_and_outputs
