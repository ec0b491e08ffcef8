"""Run by the Python of verl's environment: does there what the tests ask for, once for all of them.

PYTHON inside.py FOLDER < asked.json > answers.json
"""

import contextlib
import json
import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[3])  # not this folder


def loss(case):
    """verl's registered loss on given numbers, by the configuration that the arguments make."""
    import torch
    from hydra import compose, initialize_config_module
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.utils.config import omega_conf_to_dataclass

    with initialize_config_module("verl.trainer.config", version_base=None):
        actor = omega_conf_to_dataclass(compose("ppo_trainer", overrides=case["overrides"]).actor_rollout_ref.actor)
    old, new, advantages = (torch.tensor(case[name], dtype=torch.float64) for name in ("old", "new", "advantages"))
    new.requires_grad_()
    value, metrics = get_policy_loss_fn(actor.policy_loss.loss_mode)(
        old_log_prob=old,
        log_prob=new,
        advantages=advantages,
        response_mask=torch.tensor(case["mask"]),
        loss_agg_mode=actor.loss_agg_mode,
        config=actor,
    )
    value.backward()
    return {"loss": value.item(), "gradient": new.grad.tolist(), "metrics": metrics, "kind": type(actor).__name__}


class Queue:
    """verl's TransferQueue as a dictionary of rows."""

    def __init__(self, rows):
        self.rows = rows  # by key: field -> tensor (a row's own length) or anything else

    def kv_batch_get(self, keys, partition_id, select_fields=None):
        import torch
        from tensordict import TensorDict
        from tensordict.tensorclass import NonTensorData, NonTensorStack

        found = {}
        for name in [name for name in select_fields if name in self.rows[keys[0]]]:
            values = [self.rows[key][name] for key in keys]
            if isinstance(values[0], torch.Tensor):
                found[name] = torch.nested.as_nested_tensor(values, layout=torch.jagged)
            else:
                found[name] = NonTensorStack(*[NonTensorData(value) for value in values])
        return TensorDict(found, batch_size=len(keys))

    def kv_batch_put(self, keys, partition_id, fields):
        for name in list(fields.keys()):
            for key, value in zip(keys, fields[name].unbind(), strict=True):
                self.rows[key][name] = value
        return Batch(keys, self.tags)


class Batch:
    def __init__(self, keys, tags):
        self.keys, self.tags, self.partition_id = keys, tags, "train"

    def __len__(self):
        return len(self.keys)


def hook(case):
    """Our trainer's step behind verl's advantages, on a stubbed queue; verl's own step is what filled the queue."""
    import torch
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from rlvr_dir.train.verl import hook as module

    rows = {}
    for key, row in case["rows"].items():
        tensors = {name: torch.tensor(row[name]) for name in ("response_mask", "old_log_probs", "advantages")}
        rows[key] = {**tensors, "uid": row["uid"], "extra_fields": {"reward_extra_info": row["verdict"]}}
    queue = module.tq = Queue(rows)
    keys = list(rows)
    queue.tags = [{"is_padding": case["rows"][key].get("padding", False)} for key in keys]
    cls = get_trainer_cls("rlvr_dir")
    trainer = cls.__new__(cls)
    trainer.trainer_mode = "rlvr_dir"  # as PPOTrainer.__init__ does
    trainer.config = OmegaConf.create({"rlvr_dir": case["settings"]} if case["settings"] else {})
    before, PPOTrainerSync._compute_advantage = PPOTrainerSync._compute_advantage, lambda self, batch, metrics: batch
    try:
        metrics = {}
        trainer._compute_advantage(Batch(keys, queue.tags), metrics)
    finally:
        PPOTrainerSync._compute_advantage = before
    return {
        "advantages": {key: rows[key]["advantages"].tolist() for key in keys},
        "metrics": metrics,
        "mode": trainer.trainer_mode,
    }


def validation(case):
    """Our trainer's step behind verl's validation: verl's own metrics and ours, of its own function."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import get_trainer_cls

    cls = get_trainer_cls("rlvr_dir")
    trainer = cls.__new__(cls)
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"val_kwargs": {"n": case["samples"]}}}})
    infos = {name: case[name] for name in ("acc", "problem")}
    expected = dict.fromkeys(zip(case["sources"], case["uids"], strict=True), case["samples"])
    return trainer._val_metrics_update(case["sources"], case["uids"], infos, [], expected_acc_counts=expected)


def reward(case):
    """The reward as verl finds and calls it."""
    from hydra import compose, initialize_config_module
    from verl.trainer.ppo.reward import get_custom_reward_fn

    with initialize_config_module("verl.trainer.config", version_base=None):
        score = get_custom_reward_fn(compose("ppo_trainer", overrides=case["overrides"]))
    return [
        score(data_source="train", solution_str=response, ground_truth=gold, extra_info={"index": index})
        for index, (gold, response) in enumerate(case["pairs"])
    ]


def math_dapo(pairs):
    """Return whether verl's own grader of DAPO's data calls each response right."""
    from verl.utils.reward_score.math_dapo import compute_score

    return [compute_score(response, gold)["acc"] for gold, response in pairs]


def shards(case):
    """A checkpoint of one FSDP rank as verl writes it, of a small model; its weights are the answer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    base, actor = case["base"], Path(case["actor"])
    (actor / "huggingface").mkdir(parents=True)
    config = AutoConfig.from_pretrained(base)
    config.save_pretrained(actor / "huggingface")
    AutoTokenizer.from_pretrained(base).save_pretrained(actor / "huggingface")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    torch.save(model.state_dict(), actor / "model_world_size_1_rank_0.pt")
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 1, "world_size": 1}))
    return {name: float(value.double().sum()) for name, value in model.state_dict().items()}


