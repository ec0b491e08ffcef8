"""`spike` against plain Python that keeps every number: by torch in both ways, by the kernels, and once more."""

import math
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from benchmarks.closed_form import distribution
from benchmarks.fused import mixed_batch
from harness.policy.algorithm import decide
from harness.policy.combine import Pair
from harness.policy.gates import MEMORY
from harness.policy.memory import WIDTH, Memory
from harness.policy.rule import Rules
from harness.policy.step import Requests
from tests.policy import oracle
from tests.policy.rules import PATHS, decided, gate, logits, numbers, rule
from tests.policy.test_fused import interpreted  # noqa: F401 - a fixture

RULES = [
    rule("spike", "base", 1.1, span=3),
    rule("spike", "rl", 1.5, 0.4, 0.7, 0.9, span=1),
    rule("spike", "base", 0.9, side="below", span=20, since=4, until=30),
    rule("ce", "base", 1.5),
    rule("spike", "base", 1.2, -0.5, top_p=0.0, span=MEMORY, plausibility=0.1),
    rule("coupling"),
]
STEPS = 40
SPIKES = [i for i, each in enumerate(RULES) if each.gate.name == "spike"]
STARTS = torch.tensor([5, 40, 0, 7, 1000, 3])
KEYS = torch.arange(len(RULES)) * 7919


def texts(vocab=9):
    """Both models' logits at every step of every row, which no token changes here: (steps, rows, vocab) twice."""
    base, rl = logits(STEPS * len(RULES), vocab, seed=11)
    return base.view(STEPS, len(RULES), vocab), rl.view(STEPS, len(RULES), vocab)


def expected(base, rl):
    """Whether each row's cross entropy is beyond tau times its mean before, by hand: [step][row]."""

    def softmax(logits, i, t):
        return oracle.softmax(logits[t, i].tolist(), RULES[i].temperature)

    ces = [
        [oracle.cross_entropy(softmax(base, i, t), softmax(rl, i, t)) for i in range(len(RULES))] for t in range(STEPS)
    ]

    def held(i, t):
        asked = RULES[i].gate
        ratio = ces[t][i] / fmean(ces[k][i] for k in range(max(0, t - asked.span), t)) if t else 0.0
        return (ratio < asked.tau if asked.holds_below else ratio > asked.tau) and oracle.opens(RULES[i], t)

    return [[i in SPIKES and held(i, t) for i in range(len(RULES))] for t in range(STEPS)]


def where(t, memory, rows=slice(None)):
    return Requests(KEYS[rows], STARTS[rows] + t, STARTS[rows], memory, torch.arange(len(RULES))[rows])


@pytest.mark.parametrize("path", PATHS)
def test_a_step_is_compared_with_those_before_it(path):
    base, rl = texts()
    memory, rules, fired = Memory(len(RULES)), Rules.compile(RULES), 0
    for t, wanted in enumerate(expected(base, rl)):
        at = where(t, memory)
        with PATHS[path]():
            got = decide({"base": base[t], "rl": rl[t]}, rules, at)
        fired += sum(wanted)
        for i in SPIKES:
            assert bool(got.replaced[i]) == wanted[i], (t, RULES[i])
            # the gate apart, it is the step of `always` or of none
            alike = replace(RULES[i], gate=gate("always" if wanted[i] else None), since=0, until=math.inf)
            assert got.token[i] == oracle.step(base[t, i].tolist(), rl[t, i].tolist(), alike, *numbers(at)[i])[0]
    assert 40 < fired < STEPS * len(SPIKES) - 40


def test_the_closed_form_asks_the_same():
    base, rl = texts()
    memory = Memory(len(RULES))
    for t, wanted in enumerate(expected(base, rl)):
        _, replaced = distribution({"base": base[t], "rl": rl[t]}, Rules.compile(RULES), where(t, memory))
        assert [replaced[i].item() for i in SPIKES] == pytest.approx([float(wanted[i]) for i in SPIKES])


def test_the_kernels_ask_the_same(interpreted):  # noqa: F811
    batch = mixed_batch(24, 300, padded=20, seed=6)
    rows = [replace(row, gate=gate("spike", 1.0, span=1 + i)) if i % 3 else row for i, row in enumerate(batch.rows)]
    batch = replace(batch, rows=rows, positions=torch.full((24,), 120))
    earlier = torch.rand(20, 24) * 4
    memories = [Memory(24) for _ in range(2)]
    for memory in memories:
        for t, each in enumerate(earlier):
            memory.write(torch.arange(24), torch.full((24,), 100 + t), each)
    got = interpreted("fused", batch=batch, memory=memories[0], start=100)
    at = Requests(batch.keys, batch.positions, torch.full((24,), 100), memories[1], torch.arange(24))
    want = decide(batch.logits, batch.rules, at, Pair(300))
    ours = torch.tensor([row.gate is not None and row.gate.name == "spike" for row in rows])
    assert got.replaced[ours].equal(want.replaced[ours])
    assert got.token[ours & ~got.replaced].equal(got.proposed[ours & ~got.replaced])
    assert 3 < int(want.replaced[ours].sum()) < int(ours.sum()) - 3


def test_positions_decided_once_more_are_the_same():
    """A step back, as after a preemption: what is written down twice is the same number in the same place."""
    base, rl = texts()
    wanted, memory, rules = expected(base, rl), Memory(len(RULES)), Rules.compile(RULES)
    for t in (0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 7, 8, 9):
        got = decide({"base": base[t], "rl": rl[t]}, rules, where(t, memory))
        assert [bool(got.replaced[i]) for i in SPIKES] == [wanted[t][i] for i in SPIKES]


def test_a_number_that_is_missing_is_noticed():
    rules = Rules.compile([rule("spike", tau=1.1, span=3)])
    base, rl = logits(1, 9)
    memory, cell, start = Memory(2), torch.tensor([1]), torch.tensor([5])

    def at(position):
        return decide({"base": base, "rl": rl}, rules, Requests(cell, torch.tensor([position]), start, memory, cell))

    for position, known in ((5, True), (6, True), (8, False), (9, False), (10, False), (11, True)):
        got = at(position)
        assert got.delta_logp.isnan().item() is not known, position
        assert not (got.replaced.item() and not known)
    memory.clear(cell)
    assert at(12).delta_logp.isnan().item()


def test_an_older_position_does_not_take_a_later_ones_place():
    """Of a request that comes back, a runner may show us positions in the middle, whose place a later one has."""
    memory, cell = Memory(1), torch.tensor([0])
    for position in range(10, 10 + WIDTH + 50):
        memory.write(cell, torch.tensor([position]), torch.tensor([float(position)]))
    memory.write(cell, torch.tensor([48 + 10]), torch.tensor([-1.0]))
    back = torch.arange(WIDTH + 56, WIDTH + 60)
    assert memory.read(cell, back[None]).tolist() == [back.tolist()]
    assert memory.read(cell, torch.tensor([[58, 9]])).isnan().all()


def test_what_looks_back_needs_a_memory():
    base, rl = logits(1, 9)
    with pytest.raises(ValueError, match="memory is missing"):
        decided(base, rl, rule("spike", tau=1.0), Requests(KEYS[:1], KEYS[:1], KEYS[:1]))
    for span in (0, MEMORY + 1):
        with pytest.raises(ValueError, match="span"):
            rule("spike", tau=1.0, span=span)
