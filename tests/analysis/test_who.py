"""Who wrote given tokens: the sequential test on distributions whose truth is known, and its brute force."""

import numpy as np
import pytest
import torch

from rlvr_dir.analysis.who import ERROR, ruled_out, settings_of, who_wrote
from rlvr_dir.policy.given import FLOOR, likelihoods
from rlvr_dir.policy.nucleus import nucleus

VOCAB, CONTEXTS = 40, 30


@pytest.fixture(scope="module")
def models():
    """Logits of three models in some contexts: the second and third are steps away from the first."""
    random = torch.Generator().manual_seed(1)
    base = 2.5 * torch.randn(CONTEXTS, VOCAB, generator=random)
    step = torch.randn(CONTEXTS, VOCAB, generator=random)
    return {"base": base, "early": base + 0.25 * step, "late": base + 0.5 * step}


def written(models, name, setting, n, seed=0):
    """n tokens that a model wrote at a setting, and each model's likelihoods of them."""
    random = torch.Generator().manual_seed(seed)
    contexts, claimed = torch.randint(CONTEXTS, (n,), generator=random), setting
    p = (models[name] / setting[0]).softmax(1)
    drawn = nucleus(p, torch.full((CONTEXTS,), setting[1], dtype=torch.float64))
    tokens = torch.multinomial(drawn[contexts], 1, generator=random)[:, 0]
    return contexts, tokens, claimed


def verdict(models, contexts, tokens, claimed):
    settings = settings_of(claimed)
    tables = {name: likelihoods(logits[contexts], tokens, settings).numpy() for name, logits in models.items()}
    return who_wrote(tables, settings, claimed)


@pytest.mark.parametrize("claimed", [(1.0, 0.7), (1.0, 1.0), (0.8, 0.9)])
@pytest.mark.parametrize("name", ["base", "early", "late"])
def test_the_writer_is_found_after_as_many_tokens_as_its_kl_says(models, name, claimed):
    contexts, tokens, _ = written(models, name, claimed, 20_000)
    found = verdict(models, contexts, tokens, claimed)
    assert (found.kind, found.name, found.setting) == ("wrote", name, claimed)
    assert found.own == 0
    if claimed[1] == 1:  # Wald: ln 1000 / KL on average
        logs = {other: likelihoods(models[other][contexts], tokens, (claimed,)).mean() for other in models}
        nearest = min(float(logs[name] - logs[other]) for other in models if other != name)
        assert 0.3 < found.tokens * nearest / -np.log(ERROR) < 3


def test_a_true_hypothesis_is_hardly_ever_ruled_out(models):
    """Ville's inequality: at most 1 time in 1,000."""
    random, wrong, tests = torch.Generator().manual_seed(2), 0, 400
    tables = {name: logits.log_softmax(1) for name, logits in models.items()}
    for i in range(tests):
        name = [*models][i % 3]
        contexts = torch.randint(CONTEXTS, (1500,), generator=random)
        tokens = torch.multinomial(tables[name].exp()[contexts], 1, generator=random)[:, 0]
        logs = np.stack([tables[other][contexts, tokens].numpy() for other in models])
        wrong += bool(ruled_out(logs)[i % 3])
    assert wrong <= 3  # 0.4 are expected at most, and 4 or more in 1 of 1,000 runs


def test_what_is_ruled_out_is_what_a_loop_rules_out():
    random = np.random.default_rng(0)
    logs = random.normal(-1, 0.4, (4, 300)) - 0.05 * np.arange(4)[:, None]
    wanted = np.zeros(4, int)
    for n in range(1, 301):
        total = logs[:, :n].sum(axis=1)
        for i in range(4):
            others = np.log(np.mean(np.exp(np.delete(total, i) - total.max()))) + total.max()
            if not wanted[i] and others - total[i] >= np.log(1 / ERROR):
                wanted[i] = n
    assert wanted.any()
    assert (ruled_out(logs) == wanted).all()


@pytest.mark.parametrize(
    ("real", "claimed"), [((1.0, 0.9), (1.0, 0.7)), ((1.2, 1.0), (1.0, 1.0)), ((0.6, 0.7), (1.0, 0.7))]
)
def test_another_setting_is_named(models, real, claimed):
    contexts, tokens, _ = written(models, "early", real, 20_000)
    found = verdict(models, contexts, tokens, claimed)
    assert (found.kind, found.name, found.setting) == ("neither", "early", real)
    assert found.tokens < 5000


def test_greedy_text_is_greedy(models):
    contexts = torch.arange(CONTEXTS).repeat(20)
    found = verdict(models, contexts, models["late"].argmax(1)[contexts], (1.0, 0.95))
    assert (found.kind, found.name, found.setting) == ("neither", "late", (0.0, 1.0))
    assert verdict(models, contexts, models["late"].argmax(1)[contexts], (0.0, 1.0)).name == "late"


def test_few_tokens_give_no_verdict(models):
    contexts, tokens, claimed = written(models, "early", (1.0, 0.7), 12)
    found = verdict(models, contexts, tokens, claimed)
    assert found.kind == "undecided"
    assert "early" in found.left
    assert found.tokens == 12


@pytest.mark.parametrize(("own", "kind"), [(0.0, "wrote"), (0.002, "wrote"), (0.02, "precision")])
def test_tokens_outside_the_own_nucleus_forbid_a_verdict(own, kind):
    """Another precision moves the last token of a nucleus in and out: a tenth of what parts the candidates is much."""
    claimed, n = (1.0, 0.7), 4000
    settings, random = settings_of(claimed), np.random.default_rng(0)
    tables = {}
    for name, share in (("mine", own), ("other", 0.05)):
        outside = random.permutation(n) < share * n
        tables[name] = np.full((n, len(settings)), -1.0)  # log p at top-p 1, and at any other setting
        tables[name][:, settings.index(claimed)] = np.where(outside, -1.0 + np.log(FLOOR), -0.7)
    found = who_wrote(tables, settings, claimed)
    assert (found.kind, found.name) == (kind, "mine")
    assert (found.own, found.others) == (pytest.approx(own), pytest.approx(0.05))


def test_the_mean_difference_of_log_p_would_name_another():
    """Why likelihoods are those of a nucleus: text cut to it looks like that of the sharper model."""
    logits = {"flat": torch.tensor([[1.0, 0.9, 0.8, 0.0, 0.0]]), "sharp": 2 * torch.tensor([[1.0, 0.9, 0.8, 0.0, 0.0]])}
    contexts, claimed = torch.zeros(6000, dtype=torch.long), (1.0, 0.7)
    p = logits["flat"].softmax(1)
    drawn = nucleus(p, torch.tensor([0.7], dtype=torch.float64))[0]
    tokens = torch.multinomial(drawn, 6000, replacement=True, generator=torch.Generator().manual_seed(0))
    means = {name: float(each.log_softmax(1)[0, tokens].mean()) for name, each in logits.items()}
    assert means["sharp"] > means["flat"]
    assert verdict(logits, contexts, tokens, claimed).name == "flat"
