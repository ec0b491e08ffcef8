"""Rollouts as TRL's trainer has them: a file a step with token ids and its log-probabilities, and checkpoints.

    python -m benchmarks.rollouts --steps 7 --out runs/rollouts
    cd runs/rollouts
    rlvr-dir score tiny@base model-6 step-7.jsonl --who --candidate step-4=model-4

The rollouts of a step are written by the model after the step before: those of step 7 by `model-6`. To score those of
step 5 with `model-6` is what stale weights look like: `model-4` serves while `model-6` is claimed.
"""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.script import run
from rlvr_dir.bench.decode import machine
from rlvr_dir.config import parse


def write_rollouts(
    *,
    steps: int = 7,
    prompts: int = 16,
    samples: int = 16,
    every: int = 2,
    top_p: float = 1.0,
    out: str = "runs/rollouts",
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Train the tiny base with TRL and write `step-N.jsonl` and, every so many steps, `model-N`.

    Args:
        steps: of generation, each of prompts x samples responses and four updates.
        prompts, samples: of a step.
        every: how many steps lie between two checkpoints.
        top_p: of the rollouts.
        out: the folder.
        say: is told how far the run is.

    Returns:
        A plain object: responses and tokens by step; `machine`, `date`.
    """
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlvr_dir.tiny import tiny_pair
    from rlvr_dir.tiny.problems import rl_problems
    from rlvr_dir.train import DapoSettings
    from rlvr_dir.train.dapo import DapoTrainer, make_trainer

    folder, written = Path(out), dict[str, list[int]]()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"steps": steps, "prompts": prompts, "samples": samples, "learning_rate": 2e-5, "top_p": top_p}
    dapo = parse(DapoSettings, settings | {"max_response_tokens": 96, "dynamic_sampling": False})
    transformers.utils.logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(tiny_pair().base)

    def record(trainer: Any, batch: dict[str, Any]) -> dict[str, Any]:
        step = trainer.state.global_step // dapo.minibatches
        if step and not step % every:
            trainer.accelerator.unwrap_model(trainer.model).save_pretrained(folder / f"model-{step}")
            tokenizer.save_pretrained(folder / f"model-{step}")
        names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "old_per_token_logps")
        with (folder / f"step-{step + 1}.jsonl").open("w") as file:
            for before, kept, ids, mask, logp in zip(*(batch[name] for name in names), strict=True):
                n = int(mask.sum())
                row = {"prompt_ids": before[kept.bool()].tolist(), "completion_ids": ids[:n].tolist()}
                file.write(json.dumps({**row, "logprobs": logp[:n].tolist()}) + "\n")
        written[str(step + 1)] = [len(batch["completion_ids"]), int(batch["completion_mask"].sum())]
        say(f"step {step + 1}: {written[str(step + 1)][1]:,} tokens")
        return batch

    generate = DapoTrainer._full_groups
    DapoTrainer._full_groups = lambda self, inputs: record(self, generate(self, inputs))
    try:
        model = AutoModelForCausalLM.from_pretrained(tiny_pair().base)
        make_trainer(model, tokenizer, rl_problems(0, 400), dapo, folder / "trl").train()
    finally:
        DapoTrainer._full_groups = generate
        transformers.utils.logging.enable_progress_bar()
    return {"responses and tokens": written, "settings": settings, "machine": machine(), "date": f"{date.today()}"}


if __name__ == "__main__":
    run(write_rollouts)
