"""The steps of `rlvr-dir bench checklist` as a table; nothing is imported here, `--help` shows it."""

from dataclasses import dataclass, field
from typing import Any

Findings = dict[str, Any]  # of a step, as JSON has them
LIMIT_S = 480.0  # a step, by default


@dataclass(frozen=True)
class Step:
    """One step: a check of `harness.bench.checks`, on which pair, with which settings."""

    check: str
    does: str  # a few words for --help
    minutes: float  # estimated on one H100, caches cold
    pair: str = "small"  # 4 layers of 256, written; wide: further apart; lora: an adapter; or a shape, made in memory
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # "cuda", "v2": where it is absent the step is skipped


_EXACT = {"dtype": "float32"}
_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
_EAGER = {"enforce_eager": True}

STEPS: dict[str, Step] = {
    "logits-single": Step(
        "logits", "Δ log p against transformers: prompts alone, joining, together", 2, "wide", _EXACT
    ),
    "logits-eager": Step("logits", "the same without graphs and compilation", 1, "wide", {**_EXACT, **_EAGER}),
    "logits-warm": Step("logits", "logits-single again, with the compile cache it left", 1.5, "wide", _EXACT),
    "logits-bfloat16": Step("logits", "the same in bfloat16, graphs on", 2, "wide", {"dtype": "bfloat16"}),
    "logits-bfloat16-eager": Step(
        "logits", "the same in bfloat16, graphs off", 1, "wide", {"dtype": "bfloat16", **_EAGER}
    ),
    "self-test": Step(
        "self_test", "the engine's own test at its start, bfloat16, in another process", 2,
        settings={"dtype": "bfloat16"}, environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    ),
    "law": Step("law", "12,000 draws against the closed form", 2, settings=_EXACT),
    "shuffle": Step("shuffle", "same tokens in any order, float32: 98 %", 2, settings={**_EXACT, "least": 0.98}),
    "shuffle-deterministic": Step(
        "shuffle", "same tokens in any order, bfloat16 with deterministic=True: 100 %", 2, "small",
        {"dtype": "bfloat16", "deterministic": True, "least": 1.0}, needs=("cuda",),
    ),
    "decision": Step("decision", "the fused kernels checked, and timed beside the torch path", 2),
    **{
        f"speed-{shape}-{kind}": Step(
            check, does.format(shape), minutes, pair=shape, settings={"dtype": "bfloat16"},
            environment={"VLLM_PLUGINS": "rlvr_dir_random"} if kind == "single" else {},
        )
        for shape, slow in (("tiny", 2), ("1.5b", 3), ("7b", 4))
        for kind, check, does, minutes in (
            ("single", "plain_speed", "plain vLLM, one model of the {} shape", slow),
            ("pair", "speed", "the pair of the {} shape", slow + 2),
        )
    },
    "logits-lora": Step("logits", "logits-single of a LoRA pair", 2, "lora", _EXACT),
    "logits-v1": Step("logits", "logits-single with runner V1", 2, "wide", _EXACT, _V1, needs=("v2",)),
    "law-v1": Step("law", "law with runner V1", 2, settings=_EXACT, environment=_V1, needs=("v2",)),
    "shuffle-v1": Step(
        "shuffle", "shuffle with runner V1", 2, settings={**_EXACT, "least": 0.98}, environment=_V1, needs=("v2",)
    ),
}  # fmt: skip
