"""Tell what a plan takes of GPUs, from configurations alone: nothing is downloaded, no weights are read.

    price = PairPrice.of(pair, EngineSpec(), tokens=20_000)
    price.fewest(80), price.refusal(Machine.here())

Sizes are exact: parameters are counted on the model built without memory. What a program takes beside weights and
cache is an estimate, and so is the fewest GPUs; only what weights and cache alone rule out is refused.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any

from harness.decode.memory import DECISION, GIB, VLLM_OWN, ModelShape, narrowest, shape_of, vllm_bytes, width_of
from harness.errors import UserError
from harness.markdown import duration, markdown_table
from harness.spec import TINY, EngineSpec, Pair
from harness.tiny import checkpoints, tiny_pair
from harness.train.gpu import USABLE, Gpu, fit_gpu, longest
from harness.train.spec import TrainSpec
from harness.train.verl.spec import Verl

CARDS = (24, 40, 80, 141)  # GPUs by the gigabytes on their label
ASSUMED_SPEED = 1000.0  # tokens a second where nobody has measured or stated one: a round number to multiply by
PROMPT = 2048  # tokens of the longest prompt where there is no tokenizer at hand to count them
_SEEN = 0.975 * GIB  # of a labelled gigabyte: an "80 GB" H100 has 79.1 GiB, an "141 GB" H200 139.8
_LOSS = 4  # bytes a logit of verl's loss, in bfloat16: itself, and its gradient where that is not written over it
_CPU_CACHE = 2.0  # GiB that vLLM is given on a CPU


@dataclass(frozen=True)
class Machine:
    """Hold what this machine has; `memory` is None where it cannot be told."""

    gpus: int
    gpu: float | None  # bytes of the smallest GPU
    memory: float | None  # bytes of the machine's own

    @classmethod
    def here(cls) -> "Machine":
        """Ask this machine, without taking a GPU into use."""
        import torch

        gpus = torch.cuda.device_count()  # of those that CUDA_VISIBLE_DEVICES shows
        sizes: list[float] = []
        if gpus:
            try:
                asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
                told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=30).stdout
                sizes = [float(line) * 2**20 for line in told.split()]
            except (OSError, ValueError, subprocess.SubprocessError):
                sizes = []  # another maker's, or none that can be asked
        return cls(gpus, min(sizes, default=None), _memory())

    def __str__(self) -> str:
        """Say what it has."""
        own = "" if self.memory is None else f" and {self.memory / GIB:.0f} GiB of memory"
        if not self.gpus:
            return f"no GPU{own}"
        each = "" if self.gpu is None else f" of {self.gpu / GIB:.0f} GiB"
        return f"{self.gpus} GPU{'s' * (self.gpus > 1)}{each}{own}"


def _memory() -> float | None:
    """Return the bytes of this machine, or of this container's share of it."""
    found = []
    try:
        found.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
        found.append(float(Path("/sys/fs/cgroup/memory.max").read_text()))  # or "max"
    except (OSError, ValueError):
        pass
    return min(found, default=None)