def engines(case):
    """What vLLM gets from verl's own server for each list of arguments: its model's length, or what it refuses.

    The server's launch is verl's, to where it would start the engine. A CPU has no sleep mode, which is left out; vLLM
    is that of the environment of the tests where verl's has none.
    """
    import asyncio

    sys.path += case["also"]
    # vLLM asks a process of its own what a model is, unless this machine's cache has the answer from an earlier test.
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *case["also"]])
    from hydra import compose, initialize_config_module
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
    from vllm.engine.arg_utils import AsyncEngineArgs

    class Server(vLLMHttpServer):
        def __init__(self, config):
            self.config, self.model_config = self._init_config(config.rollout), self._init_model_config(config.model)
            self._validate_configs()
            self.replica_rank, self.node_rank, self.nnodes, self._disaggregation_role = 0, 0, 1, "null"

        def _should_profile(self):
            return False

        async def run_server(self, args):
            self.asked = AsyncEngineArgs.from_cli_args(args)

    found = {}
    with initialize_config_module("verl.trainer.config", version_base=None):
        for name, overrides in case["overrides"].items():
            try:
                server = Server(compose("ppo_trainer", overrides=overrides).actor_rollout_ref)
                asyncio.run(server.launch_server())
                server.asked.enable_sleep_mode = False
                model = server.asked.create_model_config()
            except ValueError as error:
                found[name] = str(error)
            else:
                positions = model.hf_config.max_position_embeddings
                found[name] = [model.max_model_len, positions, server.asked.tensor_parallel_size]
    return found


def update(case):
    """Update verl's actor once by a batch: log-probabilities before, verl's metrics, the weights (a file) after."""
    import torch
    from hydra import compose, initialize_config_module
    from verl.utils import tensordict_utils as tu
    from verl.workers.engine_workers import ActorRolloutRefWorker
    from verl.workers.utils.padding import response_from_nested

    def nested(rows, dtype=torch.long):
        return torch.nested.as_nested_tensor([torch.tensor(row, dtype=dtype) for row in rows], layout=torch.jagged)

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=case["overrides"]).actor_rollout_ref
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "", "MASTER_PORT": "0"}
    os.environ["DIST_INIT_METHOD"] = f"file://{case['folder']}/store"
    worker = ActorRolloutRefWorker(config, role="actor")
    worker.init_model()
    prompts, responses = case["prompts"], case["responses"]
    ones = nested([[1] * len(response) for response in responses])
    batch = {
        "input_ids": nested([prompt + response for prompt, response in zip(prompts, responses, strict=True)]),
        "position_ids": nested([list(range(len(p) + len(r))) for p, r in zip(prompts, responses, strict=True)]),
        "prompts": nested(prompts), "responses": nested(responses), "response_mask": ones, "loss_mask": ones,
    }  # fmt: skip
    facts = {"temperature": config.rollout.temperature, "calculate_entropy": False}
    output = worker.compute_log_prob(tu.get_tensordict(dict(batch), {**facts, "compute_loss": False}))
    batch["old_log_probs"] = response_from_nested(output["log_probs"], ones)
    batch["advantages"] = nested(
        [[each] * len(response) for each, response in zip(case["advantages"], responses, strict=True)], torch.float32
    )
    size = config.actor.ppo_mini_batch_size * config.rollout.n  # as PPOTrainer._update_actor has it
    facts |= {"global_batch_size": size, "mini_batch_size": size, "epochs": config.actor.ppo_epochs, "seed": 0}
    facts |= {"dataloader_kwargs": {"shuffle": config.actor.shuffle}}
    metrics = worker.update_actor(tu.get_tensordict(dict(batch), facts))["metrics"]
    weights = {name: value.detach().clone() for name, value in worker.actor.engine.get_per_tensor_param()[0]}
    torch.save(weights, Path(case["folder"]) / "weights.pt")
    torch.distributed.destroy_process_group()
    return {"old": [row.tolist() for row in batch["old_log_probs"].unbind()], "metrics": metrics}


def compositions(cases):
    """Compose verl's configuration by each list of arguments, validate it and find what it names; None where verl takes
    them, else the error."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.config import validate_config

    errors = {}
    for name, overrides in cases.items():
        with initialize_config_module("verl.trainer.config", version_base=None):
            try:
                config = compose("ppo_trainer", overrides=overrides)
                OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
                validate_config(config, need_reference_policy(config), need_critic(config))
                get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode)
                get_trainer_cls(config.trainer.v1.trainer_mode)
                get_custom_reward_fn(config)
            except Exception as error:
                errors[name] = " ".join(str(error).split())
            else:
                errors[name] = None
    return errors


if __name__ == "__main__":
    import yaml

    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # hydra reads 31 files for each configuration
    os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "rlvr_dir.train.verl.plugin,rlvr_dir.train.verl.hook")
    asked = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        parts = {
            "losses": lambda cases: {name: loss(case) for name, case in cases.items()},
            "hooks": lambda cases: {name: hook(case) for name, case in cases.items()},
            "validation": lambda case: {name: float(value) for name, value in validation(case).items()},
            "reward": reward, "math_dapo": math_dapo, "shards": shards, "compositions": compositions,
            "update": update, "engines": engines,
        }  # fmt: skip
        answers = {name: parts[name](case) for name, case in asked.items()}
    print(json.dumps(answers))
