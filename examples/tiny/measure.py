"""Measure how often the tiny pair is right: Avg@k by plain sampling with transformers, and the paired difference.

Responses come from `generate` of transformers, so that the numbers do not depend on our own engines.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from examples.tiny.card import figures_text, write_card
from rlvr_dir.files import write_file
from rlvr_dir.grading import grade_many
from rlvr_dir.stats import paired_difference, standard_error, t_interval
from rlvr_dir.tiny import vocabulary as v
from rlvr_dir.tiny.problems import TINY_TASKS, benchmark

MAX_RESPONSE_TOKENS = 160


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """Hold responses to problems: `correct` and `length` are (problems, samples), `stopped` is whether `<eos>` was
    written."""

    correct: np.ndarray
    length: np.ndarray
    stopped: np.ndarray
    texts: list[list[str]]

    @property
    def avg(self) -> float:
        """Return Avg@k in percent."""
        return 100.0 * float(self.correct.mean())


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[dict[str, str]],
    samples: int,
    *,
    top_p: float = 0.7,
    temperature: float = 1.0,
    seed: int = 0,
    max_tokens: int = MAX_RESPONSE_TOKENS,
    batch: int = 768,
) -> Sampled:
    """Draw `samples` responses to each problem (rows of `problem` and `answer`) and grade them."""
    torch.manual_seed(seed)
    model.eval()
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": row["problem"] + v.INSTRUCTION}], tokenize=False, add_generation_prompt=True
        )
        for row in problems
        for _ in range(samples)
    ]
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    texts, length, stopped = [""] * len(prompts), np.zeros(len(prompts)), np.zeros(len(prompts), bool)
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        inputs = tokenizer(
            [prompts[index] for index in chosen], add_special_tokens=False, padding=True, return_tensors="pt"
        )
        output = model.generate(
            input_ids=inputs["input_ids"].to(model.device),
            attention_mask=inputs["attention_mask"].to(model.device),
            do_sample=True,
            top_p=top_p,
            top_k=0,
            temperature=temperature,
            max_new_tokens=max_tokens,
        )[:, inputs["input_ids"].shape[1] :].cpu()
        for index, row in zip(chosen, output.tolist(), strict=True):
            stopped[index] = v.ID[v.EOS] in row
            length[index] = row.index(v.ID[v.EOS]) + 1 if stopped[index] else len(row)
            texts[index] = tokenizer.decode(row[: int(length[index])], skip_special_tokens=True)
    golds = [row["answer"] for row in problems for _ in range(samples)]
    correct = np.array([verdict.correct for verdict in grade_many(zip(golds, texts, strict=True))])
    shape = (len(problems), samples)
    by_problem = [texts[index : index + samples] for index in range(0, len(texts), samples)]
    return Sampled(correct.reshape(shape), length.reshape(shape), stopped.reshape(shape), by_problem)


def measure_pair(
    base: Path | str, rl: Path | str, *, samples: int = 32, seed: int = 0, tasks: Sequence[str] = TINY_TASKS
) -> dict[str, Any]:
    """Measure Avg@`samples` of both models on the benchmarks, and RL minus base by problem, with 95 % t intervals."""
    tokenizer = AutoTokenizer.from_pretrained(rl)
    models = {name: AutoModelForCausalLM.from_pretrained(path) for name, path in (("base", base), ("rl", rl))}
    figures: dict[str, Any] = {"seed": seed, "tasks": {}}
    for task in tasks:
        rows = benchmark(task)
        started = time.perf_counter()
        sampled = {name: sample(model, tokenizer, rows, samples, seed=seed) for name, model in models.items()}
        row: dict[str, Any] = {"problems": len(rows), "samples": samples}
        for name, result in sampled.items():
            low, high = t_interval(result.correct.mean(), standard_error(result.correct), len(rows))
            row[name] = _percent(result.correct.mean(), low, high)
            row[f"{name}_tokens"] = round(float(result.length.mean()), 1)
            row[f"{name}_stopped"] = round(100.0 * float(result.stopped.mean()), 2)
        difference = paired_difference(sampled["rl"].correct, sampled["base"].correct)
        row["difference"] = _percent(difference.mean, difference.low, difference.high)
        row["seconds"] = round(time.perf_counter() - started, 1)
        figures["tasks"][task] = row
    return figures


def _percent(*shares: float) -> list[float]:
    return [round(100.0 * float(share), 2) for share in shares]


def measure_and_keep(pair: Path, samples: int = 32) -> None:
    """Measure the pair under `pair`, store the numbers beside it and add them to its model card."""
    torch.set_num_threads(1)
    figures = measure_pair(pair / "base", pair / "rl", samples=samples)
    write_file(pair / "figures.json", json.dumps(figures, indent=2) + "\n")
    write_card(pair)
    print(figures_text(figures))
