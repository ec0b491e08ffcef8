"""Estimate what a command needs before it runs: responses, tokens, memory and hours, in one table for all commands.

    plan = plan_evaluation(spec, Path("runs/records"), Gpus.named(8, 80))       # of `plan_jobs.py`
    print(plan.text())

A plan consists of rows. Each is a decoding of a pair, with the number of responses it needs and of those that are
cached. No weights are loaded, and torch is not imported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlvr_dir.checkpoints.context import positions
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.config.published import PUBLISHED
from rlvr_dir.config.stored import read_mapping
from rlvr_dir.evals.speed import Speed
from rlvr_dir.markdown import duration, markdown_table
from rlvr_dir.records.config import local_snapshot

GIB = 2**30
OWN = 3 * GIB  # per GPU: activations, CUDA graphs, communication buffers
WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}  # bytes of a number
PROMPT = 256  # assumed tokens of a prompt, if prompts are not built
ASSUMED = 0.5  # expected length of a response, as a share of the limit, if no response of the pair is cached


@dataclass(frozen=True, slots=True)
class PlanRow:
    """Count the responses that a decoding of a pair needs, and those that are cached (None: cannot be counted here).

    `most` is the maximum number of tokens of the other responses together; `lengths` are those of the cached ones.
    """

    pair: str
    label: str
    responses: int
    cached: int | None
    most: int
    lengths: tuple[int, ...] = ()

    @property
    def missing(self) -> int:
        """Return the number of responses to generate."""
        return self.responses - (self.cached or 0)


@dataclass(frozen=True, slots=True)
class Memory:
    """Store how much memory the models of a pair need: bytes of all weights, and of a response's token in the cache.

    `layers` has (layers, key-value heads, numbers per head) of each model. Heads are divided among GPUs, and each GPU
    has at least one. `width` is the bytes of a number in the cache.
    """

    weights: int
    layers: tuple[tuple[int, int, int], ...]
    width: int

    def token(self, tensor_parallel: int = 1) -> int:
        """Return the bytes of a token on each of this many GPUs."""
        heads = ((layers, -(-heads // tensor_parallel), size) for layers, heads, size in self.layers)
        return sum(2 * layers * own * size for layers, own, size in heads) * self.width

    def tokens(self, tensor_parallel: int, gpu: float, utilization: float) -> int:
        """Return how many tokens fit into the cache of one engine; `gpu` is the memory of each GPU in bytes."""
        room = gpu * utilization - OWN - self.weights / tensor_parallel
        return max(0, int(room / self.token(tensor_parallel)))


@dataclass(frozen=True)
class Gpus:
    """Describe the GPUs of a machine: how many, and the bytes of each."""

    count: int
    size: float

    @classmethod
    def named(cls, count: int | None, gib: float | None) -> "Gpus | None":
        """Return the GPUs that the user names, completed by those that are present; None if there are neither."""
        if count and gib:
            return cls(count, gib * GIB)
        if not Path("/dev/nvidia0").exists():
            return cls(count or 1, gib * GIB) if gib else None
        import torch

        here = torch.cuda.device_count() if torch.cuda.is_available() else 0
        size = gib * GIB if gib else torch.cuda.get_device_properties(0).total_memory if here else None
        return cls(count or here or 1, size) if size else None


@dataclass(frozen=True)
class Plan:
    """Hold the estimate of what a command needs.

    Args:
        title: A description of the command.
        rows: The decodings, in the order in which they run.
        longest: Tokens of the longest possible response, with its prompt.
        engine: The settings of the engine.
        thresholds: The maximum number of additional responses to find thresholds, and their tokens.
        memory: That of the models, by pair; a text explains why it is unknown.
        speed: Measured tokens per second.
        gpus: Those that are present or named.
        notes: Further sentences.
        time: The sentence about time, if it does not depend on the decoding speed.
    """

    title: str
    rows: Sequence[PlanRow]
    longest: int
    engine: EngineSpec = field(default_factory=EngineSpec)
    thresholds: tuple[int, int] = 0, 0
    memory: Mapping[str, "Memory | str"] = field(default_factory=dict)
    speed: Speed | None = None
    gpus: Gpus | None = None
    notes: tuple[str, ...] = ()
    time: str = ""

    @property
    def missing(self) -> int:
        """Return the number of responses to generate."""
        return sum(row.missing for row in self.rows)

    @property
    def most(self) -> int:
        """Return the maximum number of their tokens, including thresholds."""
        return sum(row.most for row in self.rows) + self.thresholds[1]

    @property
    def mean(self) -> float | None:
        """Return the mean number of tokens of the cached responses; None without any."""
        lengths = [length for row in self.rows for length in row.lengths]
        return sum(lengths) / len(lengths) if lengths else None

    @property
    def expected(self) -> int:
        """Return the expected number of tokens, by the mean length of cached responses or by a share of the limit."""
        if self.mean is None:
            return round(ASSUMED * self.most)
        return min(self.most, round(self.mean * (self.missing + self.thresholds[0])))

    def text(self, *, rows: bool = True) -> str:
        """Return the plan as text; without `rows` only the sums."""
        lines = [self.title, *(["", self._table(), ""] if rows and self.rows else [])]
        lines.append(self._tokens())
        lines += [self._hours(), *(self._memory() if rows else []), *self.notes]
        return "\n".join(line for line in lines if line is not None)

    def _table(self) -> str:
        several = len({row.pair for row in self.rows}) > 1
        head = [*(["pair"] if several else []), "in this order", "responses", "cached", "to generate", "tokens at most"]
        hours = self.speed is not None and self.missing > 0
        cells, tokens = [], 0.0
        scale = self.expected / self.most if self.most else 0.0
        for row in self.rows:
            tokens += scale * row.most
            numbers = [row.responses, "?" if row.cached is None else row.cached, row.missing, row.most]
            numbers = [f"{number:,}" if isinstance(number, int) else number for number in numbers]
            until = [duration(tokens / self.speed.tokens_per_second)] if hours and self.speed else []
            cells.append([*([row.pair] if several else []), row.label, *numbers, *until])
        return markdown_table([*head, *(["done after"] if hours else [])], cells, left=1 + several)

    def _tokens(self) -> str:
        cached = sum(row.cached or 0 for row in self.rows)
        further = f" and up to {self.thresholds[0]:,} more to find thresholds" if self.thresholds[0] else ""
        wanted = f"{self.missing:,} of {self.missing + cached:,} responses"
        words = f"To generate: {wanted}{further}, {self.most:,} tokens at most. "
        if not self.missing:
            return f"To generate: nothing. All {cached:,} responses are cached."
        if self.mean is None:
            return f"{words}Expected: {self.expected:,}, if they have {ASSUMED:.0%} of that; none is cached yet."
        return f"{words}Expected: {self.expected:,}, at {self.mean:,.0f} tokens each, the mean of the cached responses."

    def _hours(self) -> str | None:
        if not self.missing or self.time:
            return self.time or None
        if self.speed is None:
            return (
                "Time: unknown, because no speed of this pair has been measured here. Run it with --probe, which "
                "generates responses for two minutes, keeps them, and prints this plan with hours."
            )
        rate = self.speed.tokens_per_second
        times = duration(self.expected / rate), duration(self.most / rate)
        return f"Time: about {times[0]}, at most {times[1]}, at {self.speed.words}."

    def _memory(self) -> list[str]:
        lines: list[str] = []
        for pair, memory in self.memory.items():
            if isinstance(memory, str):
                lines.append(f"Memory of {pair}: unknown. {memory}")
                continue
            lines.append(
                f"Memory of {pair}: {memory.weights / GIB:,.3g} GiB of weights, and {memory.token() / 1024:,.0f} KiB "
                f"for each token of a response. The longest have {self.longest:,} tokens with their prompts."
            )
            lines += self._gpus(memory)
        return lines

    def _gpus(self, memory: Memory) -> list[str]:
        if self.gpus is None:
            return ["Pass --gpus 8 --gpu-memory 79.1 to see which tensor_parallel_size fits GPUs that are not here."]
        rows, best = [], (0, 0)
        for size in (n for n in range(1, self.gpus.count + 1) if self.gpus.count % n == 0):
            engines = self.gpus.count // size
            tokens = memory.tokens(size, self.gpus.size, self.engine.gpu_memory_utilization)
            at_once = engines * tokens / self.longest
            # Every engine holds all weights. Rows compare how many responses fit at once; an engine must have room for
            # one.
            if tokens >= self.longest and at_once > best[0]:
                best = at_once, size
            fits = [f"{tokens:,}", f"{at_once:,.1f}"] if tokens else ["0", "does not fit"]
            rows.append([str(size), str(engines), f"{memory.weights / size / GIB:,.3g} GiB", *fits])
        head = ["tensor_parallel_size", "workers", "weights per GPU", "cache per worker, tokens", "longest at once"]
        best_size = best[1]
        words = f"On {self.gpus.count} GPUs of {self.gpus.size / GIB:,.0f} GiB, all of which are used in each row:"
        if not best_size:
            return [words, markdown_table(head, rows, left=0), "No setting has room for one response of that length."]
        workers, now = self.gpus.count // best_size, (self.engine.tensor_parallel_size, self.engine.workers)
        advice = f"Most responses fit at once with tensor_parallel_size={best_size} and workers={workers}"
        advice += "." if now == (best_size, workers) else f"; now they are {now[0]} and {now[1]}."
        return [words, markdown_table(head, rows, left=0), advice]


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 decoding`, `26 decodings`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def memory_of(pair: Pair, engine: EngineSpec) -> Memory | str:
    """Return how much memory the models of a pair need, from their configurations; a text explains why that is unknown.

    Weights on this machine are counted from their files, others from the shape of a dense model. torch, which would
    count them exactly, is not imported for a plan.
    """
    places = {role: model.place for role, model in pair.models.items()}
    models: list[tuple[dict[str, Any], int]] = []
    for place in dict.fromkeys(places.values()):
        of_place = _model(place) or (_model(places["base"]) if place == places["rl"] else None)
        if of_place is None:
            return f"The configuration of {place} is not on this machine."
        models.append(of_place)
    dtypes = [str(config.get("dtype") or config.get("torch_dtype") or "float32") for config, _ in models]
    dtype = next((name for name in dtypes if name != "float32"), "float32") if engine.dtype == "auto" else engine.dtype
    width = WIDTHS.get(dtype, 2)
    layers = tuple(
        (config["num_hidden_layers"], config.get("num_key_value_heads") or config["num_attention_heads"], _size(config))
        for config, _ in models
    )
    quantised = str(engine.vllm_args.get("kv_cache_dtype", "auto")).startswith("fp8")
    weights = width * sum(parameters for _, parameters in models)
    return Memory(weights, layers, 1 if quantised else width)


def longest_response(pair: Pair, engine: EngineSpec, tokens: int) -> int:
    """Return `tokens`, or what the context of the pair leaves of them, as far as the configurations are known."""
    if engine.max_model_len is not None:
        return min(tokens, engine.max_model_len)
    known = [found for model in pair.models.values() if (found := _model(model.place))]
    return min([tokens, *filter(None, (positions(SimpleNamespace(**config)) for config, _ in known))])


def _model(place: str) -> tuple[dict[str, Any], int] | None:
    """Return a model's configuration and its number of parameters; None if it is neither here nor published."""
    folder = Path(place).expanduser()
    folder = folder if folder.is_dir() else local_snapshot(place)
    if folder is None or not (folder / "config.json").is_file():
        return (PUBLISHED[place][1], _parameters(PUBLISHED[place][1])) if place in PUBLISHED else None
    config = read_mapping(folder / "config.json")
    config = {**config, **config.get("text_config", {})}
    if not {"num_hidden_layers", "num_attention_heads", "hidden_size"} <= config.keys():
        return None
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    width = WIDTHS.get(str(config.get("dtype") or config.get("torch_dtype") or "float32"), 2)
    return config, size // width if size else _parameters(config)


def _parameters(config: Mapping[str, Any]) -> int:
    """Count the parameters of a dense model by its shape: embeddings, attention and three matrices per layer."""
    hidden, heads, size = config["hidden_size"], config["num_attention_heads"], _size(config)
    keys = config.get("num_key_value_heads") or heads
    layer = hidden * size * (2 * heads + 2 * keys) + 3 * hidden * config.get("intermediate_size", 4 * hidden)
    tables = 1 if config.get("tie_word_embeddings") else 2
    return config["num_hidden_layers"] * layer + tables * config.get("vocab_size", 0) * hidden


def _size(config: Mapping[str, Any]) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
