"""DAPO through the real TRL on the shipped base: it learns, repeats itself, and drops uniform groups."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.tiny import tiny_pair
from harness.tiny.recipe import rl_problems
from harness.train import DapoSettings, train_dapo
from harness.train.dapo import DapoTrainer, grpo_config
from harness.train.reward import accuracy

SMALL = DapoSettings(steps=2, prompts=4, samples=4, minibatches=2, max_response_tokens=48)


def base():
    return AutoModelForCausalLM.from_pretrained(tiny_pair().base)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(tiny_pair().base)


def trainer(tokenizer, tmp_path, settings=SMALL, rewards=(accuracy,)):
    from datasets import Dataset

    return DapoTrainer(
        dapo=settings,
        model=base(),
        reward_funcs=list(rewards),
        args=grpo_config(settings, tmp_path),
        train_dataset=Dataset.from_list(rl_problems(0, 40)),
        processing_class=tokenizer,
    )


def rows(trainer, groups):
    samples = trainer.num_generations
    return [trainer.train_dataset[index] for index in range(groups) for _ in range(samples)]


def test_training_changes_the_weights_and_repeats_itself(tokenizer):
    before, reports = base().state_dict(), []
    runs = []
    for _ in range(2):
        model = base()
        history = train_dapo(
            model, tokenizer, rl_problems(0, 40), SMALL, progress=lambda *report: reports.append(report)
        )
        runs.append((model.state_dict(), history))
    (one, history), (two, _) = runs
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not any(torch.equal(before[name], one[name]) for name in one if "proj.weight" in name)
    assert [record["update"] for record in history] == [2, 4]
    assert history[0]["dynamic_sampling/rounds"] >= 1
    assert reports[-1][0] == 1.0
    assert not model.training
    assert model.config.use_cache


def test_only_mixed_groups_are_kept_against_a_count(tokenizer, tmp_path):
    samples = 8
    dapo = trainer(tokenizer, tmp_path, SMALL.replace(samples=samples, max_generation_rounds=10))
    seen = []

    def count(completions, answer, **columns):
        rewards = accuracy(completions, answer, **columns)
        seen.append([rewards[i : i + samples] for i in range(0, len(rewards), samples)])
        return rewards

    dapo.reward_funcs = [count]
    dapo.model.train()
    torch.manual_seed(0)
    batch = dapo._generate_and_score_completions(rows(dapo, 4))
    mixed = [group for generation in seen for group in generation if 0 < sum(group) < samples][:4]
    assert len(seen) > 1, "the seed should need a refill, or nothing is tested"
    assert len(mixed) == 4
    assert dapo._metrics["train"]["dynamic_sampling/kept"] == [4.0]
    assert dapo._metrics["train"]["dynamic_sampling/rounds"] == [float(len(seen))]
    rewards = torch.tensor(mixed)
    expected = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    assert torch.allclose(batch["advantages"], expected.flatten(), atol=1e-5)
    assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
    assert batch["completion_ids"].shape == batch["old_per_token_logps"].shape == batch["completion_mask"].shape


def test_old_logprobs_belong_to_their_rows_after_joining(tokenizer, tmp_path):
    dapo = trainer(tokenizer, tmp_path)
    dapo.model.train()
    torch.manual_seed(0)
    batch = dapo._generate_and_score_completions(rows(dapo, 4))
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    with torch.no_grad():
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = base()(ids, attention_mask=mask, position_ids=positions).logits[:, :-1]
    logp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0][:, -batch["completion_ids"].shape[1] :]
    kept = batch["completion_mask"].bool()
    assert torch.allclose(logp[kept], batch["old_per_token_logps"][kept], atol=1e-4)


def test_places_that_stay_empty_teach_nothing(tokenizer, tmp_path):
    settings = SMALL.replace(max_generation_rounds=2)
    dapo = trainer(tokenizer, tmp_path, settings)
    dapo.reward_funcs = [lambda completions, **_: [1.0] * len(completions)]
    dapo.model.train()
    batch = dapo._generate_and_score_completions(rows(dapo, 4))
    assert len(batch["advantages"]) == 16
    assert not batch["advantages"].any()
    assert batch["num_items_in_batch"] == 0
    assert dapo._metrics["train"]["dynamic_sampling/rounds"] == [2.0]
    assert dapo._metrics["train"]["dynamic_sampling/dropped"] == [8.0]


def test_without_dynamic_sampling_groups_stay_as_they_are(tokenizer, tmp_path):
    dapo = trainer(tokenizer, tmp_path, SMALL.replace(dynamic_sampling=False))
    dapo.model.train()
    batch = dapo._generate_and_score_completions(rows(dapo, 4))
    assert len(batch["advantages"]) == 16
    assert "dynamic_sampling/kept" not in dapo._metrics["train"]


def test_the_loss_is_daps_with_the_papers_clips(tokenizer, tmp_path):
    dapo = trainer(tokenizer, tmp_path)
    assert (dapo.args.loss_type, dapo.epsilon_low, dapo.epsilon_high, dapo.args.delta) == ("dapo", 0.2, 0.28, 10.0)
    assert (dapo.beta, dapo.temperature, dapo.top_p, dapo.args.max_steps) == (0.0, 1.0, 1.0, 4)
