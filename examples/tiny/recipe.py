"""Make a tiny pair from scratch with one command: pretrain a base, train it with DAPO, save both with a model card.

    build("pairs/seed-1", seed=1)                                             # as `python -m examples.tiny build`
    build("pairs/random-1", seed=1, start="pairs/seed-1", training="random")  # a placebo of the same base

With the same seed, kind of processor and versions, the weights are bit for bit the same.
"""

import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from transformers import AutoModelForCausalLM

from examples.tiny.card import write_card
from examples.tiny.placebos import TRAININGS, add_noise, change, reward_of, train_on_own_samples
from examples.tiny.pretrain import PretrainSettings, pretrain
from examples.tiny.tokenizer import build_tokenizer
from rlvr_dir.config import Pair, parse
from rlvr_dir.errors import UserError, unknown
from rlvr_dir.files import check_writable, write_file
from rlvr_dir.tiny.problems import rl_problems
from rlvr_dir.train import DapoSettings, train_dapo
from rlvr_dir.train.run import OnProgress

# Stopped while RL is still improving: after 12 steps tiny_easy is at 100 %, and decoding could improve nothing.
TINY_DAPO = DapoSettings(steps=8, learning_rate=2e-5)


def build(
    out: Path | str,
    *,
    seed: int = 0,
    pretraining: PretrainSettings | None = None,
    dapo: DapoSettings | None = None,
    training: str = "verdict",
    start: Path | str | None = None,
    progress: bool = True,
    overwrite: bool = False,
) -> Pair:
    """Train a pair on one thread and save it under `out`: `base/`, `rl/`, `build.json` and the model card.

    The RL model at earlier steps is saved too, as `step-2/`, `step-4/`, ... (`kept_steps`).

    Args:
        seed: That of pretraining, if any, and of what follows. The same seed on the same machine and versions gives the
            same weights.
        training: How `rl/` is made from the base: DAPO, or a placebo (`examples.tiny.placebos`).
        start: A built pair whose base is used instead of a new one; `noise` needs its `rl/`, too.

    Raises:
        UserError: `out` already contains a pair and `overwrite` is off; or `start` contains none, although one is
            needed.
    """
    if training not in TRAININGS:
        raise unknown("training", training, TRAININGS)
    out = Path(out).resolve()
    if (out / "base").exists() and not overwrite:
        raise UserError(f"out={str(out)!r} already holds a pair; choose another directory, or overwrite=True")
    started = _started(start, training)
    check_writable(out)
    dapo = (dapo or TINY_DAPO).replace(seed=seed)
    began = time.perf_counter()
    tokenizer = build_tokenizer()
    with _one_thread(), _quiet(), _progress(progress) as stage:
        if started is None:
            pretraining = pretraining or PretrainSettings()
            model, facts = pretrain(pretraining, seed=seed, progress=stage("pretraining the base"))
            facts |= {"seconds": round(facts["seconds"], 1), "settings": pretraining.model_dump()}
        else:
            model, facts = AutoModelForCausalLM.from_pretrained(started / "base"), _facts(started)["pretraining"]
        _save(model, tokenizer, out / "base")
        rl = _trained(model, tokenizer, out, dapo, training, started, stage)
        _save(model, tokenizer, out / "rl")
        rl["change"] = change(model, AutoModelForCausalLM.from_pretrained(out / "base"))
    facts = {
        "seed": seed,
        "seconds": round(time.perf_counter() - began, 1),
        "training": training,
        "pretraining": facts,
        "dapo": {**rl, "settings": dapo.model_dump()},
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "versions": {name: version(name) for name in ("torch", "transformers", "trl", "tokenizers")},
        "machine": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores, 1 thread",
    }
    write_file(out / "build.json", json.dumps(facts, indent=2) + "\n")
    (out / "figures.json").unlink(missing_ok=True)  # they belong to another pair
    write_card(out)
    return Pair(base=str(out / "base"), rl=str(out / "rl"))


def _started(start: Path | str | None, training: str) -> Path | None:
    """Return the folder of the pair whose base is used.

    Raises:
        UserError: It contains no pair, or `noise` is requested without one.
    """
    if start is None and training == "noise":
        raise UserError(
            "needs a trained pair, whose weights set the norm of the noise",
            argument="training", value=training, hint="Pass start (--start DIR) too.",
        )  # fmt: skip
    if start is None:
        return None
    folder = Path(start).resolve()
    _facts(folder, "start")
    for name in ("base", "rl") if training == "noise" else ("base",):
        if not (folder / name / "model.safetensors").is_file():
            raise UserError(f"has no {name}/", argument="start", value=start, accepted="a folder that `build` made")
    return folder


def _facts(folder: Path, argument: str = "pair") -> dict[str, Any]:
    """Read the facts that a build stored.

    Raises:
        UserError: There is no such file, or it has other content.
    """
    try:
        facts = json.loads((folder / "build.json").read_text())
        return facts if facts["dapo"]["settings"] and facts["pretraining"]["settings"] else {}
    except (OSError, ValueError, KeyError, TypeError):
        accepted = "a folder that `build` made"
        raise UserError("has no build.json of a build", argument=argument, value=folder, accepted=accepted) from None


