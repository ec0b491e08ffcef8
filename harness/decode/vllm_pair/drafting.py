"""Settings of look-up drafts: where they are refused, how many a step, and in which order requests help each other."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from harness.decode.memory import ModelShape
from harness.decode.types import Plan
from harness.decode.vllm_pair.plugin import DRAFTER
from harness.decode.worth import CARDS, Decoding
from harness.errors import UserError
from harness.progress import told
from harness.spec import EngineSpec

RUNNER = "VLLM_USE_V2_MODEL_RUNNER"


def refuse(spec: EngineSpec, on_cpu: bool) -> None:
    """Turn drafts down where vLLM's runner V2 does not run, or where kernels must not depend on the batch.

    Raises:
        UserError: naming the setting and why.
    """
    asked = f"draft={spec.draft!r} is refused"
    if spec.deterministic:
        raise UserError(f"{asked} with deterministic=True: a row that reads drafts takes other kernels; accepted: none")
    if os.environ.get(RUNNER, "0" if on_cpu else "1") != "1":
        why = "on a CPU, where vLLM has model runner V1" if on_cpu else f"with {RUNNER}={os.environ[RUNNER]}"
        raise UserError(f"{asked} {why}: a custom processor sees no drafts there; accepted: draft=none")


def schedule(spec: EngineSpec, models: Sequence[ModelShape], longest: int) -> dict[str, Any] | None:
    """Return how many tokens a step are drafted, as vLLM's settings; None where `auto` expects to lose throughout."""
    settings = {"method": "draft_model", "use_local_argmax_reduction": True}
    if spec.draft != "auto":
        return settings | {"num_speculative_tokens": spec.draft}
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
    card = next((card for key, card in CARDS.items() if key in name), None)
    widths = card and Decoding(models, card, spec.tensor_parallel_size).schedule(spec.max_num_seqs, longest)
    most = max((drafts for *_, drafts in widths or ()), default=0)
    if not widths or not most:
        told(f"draft=auto: no drafts on {name}, where they are not known to pay")
        return None
    told("draft=auto: " + ", ".join(f"{drafts} for {first} to {last} rows" for first, last, drafts in widths))
    return settings | {
        "num_speculative_tokens": most,
        "num_speculative_tokens_per_batch_size": [list(each) for each in widths],
    }


def in_turn(plans: Sequence[Plan], rows: int) -> list[Plan]:
    """Order requests so that those to one problem run one after the other, not side by side, where there are others.

    A row can look up only what is written already: siblings that run in step have nothing for each other. As many
    problems take turns as there are rows. No order changes a token.
    """
    first: dict[str, int] = {}
    for plan in plans:
        first.setdefault(plan.request.problem, len(first))
    return sorted(plans, key=lambda plan: (first[plan.request.problem] // rows, plan.request.sample))


def write_drafter(folder: str | Path, vocab: int, heads: int) -> str:
    """Write what vLLM opens the drafter on: a small model's configuration, and a file without weights.

    Args:
        vocab: tokens of the pair, as its configuration says.
        heads: a number that the GPUs which share a layer divide.
    """
    config = {
        "architectures": [DRAFTER], "model_type": "llama", "vocab_size": vocab, "hidden_size": 8 * heads,
        "intermediate_size": 8 * heads, "num_hidden_layers": 1, "num_attention_heads": heads,
        "num_key_value_heads": heads, "max_position_embeddings": 2**20,
    }  # fmt: skip
    (Path(folder) / "config.json").write_text(json.dumps(config))
    save_file({}, Path(folder) / "model.safetensors")
    return str(folder)
