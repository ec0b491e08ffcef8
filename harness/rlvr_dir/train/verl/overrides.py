"""Translate a training into verl's arguments: one list, each entry with the key of ours that it comes from.

[line.text for line in overrides(spec, place)]    # ["data.train_batch_size=512", ...]
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_dir.errors import UserError
from rlvr_dir.train.spec import TrainSpec
from rlvr_dir.train.verl.spec import Verl

LOSS, TRAINER = "rlvr_dir", "rlvr_dir"  # # as `plugin` and `hook` register them in verl's processes
MODULES = ("rlvr_dir.train.verl.plugin", "rlvr_dir.train.verl.hook")
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
_SPECIAL = re.compile(r"(?i)null|true|false|nan|[+-]?inf|[+-]?[0-9][0-9_.e+-]*")
_KEY = re.compile(r"(\+\+|\+|~)?([^=]+)=(.*)", re.DOTALL)

# # verl 0.9 accepts these and never reads them, so a published DAPO script would run without length penalty and with
# verl's own grader.
LEGACY = {
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.reward_kwargs": "reward.reward_kwargs",
    "reward_model.num_workers": "reward.num_workers",
    "reward_model.reward_loop_source": "reward.reward_manager.source",
    "reward_model.reward_loop_module_path": "reward.reward_manager.module.path",
    "reward_model.reward_loop_class_name": "reward.reward_manager.module.name",
    "reward_model.model.path": "reward.reward_model.model_path",
    "reward_model": "reward.reward_model",
    "custom_reward_function": "reward.custom_reward_function",
    "sandbox_fusion": "reward.sandbox_fusion",
    "algorithm.filter_groups.max_num_gen_batches": "algorithm.filter_groups.max_inflight_gen_batches",
}


@dataclass(frozen=True)
class Line:
    """Hold one argument: verl's key (with `+` if verl's configuration does not have it), its value, and our key."""

    key: str
    value: Any
    ours: str

    @property
    def text(self) -> str:
        """Return it in verl's syntax."""
        return f"{self.key}={quoted(self.value)}"


@dataclass(frozen=True)
class Place:
    """Hold what the arguments contain of one seed: its seed, its base, and absolute paths.

    With `val_first`, verl also validates before its first step, if it validates at all.
    """

    seed: int
    base: str
    train: Path
    val: Path | None
    checkpoints: Path
    log: Path
    name: str
    val_first: bool = True


def overrides(spec: TrainSpec, place: Place) -> list[Line]:
    """List all arguments of `verl.trainer.main_ppo` for one seed, the user's own last.

    Raises:
        UserError: An argument of `verl.overrides` is not valid, verl ignores it, or one of ours sets it.
    """
    keys = _settings_for(spec, spec.verl or Verl(), place)
    lines = [Line(key, value, ours) for key, (value, ours) in keys.items()]
    set_by = {line.key.lstrip("+"): line.ours for line in lines}
    return [*lines, *(_user_line(text, set_by) for text in (spec.verl or Verl()).overrides)]


def environment(log: Path) -> dict[str, str]:
    """Return the variables that every process of verl needs.

    `VERL_USE_EXTERNAL_MODULES` makes a missing plugin an error.
    """
    return {"VERL_FILE_LOGGER_PATH": str(log), "VERL_USE_EXTERNAL_MODULES": ",".join(MODULES)}


