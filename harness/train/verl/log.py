"""What verl logs of a step, as a line of our log: the same names as with TRL, and verl's own metrics under `verl`."""

from collections.abc import Mapping
from typing import Any

from harness.train.settings import DapoSettings


def translate(line: Mapping[str, Any], dapo: DapoSettings) -> dict[str, Any]:
    """Turn a line of verl's log, `{"step": n, "data": metrics}`, into ours; a validation alone has no step's part."""
    step, data = int(line["step"]), dict(line["data"])
    numbers = {name: value for name, value in data.items() if isinstance(value, int | float)}
    if "critic/score/mean" not in data:
        return {"step": step, "validation": {}, "verl": numbers}
    return {"step": step, **_step(data, dapo), "verl": numbers}


def _step(data: dict[str, Any], dapo: DapoSettings) -> dict[str, Any]:
    return {
        "accuracy": data.get("rlvr_dir/accuracy"),
        "reward": data.get("critic/score/mean"),
        "length": data.get("response_length/mean"),
        "truncated": data.get("response_length/clip_ratio"),
        "responses": int(data.get("rlvr_dir/responses") or dapo.responses),
        "ungraded": int(data.get("rlvr_dir/ungraded") or 0),
        "groups": {"kept": dapo.prompts, "dropped": int(data.get("training/filter_groups/evicted_samples") or 0)},
        "weight": 1.0 if dapo.method == "none" else data.get("actor/advantage_weight"),
        "entropy": data.get("actor/entropy"),
        "clip_fraction": data.get("actor/pg_clipfrac"),
        "loss": data.get("actor/pg_loss"),
        "grad_norm": data.get("actor/grad_norm"),
        "learning_rate": data.get("actor/lr"),
        "seconds": data.get("timing_s/step"),
    }