@dataclass(frozen=True)
class PairPrice:
    """What decoding with a pair takes of each GPU that shares its layers; `tokens` is prompt and response, at most."""

    name: str
    sizes: tuple[ModelShape, ...]  # of each model that runs, in the order of `Pair.models`
    models: int  # whose weights are held: 1 where RL is an adapter of base
    width: int  # bytes of a weight, and of a number of the cache
    tokens: int
    engine: EngineSpec
    known: bool  # sizes are from `KNOWN` or the other model's, not from the models' own configurations

    @classmethod
    def of(cls, pair: Pair | str, engine: EngineSpec, name: str, tokens: int) -> "PairPrice | None":
        """Return the price of a pair; None where neither model's configuration is here or known.

        Args:
            tokens: of the longest prompt and response; where the engine states no context vLLM takes the models' own.
        """
        found = checkpoints(pair)
        base, rl, *others = (shape_of(*model, found.trust_remote_code) for model in found.models.values())
        if (one := rl or base) is None or None in others:
            return None
        adapter = (Path(found.rl).expanduser() / "adapter_config.json").is_file()
        known = (base or one, rl or one, *filter(None, others))
        dtype = narrowest(each.dtype for each in known)
        context = engine.max_model_len or min(each.context for each in known)
        return cls(
            name,
            known,
            models=1 if adapter else len(known),
            width=width_of(dtype if engine.dtype == "auto" else engine.dtype),
            tokens=context if engine.backend != "transformers" else min(context, tokens),
            engine=engine,
            known=not Path(found.rl).expanduser().is_dir(),
        )

    @property
    def weights(self) -> float:
        """Return the bytes of the weights."""
        return self.width * sum(each.parameters for each in self.sizes[: self.models])

    @property
    def cache(self) -> float:
        """Return the bytes a token of the cache of both models."""
        return self.width * sum(each.kv for each in self.sizes)

    def least(self, gpus: int) -> float:
        """Return the bytes on each GPU of the weights and the cache of one whole response: the least there must be."""
        return vllm_bytes(self.sizes[: self.models], self.sizes, self.width, self.tokens, gpus)

    def shares(self) -> list[int]:
        """Return the numbers of GPUs, up to 64, that can share each layer of every model."""
        return [n for n in range(1, 65) if all(each.can_share(n) for each in self.sizes)]

    def fewest(self, card: int) -> int | None:
        """Return the fewest GPUs of so many gigabytes that should hold it; None where no number up to 64 does."""
        own = VLLM_OWN + self.engine.max_num_seqs * max(each.vocab for each in self.sizes) * DECISION
        room = self.engine.gpu_memory_utilization * card * _SEEN - own
        able = self.shares() if self.engine.backend != "transformers" else [1]
        return next((n for n in able if self.least(n) <= room), None)

    def refusal(self, machine: Machine) -> str | None:
        """Say why a machine cannot hold the pair, and what could; None where it can, or where that cannot be told."""
        engine, gpus = self.engine, self.engine.tensor_parallel_size
        if cut := [each for each in self.sizes if not each.can_share(gpus)]:
            return (
                f"engine.tensor_parallel_size={gpus} is refused: the {cut[0].heads} heads of {self.name} "
                f"({cut[0].kv_heads} of keys and values) cannot be shared so; accepted: "
                f"{', '.join(map(str, self.shares()))}"
            )
        if engine.workers > 1 or engine.ray_address or os.environ.get("RAY_ADDRESS"):
            return None  # other machines hold it
        if machine.gpus and engine.device != "cpu":
            if machine.gpus < gpus:
                short = f"engine.tensor_parallel_size={gpus} asks for as many GPUs"
            elif machine.gpu is not None and self.least(gpus) > engine.gpu_memory_utilization * machine.gpu:
                short = f"weights and the cache of one response take {_gib(self.least(gpus))} of each of {gpus} GPUs"
            else:
                return None
        else:
            needed = self.weights + (engine.kv_cache_gib or _CPU_CACHE) * GIB
            if machine.memory is None or needed <= machine.memory:
                return None
            short = f"weights and cache take {_gib(needed)}"
        return f"{self.name} cannot run here: {short}, and this machine has {machine}; accepted: {self.could()}"

    def could(self) -> str:
        """Say which GPUs should hold it."""
        found = [(card, n) for card in CARDS if (n := self.fewest(card))]
        return " or ".join(f"{n} x {card} GB" for card, n in found) or "no number of GPUs that is known here"


