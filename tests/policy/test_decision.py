"""Algorithm 1 against the hand-written oracle, its closed form, and the identities it must obey."""

import itertools
from dataclasses import replace

import pytest
import torch
from scipy import stats

from harness.bench.decision import watched
from harness.policy import CRITERIA, GATES, History, Noise, Past, Rule, RuleRow, decide, distribution, propose
from tests.policy import oracle

ALONE = [gate for gate in GATES if gate != "spike"]  # which look at one position; test_history has the other

TAUS = {"delta_logp": (-1.0, -0.2, 0.1), "random": (0.1, 0.6)}  # all other criteria: (0.05, 0.5, 1.2)
MODES = [("base", 0.0), ("base", 0.7), ("base", -0.4), ("rl", 0.0), ("rl", 0.3), ("rl", -1.0)]  # (primary, gamma)


def logits(n, vocab, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(n, vocab, generator=generator) * scale
    return base, base + torch.randn(n, vocab, generator=generator)


def noise(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    numbers = (torch.rand(n, dtype=torch.float64, generator=generator) for _ in range(3))
    return Noise(*numbers, torch.arange(n) % 9)


def taken(draws, index):
    return Noise(*(each[index] for each in (draws.propose, draws.redraw, draws.gate, draws.positions)))


def every_rule():
    for gate in ALONE:
        for tau in TAUS.get(gate, (0.0,) if gate in ("never", "always", "coupling") else (0.05, 0.5, 1.2)):
            for (primary, gamma), top_p, temperature in itertools.product(MODES, (0.0, 0.4, 0.7, 1.0), (1.0, 0.6)):
                turn = hash((tau, gamma, top_p))
                window = ((0, None), (0, 4), (3, None))[turn % 3]
                below, least = (None, True, False)[hash(top_p) % 3], (0.0, 0.3)[turn // 3 % 2]
                narrow = ((0.0, 1.0), (0.2, 1.0), (0.0, 0.5), (0.05, 1.0))[turn // 6 % 4 if top_p else 0]
                yield RuleRow(gate, primary, tau, gamma, temperature, top_p, below, *window, least, *narrow)


@pytest.mark.parametrize("gate", ALONE)
def test_every_rule_in_one_mixed_batch_matches_the_oracle(gate):
    rows = [row for row in every_rule() if row.gate == gate or hash((row.tau, row.top_p)) % 5 == 0] * 2
    base, rl = logits(len(rows), vocab=7)
    draws = noise(len(rows), seed=1)
    for dense in (False, True):
        got = decide(base, rl, Rule(rows), draws, dense=dense)
        for i, row in enumerate(rows):
            numbers = (draws.propose[i].item(), draws.redraw[i].item(), draws.gate[i].item())
            token, proposed, replaced, delta = oracle.step(base[i].tolist(), rl[i].tolist(), row, *numbers, i % 9)
            assert (got.token[i], got.proposed[i], got.replaced[i]) == (token, proposed, replaced), row
            assert got.delta_logp[i].item() == pytest.approx(delta, abs=1e-5)
            assert bool(got.changed[i]) == (token != proposed)


def test_closed_form_matches_enumeration():
    rows = list(every_rule())
    base, rl = logits(len(rows), vocab=6, seed=3)
    law, replaced = distribution(base, rl, Rule(rows))
    for i, row in enumerate(rows):
        expected, expected_replaced = oracle.law(base[i].tolist(), rl[i].tolist(), row)
        assert law[i].tolist() == pytest.approx(expected, abs=1e-6), row
        assert replaced[i].item() == pytest.approx(expected_replaced, abs=1e-6)


def test_the_closed_form_of_a_gate_that_is_shut_is_the_proposals():
    n = 30
    base, rl = logits(n, vocab=8, seed=2)
    at = torch.arange(n)
    rows = (
        RuleRow("kl", tau=0.05, top_p=0.9, since=10, until=20),
        RuleRow("never", top_p=0.9),
        RuleRow("kl", tau=0.05, top_p=0.9),
    )
    rule, never, always = (Rule([row] * n) for row in rows)
    (law, replaced), (shut, _), (opened, share) = (
        distribution(base, rl, each, positions=at) for each in (rule, never, always)
    )
    inside = (at >= 10) & (at < 20)
    assert law[inside].equal(opened[inside])
    assert law[~inside].equal(shut[~inside])
    assert replaced.equal(torch.where(inside, share, 0.0))
    with pytest.raises(ValueError, match="positions are missing"):
        decide(base, rl, rule, Noise(*(torch.zeros(n, dtype=torch.float64) for _ in range(3))))


@pytest.mark.parametrize(
    "row",
    [
        RuleRow("never", "base", top_p=0.7),
        RuleRow("always", "base", 0.0, 3.0, 1.0, 0.9, None, 0, None, 0.2),
        RuleRow("js", "base", 0.02, 0.5, 1.0, 1.0, None, 0, None, 0.05),
        RuleRow("always", "base", gamma=0.5, top_p=0.9),
        RuleRow("delta_logp", "base", -0.2, 0.0, 1.0, 0.7),
        RuleRow("delta_logp", "base", -0.2, 0.5, 0.8, 1.0),
        RuleRow("delta_logp", "rl", 0.3, 0.1, 1.0, 0.95),
        RuleRow("kl", "base", 0.1, 0.05, 1.0, 0.7),
        RuleRow("entropy_base", "base", 0.5, 0.0, 1.3, 1.0),
        RuleRow("random", "base", 0.3, 0.2, 1.0, 0.8),
        RuleRow("coupling", "base", 0.0, 0.0, 1.0, 0.9),
        RuleRow("never", "rl", min_p=0.1),
        RuleRow("delta_logp", "base", -0.2, 0.5, typical_p=0.6),
        RuleRow("coupling", "base", typical_p=0.8),
        RuleRow("coupling", "rl", 0.0, 0.7, 0.8, 0.7),
    ],
    ids=lambda row: f"{row.gate}-{row.primary}-g{row.gamma}-p{row.top_p}-m{row.min_p}-t{row.typical_p}",
)
def test_draws_follow_the_closed_form(row):
    n, vocab = 20_000, 40
    base, rl = logits(1, vocab, seed=5)
    keys = torch.arange(n) * 7919 + 13
    got = decide(base.expand(n, -1), rl.expand(n, -1), Rule([row] * n), Noise.at(keys, torch.full((n,), 100)))
    law, replaced = distribution(base, rl, Rule([row]))
    counts = torch.bincount(got.token, minlength=vocab).double()
    assert counts[law[0] == 0].sum() == 0  # nothing outside the support
    likely = law[0] * n >= 5
    observed = torch.cat([counts[likely], counts[~likely].sum()[None]])
    expected = torch.cat([law[0][likely], law[0][~likely].sum()[None]]) * n
    if expected[-1] < 5:  # fold what is left into the smallest kept cell
        observed, expected = (torch.cat([x[:-2], x[-2:].sum()[None]]) for x in (observed, expected))
    assert stats.chisquare(observed.numpy(), expected.numpy() * (observed.sum() / expected.sum()).item()).pvalue > 1e-3
    spread = (replaced.item() * (1 - replaced.item()) / n) ** 0.5
    assert abs(got.replaced.double().mean().item() - replaced.item()) <= 4 * spread


@pytest.mark.parametrize("dense", [False, True])
def test_coupling_gives_the_targets_law_and_replaces_least(dense):
    n, vocab = 400, 30
    base, rl = logits(n, vocab, seed=7)
    base[:100] = rl[:100]  # nothing to do there
    rows = [RuleRow("coupling", ("base", "rl")[i % 2], gamma=(0.0, 0.5)[i // 2 % 2], top_p=0.9) for i in range(n)]
    rule, target = Rule(rows), Rule([replace(row, gate="always") for row in rows])
    (law, replaced), (wanted, _) = distribution(base, rl, rule), distribution(base, rl, target)
    alone, _ = distribution(base, rl, Rule([replace(row, gate="never") for row in rows]))
    assert torch.allclose(law, wanted)
    assert torch.allclose(replaced, (wanted - alone).abs().sum(1) / 2)
    got = decide(base, rl, rule, noise(n, seed=8), dense=dense)
    assert got.changed.equal(got.replaced)  # what is redrawn is never what was proposed
    assert not got.replaced[:100].any()
    assert (wanted.gather(1, got.token[:, None]) > 0).all()


def test_identities():
    n, vocab = 500, 30
    base, rl = logits(n, vocab, seed=9)
    draws = noise(n, seed=2)

    def tokens(gate, primary="base", tau=-0.2, gamma=0.0, temperature=1.0, top_p=0.7, draws=draws):
        return decide(base, rl, Rule([RuleRow(gate, primary, tau, gamma, temperature, top_p)] * n), draws)

    swapped = Noise(draws.redraw, draws.redraw, draws.gate)
    never = tokens("never")
    assert torch.equal(never.token, never.proposed)
    assert not never.replaced.any()
    # always, gamma 0 is RL: the same tokens RL alone draws from the same numbers
    assert torch.equal(tokens("always").token, tokens("never", "rl", draws=swapped).token)
    # extrapolating by nothing is replacing, to the token
    assert torch.equal(tokens("delta_logp", gamma=0.0).token, tokens("delta_logp", gamma=1e-12).token)
    # a threshold nothing reaches is the primary; one everything reaches is the target
    assert torch.equal(tokens("delta_logp", tau=-1e9).token, never.token)
    assert torch.equal(tokens("delta_logp", tau=1e9).token, tokens("always").token)
    # low temperature is greedy
    assert torch.equal(tokens("never", temperature=1e-4).token, base.argmax(-1))
    assert torch.equal(tokens("always", temperature=1e-4).token, rl.argmax(-1))
    # more and more extrapolation ends at the token RL raised most
    assert torch.equal(
        tokens("always", gamma=1e4).token, (torch.log_softmax(rl, -1) - torch.log_softmax(base, -1)).argmax(-1)
    )


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("top_p", [0.0, 0.9, 1.0])
def test_gamma_is_one_family_from_base_to_beyond_rl(top_p, dense):
    """Its ends are base and RL to the bit, also where a model cannot give a token; between them such tokens go."""
    n, vocab = 400, 30
    base, rl = logits(n, vocab, seed=4)
    base[::2, ::3], rl[1::2, ::5] = -torch.inf, -torch.inf
    draws = noise(n, seed=3)
    swapped = Noise(draws.redraw, draws.redraw, draws.gate)

    def tokens(gate, primary="base", gamma=0.0, draws=draws):
        return decide(base, rl, Rule([RuleRow(gate, primary, gamma=gamma, top_p=top_p)] * n), draws, dense=dense).token

    assert tokens("always", gamma=-1.0).equal(tokens("never", "base", draws=swapped))
    assert tokens("always", gamma=0.0).equal(tokens("never", "rl", draws=swapped))
    between = tokens("always", gamma=-0.5)
    possible = base.isfinite() & rl.isfinite()
    assert possible.gather(1, between[:, None]).all()
    law, _ = distribution(base, rl, Rule([RuleRow("always", gamma=-0.5)] * n))
    geometric = torch.where(possible, (base.double() + rl.double()) / 2, -torch.inf).softmax(1)
    assert torch.allclose(law, geometric, atol=1e-6)


@pytest.mark.parametrize("dense", [False, True])
def test_greedy_rows_take_the_arg_max_of_the_logits(dense):
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
    draws = noise(n)

    def tokens(*row, mixed=False):
        rows = [RuleRow(*row, top_p=0.0)] * n
        if mixed:
            rows = [RuleRow(*row, top_p=0.7 * (i % 2)) for i in range(n)]
        return decide(base, rl, Rule(rows), draws, dense=dense)

    assert tokens("never", "base").token.equal(expected["base"])
    assert tokens("never", "rl").token.equal(expected["rl"])
    assert tokens("always", "base").token.equal(expected["rl"])
    assert tokens("always", "base", 0.0, 0.5).token.equal(expected["extra"])
    gated = tokens("delta_logp", "base", -0.1, 0.5)
    assert gated.proposed.equal(expected["base"])
    assert gated.token.equal(torch.where(gated.delta_logp < -0.1, expected["extra"], expected["base"]))
    assert 0 < gated.replaced.sum() < n
    lb, lr = base.log_softmax(1), rl.log_softmax(1)  # at temperature 1
    assert torch.allclose(gated.delta_logp, (lr - lb).gather(1, expected["base"][:, None])[:, 0], atol=1e-5)
    mixed, sampled = (
        tokens("kl", "rl", 0.1, 0.5, mixed=True),
        decide(base, rl, Rule([RuleRow("kl", "rl", 0.1, 0.5, top_p=0.7)] * n), draws, dense=dense),
    )
    assert mixed.token[::2].equal(tokens("kl", "rl", 0.1, 0.5).token[::2])
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


@pytest.mark.parametrize(("vocab", "dense"), [(50, False), (1000, False), (50, True)])
def test_a_row_that_is_no_distribution_is_told_and_leaves_the_others_alone(vocab, dense):
    rows = list(every_rule())[::3]
    n = len(rows)
    base, rl, broken = broken_rows(n, vocab)
    draws = noise(n, seed=4)
    got = decide(base, rl, Rule(rows), draws, vocab_size=vocab, dense=dense, traced=torch.arange(n))
    assert got.delta_logp.isnan().equal(broken)
    assert ((got.token >= 0) & (got.token < vocab)).all()
    known = got.trace[:, :2].isnan()  # log p under base and RL
    assert known.any(1).equal(broken)
    assert not known.all(1).any()
    kept = (~broken).nonzero().squeeze(1)
    alone = decide(
        base[kept],
        rl[kept],
        Rule([rows[i] for i in kept.tolist()]),
        taken(draws, kept),
        vocab_size=vocab,
        dense=dense,
    )
    assert alone.token.equal(got.token[kept])
    assert alone.replaced.equal(got.replaced[kept])


def test_a_row_does_not_depend_on_its_batch():
    rows = list(every_rule())
    base, rl = logits(len(rows), vocab=50, seed=4)
    draws = noise(len(rows), seed=4)
    whole = decide(base, rl, Rule(rows), draws)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    shuffled = decide(
        base[order],
        rl[order],
        Rule([rows[i] for i in order]),
        taken(draws, order),
    )
    assert torch.equal(whole.token[order], shuffled.token)
    assert torch.equal(whole.replaced[order], shuffled.replaced)


@pytest.mark.parametrize("dense", [False, True])
def test_padding_and_impossible_tokens_never_give_nan(dense):
    n, vocab, padded = 100, 20, 32
    base, rl = logits(n, padded, seed=6)
    base[:, vocab:] = 50.0  # padding must not even be looked at
    rl[:, vocab:] = float("-inf")
    base[:, 3] = float("-inf")  # impossible for base alone
    rl[:, 5] = float("-inf")  # impossible for RL alone
    base[:, 7] = rl[:, 7] = float("-inf")  # impossible for both
    for gate, primary, gamma, top_p in itertools.product(ALONE, ("base", "rl"), (0.0, 0.5), (0.7, 1.0)):
        rule = Rule([RuleRow(gate, primary, 0.1, gamma, 1.0, top_p)] * n)
        got = decide(base, rl, rule, noise(n), vocab_size=vocab, dense=dense)
        law, replaced = distribution(base, rl, rule, vocab_size=vocab)
        assert (got.token < vocab).all()
        assert (got.token != 7).all()
        assert not got.delta_logp.isnan().any()
        assert law.shape == (n, vocab)
        assert not law.isnan().any()
        assert not replaced.isnan().any()
        assert torch.allclose(law.sum(-1), torch.ones(n, dtype=torch.float64))
        assert (law.gather(1, got.token[:, None]) > 0).all()


def test_half_precision_logits_are_decided_in_float32():
    base, rl = (x.bfloat16() for x in logits(100, 40, seed=8))
    rule = Rule([RuleRow("delta_logp", "base", -0.1, 0.2, 1.0, 0.7)] * 100)
    half, full = (decide(b, r, rule, noise(100)) for b, r in ((base, rl), (base.float(), rl.float())))
    assert half.delta_logp.dtype == torch.float32
    assert torch.equal(half.token, full.token)


@pytest.mark.parametrize(
    ("row", "name"), [(RuleRow("entropy"), "gate='entropy'"), (RuleRow(primary="both"), "primary='both'")]
)
def test_unknown_names_are_refused(row, name):
    with pytest.raises(ValueError, match=name):
        Rule([row])


def test_gates_are_the_criteria_and_three_more():
    assert set(GATES) == {*CRITERIA, "never", "always", "spike", "coupling"}


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("primary", ["base", "rl"])
def test_a_proposal_from_the_primary_alone_is_that_of_the_whole_decision(primary, dense):
    rows = [row for row in every_rule() if row.primary == primary]
    base, rl = logits(len(rows), vocab=9, seed=5)
    draws, rule = noise(len(rows), seed=6), Rule(rows)
    whole = decide(base, rl, rule, draws, vocab_size=8, dense=dense)
    proposed, fires = propose(base if primary == "base" else rl, rule, draws, vocab_size=8, dense=dense)
    assert proposed.equal(whole.proposed)
    own = torch.tensor([row.gate in ("random", f"entropy_{primary}") for row in rows])
    assert fires.equal(whole.replaced & own)
    again = decide(base, rl, rule, draws, vocab_size=8, proposed=proposed, dense=dense)
    assert again.token.equal(whole.token)
    assert again.replaced.equal(whole.replaced)
    with pytest.raises(ValueError, match="several primaries"):
        propose(base[:2], Rule([RuleRow(primary="base"), RuleRow(primary="rl")]), noise(2))


def test_rules_can_be_taken_in_any_order_and_twice():
    rows = list(every_rule())[::7]
    index = torch.randint(len(rows), (2 * len(rows),), generator=torch.Generator().manual_seed(1))
    base, rl = logits(len(index), vocab=7)
    draws = noise(len(index))
    taken = decide(base, rl, Rule(rows).take(index), draws)
    made = decide(base, rl, Rule([rows[i] for i in index]), draws)
    for name in ("token", "proposed", "replaced", "delta_logp"):
        assert getattr(taken, name).equal(getattr(made, name))


def test_a_dense_decision_looks_at_no_value():
    """On a GPU each of these operators would be waited for. Flat rows: no head of likely tokens settles them."""
    rows = [*every_rule(), *(RuleRow("spike", primary, 1.1, 0.2, span=4) for primary in ("base", "rl"))]
    base, rl = logits(len(rows), vocab=600, scale=0.1)
    draws, traced = noise(len(rows)), torch.arange(3)

    def decided(dense):
        past = Past(History(len(rows)), torch.arange(len(rows)))
        facts = {"vocab_size": 599, "dense": dense, "traced": traced, "top": 2, "past": past}
        return watched(lambda: decide(base, rl, Rule(rows), draws, **facts))

    assert {*decided(dense=True)["waits"]} <= {"lift_fresh"}  # of the rules, which are tensors already in an engine
    assert {"nonzero", "_local_scalar_dense"} <= {*decided(dense=False)["waits"]}
