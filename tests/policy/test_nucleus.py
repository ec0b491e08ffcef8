"""Truncation and drawing: against the oracle, with ties, and whatever the head's size."""

import pytest
import torch

from harness.policy import draw, nucleus, truncate
from harness.policy.nucleus import draw_by_mass
from tests.policy import oracle


def policies(n, vocab, scale, ties=False, seed=0):
    logits = torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed)) * scale
    if ties:
        logits = (logits * 2).round() / 2
    return torch.log_softmax(logits, -1), torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("top_p", [0.05, 0.7, 0.95, 1.0])
def test_draw_matches_the_oracle(top_p, ties):
    logp, u = policies(300, 12, 2.0, ties)
    got = draw(logp, torch.full((300,), top_p), u)
    assert got.tolist() == [
        oracle.draw(p, top_p, x) for p, x in zip(logp.double().exp().tolist(), u.tolist(), strict=True)
    ]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("top_p", [0.1, 0.7, 0.99, 1.0])
@pytest.mark.parametrize("scale", [0.3, 3.0, 8.0], ids=["flat", "usual", "peaked"])
def test_the_head_never_changes_a_draw(scale, top_p, ties):
    logp, u = policies(200, 2000, scale, ties)
    top_p = torch.full((200,), top_p)
    whole = draw(logp, top_p, u, head=2000)
    for head in (1, 7, 64, 1024):
        assert torch.equal(draw(logp, top_p, u, head=head), whole)


def test_only_rows_that_the_head_does_not_settle_are_drawn_whole(monkeypatch):
    drawn = []
    bucketed = nucleus._draw_bucketed
    monkeypatch.setattr(nucleus, "_draw_bucketed", lambda p, *rest: drawn.append(tuple(p.shape)) or bucketed(p, *rest))
    peaked, u = policies(20, 5000, 8.0)
    flat, _ = policies(3, 5000, 0.1)
    draw(peaked, torch.full((20,), 0.7), u, head=256)
    assert drawn == []
    draw(torch.cat([peaked, flat]), torch.full((23,), 0.7), torch.cat([u, u[:3]]), head=256)
    assert drawn == [(5000,)] * 3


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.9, 0.999999, 1.0])
def test_a_draw_by_buckets_is_the_draw_of_the_sorted_row(top_p, ties):
    """Flat, peaked, with zeros and with one bucket for all; u at its ends as well."""
    rows = [policies(60, 700, scale, ties, seed)[0] for seed, scale in enumerate((0.05, 0.5, 2.0, 6.0))]
    uniform = torch.full((10, 700), -torch.log(torch.tensor(700.0)))
    logp = torch.cat([*rows, uniform])
    logp[::5, ::3] = float("-inf")
    logp = torch.log_softmax(logp, 1)
    u = torch.rand(len(logp), dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    u[:40:2], u[1:40:2] = 0.0, 1 - 2**-53
    p = logp.exp()
    expected = nucleus._draw_ordered(*nucleus._by_probability(p), torch.full((len(p),), top_p, dtype=torch.float64), u)[
        0
    ]
    got = [nucleus._draw_bucketed(row, top_p, x) for row, x in zip(p, u.tolist(), strict=True)]
    assert got == expected.tolist()


def test_rows_of_one_batch_have_their_own_top_p():
    logp, u = policies(400, 500, 2.0)
    top_p = torch.tensor([0.1, 0.5, 0.9, 1.0]).repeat(100)
    got = draw(logp, top_p, u, head=32)
    for p in (0.1, 0.5, 0.9, 1.0):
        mine = (top_p - p).abs() < 1e-6
        assert torch.equal(got[mine], draw(logp[mine], top_p[mine], u[mine], head=500))


def test_truncation_keeps_the_smallest_set_that_reaches_top_p():
    logp, _ = policies(100, 30, 2.0)
    for top_p in (0.3, 0.7, 0.999):
        got = truncate(logp, torch.full((100,), top_p))
        for p, q in zip(logp.double().exp().tolist(), got.tolist(), strict=True):
            kept = oracle.nucleus(p, top_p)
            assert q == pytest.approx([kept.get(y, 0.0) for y in range(30)], abs=1e-6)


def test_top_p_one_truncates_nothing():
    logp, _ = policies(50, 5000, 6.0)
    assert torch.allclose(truncate(logp, torch.ones(50)), logp.double().exp(), atol=1e-6)
    assert (truncate(logp, torch.ones(50)) > 0).equal(logp.exp() > 0)


def test_the_largest_u_still_draws_a_possible_token():
    logp, _ = policies(100, 300, 5.0)
    logp[:, 100:] = float("-inf")
    logp = torch.log_softmax(logp, -1)
    u = torch.full((100,), 1 - 2.0**-53, dtype=torch.float64)
    for top_p in (0.7, 1.0):
        for head in (16, 128, 300):
            assert (draw(logp, torch.full((100,), top_p), u, head=head) < 100).all()


@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.7, 0.999999, 1.0])
def test_a_draw_by_mass_is_exact(top_p):
    """Flat, peaked, tied, all alike, with zeros; masses near the edges of bins; u at its ends as well."""
    rows = [policies(24, 300, scale, ties)[0] for scale in (0.05, 2.0, 6.0) for ties in (False, True)]
    logp = torch.cat([*rows, torch.full((6, 300), -torch.log(torch.tensor(300.0)))])
    logp[::5, ::3] = float("-inf")
    mass = torch.log_softmax(logp, 1).exp() * 2.0**60
    mass[1, 10:20] = 2.0**15  # the least of one bin, and the next smaller number
    mass[2, 10:20] = torch.nextafter(torch.tensor(2.0**15), torch.tensor(0.0))
    mass[3, 1:], mass[3, 0] = 0.75, 2.0**60  # below 1: nothing
    u = torch.rand(len(mass), dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    u[:40:2], u[1:40:2] = 0.0, 1 - 2**-53
    p = torch.full((len(mass),), top_p, dtype=torch.float64)
    got = draw_by_mass(mass.clone(), p, u)
    assert got.tolist() == [
        oracle.draw_by_mass(row, top_p, x) for row, x in zip(mass.tolist(), u.tolist(), strict=True)
    ]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("top_p", [0.05, 0.7, 0.95, 1.0])
def test_a_draw_by_mass_is_a_draw(top_p, ties):
    logp, u = policies(300, 12, 2.0, ties)
    p = torch.full((300,), top_p, dtype=torch.float64)
    assert draw_by_mass(logp.exp() * 2.0**60, p, u).equal(draw(logp, p, u))
