"""Makes a tiny pair from nothing in one command: pretrain a base, train it with DAPO, save both with a model card.

    python -m harness.tiny.recipe OUT [--seed 0]       # as `rlvr-dir tiny build --out OUT --seed 0`

Same seed, machine and versions: same weights, to the bit.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from harness.errors import UserError
from harness.files import check_writable, write_file
from harness.spec import Pair
from harness.tiny.card import write_card
from harness.tiny.pretrain import PretrainSettings, pretrain
from harness.tiny.problems import rl_problems
from harness.tiny.tokenizer import build_tokenizer
from harness.train import DapoSettings, train_dapo
from harness.train.backends import OnProgress

# Stopped while RL is still gaining: after 12 steps tiny_easy is at 100 % and nothing is left for decoding to improve.
TINY_DAPO = DapoSettings(steps=8, learning_rate=2e-5)


def build(
    out: Path | str,
    *,
    seed: int = 0,
    pretraining: PretrainSettings | None = None,
    dapo: DapoSettings | None = None,
    progress: bool = True,
    overwrite: bool = False,
) -> Pair:
    """Train a pair on one thread and save it under `out`: `base/`, `rl/`, `build.json` and the model card.

    The same seed on the same machine and versions gives the same weights.

    Raises:
        UserError: `out` already holds a pair and `overwrite` is off.
    """
    out = Path(out).resolve()
    if (out / "base").exists() and not overwrite:
        raise UserError(f"out={str(out)!r} already holds a pair; choose another directory, or overwrite=True")
    check_writable(out)
    pretraining = pretraining or PretrainSettings()
    dapo = (dapo or TINY_DAPO).replace(seed=seed)
    started = time.perf_counter()
    tokenizer = build_tokenizer()
    with _one_thread(), _quiet(), _progress(progress) as stage:
        model, facts = pretrain(pretraining, seed=seed, progress=stage("pretraining the base"))
        _save(model, tokenizer, out / "base")
        began = time.perf_counter()
        history = train_dapo(model, tokenizer, rl_problems(seed), dapo, progress=stage("DAPO"))
        rl_seconds = time.perf_counter() - began
        _save(model, tokenizer, out / "rl")
    facts = {
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 1),
        "pretraining": {**facts, "seconds": round(facts["seconds"], 1), "settings": pretraining.model_dump()},
        "dapo": {
            "seconds": round(rl_seconds, 1),
            "rollout_accuracy": [round(record["reward"], 4) for record in history],
            "rollout_tokens": [round(record["completions/mean_length"], 1) for record in history],
            "generation_rounds": [record.get("dynamic_sampling/rounds") for record in history],
            "settings": dapo.model_dump(),
        },
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "versions": {name: version(name) for name in ("torch", "transformers", "trl", "tokenizers")},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
    }
    write_file(out / "build.json", json.dumps(facts, indent=2) + "\n")
    (out / "figures.json").unlink(missing_ok=True)  # they were another pair's
    write_card(out)
    return Pair(base=str(out / "base"), rl=str(out / "rl"))


def _save(model: transformers.PreTrainedModel, tokenizer: transformers.PreTrainedTokenizerBase, path: Path) -> None:
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    for file in path.iterdir():
        file.chmod(0o644)  # safetensors writes 0600, which an installed package cannot use


@contextmanager
def _one_thread() -> Iterator[None]:
    """Hold torch to one thread: on matrices this small a second only waits, and the sums stay in one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide transformers' own progress bars, which would cut through ours."""
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.utils.logging.enable_progress_bar()


@contextmanager
def _progress(show: bool) -> Iterator[Callable[[str], OnProgress]]:
    """Give a maker of progress reports, one bar a stage."""
    columns = (TextColumn("{task.description:22}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, disable=not show) as bars:

        def stage(name: str) -> OnProgress:
            task = bars.add_task(name, total=1.0, note="")
            return lambda done, note: bars.update(task, completed=done, note=note)

        yield stage


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="Trains a tiny base and its RL successor from nothing.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--overwrite", action="store_true")
    arguments = parser.parse_args()
    print(build(arguments.out, seed=arguments.seed, overwrite=arguments.overwrite))
