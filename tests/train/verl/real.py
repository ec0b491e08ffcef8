"""The whole of a real verl on a CPU: two steps, a stop, a resume, validations and a merged model of the tiny base.

    .venv/bin/python -m pytest tests/train/verl/real.py

A quarter of an hour on two busy cores for each method, nearly all of it imports of verl's ten processes, twice: too
long for the suite, which does not collect it. Everything is verl's own (Ray, trainer, TransferQueue, agent loop, reward
workers, FSDP2, vLLM's server, weights sent to it, checkpoints, merger) and started by our launcher, but for what `cpu`
puts in the place of a GPU and `machine` says to verl. It needs `make verl-env` and the tests' own vLLM.
"""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_dir.tiny import tiny_pair
from rlvr_dir.tiny.problems import rl_problems
from rlvr_dir.train import TrainingSource, load_train
from rlvr_dir.train.folder import SeedFolder
from rlvr_dir.train.run import run_training as train
from rlvr_dir.train.verl.spec import PYTHON
from tests.train.verl.machine import CPU, vllm_of_the_tests

HOUSE = Path(__file__).parents[3]
ENVIRONMENT = HOUSE / PYTHON
pytestmark = [
    pytest.mark.skipif(not ENVIRONMENT.exists(), reason=f"no {PYTHON}: `make verl-env` makes it"),
    pytest.mark.timeout(3600),
]
STEPS, STOP, MINIBATCHES = 3, 2, 2

# One worker, one engine, one process of each kind; Ray is told of a GPU that is not there.
SMALL = [
    *CPU,
    "+ray_kwargs.ray_init.num_gpus=1",
    "ray_kwargs.ray_init.num_cpus=16",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "actor_rollout_ref.rollout.free_cache_engine=False",  # a CPU has no sleep mode
    "+actor_rollout_ref.rollout.enable_sleep_mode=False",
    "actor_rollout_ref.rollout.enforce_eager=True",
    "actor_rollout_ref.rollout.dtype=float32",
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16",
    "actor_rollout_ref.rollout.max_num_batched_tokens=1024",
    "actor_rollout_ref.rollout.max_num_seqs=32",
]


@pytest.fixture
def python(tmp_path):
    """verl's Python as a program that adds what a CPU needs, and finds our vLLM."""
    site = tmp_path / "site"
    site.mkdir()
    paths = vllm_of_the_tests(site)
    # verl would take our trl for its own, another version.
    (site / "sitecustomize.py").write_text(f"import sys; sys.path += {paths}; sys.modules['trl'] = None\n")
    (tmp_path / "extra").write_text("\n".join(SMALL) + "\n")
    program = tmp_path / "python"
    program.write_text(f"""#!/bin/bash
export PYTHONPATH={site}:{HOUSE} VERL_ENGINE_DEVICE=cuda VERL_ENGINE_VENDOR=nvidia OMP_NUM_THREADS=1
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind RLVR_DIR_NO_AUTOLOAD=1 HF_HUB_OFFLINE=1
if [ "$2" = verl.trainer.main_ppo ]; then
    export VERL_USE_EXTERNAL_MODULES=tests.train.verl.cpu,$VERL_USE_EXTERNAL_MODULES
    mapfile -t extra < {tmp_path}/extra
    set -- "$@" "${{extra[@]}}"
    set -- "$@" "++ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES='$VERL_USE_EXTERNAL_MODULES'"
fi
exec {ENVIRONMENT} "$@"
""")
    program.chmod(0o755)
    return program


class Stopped(Exception):
    pass


@pytest.mark.parametrize(("method", "alpha"), [("low_prob", 0.2), ("ppl", 0.3)])
def test_a_real_verl_trains_is_stopped_and_goes_on(python, tmp_path, method, alpha):
    """By our loss in verl's actor (low_prob), and by weights that our trainer writes into verl's queue (ppl)."""
    asked, source = training(python, tmp_path, method, alpha)

    def stop(seed, record):
        if record["step"] == STOP and "validation" in record:
            raise Stopped

    with pytest.raises(Stopped):
        train(asked, tmp_path / "x", source, say=print, on_record=stop)
    said = []
    train(asked, tmp_path / "x", source, say=said.append)
    assert said[0] == f"seed 0: resuming after step {STOP}"
    check(SeedFolder(tmp_path / "x" / "seed-0"), alpha)


def training(python, folder, method, alpha):
    """Return the training and where it starts."""
    held = folder / "held.jsonl"
    held.write_text("".join(json.dumps(row) + "\n" for row in rl_problems(1, 8)))
    dapo = {
        "steps": STEPS, "prompts": 4, "samples": 4, "minibatches": MINIBATCHES, "learning_rate": 1e-3,
        "max_response_tokens": 64, "overlong_buffer": 16, "method": method, "alpha": alpha,
    }  # fmt: skip
    asked = load_train({
        "backend": "verl", "base": tiny_pair().base, "data": "x", "dapo": dapo, "keep_checkpoints": True,
        "validation": {"every": 1, "sampling": {"samples": 2}},
        "verl": {"python": str(python), "gpus_per_node": 1, "max_prompt_tokens": 192, "val_data": str(held)},
    })  # fmt: skip
    return asked, TrainingSource(tiny_pair().base, lambda seed: rl_problems(seed, 64))


def check(folder, alpha):
    """Hold what the log, the checkpoints and the model say against what was asked."""
    records = folder.records()
    assert [record["step"] for record in records if "validation" in record] == list(range(STEPS + 1))
    assert [record["step"] for record in records if "validation" not in record] == list(range(1, STEPS + 1))
    for record in records:
        if "validation" in record:
            assert record["validation"]["held"]["problems"] == 8
            continue
        assert 0 < record["accuracy"] < 1  # filtered groups are mixed
        assert (record["groups"]["kept"], record["responses"], record["ungraded"]) == (4, 16, 0)
        # Our reward, +1 or -1, and verl's penalty for the last 16 of 64 tokens, which is 1 at most.
        assert -1e-6 < 2 * record["accuracy"] - 1 - record["reward"] < 1
        assert 0 < record["length"] <= 64
        assert record["grad_norm"] > 0
        assert 0 < abs(record["weight"] - 1) < alpha
        assert sum(record["gradient_share"]) == pytest.approx(1, abs=1e-5)
        # The engine writes by the weights that the actor has now.
        assert record["verl"]["training/rollout_probs_diff_max"] < 1e-4
    for step in (STOP, STEPS):  # Adam's own count: the resumed training took its moments from the checkpoint
        shard = folder.checkpoints / f"global_step_{step}" / "actor" / "optim_world_size_1_rank_0.pt"
        counts = {float(each["step"]) for each in torch.load(shard, weights_only=False)["state"].values()}
        assert counts == {step * MINIBATCHES}
    trained = AutoModelForCausalLM.from_pretrained(folder.rl, dtype=torch.float32).state_dict()
    before = AutoModelForCausalLM.from_pretrained(tiny_pair().base, dtype=torch.float32).state_dict()
    assert set(trained) == set(before)
    assert all((trained[name] - value).abs().max() > 1e-4 for name, value in before.items())