def pair_table(prices: Sequence[PairPrice]) -> list[str]:
    """Return a table of pairs, a row each, with what it assumes in a line below."""
    head = ["pair", "parameters", "weights", "KV cache a token", "one response", *(f"{card} GB" for card in CARDS)]
    rows = [
        [
            price.name,
            _parameters(price),
            _gib(price.weights),
            f"{price.cache / 1024:,.0f} KiB" if price.cache >= 1024 else f"{price.cache:,.0f} B",
            f"{_gib(price.cache * price.tokens)} ({price.tokens:,} tokens)",
            *(str(price.fewest(card) or "–") for card in CARDS),
        ]
        for price in prices
    ]
    engine = prices[0].engine
    asked = engine.tensor_parallel_size
    note = (
        "The last columns are the fewest GPUs of that size that should hold one engine (tensor_parallel_size; here "
        f"{asked}), estimated: weights, one response of the whole context, and room for deciding on "
        f"{engine.max_num_seqs} rows, within {engine.gpu_memory_utilization:g} of each."
    )
    if told := [price.name for price in prices if price.known]:
        note += f" {', '.join(told)}: by the published configuration; the models are not in a folder here."
    return [markdown_table(head, rows, left=1), "", note]


def _parameters(price: PairPrice) -> str:
    """Count the parameters of the models whose weights are held: "2 x 7.6 billion", or one by one."""
    counts = [_count(each.parameters) for each in price.sizes[: price.models]]
    return f"{len(counts)} x {counts[0]}" if len(counts) > 1 and len(set(counts)) == 1 else " + ".join(counts)


def hours(tokens: float, speed: float | None, whose: str = "as --speed says") -> str:
    """Say how long so many tokens take, and whose speed that is: stated, measured, or a round number."""
    if speed is not None:
        return f"{duration(tokens / speed)} at {speed:,.0f} tokens/s ({whose})"
    return (
        f"{duration(tokens / ASSUMED_SPEED)} at {ASSUMED_SPEED:,.0f} tokens/s, which is a round number and nobody's "
        "measurement (--speed sets it)"
    )


def rollouts(tokens: int, speed: float | None) -> str:
    """Say how long the rollouts take that a training learns from, of at most so many tokens."""
    return (
        f"rollouts that are learned from, of at most {tokens:,} tokens, take {hours(tokens, speed)}; those that "
        "dynamic sampling throws away, updates and validations not counted"
    )


def training_lines(spec: TrainSpec, prompts: Sequence[Any] = ()) -> list[str]:
    """Say what a training takes of GPUs, and why this machine cannot hold it, a line each.

    Args:
        prompts: of the data, to count the longest; without, or with no tokenizer at hand, 2,048 tokens are assumed.
    """
    base = _base(spec)
    if (shape := shape_of(base, None, spec.trust_remote_code)) is None:
        return [f"memory: unknown, {spec.base} is not on this machine and its configuration is not known"]
    lines = [
        f"base: {_count(shape.parameters)} parameters, weights {_gib(2 * shape.parameters)} in bfloat16, KV cache "
        f"{2 * shape.kv / 1024:,.0f} KiB a token; weights, gradients and Adam's moments in float32 "
        f"{_gib(16 * shape.parameters)}",
        _verl_line(spec, shape) if spec.backend == "verl" else _trl_line(spec, shape, _longest(base, prompts)),
    ]
    return [*lines, *filter(None, [training_refusal(spec), _other_machines(spec)])]


def training_refusal(spec: TrainSpec, machine: Machine | None = None) -> str | None:
    """Say why a machine (default this one) cannot hold a training by TRL, and what could; None where it can.

    None also where nobody can tell: `harness.train.gpu` looks at a GPU when it is there, verl's may be elsewhere.
    """
    if spec.backend == "verl" or (shape := shape_of(_base(spec), None, spec.trust_remote_code)) is None:
        return None
    machine = machine or Machine.here()
    needed = 16 * shape.parameters
    if (machine.gpus and spec.device != "cpu") or machine.memory is None or needed <= machine.memory:
        return None
    return (
        f"base={spec.base!r} cannot be trained here: with gradients and Adam's moments it takes {_gib(needed)}, and "
        f"this machine has {machine}; accepted: a GPU that holds it, or backend: verl on several"
    )


