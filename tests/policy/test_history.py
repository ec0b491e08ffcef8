"""`spike` against plain Python that keeps every number: by torch in both ways, by the kernels, ahead and once more."""

import math
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from harness.bench.fused import mixed_batch
from harness.decode.trace import over_mean_before
from harness.policy import MOST_SPAN, History, Noise, Past, Rule, RuleRow, decide, distribution
from harness.policy.history import WIDTH
from tests.policy import oracle
from tests.policy.test_decision import logits
from tests.policy.test_fused import interpreted  # noqa: F401 - a fixture

ROWS = [
    RuleRow("spike", "base", 1.1, span=3, start=5),
    RuleRow("spike", "rl", 1.5, 0.4, 0.7, 0.9, span=1, start=40),
    RuleRow("spike", "base", 0.9, below=True, span=20, start=0, since=4, until=30),
    RuleRow("ce", "base", 1.5, start=7),
    RuleRow("spike", "base", 1.2, -0.5, top_p=0.0, span=MOST_SPAN, start=1000, min_p_rl=0.1),
    RuleRow("coupling", "base", start=3),
]
STEPS = 40


def texts(vocab=9):
    """Both models' logits at every step of every row, which no token changes here: (steps, rows, vocab) twice."""
    base, rl = logits(STEPS * len(ROWS), vocab, seed=11)
    return base.view(STEPS, len(ROWS), vocab), rl.view(STEPS, len(ROWS), vocab)


def ratios(base, rl):
    """What each row's cross entropy is of its mean before, by hand: [step][row]."""
    ces = [
        [
            oracle.cross_entropy(
                oracle.softmax(base[t, i].tolist(), row.temperature), oracle.softmax(rl[t, i].tolist(), row.temperature)
            )
            for i, row in enumerate(ROWS)
        ]
        for t in range(STEPS)
    ]
    return [
        [ces[t][i] / fmean(ces[k][i] for k in range(max(0, t - row.span), t)) if t and row.span else 0.0
         for i, row in enumerate(ROWS)]
        for t in range(STEPS)
    ]  # fmt: skip


def held(row, ratio, position):
    fired = ratio < row.tau if row.below else ratio > row.tau
    return fired and oracle.opens(row, position)


def expected(base, rl):
    return [
        [held(row, ratio, row.start + t) for row, ratio in zip(ROWS, mine, strict=True)]
        for t, mine in enumerate(ratios(base, rl))
    ]


SPIKES = [i for i, row in enumerate(ROWS) if row.gate == "spike"]
STARTS = torch.tensor([row.start for row in ROWS])
KEYS = torch.arange(len(ROWS)) * 7919


@pytest.mark.parametrize("dense", [False, True])
def test_a_step_is_compared_with_those_before_it(dense):
    base, rl = texts()
    past = Past(History(len(ROWS)), torch.arange(len(ROWS)))
    wanted, fired = expected(base, rl), 0
    for t in range(STEPS):
        noise = Noise.at(KEYS, STARTS + t)
        got = decide(base[t], rl[t], Rule(ROWS), noise, dense=dense, past=past)
        fired += sum(wanted[t][i] for i in SPIKES)
        for i in SPIKES:
            row = ROWS[i]
            assert bool(got.replaced[i]) == wanted[t][i], (t, row)
            # the gate apart, it is the step of `always` or `never`
            gate = replace(row, gate="always" if wanted[t][i] else "never", since=0, until=None)
            numbers = (noise.propose[i].item(), noise.redraw[i].item(), noise.gate[i].item())
            if row.top_p:
                assert got.token[i] == oracle.step(base[t, i].tolist(), rl[t, i].tolist(), gate, *numbers)[0]
    assert 40 < fired < STEPS * len(SPIKES) - 40


def test_the_closed_form_asks_the_same():
    base, rl = texts()
    past = Past(History(len(ROWS)), torch.arange(len(ROWS)))
    for t, wanted in enumerate(expected(base, rl)):
        _, replaced = distribution(base[t], rl[t], Rule(ROWS), positions=STARTS + t, past=past)
        assert [replaced[i].item() for i in SPIKES] == pytest.approx([float(wanted[i]) for i in SPIKES])


