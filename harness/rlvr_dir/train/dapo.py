"""Train with DAPO through TRL's GRPO trainer, and add dynamic sampling, reweighting and an exact resume.

    train_dapo(model, tokenizer, [{"prompt": messages, "answer": "43"}, ...], DapoSettings(steps=8))

It runs in one process. `DapoSettings` describes the training.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_callback import PrinterCallback

from rlvr_dir.errors import UserError
from rlvr_dir.policy.advantages import mixed_groups, unclipped
from rlvr_dir.policy.reweighting import token_weights
from rlvr_dir.progress import phase
from rlvr_dir.train.reward import Reward, accuracy_by, overlong
from rlvr_dir.train.run import OnProgress
from rlvr_dir.train.sampling import Batch, join, take_groups
from rlvr_dir.train.settings import DapoSettings
from rlvr_dir.train.tally import Tally

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=".*TRL currently supports vLLM.*")
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer.utils import RepeatSampler

__all__ = ["DapoTrainer", "grpo_config", "make_trainer", "train_dapo"]


OnStep = Callable[[int, PreTrainedModel], None]  # # the number of a finished step, and the model


class DapoTrainer(GRPOTrainer):
    """Train with GRPO, and replace groups in which all responses are right, or all are wrong, by new ones.

    The first reward function is the accuracy, which decides about groups. Others only change the advantage. A step
    draws further prompts until its groups are full or it has used `max_generation_rounds`. Places that are still empty
    then contain uniform groups. Their advantages are 0, and their tokens do not count in the loss's denominator.

    Advantages are reweighted where the loss is computed, with the log-probabilities that are available there, so no
    further forward pass is needed. Plain DAPO does not change TRL's arithmetic.
    """

    def __init__(self, *, dapo: DapoSettings, **trainer: Any) -> None:
        super().__init__(**trainer)
        if dapo.dynamic_sampling and self.accelerator.num_processes > 1:
            raise UserError(
                f"is not allowed with {self.accelerator.num_processes} processes",
                argument="dynamic_sampling",
                value=True,
                accepted="False, or one process",
            )
        self.dapo = dapo
        self.tally = Tally()
        self._refill = Random(f"refill {dapo.seed}")
        self._accuracy = torch.empty(0)  # # of the responses that were scored last
        self._loss_inputs: Batch | None = None  # of the loss being computed

    # Rewards and dynamic sampling

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> torch.Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)  # (responses, funcs)
        rewards[rewards[:, 0].isnan()] = torch.nan  # # a length penalty alone is not a reward
        self._accuracy = rewards[:, 0]
        limit = self.max_completion_length
        cut = sum(len(ids) >= limit and ids[-1] not in self.eos_token_ids for ids in completion_ids_list)
        self.tally.generated(
            rewards, self.reward_weights.to(rewards.device), [len(ids) for ids in completion_ids_list], cut
        )
        return rewards

    def training_step(self, *inputs: Any, **named: Any) -> torch.Tensor:
        """Run TRL's training step of an update, and report it as a phase."""
        with phase("updating"):
            return super().training_step(*inputs, **named)

    def _save_checkpoint(self, *inputs: Any, **named: Any) -> None:
        with phase("saving"):
            super()._save_checkpoint(*inputs, **named)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Batch:
        with phase("generating"):
            return self._full_groups(inputs)

    def _full_groups(self, inputs: list[dict[str, Any]]) -> Batch:
        """Generate until the groups are full."""
        samples = self.num_generations
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        if not self.dapo.dynamic_sampling:
            batch = self._with_weights(super()._generate_and_score_completions(inputs))
            self.tally.groups(len(inputs) // samples, 0, 0)
            return batch
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
        pad = self.processing_class.pad_token_id
        merged = self._with_weights(join(kept, pad))
        tokens = merged["completion_mask"].sum()
        if have < wanted:
            rest = join(spare, pad)
            rest["advantages"] = torch.zeros_like(rest["advantages"])  # a shaping reward may have made some
            rest = take_groups(rest, torch.arange(wanted - have), samples)
            if "weights" in merged:
                rest["weights"] = torch.ones_like(rest["completion_mask"], dtype=torch.float32)
            merged = join([merged, rest], pad)
        merged["num_items_in_batch"] = tokens
        self.tally.groups(have, seen - have, wanted - have)
        for name, value in (("rounds", rounds), ("kept", have), ("dropped", seen - int(have))):
            self._metrics["train"][f"dynamic_sampling/{name}"].append(float(value))
        return merged

    def _more_rows(self, groups: int, samples: int) -> list[dict[str, Any]]:
        """Draw rows of `groups` further prompts, each repeated `samples` times, from a generator of their own."""
        indices = [self._refill.randrange(len(self.train_dataset)) for _ in range(groups)]
        return [self.train_dataset[index] for index in indices for _ in range(samples)]

    # Reweighting

    def _with_weights(self, batch: Batch) -> Batch:
        """Add the weights that depend on other responses, because a loss sees few of them."""
        way, rows = self.dapo.reweighting, torch.arange(len(batch["advantages"]))
        if way.whole_batch and len(rows):
            began = time.perf_counter()
            scopes = [rows] if self.dapo.ppl_scope == "batch" else rows.view(-1, self.num_generations)
            batch["weights"] = token_weights(way, self._old_logp(batch), batch["completion_mask"], scopes)
            self.tally.reweighting_seconds += time.perf_counter() - began
        return batch

    def _old_logp(self, batch: Batch) -> torch.Tensor:
        """Return log pi_old of the responses, (n, tokens); TRL does not compute it if a batch makes a single update."""
        if "old_per_token_logps" in batch:
            return batch["old_per_token_logps"]
        ids, mask = (torch.cat([batch[f"prompt_{x}"], batch[f"completion_{x}"]], 1) for x in ("ids", "mask"))
        with torch.no_grad():
            return self._get_per_token_logps_and_entropies(
                self.model, ids, mask, batch["completion_ids"].size(1), self.args.per_device_train_batch_size
            )[0]

    def _compute_loss(self, model: torch.nn.Module, inputs: Batch) -> torch.Tensor:
        self._loss_inputs = dict(inputs)
        try:
            return super()._compute_loss(model, self._loss_inputs)
        finally:
            self._loss_inputs = None

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Reweight the advantages here: TRL's loss calls this first and reads them afterwards."""
        logps = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._loss_inputs is not None and self.model.training:
            self._weigh(self._loss_inputs, logps[0].detach())
        return logps

    def _weigh(self, inputs: Batch, logp: torch.Tensor) -> None:
        """Replace the advantages (n,) by reweighted ones (n, tokens), and count what the tokens contribute."""
        dapo, mask, advantages = self.dapo, inputs["completion_mask"], inputs["advantages"][:, None]
        old = inputs.get("old_per_token_logps", logp)  # # missing if the two are the same
        weight = None
        if not dapo.is_plain:
            began = time.perf_counter()
            weight = inputs.get("weights")
            if weight is None:
                weight = token_weights(dapo.reweighting, logp if dapo.pi_source == "current" else old, mask)
            inputs["advantages"] = advantages = advantages * weight
            self.tally.reweighting_seconds += time.perf_counter() - began
        ratio = (logp - old).exp()
        flows = unclipped(ratio, advantages, dapo.clip_low, dapo.clip_high, dapo.delta)
        self.tally.learning(logp, advantages, weight, ratio, flows, mask)

    # An exact resume

    def _get_train_sampler(self, dataset: Any = None) -> RepeatSampler:
        sampler = super()._get_train_sampler(dataset)
        return _Prompts(
            sampler.data_source,
            sampler.mini_repeat_count,
            sampler.batch_size,
            sampler.repeat_count,
            sampler.shuffle,
            sampler.seed,
        )

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Do nothing: a checkpoint needs no card, and a finished model gets the one of `card`."""

    def refill_state(self) -> list[Any]:
        """Return what TRL's checkpoint does not contain, as JSON values: the state of the draws of further prompts."""
        version, internal, gauss = self._refill.getstate()
        return [version, list(internal), gauss]

    def set_refill_state(self, state: list[Any]) -> None:
        """Continue from this state."""
        version, internal, gauss = state
        self._refill.setstate((version, tuple(internal), gauss))


class _Prompts(RepeatSampler):
    """Order TRL's prompts as a function of seed and epoch. TRL's own order starts again with epoch 0 in a resumed
    run."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self.epoch):
                torch.randperm(self.num_samples, generator=self.generator)
        return super().__iter__()


def grpo_config(settings: DapoSettings, output_dir: str | Path, **changes: Any) -> GRPOConfig:
    """Return TRL's configuration for these settings: token-level DAPO loss, clip-higher, no KL term."""
    arguments: dict[str, Any] = {
        "output_dir": str(output_dir),
        "max_steps": settings.steps * settings.minibatches,  # TRL counts optimizer updates
        "per_device_train_batch_size": settings.minibatch // settings.accumulation,
        "gradient_accumulation_steps": settings.accumulation,
        "steps_per_generation": settings.minibatches * settings.accumulation,
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
        "weight_decay": settings.weight_decay,
        "max_grad_norm": 1.0,
        "gradient_checkpointing": settings.gradient_checkpointing,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": False,
        "logging_steps": settings.minibatches,  # # one record per RL step
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": settings.seed,
        "data_seed": settings.seed,
        # # The ratios are to the model's own pi_old, before top-p. vLLM's probabilities are after top-p.
        "vllm_importance_sampling_correction": False,
    }
    if settings.overlong_buffer:
        # # DAPO's rewards are +1 and -1, and ours are 1 and 0, so half of its penalty has the same effect.
        arguments["reward_weights"] = [1.0, settings.overlong_penalty / 2]
    return GRPOConfig(**{**arguments, **changes})


def make_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[dict[str, Any]],
    settings: DapoSettings,
    output_dir: str | Path,
    *,
    callbacks: Sequence[TrainerCallback] = (),
    peft_config: Any = None,
    reward: Reward | None = None,
    **config: Any,
) -> DapoTrainer:
    """Return a trainer of `model` on rows of `prompt` and `answer`. Further keyword arguments go to `GRPOConfig`.

    `reward`, which returns 0 or 1, replaces the accuracy.
    """
    from datasets import Dataset

    rewards = [reward or accuracy_by(settings.grader)]
    if settings.overlong_buffer:
        rewards.append(overlong(settings.max_response_tokens, settings.overlong_buffer))
    trainer = DapoTrainer(
        dapo=settings,
        model=model,
        reward_funcs=rewards,
        args=grpo_config(settings, output_dir, **config),
        train_dataset=Dataset.from_list(list(problems)),
        processing_class=tokenizer,
        callbacks=list(callbacks),
        peft_config=peft_config,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class _Report(TrainerCallback):
    """Collect TRL's log records, report each as progress, and pass on the model after each step."""

    def __init__(self, progress: OnProgress | None, on_step: OnStep | None, updates: int, caches: bool) -> None:
        self.progress, self.on_step, self.updates, self.caches = progress, on_step, updates, caches
        self.history: list[dict[str, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        step, rest = divmod(state.global_step, self.updates)
        if self.on_step and not rest:
            before, model.config.use_cache = model.config.use_cache, self.caches
            self.on_step(step, model)
            model.config.use_cache = before

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
    progress: OnProgress | None = None,
    on_step: OnStep | None = None,
    reward: Reward | None = None,
    **config: Any,
) -> list[dict[str, float]]:
    """Train `model` in place on rows of `prompt` (messages or text) and `answer`. Return one log record per step.

    `on_step` is called with each finished step and its model. `reward`, which returns 0 or 1, replaces the accuracy.
    Further keyword arguments go to TRL's `GRPOConfig`.
    """
    settings = settings or DapoSettings()
    caches = model.config.use_cache  # # TRL switches the cache off, and a saved model should decode with it
    report = _Report(progress, on_step, settings.minibatches, caches)
    with tempfile.TemporaryDirectory() as scratch:
        make_trainer(model, tokenizer, problems, settings, scratch, callbacks=[report], reward=reward, **config).train()
    model.config.use_cache = caches
    model.eval()
    return report.history