def _other_machines(spec: TrainSpec) -> str | None:
    """Say where verl has to be started, as far as this machine does not have the GPUs it asks for."""
    verl, machine = spec.verl or Verl(), Machine.here()
    if spec.backend != "verl" or (verl.nnodes == 1 and machine.gpus >= verl.gpus_per_node):
        return None
    asked = f"{verl.nnodes} x {verl.gpus_per_node} GPUs (verl.nnodes, verl.gpus_per_node)"
    return f"it asks for {asked}, and this machine has {machine}: start it where a Ray cluster has them"


def _base(spec: TrainSpec) -> str:
    return tiny_pair().base if spec.base == TINY else spec.base


def _trl_line(spec: TrainSpec, shape: ModelShape, prompt_tokens: int) -> str:
    """Say on which single GPUs TRL's training fits."""
    fits, why = [], ""
    for card in CARDS:
        total = int(card * _SEEN)
        try:
            fit_gpu(spec, shape, prompt_tokens, Gpu(total, total))
            fits.append(f"{card} GB")
        except UserError as error:
            why = str(error)
    if fits:
        return f"one GPU: fits {', '.join(fits)} (estimated, prompts of up to {prompt_tokens:,} tokens)"
    return f"one GPU: none of {', '.join(map(str, CARDS))} GB ({why})"


def _verl_line(spec: TrainSpec, shape: ModelShape) -> str:
    """Say how many GPUs of each size verl's training should need, with the engine and the sequences cut as asked."""
    verl, dapo = spec.verl or Verl(), spec.dapo
    context = verl.max_prompt_tokens + dapo.max_response_tokens
    step = lcm(verl.tensor_parallel, verl.sequence_parallel)
    tokens = verl.tokens_per_gpu or 2 * context
    layer = (shape.parameters - 2 * shape.vocab * shape.hidden) / max(1, shape.layers)
    gathered = 4 * max(2 * layer, 2 * shape.vocab * shape.hidden)  # bfloat16, with their gradients
    kept = 2 * (shape.layers * shape.hidden if dapo.gradient_checkpointing else
                shape.layers * shape.layer_activations)  # fmt: skip
    update = gathered + tokens * (kept + 2 * shape.layer_activations / verl.sequence_parallel)
    update += tokens * shape.vocab * _LOSS
    rollout = vllm_bytes([shape], [shape], 2, context, verl.tensor_parallel)

    def fits(card: int, gpus: int) -> bool:
        memory, state = card * _SEEN, 16 * shape.parameters / gpus
        beside = 0 if verl.offload else state
        engine = rollout + VLLM_OWN <= verl.gpu_memory_utilization * memory
        return engine and rollout + VLLM_OWN + beside <= USABLE * memory and state + update <= USABLE * memory

    able = [n for n in range(step, 129, step) if n % 8 == 0 or n < 8]
    each = [(card, next((n for n in able if fits(card, n)), None)) for card in CARDS]
    told = ", ".join(f"{n} x {card} GB" if n else f"none of {card} GB" for card, n in each)
    return (
        f"GPUs: with rollouts on {verl.tensor_parallel} each and a sequence on {verl.sequence_parallel}, the fewest "
        f"that should hold it: {told} (estimated, {tokens:,} tokens a GPU at once)"
    )


def _longest(base: str, prompts: Sequence[Any]) -> int:
    """Count the longest prompt's tokens where the tokenizer is at hand; else the usual assumption."""
    from transformers import AutoTokenizer

    if not prompts:
        return PROMPT
    try:
        return longest(AutoTokenizer.from_pretrained(base, local_files_only=True), prompts)
    except (OSError, ValueError):
        return PROMPT


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} billion" if parameters >= 1e8 else f"{parameters / 1e6:.2f} million"


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:,.1f} MiB"
