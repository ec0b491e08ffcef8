"""DAPO through TRL's GRPO trainer, which lacks one of its four parts: dynamic sampling.

    train_dapo(model, tokenizer, [{"prompt": messages, "answer": "43"}, ...], DapoSettings(steps=8))

One process; `DapoSettings` says what is trained how.
"""

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_callback import PrinterCallback

from harness.errors import UserError
from harness.train.reward import accuracy
from harness.train.sampling import Batch, join, mixed_groups, take_groups
from harness.train.settings import DapoSettings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=".*TRL currently supports vLLM.*")
    from trl import GRPOConfig, GRPOTrainer

Progress = Callable[[float, str], None]  # share done, what to show

__all__ = ["DapoTrainer", "grpo_config", "mixed_groups", "train_dapo"]


class DapoTrainer(GRPOTrainer):
    """GRPO with the groups in which every response is right, or every one wrong, replaced by fresh ones.

    The first reward function is the accuracy that decides; others may shape the advantage only. A step draws
    further prompts until its groups are full or `max_generation_rounds` are spent; places still empty then hold
    uniform groups, whose advantages are 0 and whose tokens do not count in the loss's denominator.
    """

    def __init__(self, *, dapo: DapoSettings, **trainer: Any) -> None:
        super().__init__(**trainer)
        if dapo.dynamic_sampling and self.accelerator.num_processes > 1:
            raise UserError(
                f"dynamic_sampling=True is refused with {self.accelerator.num_processes} processes; "
                "train in one process, or set dynamic_sampling=False"
            )
        self.dapo = dapo
        self._refill = Random(f"refill {dapo.seed}")
        self._accuracy: torch.Tensor | None = None

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        rewards = super()._calculate_rewards(*args, **kwargs)  # (responses, reward functions)
        self._accuracy = rewards[:, 0]
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Batch:
        if not (self.dapo.dynamic_sampling and self.model.training):
            return super()._generate_and_score_completions(inputs)
        samples = self.num_generations
        wanted = len(inputs) // samples
        kept: list[Batch] = []
        spare: list[Batch] = []
        have = rounds = seen = 0
        rows = inputs
        while True:
            batch = super()._generate_and_score_completions(rows)
            rounds += 1
            mixed = mixed_groups(self._accuracy, samples)
            seen += len(mixed)
            kept.append(take_groups(batch, mixed.nonzero()[: wanted - have, 0], samples))
            spare.append(take_groups(batch, (~mixed).nonzero()[:, 0], samples))
            have += len(kept[-1]["advantages"]) // samples
            if have == wanted or rounds == self.dapo.max_generation_rounds:
                break
            rows = self._more_rows(min(wanted, 2 * (wanted - have)), samples)
        merged = join(kept, self.processing_class.pad_token_id)
        tokens = merged["completion_mask"].sum()
        if have < wanted:
            rest = join(spare, self.processing_class.pad_token_id)
            rest["advantages"] = torch.zeros_like(rest["advantages"])  # a shaping reward may have made some
            rest = take_groups(rest, torch.arange(wanted - have), samples)
            merged = join([merged, rest], self.processing_class.pad_token_id)
        merged["num_items_in_batch"] = tokens
        for name, value in (("rounds", rounds), ("kept", have), ("dropped", seen - int(have))):
            self._metrics["train"][f"dynamic_sampling/{name}"].append(float(value))
        return merged

    def _more_rows(self, groups: int, samples: int) -> list[dict[str, Any]]:
        """Rows of `groups` further prompts, each repeated `samples` times, from a generator of their own."""
        indices = [self._refill.randrange(len(self.train_dataset)) for _ in range(groups)]
        return [self.train_dataset[index] for index in indices for _ in range(samples)]


def grpo_config(settings: DapoSettings, output_dir: str | Path, **changes: Any) -> GRPOConfig:
    """TRL's configuration for these settings: token-level DAPO loss, clip-higher, no KL term."""
    arguments: dict[str, Any] = {
        "output_dir": str(output_dir),
        "max_steps": settings.steps * settings.minibatches,  # TRL counts optimizer updates
        "per_device_train_batch_size": settings.minibatch,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": settings.minibatches,
        "num_generations": settings.samples,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "epsilon": settings.clip_low,
        "epsilon_high": settings.clip_high,
        "delta": settings.delta,
        "beta": settings.beta,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": 0,
        "max_completion_length": settings.max_response_tokens,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": settings.warmup_updates,
        "adam_beta2": 0.99,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "gradient_checkpointing": settings.gradient_checkpointing,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": False,
        "logging_steps": settings.minibatches,  # one record an RL step
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": settings.seed,
        "data_seed": settings.seed,
    }
    return GRPOConfig(**{**arguments, **changes})


class _Report(TrainerCallback):
    """Collects TRL's log records and passes each on as progress."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.history: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not logs or "reward" not in logs:
            return
        self.history.append({"update": state.global_step, **logs})
        if self.progress:
            self.progress(
                state.global_step / state.max_steps,
                f"accuracy {logs['reward']:.3f}, {logs['completions/mean_length']:.0f} tokens",
            )


def train_dapo(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[dict[str, Any]],
    settings: DapoSettings | None = None,
    *,
    progress: Progress | None = None,
    **config: Any,
) -> list[dict[str, float]]:
    """Trains `model` in place on rows of `prompt` (messages or text) and `answer`; returns one log record a step.

    Further keyword arguments go to TRL's `GRPOConfig` as they are.
    """
    from datasets import Dataset

    settings = settings or DapoSettings()
    report = _Report(progress)
    caches = model.config.use_cache  # TRL switches it off for good; a saved model should decode with its cache
    with tempfile.TemporaryDirectory() as scratch:
        trainer = DapoTrainer(
            dapo=settings,
            model=model,
            reward_funcs=[accuracy],
            args=grpo_config(settings, scratch, **config),
            train_dataset=Dataset.from_list(list(problems)),
            processing_class=tokenizer,
            callbacks=[report],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    model.config.use_cache = caches
    model.eval()
    return report.history
