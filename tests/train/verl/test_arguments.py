"""verl's arguments, and what is refused before anything starts; without verl's environment."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr_dir.train import load_train
from rlvr_dir.train.verl.data import write
from rlvr_dir.train.verl.log import translate
from rlvr_dir.train.verl.overrides import Place, overrides, quoted
from rlvr_dir.train.verl.validate import check_context
from tests.facts import refuses

HOUSE = Path(__file__).parents[3] / "harness" / "rlvr_dir"


def values(spec, **place):
    found = {
        "seed": 0,
        "base": spec.base,
        "train": Path("/t"),
        "val": None,
        "checkpoints": Path("/c"),
        "log": Path("/l"),
    }
    return {line.key.lstrip("+"): line.value for line in overrides(spec, Place(**{**found, "name": "x", **place}))}


def verl_spec(**changes):
    return load_train({"preset": "qwen25-math-7b", **changes})


@pytest.mark.parametrize(("name", "tokens", "alpha"), [("qwen25-math-7b", 8192, 0.2), ("qwen3-8b-base", 20480, 0.1)])
def test_the_presets_are_the_papers_settings(name, tokens, alpha):
    """paper.tex, "RLVR Training Details"."""
    spec = load_train({"preset": name, "dapo": {"method": "low_prob"}})
    found = values(spec)
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    expected = {
        "data.train_batch_size": 512, f"{rollout}.n": 16, f"{actor}.ppo_mini_batch_size": 32,
        f"{actor}.clip_ratio_low": 0.2, f"{actor}.clip_ratio_high": 0.28, f"{actor}.optim.lr": 1e-6,
        f"{actor}.optim.lr_warmup_steps": 10, "data.max_response_length": tokens,
        "reward.reward_kwargs.max_resp_len": tokens, "reward.reward_kwargs.overlong_buffer_cfg.len": 4096,
        "reward.reward_manager.name": "dapo", f"{actor}.loss_agg_mode": "token-mean", f"{actor}.use_kl_loss": False,
        f"{actor}.policy_loss.alpha": alpha, "algorithm.filter_groups.metric": "acc", f"{rollout}.top_p": 1.0,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    for method, its_alpha, high in (("dominate", 0.1, 0.24), ("ppl", 0.01, 0.28)):
        dapo = load_train({"preset": name, "dapo": {"method": method}}).dapo
        assert (dapo.alpha, dapo.clip_high) == (its_alpha, high)
    assert load_train({"preset": name, "dapo": {"method": "low_prob", "alpha": 0.3}, "seeds": [1]}).dapo.alpha == 0.3


MATH, QWEN3 = {"preset": "qwen25-math-7b"}, {"preset": "qwen3-8b-base"}
ROLLOUT, POSITIONS = "actor_rollout_ref.rollout", "max_position_embeddings"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        # perplexity is standardised within the prompt, as its authors do
        ({**MATH, "dapo": {"method": "ppl"}}, {"rlvr_dir.scope": "group"}),
        ({**QWEN3, "dapo": {"method": "ppl"}}, {"rlvr_dir.scope": "group"}),
        ({**MATH, "dapo": {"method": "ppl", "ppl_scope": "batch"}}, {"rlvr_dir.scope": "batch"}),
        # the longer context reaches the workers and vLLM, where there is one
        (MATH, {
            f"actor_rollout_ref.model.override_config.{POSITIONS}": 32768,
            f"{ROLLOUT}.engine_kwargs.vllm.hf_overrides.{POSITIONS}": 32768, f"{ROLLOUT}.max_model_len": 2048 + 8192,
        }),
        (QWEN3, {
            f"actor_rollout_ref.model.override_config.{POSITIONS}": None,
            f"{ROLLOUT}.engine_kwargs.vllm.hf_overrides.{POSITIONS}": None, f"{ROLLOUT}.max_model_len": 2048 + 20480,
        }),
        # no length penalty and no filter
        ({**MATH, "dapo": {"overlong_buffer": 0, "dynamic_sampling": False}}, {
            "reward.reward_kwargs.overlong_buffer_cfg.len": None, "algorithm.filter_groups.enable": False,
        }),
        # validation, by verl itself or not at all
        ({**MATH, "validation": {"every": 10, "sampling": {"samples": 32}}, "verl": {"val_data": "aime24.jsonl"}}, {
            "trainer.test_freq": 10, "trainer.val_before_train": True, "data.val_files": "/v",
            f"{ROLLOUT}.val_kwargs.n": 32,
        }),
        (MATH, {"trainer.test_freq": -1, "data.val_files": "/t", "data.val_max_samples": 1}),
    ],
)  # fmt: skip
def test_arguments_are_what_is_asked(asked, expected):
    spec = load_train(asked)
    found = values(spec, val=Path("/v") if spec.verl.val_data else None)
    assert {key: found.get(key) for key in expected} == expected


def test_a_training_beyond_its_base_is_refused_before_anything_starts(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps({"model_type": "qwen2", "max_position_embeddings": 4096}))
    spec = load_train({"preset": "qwen3-8b-base", "base": str(base)})
    with refuses("dapo.max_response_tokens", "20480", "verl.max_prompt_tokens", "4096"):
        check_context(spec, str(base))
    assert (
        check_context(load_train({"preset": "qwen25-math-7b", "base": str(base)}), str(base)) is None
    )  # it brings more
    assert check_context(spec, "none/such") is None  # nothing is known of it here
    with refuses("verl.overrides", "override_config.max_position_embeddings"):
        values(
            verl_spec(verl={"overrides": ["+actor_rollout_ref.model.override_config.max_position_embeddings=16384"]})
        )


def test_a_preset_validates_with_as_many_tokens_as_it_trains():
    for name, tokens in (("qwen25-math-7b", 8192), ("qwen3-8b-base", 20480)):
        validation = load_train({"preset": name, "validation": {"tasks": ["aime24"], "every": 5}}).validation
        sampling = validation.sampling
        assert (sampling.max_tokens, sampling.samples, sampling.top_p) == (tokens, 32, 0.7)
        assert (validation.engine.backend, validation.every) == ("auto", 5)  # vLLM where it is
    short = load_train({"preset": "qwen3-8b-base", "dapo": {"max_response_tokens": 4096, "overlong_buffer": 0}})
    assert short.validation.sampling.max_tokens == 4096
    given = load_train({"preset": "qwen3-8b-base", "validation": {"sampling": {"samples": 8}}})
    assert (given.validation.sampling.samples, given.validation.sampling.max_tokens) == (8, 20480)


def test_problems_with_several_right_answers_make_a_column_of_lists(tmp_path):
    rows = {"a": [{"prompt": [], "answer": "1"}], "b": [{"prompt": [], "answer": ["2", "3"]}]}
    write(tmp_path / "val.jsonl", rows)
    found = [json.loads(line) for line in (tmp_path / "val.jsonl").read_text().splitlines()]
    assert [(row["data_source"], row["reward_model"]["ground_truth"]) for row in found] == [
        ("a", ["1"]), ("b", ["2", "3"])
    ]  # fmt: skip
    write(tmp_path / "train.jsonl", {"train": rows["a"]})
    assert json.loads((tmp_path / "train.jsonl").read_text())["reward_model"]["ground_truth"] == "1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "x"}, "preset x"),
        ({"backend": "trl"}, "verl backend trl"),
        ({"lora": {}}, "lora backend verl"),
        ({"vllm": {}}, "vllm backend verl verl.tensor_parallel"),
        ({"device": "cuda"}, "device cuda"),
        ({"threads": 4}, "threads 4"),
        ({"dapo": {"accumulation": 2}}, "dapo.accumulation 2"),
        ({"dapo": {"max_generation_rounds": 9}}, "dapo.max_generation_rounds 9"),
        ({"dapo": {"delta": None}}, "dapo.delta None"),
        ({"dapo": {"prompts": 24}}, "dapo.minibatches 16"),
        ({"dapo": {"warmup_updates": 10}}, "dapo.warmup_updates 10"),
        ({"verl": {"tensor_parallel": 3}}, "verl.tensor_parallel 3"),
        ({"verl": {"tokens_per_gpu": 2000}}, "verl.tokens_per_gpu 2000 2560"),
        ({"verl": {"pyton": "x"}}, "pyton verl python"),
        ({"verl": 3}, "verl 3"),
        ({"validation": {"every": 5}}, "validation.every 5"),
        ({"verl": {"val_data": "x.jsonl"}}, "verl.val_data x.jsonl"),
        ({"validation": {"tasks": ["a"], "watch": ["a"]}}, "validation.watch validation.every"),
        ({"data": "tiny"}, "data tiny"),
    ],
)
def test_what_cannot_work_is_refused(changes, message):
    with refuses(*message.split()):
        verl_spec(**changes)


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("reward_model.reward_manager=dapo", "reward.reward_manager.name"),
        (
            "+reward_model.reward_kwargs.overlong_buffer_cfg.len=4096",
            "+reward.reward_kwargs.overlong_buffer_cfg.len",
        ),
        ("++reward_model.enable=True", "reward.reward_model.enable"),
        ("reward_model.model.path=x", "reward.reward_model.model_path"),
        ("custom_reward_function.path=x.py", "reward.custom_reward_function.path"),
        ("sandbox_fusion.url=x", "reward.sandbox_fusion.url"),
        (
            "algorithm.filter_groups.max_num_gen_batches=10",
            "algorithm.filter_groups.max_inflight_gen_batches",
        ),
        ("data.train_batch_size=64", "data.train_batch_size dapo.prompts"),
        ("trainer={}", "verl.nnodes"),
        ("trainer.v1.trainer_mode=sync", "trainer.v1.trainer_mode"),
        ("~data.shuffle", "KEY VALUE"),
        ("nothing", "KEY VALUE"),
    ],
)
def test_arguments_that_verl_ignores_or_ours_set_are_refused(added, message):
    with refuses("verl.overrides", *message.split()):
        values(verl_spec(verl={"overrides": [added]}))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (None, "null"), (1e-6, "1e-06"), ("a/b-1.jsonl", "a/b-1.jsonl"), ("null", "'null'"),
        ("1e5", "'1e5'"), ("a b", "'a b'"), ("it's", r"'it\'s'"), ("a\\", r"'a\\'"), (["console"], "[console]"),
    ],
)  # fmt: skip
def test_values_in_verls_syntax(value, text):
    assert quoted(value) == text


def test_a_step_without_what_our_trainer_adds():
    dapo = verl_spec().dapo
    line = {"step": 3, "data": {"critic/score/mean": 0.5, "x": None, "val-core/a/acc/mean@8": 1.0}}
    record, validation = translate(line, dapo)
    assert (record["accuracy"], record["reward"], record["weight"], record["responses"]) == (None, 0.5, 1.0, 8192)
    assert record["verl"] == {"critic/score/mean": 0.5}
    assert validation == {"step": 3, "validation": {}, "verl": {"val-core/a/acc/mean@8": 1.0}}


def test_a_step_with_a_validation_is_two_lines_and_gradient_mass_is_kept():
    shares = {f"rlvr_dir/{name}_share/{i}": i / 45 for name in ("token", "gradient") for i in range(10)}
    right = {"rlvr_dir/right/4/aime24/0": 4, "rlvr_dir/right/4/aime24/10": 1, "rlvr_dir/right/4/aime24/2": 0}
    data = {"critic/score/mean": 0.5, "val-core/aime24/acc/mean@4": 5 / 12, **shares, **right}
    step, validation = translate({"step": 5, "data": data}, verl_spec().dapo)
    assert step["gradient_share"] == step["token_share"] == [round(i / 45, 6) for i in range(10)]
    assert step["verl"] == {"critic/score/mean": 0.5}
    score = validation["validation"]["aime24"]
    assert score["right"] == {"0": 4, "2": 0, "10": 1}
    assert (score["samples"], score["problems"], score["avg"]) == (4, 3, pytest.approx(5 / 12))
    assert validation["verl"] == {"val-core/aime24/acc/mean@4": 5 / 12}
    [_, whole] = translate({"step": 5, "data": data}, verl_spec().dapo, {"aime24": 11})  # all samples of eight failed
    assert list(whole["validation"]["aime24"]["right"].values()) == [4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert whole["validation"]["aime24"]["avg"] == pytest.approx(5 / 44)


def test_verl_is_imported_in_its_own_processes_alone():
    """And what is loaded there brings none of our requirements along."""
    inside = {"plugin.py", "hook.py"}
    for path in (HOUSE / "train").rglob("*.py"):
        if path.name not in inside:
            text = path.read_text()
            assert "import verl" not in text, path
            assert "from verl" not in text, path
    code = (
        "import sys, rlvr_dir.train.verl, rlvr_dir.train.verl.reward; print({'torch', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_dry_run_without_an_environment_says_so(typed, tmp_path):
    asked = ["train", "--backend", "verl", "--preset", "qwen25-math-7b", "--method", "low_prob", "--dry-run"]
    asked += ["--set", f"verl.python={tmp_path}/none"]
    done = typed(*asked)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/none" in done.stderr
    assert "actor_rollout_ref.actor.policy_loss.loss_mode=rlvr_dir" in done.stdout.splitlines()
    data = tmp_path / "few.jsonl"
    data.write_text('{"problem": "1 + 1", "answer": "2"}\n' * 3)
    assert str(data) in typed(*asked, "--data", data).stderr
