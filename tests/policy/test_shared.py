"""Tokens that RL alone has: rules of both models are those of the shared ids alone, RL's own draws those of all."""

import torch

from harness.policy import Noise, Rule, RuleRow, decide, over_shared
from tests.policy.test_decision import logits

ROWS = [
    RuleRow("never", "rl", top_p=0.9),
    RuleRow("never", "base"),
    RuleRow("always", "base", gamma=0.5),
    RuleRow("delta_logp", "rl", -0.1, 0.2, 0.7),
    RuleRow("kl", "base", 0.3, top_p=0.8),
    RuleRow("coupling", "base", gamma=-0.3),
    RuleRow("js", "base", 0.1, min_p_rl=0.1),
    RuleRow("entropy_rl", "base", 1.0, top_p=0.0),
]


def test_rules_of_both_models_are_those_of_the_ids_that_both_know():
    n, shared, vocab = 40 * len(ROWS), 12, 15
    rows = ROWS * 40
    base, rl = logits(n, 20)
    rl[:, shared:vocab] += 2
    base[:, shared:] = float("nan")  # padding, whatever it holds
    rl[:, vocab:] = float("nan")
    noise = Noise.at(torch.arange(n) * 7919, torch.full((n,), 5))
    alone = torch.tensor([row == ROWS[0] for row in rows])
    for dense in (False, True):
        both = over_shared(base, rl, Rule(rows), shared, vocab)
        assert {each.shape for each in both} == {(n, 16)}  # columns that a GPU reads four at once
        got = decide(*both, Rule(rows), noise, vocab_size=vocab, dense=dense)
        want = decide(base, rl, Rule(rows), noise, vocab_size=shared, dense=dense)
        mine = decide(rl, rl, Rule(rows), noise, vocab_size=vocab, dense=dense)
        for name in ("token", "proposed", "replaced"):
            assert getattr(got, name)[~alone].equal(getattr(want, name)[~alone])
        assert torch.allclose(got.delta_logp[~alone], want.delta_logp[~alone], atol=1e-5)
        assert got.token[alone].equal(mine.token[alone])
        own = got.token >= shared
        assert own[alone].sum() > 5
        assert not own[~alone].any()
        assert (got.delta_logp[own] == torch.inf).all()
        assert got.delta_logp[~own].isfinite().all()
