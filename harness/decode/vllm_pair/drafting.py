"""Settle how drafts are looked up: where there can be none, how many a step, which order of requests helps them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save

from harness.decode.memory import ModelShape
from harness.decode.types import Plan
from harness.decode.vllm_pair.lookup import A_SLOT
from harness.decode.vllm_pair.plugin import DRAFTER
from harness.decode.worth import CARDS, Worth
from harness.errors import UserError
from harness.files import write_file
from harness.progress import told
from harness.spec import EngineSpec

TOGETHER = A_SLOT // 2  # problems, for each row, that take turns: of each some texts are kept until the next one's turn
RUNNER = "VLLM_USE_V2_MODEL_RUNNER"


def settings(spec: EngineSpec, models: Sequence[ModelShape], longest: int, *, on_cpu: bool) -> dict[str, Any] | None:
    """Return vLLM's settings: how many tokens a step are drafted, `auto` by the number of rows that run.

    None where `auto` drafts nothing.

    Raises:
        UserError: drafts are asked for and cannot be: naming the setting and why.
    """
    if (why := impossible(spec, on_cpu)) is not None:
        if spec.draft != "auto":
            raise UserError(f"draft={spec.draft} is refused {why}; accepted: none, auto")
        told(f"draft=auto: no drafts {why}")
        return None
    found = {"method": "draft_model", "use_local_argmax_reduction": True}
    if spec.draft != "auto":
        return found | {"num_speculative_tokens": spec.draft}
    name = device_name()
    card = next((card for key, card in CARDS.items() if key in name), None)
    widths = card and Worth(models, card, spec.tensor_parallel_size).schedule(spec.max_num_seqs, longest)
    if not widths or not (most := max(drafts for *_, drafts in widths)):
        told(f"draft=auto: no drafts on {name}, where they are not known to pay")
        return None
    told("draft=auto: " + ", ".join(f"{drafts} with {first} to {last} rows" for first, last, drafts in widths))
    by_rows = [list(each) for each in widths]
    return found | {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": by_rows}


def device_name() -> str:
    """Return the GPU's name, without taking it into use: the engine's processes do."""
    from vllm.platforms import current_platform

    return current_platform.get_device_name()


def impossible(spec: EngineSpec, on_cpu: bool) -> str | None:
    """Say where, or with what, there can be no drafts: without vLLM's runner V2, or where no batch may change a bit."""
    if spec.deterministic:
        return "with deterministic=True, since a row that reads drafts takes other kernels"
    if os.environ.get(RUNNER, "0" if on_cpu else "1") != "1":
        where = "on a CPU, where vLLM has model runner V1" if on_cpu else f"with {RUNNER}={os.environ[RUNNER]}"
        return f"{where}: a processor of one's own sees no drafts there"
    return None


def in_turn(plans: Sequence[Plan], problems: int) -> list[Plan]:
    """Order requests so that those to one problem run one after the other, not side by side, where there are others.

    A row can look up only what is written already: siblings that run in step have nothing for each other. So many
    `problems` take turns. No order changes a token.
    """
    first: dict[str, int] = {}
    for plan in plans:
        first.setdefault(plan.request.problem, len(first))
    return sorted(plans, key=lambda plan: (first[plan.request.problem] // problems, plan.request.sample))


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
    write_file(Path(folder) / "config.json", json.dumps(config))
    write_file(Path(folder) / "model.safetensors", save({}))
    return str(folder)
