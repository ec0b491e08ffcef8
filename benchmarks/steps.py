"""List the steps of the checklist as a table, which `--help` shows."""

from dataclasses import dataclass, field
from typing import Any

Findings = dict[str, Any]  # of a step, as JSON has them
LIMIT_S = 480.0  # a step, by default


@dataclass(frozen=True)
class Step:
    """One step: a check of `benchmarks.checks`, on which pair, with which settings."""

    check: str
    does: str  # a few words for --help
    minutes: float  # estimated on one H100, caches cold
    pair: str = "small"  # 4 layers of 256, written; wide: further apart; lora: an adapter; or a shape, made in memory
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # "cuda", "v2", "package", "ranks": without it the step is skipped
    first: bool = True  # whether it belongs to the first hour on a machine


_EXACT = {"dtype": "float32"}
_BFLOAT16 = {"dtype": "bfloat16"}
_TWO = {"tensor_parallel_size": 2}
_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
_EAGER = {"enforce_eager": True}
_NEAR = {**_EXACT, "least": 0.98}  # of responses; the others are near-ties of floating point
_STRICT = {"vllm_args": {"jit_monitor_mode": "error"}}
_FEW_BLOCKS = {
    "vllm_args": {"num_gpu_blocks_override": 40, "disable_log_stats": False}, "block_size": 32, "max_model_len": 512,
}  # fmt: skip


def _speed(name: str, shape: str, minutes: tuple[float, float], first: bool = True, **settings: Any) -> dict[str, Step]:
    """Return the two steps that measure one model in plain vLLM, and the pair after its own test."""
    return {
        f"{name}-single": Step(
            "plain_speed", f"plain vLLM, one model of the {shape} shape", minutes[0], shape, first=first,
            settings={**_BFLOAT16, **settings}, environment={"VLLM_PLUGINS": "rlvr_dir_random"},
        ),
        f"{name}-pair": Step(
            "speed", f"the pair of the {shape} shape", minutes[1], shape, first=first,
            settings={**_BFLOAT16, "self_test": True, **settings},
        ),
    }  # fmt: skip


STEPS: dict[str, Step] = {
    "decision": Step("decision", "the fused kernels checked, and timed beside the torch path", 2),
    "logits-single": Step(
        "logits", "Δ log p against transformers: prompts alone, joining, together", 2, "wide", _EXACT
    ),
    "gates": Step("gates", "every rule in one batch, float32: the tokens of transformers", 3, settings=_NEAR),
    "logits-bfloat16": Step("logits", "logits-single in bfloat16, graphs on", 2, "wide", _BFLOAT16),
    "logits-warm": Step("logits", "logits-single again, with the compile cache it left", 1.5, "wide", _EXACT),
    "waits": Step(
        "gates",
        "gates, where a wait for the GPU or a late compilation is an error",
        2,
        settings={**_NEAR, **_STRICT},
        environment={"VLLM_GPU_SYNC_CHECK": "error"},
        needs=("cuda", "v2"),
    ),
    **_speed("speed-7b", "7b", (4, 6)),
    **_speed("speed-tiny", "tiny", (2, 4)),
    "preempt": Step(
        "gates", "gates in so few blocks that requests are preempted", 2, settings={**_NEAR, **_FEW_BLOCKS}
    ),
    "three": Step("logits", "logits-bfloat16 with a third model of another size", 2, "three", _BFLOAT16),
    "law": Step("law", "12,000 draws against the closed form", 2, settings=_EXACT),
    "self-test": Step(
        "self_test",
        "the engine's own test at its start, bfloat16, in another process",
        2,
        settings=_BFLOAT16,
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    ),
    "shuffle-deterministic": Step(
        "shuffle",
        "same tokens in any order, bfloat16 with deterministic=True: 100 %",
        2,
        "small",
        {**_BFLOAT16, "deterministic": True, "least": 1.0},
        needs=("cuda",),
    ),
    "memory": Step("memory", "as many rows as there may be, all traced: memory held at most", 2, "tiny", _BFLOAT16),
    **_speed("long-1.5b", "1.5b", (3, 4), prompt=8000, max_model_len=8448, sequences=[64]),
    **_speed("long-tiny", "tiny", (2, 3), prompt=400, sequences=[4]),
    "serve": Step(
        "serve",
        "the tiny pair's server, asked by 20 streams at once",
        2,
        needs=("package",),
        environment={"VLLM_LOGGING_LEVEL": "ERROR"},  # the server's first line says where it is
    ),
    "gates-tp2": Step(
        "gates", "gates with every layer shared by two GPUs", 3, settings={**_NEAR, **_TWO}, needs=("ranks",)
    ),
    "logits-tp2": Step("logits", "logits-bfloat16, the same", 3, "wide", {**_BFLOAT16, **_TWO}, needs=("ranks",)),
    "logits-eager": Step(
        "logits", "logits-single without graphs and compilation", 1, "wide", {**_EXACT, **_EAGER}, first=False
    ),
    "logits-torch": Step(
        "logits", "logits-single, decided by torch", 2, "wide", _EXACT, {"RLVR_DIR_DECISION": "torch"}, first=False
    ),
    "logits-bfloat16-eager": Step(
        "logits", "logits-bfloat16, graphs off", 1, "wide", {**_BFLOAT16, **_EAGER}, first=False
    ),
    "added": Step("gates", "gates of a pair whose RL has added tokens", 2, "added", _NEAR, first=False),
    "shuffle": Step("shuffle", "same tokens in any order, float32: 98 %", 2, settings=_NEAR, first=False),
    **_speed("speed-1.5b", "1.5b", (3, 5), first=False),
    **_speed("1k", "7b", (4, 6), first=False, prompt=1000, max_model_len=1536, sequences=[256]),
    **_speed("8k", "7b", (4, 6), first=False, prompt=8000, max_model_len=8448, sequences=[64]),
    **_speed("16k", "7b", (4, 6), first=False, prompt=16_000, max_model_len=16_448, sequences=[16]),
    "logits-lora": Step("logits", "logits-single of a LoRA pair", 2, "lora", _EXACT, first=False),
    "logits-v1": Step("logits", "logits-single with runner V1", 2, "wide", _EXACT, _V1, needs=("v2",), first=False),
    "gates-v1": Step("gates", "gates with runner V1", 2, "small", _NEAR, _V1, needs=("v2",), first=False),
    "law-v1": Step("law", "law with runner V1", 2, settings=_EXACT, environment=_V1, needs=("v2",), first=False),
    "shuffle-v1": Step("shuffle", "shuffle with runner V1", 2, "small", _NEAR, _V1, needs=("v2",), first=False),
}
