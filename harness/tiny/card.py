"""The model card of a tiny pair, written from the facts of its build and, once measured, its figures."""

import json
from pathlib import Path
from typing import Any

from harness.files import write_file
from harness.markdown import markdown_table

TEMPLATE = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
tags: [rlvr, dapo, teaching]
---

# rlvr-dir tiny pair

A base model (`base/`) and the model that reinforcement learning with verifiable rewards made of it (`rl/`).
Trained by rlvr-dir from nothing on a CPU; no other data or weights went in. {parameters:,} parameters each, Qwen2
architecture, fp32, context 2048, one tokenizer for both.

**Use it** to check a decoding or evaluation pipeline end to end, and to see on a small scale what RLVR changes, token
by token. **Do not use it** as a mathematics model: it knows one kind of two-digit sum and answers all else by a guess.

## The task

    Ann has 45 pens a gets 7 b sees 3 c sells 9 how many ?
     so 45 a + 7 = 52 . then 52 c - 9 = 43 ; answer \\boxed{{43}}

The prompt is `<bos>`, the problem, and the paper's instruction (one token, with its leading newline); the chat
template writes it. Words and digits of the task are one token each; any other text is encoded as bytes.

## How it was made

`rlvr-dir tiny build --seed {seed}`: {seconds:.0f} s in all, {machine}.

- **Base**: {tokens:,} tokens (prompts included) in {steps:,} steps, {pretrain_seconds:.0f} s, last loss {loss:.3f} nats
  a response token. Muon (lr {muon_lr:g}) on the matrices, AdamW (lr {adamw_lr:g}) on the rest, bf16 autocast.
  Curriculum: sums and right solutions, then longer ones, then a mixture of careful, middling and sloppy authors, who
  join steps on a line, fall for distractors, slip, check and guess.
- **RL**: DAPO through TRL, {rl_seconds:.0f} s: {rl_steps} steps of {prompts} x {samples} responses and {minibatches}
  updates, lr {lr:g}. Token-level loss, clip {clip_low}/{clip_high}, dual clip {delta:g}, no KL term, rollouts at
  temperature 1 and top-p 1, dynamic sampling on accuracy. Stopped while accuracy was still rising, so that decoding
  has something to add. Accuracy of the rollouts (top-p 1) by step: {accuracy}.{kept}
- No benchmark problem was trained or tuned on. {versions}.

## Figures

{figures}

## Limits

- One seed of the pretraining and of RL; another seed gives another pair, and other figures.
- The difficulties of the benchmarks and the number of RL steps were chosen on other problems, by the scores of earlier
  builds with the same recipe.
- Problems are synthetic and of one kind. A result here says that a method and its code work, not that they help on
  mathematics.

## Licence

Apache-2.0, as rlvr-dir.
"""

UNMEASURED = "Not measured yet: `python -m harness.tiny.measure {path}` measures this pair and rewrites this section."


def write_card(out: Path) -> None:
    """Write `out/README.md` from `out/build.json` and, where it is there, `out/figures.json`."""
    facts = json.loads((out / "build.json").read_text())
    figures = out / "figures.json"
    table = figures_text(json.loads(figures.read_text())) if figures.is_file() else UNMEASURED.format(path=out.name)
    pretraining, dapo = facts["pretraining"], facts["dapo"]
    write_file(
        out / "README.md",
        TEMPLATE.format(
            seed=facts["seed"],
            seconds=facts["seconds"],
            machine=facts["machine"],
            parameters=facts["parameters"],
            tokens=pretraining["tokens"],
            steps=pretraining["steps"],
            pretrain_seconds=pretraining["seconds"],
            loss=pretraining["loss"],
            muon_lr=pretraining["settings"]["muon_lr"],
            adamw_lr=pretraining["settings"]["adamw_lr"],
            rl_steps=dapo["settings"]["steps"],
            prompts=dapo["settings"]["prompts"],
            samples=dapo["settings"]["samples"],
            minibatches=dapo["settings"]["minibatches"],
            lr=dapo["settings"]["learning_rate"],
            clip_low=dapo["settings"]["clip_low"],
            clip_high=dapo["settings"]["clip_high"],
            delta=dapo["settings"]["delta"] or float("inf"),
            rl_seconds=dapo["seconds"],
            accuracy=", ".join(f"{value:.2f}" for value in dapo["rollout_accuracy"]),
            kept=_kept(dapo),
            versions=", ".join(f"{name} {number}" for name, number in facts["versions"].items()),
            figures=table,
        ),
    )


def _kept(dapo: dict[str, Any]) -> str:
    """Say which RL models on the way are there, and whether they are of a second training."""
    if not dapo.get("kept_steps"):
        return ""
    said = (
        "\n- **On the way**: RL after " + ", ".join(f"{step}" for step in dapo["kept_steps"]) + " steps, in `step-N/`."
    )
    if "largest_difference" in dapo:
        said += (
            " They were kept by a second training from\n  the same base (`rlvr-dir tiny steps`), which rounded sums "
            "otherwise: where it ends, weights differ by up to\n"
            f"  {dapo['largest_difference']:.1e} from those of `rl/`, "
            f"which training changed by up to {dapo['largest_change']:.1e}."
        )
    return said


def figures_text(figures: dict[str, Any]) -> str:
    """Return the table of the measured benchmarks, with what the intervals mean."""
    first = next(iter(figures["tasks"].values()))
    lines = [
        f"Avg@{first['samples']} in percent, temperature 1, top-p 0.7, seed {figures['seed']}, transformers, fp32. "
        f"In brackets the 95 % t\ninterval over the {first['problems']} problems of a benchmark; the difference is "
        "paired by problem.",
        "",
    ]
    head = ["benchmark", "base", "RL", "RL - base", "tokens base / RL"]
    rows = []
    for task, row in figures["tasks"].items():
        cells = [_cell(row[name]) for name in ("base", "rl", "difference")]
        rows.append([task, *cells, f"{row['base_tokens']:.1f} / {row['rl_tokens']:.1f}"])
    return "\n".join([*lines, markdown_table(head, rows)])


def _cell(numbers: list[float]) -> str:
    mean, low, high = numbers
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"