def _trained(
    model: Any,
    tokenizer: transformers.PreTrainedTokenizerBase,
    out: Path,
    dapo: DapoSettings,
    training: str,
    started: Path | None,
    stage: Callable[[str], OnProgress],
) -> dict[str, Any]:
    """Train RL from a base, in place, and return facts about the training."""
    began = time.perf_counter()
    found: dict[str, Any] = {"kept_steps": []}
    if training == "noise":
        assert started is not None
        add_noise(model, AutoModelForCausalLM.from_pretrained(started / "rl"), dapo.seed)
    elif training == "own_samples":
        train_on_own_samples(model, tokenizer, rl_problems(dapo.seed), dapo, progress=stage("its own samples"))
    else:
        keep = _Keep(tokenizer, out, kept_steps(dapo.steps))
        history = train_dapo(
            model,
            tokenizer,
            rl_problems(dapo.seed),
            dapo,
            progress=stage("DAPO"),
            on_step=keep,
            reward=reward_of(training, dapo.seed),
        )
        found = {
            "rollout_accuracy": [round(record["reward"], 4) for record in history],
            "rollout_tokens": [round(record["completions/mean_length"], 1) for record in history],
            "generation_rounds": [record.get("dynamic_sampling/rounds") for record in history],
            "kept_steps": list(kept_steps(dapo.steps)),
        }
    return {"seconds": round(time.perf_counter() - began, 1), **found}


def kept_steps(steps: int) -> tuple[int, ...]:
    """Return the intermediate steps whose model is saved: a quarter, a half, three quarters of all.

    >>> kept_steps(8), kept_steps(2), kept_steps(1)
    ((2, 4, 6), (1,), ())
    """
    return tuple(sorted({step for part in (1, 2, 3) if 0 < (step := steps * part // 4) < steps}))


class _Keep:
    """Save the model after some steps of its training."""

    def __init__(self, tokenizer: transformers.PreTrainedTokenizerBase, out: Path, steps: Sequence[int]) -> None:
        self.tokenizer, self.out, self.steps = tokenizer, out, steps

    def __call__(self, step: int, model: transformers.PreTrainedModel) -> None:
        if step in self.steps:
            _save(model, self.tokenizer, self.out / f"step-{step}")


def add_steps(out: Path | str, *, progress: bool = True) -> dict[str, Any]:
    """Add the intermediate RL models to a pair that was built without them, by training RL again from its own base.

    `base/` and `rl/` are not changed. On another machine sums may be rounded differently, so the end of the second
    training is compared with `rl/`.

    Returns:
        `kept_steps`, `largest_difference` and `largest_change`: the largest difference of any weight between the second
            training's end and `rl/`, and between `rl/` and `base/`. They are in `build.json` and the model card, too.

    Raises:
        UserError: `out` is not a build, or the second training ended elsewhere (a difference of more than a hundredth
            of the change), and then nothing is added.
    """
    out = Path(out).resolve()
    facts = _facts(out)
    dapo = parse(DapoSettings, facts["dapo"]["settings"], where="build.json dapo.settings.")
    check_writable(out)
    steps = kept_steps(dapo.steps)
    tokenizer = build_tokenizer()
    with TemporaryDirectory(dir=out) as scratch, _one_thread(), _quiet(), _progress(progress) as stage:
        model, base, rl = (AutoModelForCausalLM.from_pretrained(out / name) for name in ("base", "base", "rl"))
        keep = _Keep(tokenizer, Path(scratch), steps)
        train_dapo(model, tokenizer, rl_problems(facts["seed"]), dapo, progress=stage("DAPO"), on_step=keep)
        found = {
            "kept_steps": list(steps),
            "largest_difference": _largest(model, rl),
            "largest_change": _largest(rl, base),
        }
        if found["largest_difference"] > found["largest_change"] / 100:
            raise UserError(
                f"pair={str(out)!r}: trained anew from base/, RL ends elsewhere than rl/ (a weight differs by "
                f"{found['largest_difference']:.1e}, training changed them by up to {found['largest_change']:.1e}), so "
                "its steps are no steps to rl/; accepted: a pair built with these versions"
            )
        for step in steps:
            shutil.rmtree(out / f"step-{step}", ignore_errors=True)
            os.replace(Path(scratch) / f"step-{step}", out / f"step-{step}")
    facts["dapo"] |= found
    write_file(out / "build.json", json.dumps(facts, indent=2) + "\n")
    write_card(out)
    return found


def _largest(one: torch.nn.Module, other: torch.nn.Module) -> float:
    """Return the largest difference of any weight of two models with the same shape."""
    theirs = other.state_dict()
    return max(float((weight - theirs[name]).abs().max()) for name, weight in one.state_dict().items())


def _save(model: transformers.PreTrainedModel, tokenizer: transformers.PreTrainedTokenizerBase, path: Path) -> None:
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    for file in path.iterdir():
        file.chmod(0o644)  # safetensors uses mode 0600, which an installed package cannot read


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch to one thread. For matrices this small a second one only waits, and sums keep their order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide transformers' own progress bars, which would interrupt ours."""
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.utils.logging.enable_progress_bar()


@contextmanager
def _progress(show: bool) -> Iterator[Callable[[str], OnProgress]]:
    """Return a function that makes progress reports, one bar per stage."""
    columns = (TextColumn("{task.description:22}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, disable=not show) as bars:

        def stage(name: str) -> OnProgress:
            task = bars.add_task(name, total=1.0, note="")
            return lambda done, note: bars.update(task, completed=done, note=note)

        yield stage
