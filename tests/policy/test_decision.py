"""Algorithm 1 against the hand-written oracle, its closed form, and the identities it must obey."""

import itertools
from dataclasses import replace
from math import inf

import pytest
import torch

from benchmarks.closed_form import distribution
from benchmarks.decision import watched
from rlvr_dir.policy.algorithm import decide
from rlvr_dir.policy.gates import gates
from rlvr_dir.policy.noise import REDRAW, REWRITE
from rlvr_dir.policy.nucleus import draw
from rlvr_dir.policy.rule import Rule, Rules
from rlvr_dir.policy.step import Requests
from tests.facts import refuses
from tests.laws import p_value
from tests.policy import oracle
from tests.policy.rules import (
    ALONE,
    BASE,
    COIN,
    PATHS,
    RL,
    VETO,
    decided,
    every_rule,
    gate,
    logits,
    numbers,
    requests,
    rule,
    taken,
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ALONE)
def test_every_rule_in_one_mixed_batch_matches_the_oracle(name, path):
    own = (lambda each: each.gate is None) if name is None else (lambda each: each.gate and each.gate.name == name)
    rules = [each for i, each in enumerate(every_rule()) if own(each) or i % 5 == 0] * 2
    base, rl = logits(len(rules), vocab=7)
    where = requests(len(rules), seed=1)
    with PATHS[path]():
        got = decided(base, rl, rules, where)
    for i, (each, uniform) in enumerate(zip(rules, numbers(where), strict=True)):
        token, proposed, replaced, delta = oracle.step(base[i].tolist(), rl[i].tolist(), each, *uniform, i % 9)
        assert (got.token[i], got.proposed[i], got.replaced[i]) == (token, proposed, replaced), each
        assert got.delta_logp[i].item() == pytest.approx(delta, abs=1e-5)
        assert bool(got.changed[i]) == (token != proposed)


def test_closed_form_matches_enumeration():
    rules = [replace(each, since=0, until=inf) for each in every_rule()]
    base, rl = logits(len(rules), vocab=6, seed=3)
    law, replaced = distribution({"base": base, "rl": rl}, Rules.compile(rules))
    for i, each in enumerate(rules):
        expected, expected_replaced = oracle.law(base[i].tolist(), rl[i].tolist(), each)
        assert law[i].tolist() == pytest.approx(expected, abs=1e-6), each
        assert replaced[i].item() == pytest.approx(expected_replaced, abs=1e-6)


@pytest.mark.parametrize(
    "each",
    [
        rule(None, top_p=0.7),
        rule("always", gamma=3.0, top_p=0.9),
        rule("js", "base", 0.02, 0.5),
        rule("delta_logp", "base", -0.2, 0.0, top_p=0.7),
        rule("delta_logp", "base", -0.2, 0.5, 0.8),
        rule("delta_logp", "rl", 0.3, 0.1, top_p=0.95),
        rule("kl", "base", 0.1, 0.05, top_p=0.7, since=101),
        rule("entropy_base", "base", 0.5, 0.0, 1.3),
        rule("random", "base", 0.3, 0.2, top_p=0.8),
        rule("coupling", top_p=0.9),
        rule("coupling", "rl", None, 0.7, 0.8, 0.7),
        rule("delta_logp", "base", -0.2, -1.0, top_p=0.7),
        rule("delta_logp", "base", -0.2, -1.0, top_p=0.7, **VETO),
        rule("kl", "base", 0.1, -1.0, top_p=0.9, **VETO),
        rule("delta_logp", "rl", 0.3, -1.0, 0.8, 0.95, **VETO),
        rule("delta_logp", "base", -0.1, 0.3, **VETO),
        rule("delta_logp", "base", -0.2, -1.0, top_p=0.7, **RL),
        rule("always", "base", gamma=-1.0, **RL),
        rule("random", "base", 0.4, -1.0, 1.2, top_p=0.8, **RL),
        rule("kl", "rl", 0.1, 0.0, top_p=0.9, **BASE),
        rule("delta_logp", "base", -0.1, -1.0, top_p=0.8, **BASE),
        rule("delta_logp", "base", -0.1, 0.0, top_p=0.8, **BASE),
        rule("delta_logp", "base", -0.1, 0.0, top_p=0.8, **RL),
        rule("delta_logp", "base", -0.1, -1.0, top_p=0.8, **COIN),
        rule("kl", "base", 0.1, 0.0, top_p=0.9, sign="negative"),
        rule("js", "base", 0.02, -1.0, **VETO, sign="positive"),
    ],
    ids=lambda each: f"{each.gate and each.gate.name}-{each.primary}-g{each.gamma}-p{each.top_p}-{each.decider}",
)
def test_draws_follow_the_closed_form(each):
    n, vocab = 20_000, 40
    base, rl = logits(1, vocab, seed=5)
    at = torch.full((n,), 100)
    where = Requests(torch.arange(n) * 7919 + 13, at, at * 0)
    got = decided(base.expand(n, -1), rl.expand(n, -1), each, where)
    law, replaced = distribution({"base": base, "rl": rl}, Rules.compile([each]), taken(where, [0]))
    assert p_value(torch.bincount(got.token, minlength=vocab), law[0]) > 1e-3
    spread = (replaced.item() * (1 - replaced.item()) / n) ** 0.5
    assert abs(got.replaced.double().mean().item() - replaced.item()) <= 4 * spread


