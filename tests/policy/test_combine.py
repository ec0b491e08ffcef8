"""What two policies are made of: a change that is carried over to another model, and tokens that RL alone has."""

import torch

from benchmarks.closed_form import distribution
from rlvr_dir.policy.algorithm import decide
from rlvr_dir.policy.combine import AddedTokens, Combination, TransferredPair
from rlvr_dir.policy.rule import Rules
from tests.policy.rules import logits, requests, rule

N, VOCAB = 5, 11


def some(seed, vocab=VOCAB):
    return 2 * torch.randn(N, vocab, generator=torch.Generator().manual_seed(seed))


def three(*vocabs):
    widths = zip(TransferredPair.roles, vocabs or [VOCAB] * 3, strict=True)
    return {role: some(i, vocab) for i, (role, vocab) in enumerate(widths)}


def test_the_laws_of_a_carried_change_are_those_of_the_formula():
    base, rl, other = (each.double().softmax(-1) for each in three().values())
    for strength in (0.0, 0.5, 1.0, 2.5):
        law = other * (rl / base) ** strength
        rules = Rules.compile([rule("always", gamma=strength - 1)] * N)
        found, _ = distribution(three(), rules, combination=TransferredPair())
        assert torch.allclose(found, law / law.sum(-1, keepdim=True), atol=1e-6), strength


def test_carried_over_to_base_a_change_is_the_pair_itself():
    ours, theirs = TransferredPair().policies({**three(), "recipient": some(0)})
    assert ours.equal(some(0))
    assert torch.allclose(theirs, some(1), atol=1e-6)


def test_what_not_all_models_have_is_no_token():
    ours, theirs = TransferredPair().policies({**three(13, 11, 12), "rl": some(1).bfloat16()})
    assert ours.shape == theirs.shape == (N, 11)
    assert ours.dtype == theirs.dtype == torch.float32
    assert {each.shape for each in Combination().policies({"base": some(0, 13), "rl": some(1)})} == {(N, 11)}


RULES = [
    rule(None, "rl", top_p=0.9),
    rule(None),
    rule("always", gamma=0.5),
    rule("delta_logp", "rl", -0.1, 0.2, 0.7),
    rule("kl", "base", 0.3, top_p=0.8),
    rule("coupling", gamma=-0.3),
    rule("js", "base", 0.1),
    rule("entropy_rl", "base", 1.0, top_p=0.0),
]


def test_rules_of_both_models_are_those_of_the_ids_that_both_know():
    n, shared, vocab = 40 * len(RULES), 12, 15
    rules, where = Rules.compile(RULES * 40), requests(n)
    base, rl = logits(n, 20)
    rl[:, shared:vocab] += 2
    base[:, shared:] = float("nan")  # padding, whatever it holds
    rl[:, vocab:] = float("nan")
    alone = torch.tensor([each == RULES[0] for each in RULES * 40])
    both, added = {"base": base, "rl": rl}, AddedTokens(vocab, shared)
    assert {each.shape for each in added.policies(both, rules.rl_alone)} == {(n, 16)}  # a GPU reads four at once
    got = decide(both, rules, where, added)
    want = decide(both, rules, where, Combination(shared))
    mine = decide({"base": rl, "rl": rl}, rules, where, Combination(vocab))
    for name in ("token", "proposed", "replaced"):
        assert getattr(got, name)[~alone].equal(getattr(want, name)[~alone])
    assert torch.allclose(got.delta_logp[~alone], want.delta_logp[~alone], atol=1e-5)
    assert got.token[alone].equal(mine.token[alone])
    own = got.token >= shared
    assert own[alone].sum() > 5
    assert not own[~alone].any()
    assert (got.delta_logp[own] == torch.inf).all()
    assert got.delta_logp[~own].isfinite().all()