def test_the_kernels_ask_the_same(interpreted):  # noqa: F811
    batch = mixed_batch(24, 300, padded=20, seed=6)
    rows = [
        replace(row, gate="spike", tau=1.0, below=None, span=1 + i, start=100, top_p=row.top_p or 1.0) if i % 3 else row
        for i, row in enumerate(batch.rows)
    ]
    batch = replace(batch, rows=rows, positions=torch.full((24,), 120))
    earlier = torch.rand(20, 24) * 4
    pasts = [Past(History(24), torch.arange(24)) for _ in range(2)]
    for past in pasts:
        for t, numbers in enumerate(earlier):
            past.history.write(past.cells, torch.full((24,), 100 + t), numbers)
    got = interpreted("fused", batch=batch, past=pasts[0])
    noise = Noise.at(batch.keys, batch.positions)
    how = {"vocab_size": 300, "dense": True, "proposed": got.proposed, "past": pasts[1]}
    want = decide(batch.base, batch.rl, Rule(rows), noise, **how)
    ours = torch.tensor([row.gate == "spike" for row in rows])
    assert got.replaced[ours].equal(want.replaced[ours])
    assert got.token[ours & ~got.replaced].equal(got.proposed[ours & ~got.replaced])
    assert 3 < int(want.replaced[ours].sum()) < int(ours.sum()) - 3


def test_positions_decided_ahead_and_once_more_are_the_same():
    """A draft's positions in one call, some of which are thrown away; then a step back, as after a preemption."""
    base, rl = texts()
    wanted = expected(base, rl)
    past = Past(History(len(ROWS)), torch.arange(len(ROWS)))
    t = 0
    for k, kept in ((5, 3), (1, 1), (8, 8), (6, 2), (9, 4), (3, -6), (7, 7)):
        rows = torch.arange(len(ROWS)).repeat_interleave(k)
        ahead = torch.arange(k).repeat(len(ROWS)) + t
        noise = Noise.at(KEYS[rows], STARTS[rows] + ahead)
        got = decide(base[ahead, rows], rl[ahead, rows], Rule(ROWS).take(rows), noise, past=past.take(rows))
        for n, (row, at) in enumerate(zip(rows.tolist(), ahead.tolist(), strict=True)):
            if row in SPIKES:
                assert bool(got.replaced[n]) == wanted[at][row]
        t += kept


def test_a_number_that_is_missing_is_noticed():
    row = RuleRow("spike", "base", 1.1, span=3, start=5)
    base, rl = logits(1, 9)
    for dense in (False, True):
        past = Past(History(2), torch.tensor([1]))
        for position, known in ((5, True), (6, True), (8, False), (9, False), (10, False), (11, True)):
            got = decide(base, rl, Rule([row]), Noise.at(KEYS[:1], torch.tensor([position])), dense=dense, past=past)
            assert got.delta_logp.isnan().item() is not known, position
            assert not (got.replaced.item() and not known)
        past.history.clear(torch.tensor([1]))
        got = decide(base, rl, Rule([row]), Noise.at(KEYS[:1], torch.tensor([12])), dense=dense, past=past)
        assert got.delta_logp.isnan().item()


def test_an_older_position_does_not_take_a_later_ones_place():
    """Of a request that comes back, a runner may show us positions in the middle, whose place a later one has."""
    history, cell = History(1), torch.tensor([0])
    for position in range(10, 10 + WIDTH + 50):
        history.write(cell, torch.tensor([position]), torch.tensor([float(position)]))
    before = history.mean(cell, torch.tensor([10 + WIDTH + 50]), torch.tensor([10]), torch.tensor([4]), 4).item()
    history.write(cell, torch.tensor([48 + 10]), torch.tensor([-1.0]))
    assert before == fmean(range(WIDTH + 56, WIDTH + 60))
    assert (
        history.mean(cell, torch.tensor([10 + WIDTH + 50]), torch.tensor([10]), torch.tensor([4]), 4).item() == before
    )


def test_a_whole_trace_says_the_same():
    values = torch.rand(60, dtype=torch.float64).float()
    values[7] = values[20:25] = 0.0
    for span in (1, 4, 100):
        past = Past(History(1), torch.tensor([0]))
        at = [torch.tensor([i]) for i in range(60)]
        zero, spans = torch.tensor([0]), torch.tensor([span])
        ours = [past.spike(values[i : i + 1], at[i], zero, spans, span).item() for i in range(60)]
        assert over_mean_before(values.numpy(), span).tolist() == pytest.approx(ours)
        assert ours[0] == ours[7] == 0.0
        assert math.isinf(max(ours)) == (span < 5)


def test_what_spike_needs_is_asked_for():
    base, rl = logits(1, 9)
    row = RuleRow("spike", tau=1.0, span=3)
    with pytest.raises(ValueError, match="past are missing"):
        decide(base, rl, Rule([row]), Noise.at(KEYS[:1], KEYS[:1]))
    for span in (0, MOST_SPAN + 1):
        with pytest.raises(ValueError, match=f"span={span} is refused; accepted: 1 to 256"):
            Rule([replace(row, span=span)])
