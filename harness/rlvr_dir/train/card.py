"""Write the model card of a trained checkpoint: its base, its training and its scores."""

from pathlib import Path
from typing import Any

from rlvr_dir.files import write_file
from rlvr_dir.train.settings import DapoSettings

TEMPLATE = """---
library_name: {library}
pipeline_tag: text-generation
base_model: {base}
tags: [rlvr, dapo]
---

# {label} on {base}, seed {seed}

Trained from `{base}` by reinforcement learning with verifiable rewards, by rlvr-dir {version} through {backend}
on {date} ({machine}; {seconds:.0f} s of steps). The licence is the base's. The pair:

    rlvr-dir eval --pretrained {rl} --base {base}

{steps} steps of {prompts} x {samples} responses and {minibatches} updates, learning rate {learning_rate:g}, clip
{clip_low:g}/{clip_high:g}, dual clip {delta}, rollouts at temperature {temperature:g} and top-p {top_p:g}, {method}.
{which}
Accuracy of the rollouts{learned} by step: {accuracy}.

{scores}Data: `{data}`. Command: `{command}`. {versions}.
"""


def write_card(rl: Path, outcome: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Write `rl/README.md` from the outcome of a finished seed and the lines of its log."""
    dapo = DapoSettings(**outcome["dapo"])
    method = "plain DAPO" if dapo.is_plain else f"advantages reweighted by {dapo.method}, alpha {dapo.alpha:g}"
    steps = [record for record in records if "validation" not in record]
    scores = "".join(
        f"{task}{f' ({limited})' if (limited := score.get('limited')) else ''}: "
        + f"Avg@{score['samples']:.0f} {100 * score['avg']:.1f}"
        + f", {score['tokens']:.0f} tokens a response.\n"
        for task, score in outcome["scores"].items()
    )
    verl = outcome["training"]["backend"] == "verl"  # # verl counts no other groups
    step, checkpoint = outcome.get("step", dapo.steps), outcome["training"].get("checkpoint", "last")
    text = TEMPLATE.format(
        library="peft" if (rl / "adapter_config.json").is_file() else "transformers",
        base=outcome["base"],
        label=dapo.label,
        which="" if checkpoint == "last" else f"The model is that of step {step} (checkpoint: {checkpoint}).\n",
        rl=rl.resolve(),
        version=outcome["versions"]["rlvr-dir"],
        backend={"trl": "TRL", "verl": "verl"}[outcome["training"]["backend"]],
        machine=outcome["machine"],
        date=outcome["date"],
        seconds=outcome["seconds"],
        learned=" that were learned from" if verl and dapo.dynamic_sampling else "",
        accuracy=", ".join("-" if step["accuracy"] is None else f"{step['accuracy']:.2f}" for step in steps),
        scores=scores + "\n" if scores else "",
        data=outcome["training"]["data"],
        command=outcome["command"],
        versions=", ".join(f"{name} {number}" for name, number in outcome["versions"].items()),
        **{**dapo.model_dump(), "method": method, "delta": f"{dapo.delta:g}" if dapo.delta else "off"},
    )
    write_file(rl / "README.md", text.encode())