def _settings_for(spec: TrainSpec, verl: Verl, place: Place) -> dict[str, tuple[Any, str]]:
    """Map verl's keys to their values, and to the keys of ours that set them."""
    dapo, sampling, context = (
        spec.dapo,
        spec.validation.sampling,
        verl.max_prompt_tokens + spec.dapo.max_response_tokens,
    )
    model, actor, rollout = (f"actor_rollout_ref.{part}" for part in ("model", "actor", "rollout"))
    reward, every = "reward.custom_reward_function", spec.validation.every
    keys: dict[str, tuple[Any, str]] = {
        "data.train_files": (str(place.train), "data"),
        "data.val_files": (str(place.val or place.train), "validation.every"),
        "data.val_max_samples": (-1 if place.val else 1, "validation.every"),  # verl needs a file in any case
        "data.train_batch_size": (dapo.prompts, "dapo.prompts"),
        "data.max_prompt_length": (verl.max_prompt_tokens, "verl.max_prompt_tokens"),
        "data.max_response_length": (dapo.max_response_tokens, "dapo.max_response_tokens"),
        "data.truncation": ("left", "verl.max_prompt_tokens"),
        "data.seed": (place.seed, "seeds"),
        "data.trust_remote_code": (spec.trust_remote_code, "trust_remote_code"),
        f"{model}.path": (place.base, "base"),
        f"{model}.trust_remote_code": (spec.trust_remote_code, "trust_remote_code"),
        f"{model}.enable_gradient_checkpointing": (dapo.gradient_checkpointing, "dapo.gradient_checkpointing"),
        f"{model}.use_remove_padding": (True, "backend"),
        "algorithm.adv_estimator": ("grpo", "backend"),
        "algorithm.use_kl_in_reward": (False, "dapo.beta"),
        "algorithm.filter_groups.enable": (dapo.dynamic_sampling, "dapo.dynamic_sampling"),
        # # Never the reward: lengths differ, so groups of wrong responses would count as mixed.
        "algorithm.filter_groups.metric": ("acc", "dapo.dynamic_sampling"),
        # # pi_old is the policy's own, before top-p, because weights must not come from the engine.
        "algorithm.rollout_correction.bypass_mode": (False, "backend"),
        f"{actor}.ppo_mini_batch_size": (dapo.prompts // dapo.minibatches, "dapo.minibatches"),
        f"{actor}.clip_ratio_low": (dapo.clip_low, "dapo.clip_low"),
        f"{actor}.clip_ratio_high": (dapo.clip_high, "dapo.clip_high"),
        f"{actor}.clip_ratio_c": (dapo.delta, "dapo.delta"),
        f"{actor}.loss_agg_mode": ("token-mean", "backend"),
        f"{actor}.entropy_coeff": (0, "backend"),
        f"{actor}.use_kl_loss": (dapo.beta > 0, "dapo.beta"),
        f"{actor}.kl_loss_coef": (dapo.beta, "dapo.beta"),
        f"{actor}.kl_loss_type": ("low_var_kl", "dapo.beta"),
        f"{actor}.ppo_epochs": (1, "backend"),
        f"{actor}.grad_clip": (1.0, "backend"),
        f"{actor}.use_dynamic_bsz": (True, "backend"),
        f"{actor}.ppo_max_token_len_per_gpu": (verl.tokens_per_gpu or 2 * context, "verl.tokens_per_gpu"),
        f"{actor}.ulysses_sequence_parallel_size": (verl.sequence_parallel, "verl.sequence_parallel"),
        f"{actor}.data_loader_seed": (place.seed, "seeds"),
        f"{actor}.optim.lr": (dapo.learning_rate, "dapo.learning_rate"),
        f"{actor}.optim.lr_scheduler_type": ("constant", "backend"),
        # # verl changes its learning rate once per step, not once per update.
        f"{actor}.optim.lr_warmup_steps": (dapo.warmup_updates // dapo.minibatches, "dapo.warmup_updates"),
        f"{actor}.optim.weight_decay": (dapo.weight_decay, "dapo.weight_decay"),
        f"{actor}.fsdp_config.param_offload": (verl.offload, "verl.offload"),
        f"{actor}.fsdp_config.optimizer_offload": (verl.offload, "verl.offload"),
        f"{actor}.policy_loss.loss_mode": ("vanilla", "dapo.method"),
        f"{rollout}.name": ("vllm", "backend"),
        f"{rollout}.n": (dapo.samples, "dapo.samples"),
        f"{rollout}.temperature": (dapo.temperature, "dapo.temperature"),
        f"{rollout}.top_p": (dapo.top_p, "dapo.top_p"),
        f"{rollout}.top_k": (-1, "dapo.top_p"),
        f"{rollout}.seed": (place.seed, "seeds"),
        f"{rollout}.tensor_model_parallel_size": (verl.tensor_parallel, "verl.tensor_parallel"),
        f"{rollout}.gpu_memory_utilization": (verl.gpu_memory_utilization, "verl.gpu_memory_utilization"),
        f"{rollout}.max_model_len": (context, "dapo.max_response_tokens"),
        f"{rollout}.val_kwargs.n": (sampling.samples, "validation.sampling.samples"),
        f"{rollout}.val_kwargs.temperature": (sampling.temperature, "validation.sampling.temperature"),
        f"{rollout}.val_kwargs.top_p": (sampling.top_p, "validation.sampling.top_p"),
        f"{rollout}.val_kwargs.do_sample": (sampling.temperature > 0, "validation.sampling.temperature"),
        f"{reward}.path": ("pkg://rlvr_dir.train.verl.reward", "dapo.grader"),
        f"{reward}.name": ("compute_score", "dapo.grader"),
        f"+{reward}.reward_kwargs.grader": (dapo.grader, "dapo.grader"),
        "reward.reward_manager.name": ("dapo", "dapo.overlong_buffer"),
        "trainer.nnodes": (verl.nnodes, "verl.nnodes"),
        "trainer.n_gpus_per_node": (verl.gpus_per_node, "verl.gpus_per_node"),
        "trainer.total_training_steps": (dapo.steps, "dapo.steps"),
        "trainer.total_epochs": (dapo.steps, "dapo.steps"),  # # more than enough, because an epoch has one step or more
        "trainer.save_freq": (spec.checkpoint_every, "checkpoint_every"),
        "trainer.max_actor_ckpt_to_keep": (
            None if spec.keep_checkpoints or spec.checkpoint != "last" else 1,
            "keep_checkpoints",
        ),
        "trainer.default_local_dir": (str(place.checkpoints), "out"),
        "trainer.resume_mode": ("auto", "backend"),
        "trainer.test_freq": (every or -1, "validation.every"),
        "trainer.val_before_train": (place.val_first and bool(every), "validation.every"),
        "trainer.logger": (["console", "file"], "backend"),
        "trainer.project_name": ("rlvr-dir", "out"),
        "trainer.experiment_name": (place.name, "out"),
        "trainer.use_v1": (True, "backend"),
        "trainer.v1.trainer_mode": (TRAINER, "backend"),
    }
    if positions := verl.max_position_embeddings:  # # verl passes the model's override to the workers, not to vLLM
        for config in (f"{model}.override_config", f"{rollout}.engine_kwargs.vllm.hf_overrides"):
            keys[f"+{config}.max_position_embeddings"] = positions, "verl.max_position_embeddings"
    if dapo.beta:
        keys["actor_rollout_ref.ref.fsdp_config.param_offload"] = verl.offload, "verl.offload"
    if not dapo.is_plain and not dapo.reweighting.whole_batch:
        keys |= {
            f"{actor}.policy_loss._target_": ("rlvr_dir.train.verl.plugin.ReweightedLossConfig", "dapo.method"),
            f"{actor}.policy_loss.loss_mode": (LOSS, "dapo.method"),
            f"+{actor}.policy_loss.method": (dapo.method, "dapo.method"),
            f"+{actor}.policy_loss.alpha": (dapo.alpha, "dapo.alpha"),
            f"+{actor}.policy_loss.pi_source": (dapo.pi_source, "dapo.pi_source"),
        }
    if dapo.overlong_buffer:
        overlong = "+reward.reward_kwargs.overlong_buffer_cfg"
        keys |= {
            "+reward.reward_kwargs.max_resp_len": (dapo.max_response_tokens, "dapo.max_response_tokens"),
            f"{overlong}.enable": (True, "dapo.overlong_buffer"),
            f"{overlong}.len": (dapo.overlong_buffer, "dapo.overlong_buffer"),
            f"{overlong}.penalty_factor": (dapo.overlong_penalty, "dapo.overlong_penalty"),
            f"{overlong}.log": (False, "dapo.overlong_buffer"),
        }
    if not dapo.is_plain:
        keys |= {"+rlvr_dir.method": (dapo.method, "dapo.method"), "+rlvr_dir.alpha": (dapo.alpha, "dapo.alpha")}
    if dapo.reweighting.whole_batch:
        keys["+rlvr_dir.scope"] = dapo.ppl_scope, "dapo.ppl_scope"
    for name, value in environment(place.log).items():  # # also to the nodes of a cluster that is already running
        keys[f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}"] = value, "out"
    return keys


def _user_line(text: str, set_by: Mapping[str, str]) -> Line:
    match = _KEY.fullmatch(text)
    if not match or match[1] == "~":
        raise UserError(argument="verl.overrides", value=text, accepted="KEY=VALUE, or +KEY=VALUE")
    sign, key, value = match[1] or "", match[2].strip(), match[3]
    for old, new in LEGACY.items():
        if key == old or key.startswith(old + "."):
            new = f"{'+' if 'reward_kwargs' in new else ''}{new}{key.removeprefix(old)}"
            raise UserError("has no effect in verl", argument="verl.overrides", value=key, accepted=new)
    for other, ours in set_by.items():
        if key == other or key.startswith(other + ".") or other.startswith(key + "."):
            raise UserError(f"is set by {ours}", argument="verl.overrides", value=key, hint=f"Change {ours} instead.")
    return Line(sign + key, _Raw(value), "verl.overrides")


class _Raw(str):
    """Mark a value that is already in verl's syntax."""


def quoted(value: Any) -> str:
    """Return a value in verl's (Hydra's) syntax. Text that could be read as something else, or be cut in two, is
    quoted."""
    if isinstance(value, _Raw):
        return value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{','.join(quoted(item) for item in value)}]"
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and not _SPECIAL.fullmatch(value):
            return value
        escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
        escaped = re.sub(r"(\\+)$", r"\1\1", escaped).replace("${", "\\${")
        return f"'{escaped}'"
    return repr(value)
