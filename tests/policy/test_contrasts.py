"""Contrasts that are named after a cause are exactly 0 where it is absent, at any top-p and greedily.

Of 1,000 random distributions, in the closed form and in drawn tokens. The old contrasts, in which the nucleus is cut
before the token is removed on one side only, are not 0 there: that is what the test would miss if it looked at nothing.
"""

import pytest
import torch

from benchmarks.closed_form import distribution
from rlvr_dir.config import Decoding
from rlvr_dir.config.sampling import Sampling
from rlvr_dir.decode.plan import rule_of
from rlvr_dir.policy.rule import Rules
from tests.policy.rules import decided, requests

N, VOCAB = 1000, 12
SAMPLINGS = [Sampling(top_p=0.7), Sampling(top_p=0.95), Sampling(top_p=1.0), Sampling(temperature=0)]
EVERY = Decoding(mode="replace", criterion="delta_logp", tau=1e6)  # flags all
FELL = Decoding(mode="replace", criterion="delta_logp", tau=0.0)  # flags what RL made less likely


def random_logits():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N, VOCAB, generator=generator) * torch.rand(N, 1, generator=generator) * 4


def lowered(base):
    """RL that gives base's likeliest token less, and is base without it."""
    falls = -3 * torch.rand(N, 1, generator=torch.Generator().manual_seed(1))
    return base.scatter_add(1, base.argmax(1, keepdim=True), falls)


def deviation(base, rl, decoding, reference, sampling):
    """The largest difference of the two laws, and how many of the tokens that both draw differ."""
    laws, tokens = [], []
    for each in (decoding, reference):
        rules = [rule_of(each, sampling)] * N
        laws.append(distribution({"base": base, "rl": rl}, Rules.compile(rules))[0])
        tokens.append(decided(base, rl, rules, requests(N, seed=3)).token)
    return (laws[0] - laws[1]).abs().max().item(), int((tokens[0] != tokens[1]).sum())


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.words)
def test_a_decision_adds_nothing_where_both_models_are_one(sampling):
    base = random_logits()
    for decoding in (EVERY.cell("rl", "base"), EVERY.cell("rl", "rl")):
        for name in {"decision", "decision last"} & {*decoding.contrasts}:
            assert deviation(base, base.clone(), decoding, decoding.contrasts[name], sampling) == (0, 0)
    old, _ = deviation(base, base.clone(), EVERY.cell("rl", "base"), EVERY.cell(None, "base"), sampling)
    assert (old > 0.01) == (0 < sampling.top_p < 1)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.words)
def test_a_token_adds_nothing_where_both_models_are_one_without_the_flagged_token(sampling):
    base = random_logits()
    rl = lowered(base)
    for decoding in (FELL.cell("rl", "rl"), FELL.cell("base", "rl")):
        for name in {"token", "token first"} & {*decoding.contrasts}:
            law, tokens = deviation(base, rl, decoding, decoding.contrasts[name], sampling)
            assert law < 1e-6
            assert tokens == 0
    old, _ = deviation(base, rl, FELL.cell(None, "rl"), FELL.cell("rl", "base"), sampling)
    assert (old > 0.01) == (0 < sampling.top_p < 1)


@pytest.mark.parametrize("sampling", [Sampling(top_p=1.0), Sampling(temperature=0)], ids=lambda each: each.words)
def test_the_cuts_add_nothing_where_nothing_is_cut(sampling):
    base = random_logits()
    rl = base + torch.randn(N, VOCAB, generator=torch.Generator().manual_seed(2))
    for decoding, name in ((EVERY.cell("base", "base"), "cut of own"), (EVERY.cell(None, "rl"), "cut of other")):
        law, _ = deviation(base, rl, decoding, decoding.contrasts[name], sampling)
        assert law < 1e-6


def test_a_coin_drops_its_share_of_the_flagged_tokens_whatever_they_are():
    base = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(4)).expand(20_000, VOCAB).contiguous()
    found = {}
    for rate in (0.0, 0.25, 0.9):
        rules = [rule_of(EVERY.cell(rate, "base"), Sampling(top_p=1.0))] * len(base)
        decision = decided(base, base.clone(), rules, requests(len(base), seed=5))
        assert decision.replaced.all()
        found[rate] = decision.changed.float().mean().item()
        for token in range(VOCAB):
            of_token = decision.changed[decision.proposed == token].float()
            assert abs(of_token.mean().item() - rate) <= 4 * (0.25 / len(of_token)) ** 0.5
    assert found[0.0] == 0
