"""DAPO through the real TRL on the shipped base: it learns, repeats itself, drops uniform groups, and reweights."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_dir.policy.reweighting import reweighting, token_weights
from rlvr_dir.tiny import tiny_pair
from rlvr_dir.tiny.problems import rl_problems
from rlvr_dir.train import DapoSettings, train_dapo
from rlvr_dir.train.dapo import make_trainer

SMALL = DapoSettings(steps=2, prompts=4, samples=4, minibatches=2, max_response_tokens=48)
MIXED = SMALL.replace(samples=8, max_generation_rounds=10)  # enough to fill every place


def base():
    return AutoModelForCausalLM.from_pretrained(tiny_pair().base)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(tiny_pair().base)


def trainer(tokenizer, tmp_path, settings=SMALL):
    return make_trainer(base(), tokenizer, rl_problems(0, 40), settings, tmp_path)


def rows(trainer, groups):
    samples = trainer.num_generations
    return [trainer.train_dataset[index] for index in range(groups) for _ in range(samples)]


def generated(dapo):
    """The batch of a first step, of four problems; seeded."""
    dapo.model.train()
    torch.manual_seed(0)
    return dapo._generate_and_score_completions(rows(dapo, 4))


@pytest.mark.parametrize("penalty", [0.0, 0.8])
def test_only_mixed_groups_are_kept_against_a_count_and_judged_by_accuracy(tokenizer, tmp_path, penalty):
    """Also where overlong responses lose: by half of the penalty, whose length is in the reward alone."""
    overlong = {"max_response_tokens": 40, "overlong_buffer": 30, "overlong_penalty": penalty} if penalty else {}
    dapo = trainer(tokenizer, tmp_path, MIXED.replace(**overlong))
    right, seen = dapo.reward_funcs[0], []

    def count(completions, answer, completion_ids, **columns):
        rewards = right(completions, answer, **columns)
        told = [*zip(rewards, map(len, completion_ids), strict=True)]
        seen.append([told[i : i + 8] for i in range(0, len(told), 8)])
        return rewards

    dapo.reward_funcs[0] = count
    batch = generated(dapo)
    mixed = [group for drawn in seen for group in drawn if 0 < sum(reward for reward, _ in group) < 8][:4]
    assert len(seen) > 1, "the seed should need a refill, or nothing is tested"
    assert dapo._metrics["train"]["dynamic_sampling/kept"] == [len(mixed)] == [4]
    assert dapo._metrics["train"]["dynamic_sampling/rounds"] == [len(seen)]
    every = [told for drawn in seen for group in drawn for told in group]
    record = dapo.tally.pop_record()
    assert record["groups"] == {"rounds": len(seen), "kept": 4, "dropped": len(every) // 8 - 4, "empty": 0}
    assert (record["responses"], dapo.tally.pop_record()["responses"]) == (len(every), 0)
    assert record["accuracy"] == pytest.approx(sum(reward for reward, _ in every) / len(every), abs=1e-6)
    assert record["length"] == pytest.approx(sum(length for _, length in every) / len(every), abs=1e-6)
    lost = [[min(1.0, max(0.0, (length - 10) / 30)) for _, length in group] for group in mixed]
    rewards = torch.tensor([[reward for reward, _ in group] for group in mixed]) - penalty / 2 * torch.tensor(lost)
    expected = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    assert torch.allclose(batch["advantages"], expected.flatten(), atol=1e-4)
    assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
    assert batch["completion_ids"].shape == batch["old_per_token_logps"].shape == batch["completion_mask"].shape


def test_places_that_stay_empty_teach_nothing(tokenizer, tmp_path):
    settings = SMALL.replace(max_generation_rounds=2)
    dapo = trainer(tokenizer, tmp_path, settings)
    dapo.reward_funcs = [lambda completions, **_: [1.0] * len(completions)]
    batch = generated(dapo)
    assert len(batch["advantages"]) == 16
    assert not batch["advantages"].any()
    assert batch["num_items_in_batch"] == 0
    assert dapo._metrics["train"]["dynamic_sampling/rounds"] == [2.0]
    assert dapo._metrics["train"]["dynamic_sampling/dropped"] == [8.0]


def test_an_ungraded_response_teaches_nothing_however_long(tokenizer, tmp_path):
    """Without dynamic sampling: its group stays as it is."""
    dapo = trainer(tokenizer, tmp_path, SMALL.replace(overlong_buffer=40, dynamic_sampling=False))
    dapo.reward_funcs[0] = lambda completions, **_: [None, 1.0, 0.0, 0.0] * (len(completions) // 4)
    batch = generated(dapo)
    assert len(batch["advantages"]) == 16
    assert "dynamic_sampling/kept" not in dapo._metrics["train"]
    assert not batch["advantages"][::4].any()
    assert batch["advantages"][1::4].all()
    assert dapo.tally.pop_record()["ungraded"] == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "low_prob"},
        {"method": "low_prob", "pi_source": "current"},
        {"method": "dominate", "clip_high": 0.28},
        {"method": "ppl", "ppl_scope": "group"},
    ],
)
def test_alpha_0_trains_as_plain_dapo_to_the_bit(tokenizer, plain_weights, changes):
    model = base()
    train_dapo(model, tokenizer, rl_problems(0, 40), SMALL.replace(alpha=0.0, **changes))
    assert all(torch.equal(value, plain_weights[name]) for name, value in model.state_dict().items())


def test_training_repeats_itself_and_keeping_the_model_after_each_step_changes_nothing(tokenizer, plain_weights):
    kept, reports, model = {}, [], base()

    def keep(step, model):
        assert model.config.use_cache, "as it was before TRL"
        kept[step] = {name: value.clone() for name, value in model.state_dict().items()}

    told = {"on_step": keep, "progress": lambda *report: reports.append(report)}
    history = train_dapo(model, tokenizer, rl_problems(0, 40), SMALL, **told)
    assert [record["update"] for record in history] == [2, 4]
    assert history[0]["dynamic_sampling/rounds"] >= 1
    assert reports[-1][0] == 1.0
    assert model.config.use_cache
    assert not any(
        torch.equal(value, kept[2][name]) for name, value in base().state_dict().items() if "proj.weight" in name
    )
    assert list(kept) == [1, 2]
    assert all(torch.equal(value, plain_weights[name]) for name, value in kept[2].items())
    assert not all(torch.equal(value, plain_weights[name]) for name, value in kept[1].items())


@pytest.fixture(scope="module")
def plain_weights(tokenizer):
    model = base()
    train_dapo(model, tokenizer, rl_problems(0, 40), SMALL)
    return model.state_dict()


@pytest.mark.parametrize(
    ("method", "source"), [("none", "old"), ("low_prob", "old"), ("low_prob", "current"), ("dominate", "current")]
)
def test_the_loss_is_the_papers(tokenizer, tmp_path, method, source):
    changes = {} if method == "none" else {"alpha": 0.4, "pi_source": source}
    settings = MIXED.replace(method=method, **changes)
    dapo = trainer(tokenizer, tmp_path, settings)
    dapo.current_gradient_accumulation_steps = 1
    batch = generated(dapo)
    written = batch["old_per_token_logps"].clone()
    batch["old_per_token_logps"] += 0.4 * torch.randn_like(batch["old_per_token_logps"])  # many ratios leave the clip
    loss = dapo._compute_loss(dapo.model, batch)
    loss.backward()

    model = base()
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    logits = model(ids, attention_mask=attention).logits[:, :-1]
    logp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0][:, -batch["completion_ids"].shape[1] :]
    old, mask = batch["old_per_token_logps"], batch["completion_mask"]
    assert torch.allclose(logp[mask.bool()], written[mask.bool()], atol=1e-4)  # each row's own, after joining
    pi = (logp.detach() if source == "current" else old).exp()
    weight = {"none": 1.0, "low_prob": 1 + 0.4 * (1 - pi), "dominate": 0.4 * pi + 0.6}[method]
    advantage, ratio = batch["advantages"][:, None] * weight, (logp - old).exp()
    high = 0.24 if method == "dominate" else 0.28
    gain = torch.min(ratio.clamp(max=10) * advantage, ratio.clamp(0.8, 1 + high) * advantage)
    expected = -(gain * mask).sum() / (batch["num_items_in_batch"] / settings.minibatches)
    expected.backward()
    assert torch.allclose(loss, expected, atol=1e-5)
    for (name, one), other in zip(dapo.model.named_parameters(), model.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=2e-4, rtol=1e-3), name
    record = dapo.tally.pop_record()
    assert record["weight"] == pytest.approx(
        1 if method == "none" else weight[mask.bool() & (batch["advantages"] != 0)[:, None]].mean().item(), abs=1e-4
    )
    flows = torch.where(advantage > 0, ratio <= 1 + high, (ratio >= 0.8) & (ratio <= 10)) & mask.bool()
    mass = 2 * (ratio * advantage).abs() * (1 - logp.exp()) * flows
    share = [mass[(logp.exp() >= i / 10) & (logp.exp() < (i + 1) / 10)].sum() / mass.sum() for i in range(10)]
    assert record["gradient_share"] == pytest.approx([value.item() for value in share], abs=1e-4)


@pytest.mark.parametrize("minibatches", [1, 2])
@pytest.mark.parametrize("scope", ["batch", "group"])
def test_ppl_standardises_over_all_kept_responses(tokenizer, tmp_path, minibatches, scope):
    settings = MIXED.replace(method="ppl", alpha=0.3, ppl_scope=scope, minibatches=minibatches)
    dapo = trainer(tokenizer, tmp_path, settings)
    batch = generated(dapo)
    assert ("old_per_token_logps" in batch) == (minibatches > 1)  # TRL leaves out what equals the present policy
    logp = dapo._old_logp(batch)
    learned = int(dapo.tally.kept) * settings.samples
    mask, rows = batch["completion_mask"], torch.arange(learned)
    scopes = rows.view(-1, settings.samples) if scope == "group" else [rows]
    weights = token_weights(reweighting("ppl", 0.3), logp, mask, scopes)
    assert torch.allclose(batch["weights"][mask.bool()], weights[mask.bool()], atol=1e-4)
    assert (weights[:learned] != 1).any()
    assert (weights[learned:] == 1).all()
    dapo.current_gradient_accumulation_steps = 1
    dapo._compute_loss(dapo.model, batch)
    inside = batch["completion_mask"].bool() & (batch["advantages"] != 0)[:, None]
    assert dapo.tally.pop_record()["weight"] == pytest.approx(weights[inside].mean().item(), abs=1e-4)


def test_accumulation_makes_the_same_update_from_smaller_pieces(tokenizer, plain_weights):
    model = base()
    train_dapo(model, tokenizer, rl_problems(0, 40), SMALL.replace(accumulation=4))
    before = base().state_dict()
    moved = sum((plain_weights[name] - value).abs().sum() for name, value in before.items())
    apart = sum((plain_weights[name] - value).abs().sum() for name, value in model.state_dict().items())
    assert apart < 0.1 * moved