@pytest.mark.parametrize("path", PATHS)
def test_coupling_gives_the_targets_law_and_replaces_least(path):
    n, vocab = 400, 30
    base, rl = logits(n, vocab, seed=7)
    base[:100] = rl[:100]  # nothing to do there
    rules = [rule("coupling", ("base", "rl")[i % 2], gamma=(0.0, 0.5)[i // 2 % 2], top_p=0.9) for i in range(n)]
    both = {"base": base, "rl": rl}
    (law, replaced), (wanted, _), (alone, _) = (
        distribution(both, Rules.compile([replace(each, gate=gate(name)) for each in rules]))
        for name in ("coupling", "always", None)
    )
    assert torch.allclose(law, wanted)
    assert torch.allclose(replaced, (wanted - alone).abs().sum(1) / 2)
    with PATHS[path]():
        got = decided(base, rl, rules)
    assert got.changed.equal(got.replaced)  # what is redrawn is never what was proposed
    assert not got.replaced[:100].any()
    assert (wanted.gather(1, got.token[:, None]) > 0).all()


def test_identities():
    n, vocab = 500, 30
    base, rl = logits(n, vocab, seed=9)
    where = requests(n, seed=2)

    def tokens(name, tau=None, gamma=0.0, **others):
        return decided(base, rl, rule(name, "base", tau, gamma, **{"top_p": 0.7, **others}), where)

    never = tokens(None)
    assert never.token.equal(never.proposed)
    assert not never.replaced.any()
    # always, gamma 0 is RL: the same tokens RL alone draws from the same numbers
    alone = draw(torch.log_softmax(rl, 1).exp(), torch.full((n,), 0.7, dtype=torch.float64), where.noise(REDRAW))
    assert tokens("always").token.equal(alone)
    # extrapolating by nothing is replacing, to the token
    assert tokens("delta_logp", -0.2).token.equal(tokens("delta_logp", -0.2, 1e-12).token)
    # a threshold nothing reaches is the primary; one everything reaches is the target
    assert tokens("delta_logp", -1e9).token.equal(never.token)
    assert tokens("delta_logp", 1e9).token.equal(alone)
    # low temperature is greedy
    assert tokens(None, temperature=1e-6).token.equal(base.argmax(-1))
    assert tokens("always", temperature=1e-6).token.equal(rl.argmax(-1))
    # more and more extrapolation ends at the token RL raised most
    raised = torch.log_softmax(rl, -1) - torch.log_softmax(base, -1)
    assert tokens("always", gamma=1e4).token.equal(raised.argmax(-1))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("top_p", [0.0, 0.7, 1.0])
def test_a_veto_never_writes_the_rejected_token(top_p, path):
    """Also where that token is all of the target's nucleus, or all that a draw sees of it; unless there is no other."""
    n, vocab = 300, 30
    base, rl = logits(n, vocab, seed=11)
    base[:100, 4] = 12.0  # all of base's nucleus
    base[100:150, 4] = 60.0  # the others weigh less than 2^-60
    base[150:160] = float("-inf")
    base[150:160, 4] = 0.0  # base has no other token
    rl[:160, 4] = -5.0
    each = rule("delta_logp", "base", -0.5, -1.0, top_p=top_p, **VETO)
    where = requests(n, seed=5)
    with PATHS[path]():
        got = decided(base, rl, each, where)
    assert got.replaced[:160].all()
    assert got.changed[:150].all()
    assert not got.changed[150:160].any()
    assert got.changed[160:].equal(got.replaced[160:])
    assert got.replaced[160:].any()
    # it is what base draws with the same noise once it cannot give that token
    rest = base.scatter(1, got.proposed[:, None], float("-inf"))
    rest[150:160] = base[150:160]
    share = torch.full((n,), top_p, dtype=torch.float64)
    drawn = draw(rest.log_softmax(1).exp(), share, where.noise(REDRAW)) if top_p else rest.argmax(1)
    assert got.token.equal(torch.where(got.replaced, drawn, got.proposed))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("primary", ["base", "rl"])
@pytest.mark.parametrize("top_p", [0.0, 0.7, 1.0])
def test_where_the_other_model_decides_it_draws_as_a_replacement_does_and_the_writer_as_a_veto(top_p, primary, path):
    """The two-by-two: reject's token goes where replace changes it; what is written is base's, without the token."""
    n, vocab = 400, 30
    base, rl = logits(n, vocab, seed=13)
    where, gamma = requests(n, seed=6), {"base": (0.0, -1.0), "rl": (-1.0, 0.0)}[primary]  # of the other, of its own
    with PATHS[path]():
        redrawn = decided(base, rl, rule("kl", primary, 0.05, gamma[0], top_p=top_p), where)
        reject = decided(
            base, rl, rule("kl", primary, 0.05, gamma[1], top_p=top_p, **{"base": RL, "rl": BASE}[primary]), where
        )
    assert (reject.proposed.equal(redrawn.proposed), reject.replaced.equal(redrawn.replaced)) == (True, True)
    assert reject.changed.equal(redrawn.changed)
    assert 0.2 * n < reject.changed.sum() < n
    rest = (base if primary == "base" else rl).scatter(1, reject.proposed[:, None], float("-inf"))
    share = torch.full((n,), top_p, dtype=torch.float64)
    drawn = draw(rest.log_softmax(1).exp(), share, where.noise(REWRITE)) if top_p else rest.argmax(1)
    assert reject.token.equal(torch.where(reject.changed, drawn, reject.proposed))


@pytest.mark.parametrize("path", PATHS)
def test_a_statistic_at_its_threshold_replaces_nothing(path):
    base, _ = logits(60, 30)
    rules = [rule(name, tau=0.0, side=side) for name in ("delta_logp", "kl") for side in ("below", "above")] * 15
    with PATHS[path]():
        assert not decided(base, base.clone(), rules).replaced.any()  # of equal models both are 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("top_p", [0.0, 0.9, 1.0])
def test_gamma_is_one_family_from_base_to_beyond_rl(top_p, path):
    """Its ends are base and RL to the bit, also where a model cannot give a token; between them such tokens go."""
    n, vocab = 400, 30
    base, rl = logits(n, vocab, seed=4)
    base[::2, ::3], rl[1::2, ::5] = -torch.inf, -torch.inf
    where = requests(n, seed=3)
    share = torch.full((n,), top_p, dtype=torch.float64)

    def alone(model):
        drawn = draw(torch.log_softmax(model, 1).exp(), share, where.noise(REDRAW))
        return drawn if top_p else model.argmax(1)

    with PATHS[path]():
        tokens = {g: decided(base, rl, rule("always", gamma=g, top_p=top_p), where).token for g in (-1.0, 0.0, -0.5)}
        assert tokens[-1.0].equal(alone(base))
        assert tokens[0.0].equal(alone(rl))
    possible = base.isfinite() & rl.isfinite()
    assert possible.gather(1, tokens[-0.5][:, None]).all()
    law, _ = distribution({"base": base, "rl": rl}, Rules.compile([rule("always", gamma=-0.5)] * n))
    geometric = torch.where(possible, (base.double() + rl.double()) / 2, -torch.inf).softmax(1)
    assert torch.allclose(law, geometric, atol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_greedy_rows_take_the_arg_max_of_the_logits(path):
    """Ties go to the lowest id; logits that the softmax cannot tell apart are told apart; draws beside them stay."""
    n, vocab = 120, 40
    base, rl = ((each * 2).round() / 2 for each in logits(n, vocab, seed=2))  # many ties
    rl[::2, 30] = rl[::2].amax(1)
    rl[::2, 35] = torch.nextafter(rl[::2, 30], torch.tensor(torch.inf))
    expected = {"base": base.argmax(1), "rl": rl.argmax(1), "extra": (rl + 0.5 * (rl - base)).argmax(1)}
    first = rl == rl.amax(1, keepdim=True)
    assert expected["rl"].equal(first.int().argmax(1))
    assert (expected["rl"][::2] == 35).all()
    assert (first.sum(1) > 1).any()
    where = requests(n)

    def tokens(*fields, top_ps=(0.0,)):
        rules = [rule(*fields, top_p=top_ps[i % len(top_ps)]) for i in range(n)]
        return decided(base, rl, rules, where)

    with PATHS[path]():
        assert tokens(None, "base").token.equal(expected["base"])
        assert tokens(None, "rl").token.equal(expected["rl"])
        assert tokens("always", "base").token.equal(expected["rl"])
        assert tokens("always", "base", None, 0.5).token.equal(expected["extra"])
        gated = tokens("delta_logp", "base", -0.1, 0.5)
        greedy, mixed, sampled = (tokens("kl", "rl", 0.1, 0.5, top_ps=each) for each in ((0.0,), (0.0, 0.7), (0.7,)))
    assert gated.proposed.equal(expected["base"])
    assert gated.token.equal(torch.where(gated.delta_logp < -0.1, expected["extra"], expected["base"]))
    assert 0 < gated.replaced.sum() < n
    lb, lr = base.log_softmax(1), rl.log_softmax(1)  # at temperature 1
    assert torch.allclose(gated.delta_logp, (lr - lb).gather(1, expected["base"][:, None])[:, 0], atol=1e-5)
    assert mixed.token[::2].equal(greedy.token[::2])
    assert mixed.token[1::2].equal(sampled.token[1::2])


def broken_rows(n, vocab, seed=0):
    """Both models' logits, and which rows of them are no distribution: every third row of either model."""
    base, rl = logits(n, vocab, seed=seed)
    for i in range(0, n, 3):
        each = (base, rl)[i % 2]
        each[i, (i // 6) % vocab] = (float("nan"), float("inf"))[i // 6 % 2]
        if i % 4 == 0:
            each[i] = (float("nan"), float("-inf"))[i // 12 % 2]
    return base, rl, torch.arange(n) % 3 == 0


@pytest.mark.parametrize(("vocab", "path"), [(50, "as on a CPU"), (1000, "as on a CPU"), (50, "as on a GPU")])
def test_a_row_that_is_no_distribution_is_told_and_leaves_the_others_alone(vocab, path):
    rules = [replace(each, trace=0) for each in list(every_rule())[::3]]
    n = len(rules)
    base, rl, broken = broken_rows(n, vocab)
    where, kept = requests(n, seed=4), (~broken).nonzero().squeeze(1)
    with PATHS[path]():
        got = decided(base, rl, rules, where, vocab)
        alone = decided(base[kept], rl[kept], [rules[i] for i in kept.tolist()], taken(where, kept), vocab)
    assert got.delta_logp.isnan().equal(broken)
    assert ((got.token >= 0) & (got.token < vocab)).all()
    known = got.trace[:, :2].isnan()  # log p under base and RL
    assert known.any(1).equal(broken)
    assert not known.all(1).any()
    assert alone.token.equal(got.token[kept])
    assert alone.replaced.equal(got.replaced[kept])


@pytest.mark.parametrize("path", PATHS)
def test_a_row_does_not_depend_on_its_batch(path):
    """Nor on the path: as on a GPU, where no value is looked at, every token is the same."""
    rules = list(every_rule())
    base, rl = logits(len(rules), vocab=600, seed=4)
    where = requests(len(rules), seed=4)
    whole = decided(base, rl, rules, where)
    order = torch.randperm(len(rules), generator=torch.Generator().manual_seed(0))
    with PATHS[path]():
        shuffled = decided(base[order], rl[order], [rules[i] for i in order], taken(where, order))
    for name in ("token", "proposed", "replaced"):
        assert getattr(whole, name)[order].equal(getattr(shuffled, name))


@pytest.mark.parametrize("path", PATHS)
def test_padding_and_impossible_tokens_never_give_nan(path):
    n, vocab, padded = 100, 20, 32
    base, rl = logits(n, padded, seed=6)
    base[:, vocab:] = 50.0  # padding must not even be looked at
    rl[:, vocab:] = float("-inf")
    base[:, 3] = float("-inf")  # impossible for base alone
    rl[:, 5] = float("-inf")  # impossible for RL alone
    base[:, 7] = rl[:, 7] = float("-inf")  # impossible for both
    for name, primary, gamma, top_p in itertools.product(ALONE, ("base", "rl"), (0.0, 0.5), (0.7, 1.0)):
        each = rule(name, primary, 0.1 if name and "tau" in gates()[name].model_fields else None, gamma, top_p=top_p)
        with PATHS[path]():
            got = decided(base, rl, each, requests(n), vocab)
        law, replaced = distribution({"base": base[:, :vocab], "rl": rl[:, :vocab]}, Rules.compile([each] * n))
        assert (got.token < vocab).all()
        assert (got.token != 7).all()
        assert not got.delta_logp.isnan().any()
        assert not law.isnan().any()
        assert not replaced.isnan().any()
        assert torch.allclose(law.sum(-1), torch.ones(n, dtype=torch.float64))
        assert (law.gather(1, got.token[:, None]) > 0).all()


def test_half_precision_logits_are_decided_in_float32():
    base, rl = (x.bfloat16() for x in logits(100, 40, seed=8))
    each = rule("delta_logp", "base", -0.1, 0.2, top_p=0.7)
    half, full = (decided(b, r, each) for b, r in ((base, rl), (base.float(), rl.float())))
    assert half.delta_logp.dtype == torch.float32
    assert half.token.equal(full.token)


def test_a_decision_looks_at_no_value():
    """On a GPU each of these operators would be waited for. Flat rows: no head of likely tokens settles them."""
    rules = list(every_rule())
    rules[:3] = [replace(each, trace=2) for each in rules[:3]]
    base, rl = logits(len(rules), vocab=600, scale=0.1)
    where, compiled = requests(len(rules)), Rules.compile(rules)

    def waits(path):
        with PATHS[path]():
            decide({"base": base, "rl": rl}, compiled, where)  # the first step of a batch finds its rows' indices
            return {*watched(lambda: decide({"base": base, "rl": rl}, compiled, where))["waits"]}

    assert waits("as on a GPU") == set()
    assert "nonzero" in waits("as on a CPU")


def test_a_rule_crosses_process_boundaries():
    for each in every_rule():
        assert Rule.of_plain(each.plain()) == each
    with refuses("criterion", "margin"):
        Rule.of_plain({**rule(None).plain(), "gate": {"criterion": "margin"}})
