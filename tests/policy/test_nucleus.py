"""Truncations and drawing: against the oracle, definitions and transformers' own, with ties, whatever the way."""

import pytest
import torch

from rlvr_dir.policy import nucleus
from rlvr_dir.policy.nucleus import draw_by_head, draw_by_mass
from rlvr_dir.policy.rule import Rule, Rules
from rlvr_dir.policy.target import weights
from tests.policy import oracle


def policies(n, vocab, scale, ties=False, seed=0):
    logits = torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed)) * scale
    if ties:
        logits = (logits * 2).round() / 2
    u = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return torch.log_softmax(logits, -1).exp(), u


def whole(n, top_p):
    return torch.full((n,), top_p, dtype=torch.float64)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("top_p", [0.05, 0.7, 0.95, 1.0])
def test_draw_matches_the_oracle(top_p, ties):
    p, u = policies(300, 12, 2.0, ties)
    got = nucleus.draw(p.clone(), whole(300, top_p), u)
    wanted = [oracle.draw(each, top_p, x) for each, x in zip(p.double().tolist(), u.tolist(), strict=True)]
    assert got.tolist() == wanted


@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.7, 0.999999, 1.0])
def test_every_way_of_drawing_is_exact(top_p):
    """Flat, peaked, tied, all alike, with zeros; masses near the edges of bins; u at its ends as well."""
    rows = [policies(24, 300, scale, ties)[0] for scale in (0.05, 2.0, 6.0) for ties in (False, True)]
    p = torch.cat([*rows, torch.full((6, 300), 1 / 300)])
    p[::5, ::3] = 0.0
    mass = p / p.sum(1, keepdim=True) * 2.0**60
    mass[1, 10:20] = 2.0**15  # the least of one bin, and the next smaller number
    mass[2, 10:20] = torch.nextafter(torch.tensor(2.0**15), torch.tensor(0.0))
    mass[3, 1:], mass[3, 0] = 0.75, 2.0**60  # below 1: nothing
    u = torch.rand(len(mass), dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    u[:40:2], u[1:40:2] = 0.0, 1 - 2**-53
    share = whole(len(mass), top_p)
    wanted = [oracle.draw_by_mass(row, top_p, x) for row, x in zip(mass.tolist(), u.tolist(), strict=True)]
    assert draw_by_mass(mass.clone(), share, u).tolist() == wanted
    for head in (1, 7, 64, 300):
        assert draw_by_head(mass.clone(), share, u, head).tolist() == wanted


def test_a_number_times_a_mass_is_rounded_down_exactly():
    made = torch.Generator().manual_seed(3)
    u = torch.rand(2000, dtype=torch.float64, generator=made)
    mass = torch.randint(1 << 61, (2000,), generator=made)
    u[:2], mass[1:3] = 1 - 2**-53, (1 << 61) - 1
    wanted = [int(x * 2**53) * m >> 53 for x, m in zip(u.tolist(), mass.tolist(), strict=True)]
    assert nucleus._times(u, mass).tolist() == wanted


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("scale", [0.3, 3.0, 8.0], ids=["flat", "usual", "peaked"])
def test_rows_of_one_batch_have_their_own_top_p(scale, ties):
    p, u = policies(400, 2000, scale, ties)
    top_p = torch.tensor([0.1, 0.5, 0.9, 1.0], dtype=torch.float64).repeat(100)
    got = draw_by_head(p * 2.0**60, top_p, u, 32)
    assert got.equal(draw_by_mass(p * 2.0**60, top_p, u))
    for share in (0.1, 0.5, 0.9, 1.0):
        mine = top_p == share
        assert got[mine].equal(nucleus.draw(p[mine], top_p[mine], u[mine]))


def test_only_rows_that_the_head_does_not_settle_are_drawn_whole(monkeypatch):
    drawn = []
    for name in ("_draw_sorted", "draw_by_mass"):
        real = getattr(nucleus, name)
        monkeypatch.setattr(nucleus, name, lambda mass, *rest, real=real: drawn.append(mass.shape) or real(mass, *rest))
    peaked, u = policies(20, 5000, 8.0)
    flat, _ = policies(3, 5000, 0.1)
    nucleus.draw(peaked.clone(), whole(20, 0.7), u)
    assert drawn == [(20, 256)]
    nucleus.draw(torch.cat([peaked, flat]), whole(23, 0.7), torch.cat([u, u[:3]]))
    assert drawn[1:] == [(23, 256), (3, 5000)]


def test_truncation_keeps_the_smallest_set_that_reaches_top_p():
    p, _ = policies(100, 30, 2.0)
    for top_p in (0.3, 0.7, 0.999):
        for each, q in zip(p.double().tolist(), nucleus.nucleus(p, whole(100, top_p)).tolist(), strict=True):
            kept = oracle.nucleus(each, top_p)
            assert q == pytest.approx([kept.get(y, 0.0) for y in range(30)], abs=1e-6)


def test_top_p_one_truncates_nothing():
    p, _ = policies(50, 5000, 6.0)
    got = nucleus.nucleus(p, whole(50, 1.0))
    assert torch.allclose(got, p.double(), atol=1e-6)
    assert (got > 0).equal(p > 0)


def log_policies(n, vocab, scale, seed=0):
    logits = torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed)) * scale
    return torch.log_softmax(logits, dim=-1)


def test_greedy_rows_have_one_token_and_the_others_stay_to_the_bit():
    logp = log_policies(80, 30, 2.0)
    logp[1, [4, 9]] = logp[1].max()  # of equal ones the first
    got = weights(logp, Rules.compile([Rule(greedy=i % 2 == 1) for i in range(80)]))
    assert got[::2].equal(logp[::2].exp())
    assert got[1::2].equal(torch.nn.functional.one_hot(logp[1::2].argmax(1), 30).float())
    assert got[1].nonzero().item() == 4
