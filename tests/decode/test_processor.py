"""The processor's two interfaces and its channel, without an engine around them."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.decision import watched
from rlvr_dir.decode.vllm_pair import channel
from rlvr_dir.decode.vllm_pair.step import force
from rlvr_dir.policy.algorithm import Decision, decide
from rlvr_dir.policy.combine import Combination
from rlvr_dir.policy.noise import request_key
from rlvr_dir.policy.rule import Rules
from rlvr_dir.policy.step import Requests
from tests.policy.rules import PATHS, rule

pytest.importorskip("vllm", reason="vLLM is not installed")

from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from rlvr_dir.decode.types import Plan
from rlvr_dir.decode.vllm_pair.plugin import CONTEXT_KEY
from rlvr_dir.decode.vllm_pair.processor import EXTRA_ARG, PairProcessor
from rlvr_dir.decode.vllm_pair.slots import SlotTable

pytestmark = pytest.mark.vllm


def test_the_channel_is_sharp():
    n = 200_000
    generator = torch.Generator().manual_seed(0)
    delta = torch.cat([torch.randn(n, generator=generator) * 3, torch.linspace(-40, 40, n)])
    replaced = torch.rand(2 * n, generator=generator) < 0.5
    changed = replaced & (torch.rand(2 * n, generator=generator) < 0.5)
    got = channel.decode(channel.encode(replaced, changed, delta).numpy())
    assert np.array_equal(got[0], replaced.numpy())
    assert np.array_equal(got[1], changed.numpy())
    assert np.abs(got[2] - delta.clamp(-30, 30).numpy()).max() <= 2e-5
    assert channel.first_broken(channel.encode(replaced, changed, delta)[::1000].tolist()) is None


@pytest.mark.parametrize("number", [0.0, 31.0, 260.0, -1.5, float("nan"), float("-inf")])
def test_a_number_that_is_not_the_channels_is_refused(number):
    with pytest.raises(ValueError, match="lies in no band"):
        channel.decode(np.array([64.0, number]))
    with pytest.raises(ValueError, match="lies in no band"):
        channel.first_broken([64.0, number])


@pytest.mark.parametrize("width", [3, 5])
def test_what_was_proposed_comes_back_whatever_the_ids_and_the_numbers(width):
    """Beside a nucleus of vLLM's, too, which a plain request in the batch asks for: with top-p 1 it cuts nothing."""
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    vocab, n = 1 << 18, 60
    generator = torch.Generator().manual_seed(0)
    token = torch.cat([torch.arange(10), torch.randint(vocab, (n - 10,), generator=generator)])
    proposed = torch.cat([torch.arange(10) + 1, torch.tensor([vocab - 1]), torch.arange(n - 11) * 4001])
    delta, written = (torch.linspace(low, 40, n) for low in (-40, -45))
    delta[20:25], written[20:25] = (
        torch.tensor([30.0, 30, -30, -30, 0]),
        torch.tensor([30.0, -30, 30, -30, float("inf")]),
    )
    decision = Decision(token, proposed, torch.ones(n, dtype=torch.bool), delta, written)
    logits = torch.zeros(n, vocab)
    force(logits, decision, None)
    for one in (logits, apply_top_k_top_p_pytorch(logits.clone(), None, torch.ones(n))):
        assert one.max(1).indices.equal(token)
        values, ids = one.topk(width, dim=1)
        changed = channel.decode(values[:, 0].numpy())[1]
        assert changed.all()
        returned = [*zip(ids.tolist(), values.tolist(), strict=True)]
        got, nats = channel.decode_proposals(token.tolist(), changed, delta.numpy(), returned.__getitem__)
        assert (got == proposed.numpy()).all()
        assert np.abs(nats - written.clamp(-30, 30).numpy()).max() <= 4e-5


def test_what_is_no_number_comes_back_as_none():
    replaced, changed = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    sent = channel.encode(replaced, changed, torch.tensor([float("nan"), -0.5, float("nan")]))
    assert sent.isfinite().all()  # vLLM's sampler meets numbers alone
    got = channel.decode(sent.numpy())
    assert np.isnan(got[2]).tolist() == [True, False, True]
    assert [channel.first_broken(sent[at:].tolist()) for at in range(4)] == [0, 1, 0, None]
    assert (got[0].tolist(), got[1].tolist()) == ([False, True, False], [False, False, False])
    table = torch.tensor([[-1.0, float("nan"), 0.5, 0.7, float("nan"), float("nan"), 3.0, 0.0, 17.0, 0.1, 0.2]])
    sent = channel.encode_trace(table)
    assert sent.isfinite().all()
    ids = channel.slots(torch.tensor([4]), 13)[0].tolist()[channel.PROPOSAL :]
    np.testing.assert_array_equal(channel.decode_trace([4], lambda _: (ids, sent[0].tolist()), 11), table.numpy())


ROWS = [
    rule("delta_logp", "base", -0.1, 0.0, 1.0, 0.8),
    rule(None, "rl", top_p=0.7),
    rule("kl", "base", 0.05, 0.5, 1.2, 1.0),
    rule("always", "base", None, 0.3, 1.0, 0.9),
]


class Runner:
    """The processor as runner V1 or V2 drives it, beside a model of random logits: V1's rows are V2's slots."""

    def __init__(self, interface="V2", vocab=40, padded=48, slots=16):
        self.v1, self.vocab = interface == "V1", vocab
        generator = torch.Generator().manual_seed(1)
        self.base = torch.randn(6, padded, generator=generator) * 2
        self.rl = self.base + torch.randn(6, padded, generator=generator) * 0.3
        self.model = SimpleNamespace(logits={"base": self.base}, combination=Combination(vocab))
        config = SimpleNamespace(
            compilation_config=SimpleNamespace(static_forward_context={CONTEXT_KEY: self.model}),
            scheduler_config=SimpleNamespace(max_num_seqs=slots),
        )
        states = SimpleNamespace(max_num_reqs=slots, device=torch.device("cpu"))
        self.processor = PairProcessor(config, *((states.device, False) if self.v1 else (states,)))

    def update(self, added, removed=(), moved=(), size=6):
        """Add {slot: (its parameters, tokens of its prompt, its output)}."""
        if self.v1:
            rows = [(slot, given, [1] * prompt, output) for slot, (given, prompt, output) in added.items()]
            self.processor.update_state(BatchUpdate(size, removed=list(removed), added=rows, moved=list(moved)))
        else:
            for slot, (given, *_) in added.items():
                self.processor.add_request(slot, given)
            self.processor.apply_staged_writes()

    def step(self, logits, slots=range(6), positions=()):
        """Return what decides the next token of the requests in these slots, in order; positions are of the last."""
        context = SimpleNamespace(
            idx_mapping_np=np.array(slots),
            idx_mapping=torch.tensor(slots, dtype=torch.int32),
            pos=torch.as_tensor(positions),
        )
        return partial(self.processor.apply, logits, *([] if self.v1 else [context]))

    def apply(self, *how):
        return self.step(*how)()


def params(row, key, start=0, **others):
    plan = Plan(row, key, start, **{"end": None, **others})
    return SamplingParams(temperature=0.0, extra_args={EXTRA_ARG: plan.plain()})


def expected(base, rl, rows, keys, positions, vocab, starts=None):
    at = torch.tensor(positions)
    starts = at * 0 if starts is None else torch.tensor(starts)
    where = Requests(torch.tensor(keys), at, starts)
    return decide({"base": base, "rl": rl}, Rules.compile(rows), where, Combination(vocab))


def forced(logits):
    """(token, number) of each row that has one finite logit, or two more where the token changed; else None."""
    found = []
    for row in logits:
        number, token = row.max(0)
        changed = 3 * channel.BAND - 30 <= number < channel.NO_NUMBER - 30
        found.append((token.item(), number.item()) if row.isfinite().sum() == (3 if changed else 1) else None)
    return found


def test_a_response_that_no_model_can_go_on_with_is_ended():
    runner = Runner()
    runner.update({slot: (params(rule(None, "rl"), 17 + slot, end=31), 0, []) for slot in range(6)})
    wanted = forced(runner.apply(runner.rl.clone(), range(6), [3] * 6))
    runner.base[2], runner.rl[4] = float("nan"), float("nan")
    wanted[2] = wanted[4] = (31, channel.NO_NUMBER)
    assert forced(runner.apply(runner.rl.clone(), range(6), [3] * 6)) == wanted


def test_v1_follows_requests_through_removals_moves_and_swaps():
    runner, keys = Runner("V1"), [request_key(1, "q", s) for s in range(4)]
    runner.update({k: (params(ROWS[k], keys[k], 4), 4, []) for k in range(4)}, size=4)
    moves = [(3, 1, MoveDirectionality.UNIDIRECTIONAL), (0, 2, MoveDirectionality.SWAP)]
    runner.update({}, removed=[1], moved=moves, size=3)
    order = [2, 3, 0]  # which request now sits in batch rows 0, 1, 2
    base, rl = runner.base[:3], runner.rl[:3]
    runner.model.logits["base"] = base
    want = expected(base, rl, [ROWS[k] for k in order], [keys[k] for k in order], [4] * 3, runner.vocab)
    assert [token for token, _ in forced(runner.apply(rl.clone()))] == want.token.tolist()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2), ("presence_penalty", 0.5), ("repetition_penalty", 1.1), ("logit_bias", {3: 1.0}), ("min_tokens", 4),
        ("structured_outputs", {"regex": "[0-9]+"}),
    ],
    ids=str,
)  # fmt: skip
def test_what_would_move_one_model_only_is_refused(name, value):
    good = params(ROWS[0], 1)
    PairProcessor.validate_params(good)
    setattr(good, name, value)
    with pytest.raises(ValueError, match=f"{name}="):
        PairProcessor.validate_params(good)


@pytest.mark.parametrize(
    ("ours", "trace"),
    [(range(6), None), (range(6), 2), ((0, 1, 3, 5), None), ((0, 1, 3, 5), 2)],
    ids=["all", "all traced", "beside plain requests", "traced beside plain requests"],
)
@pytest.mark.parametrize("interface", ["V1", "V2"])
def test_a_step_forces_what_is_decided_and_a_steady_one_waits_for_nothing(interface, ours, trace):
    """In slots of any order, one of which an earlier request had; of the pair's requests alone.

    As on a GPU, on a CPU: what would be a wait or a copy to the device there is an operator here as well.
    """
    runner, keys = Runner(interface, vocab=600, padded=608), [request_key(0, "p", s) for s in range(6)]
    rules = [*ROWS, rule("random", "base", 0.3, 0.0, 1.0, 0.8), rule("ce", "rl", 0.9, 0.1, since=1, until=3)]
    outputs, starts = [[7] * s for s in range(6)], [5, 9, 2, 30, 4, 4]
    asked = [
        params(replace(rules[k], trace=trace), keys[k], starts[k]) if k in ours else SamplingParams() for k in range(6)
    ]
    slots = range(6) if runner.v1 else [11, 3, 8, 0, 7, 4]
    if not runner.v1:
        runner.update({11: (params(ROWS[3], 17), 0, [])})  # a request that has ended; nobody says so
    runner.update({slot: (asked[k], starts[k], outputs[k]) for k, slot in enumerate(slots)})
    for step in range(4):
        rl = runner.rl + 0.1 * step
        logits, positions = rl.clone(), [start + len(output) for start, output in zip(starts, outputs, strict=True)]
        decide_them = runner.step(logits, slots, torch.tensor(positions) - 1)
        with PATHS["as on a GPU"]():
            found = watched(decide_them)
        assert found["waits"] == [] or step == 0
        want = expected(runner.base, rl, rules, keys, positions, runner.vocab, starts)
        numbers = channel.encode(want.replaced, want.changed, want.delta_logp)
        for k in range(6):
            top = logits[k].max(0)
            assert (top.indices, top.values) == (want.token[k], numbers[k]) if k in ours else logits[k].equal(rl[k])
            if k in ours and want.changed[k]:
                row, token = (logits[k].topk(40)), want.token[k].item()
                answered = row.indices.tolist(), row.values.tolist()
                one = np.array([True]), want.delta_logp[k : k + 1].numpy(), lambda _, answered=answered: answered
                proposed, written = channel.decode_proposals([token], *one)
                assert proposed == want.proposed[k].item()
                assert written == pytest.approx(want.delta_logp_written[k].item(), abs=4e-5)
            outputs[k].append(want.token[k].item())


# What these decide depends on where the response stands: on the noise of the place, and on a window.
PLACED, START = rule("random", "base", 0.5, 0.4, top_p=0.9, since=5, until=30), 10
WORDS, SLOTS = 40, 6


def texts_of(request, position, vocab=40):
    """Both models' logits for a request at a position; each written token apart, its text is always the same."""
    generator = torch.Generator().manual_seed(1000 * request + position)
    base = torch.randn(vocab, generator=generator) * 2
    return base, base + torch.randn(vocab, generator=generator)


def alone(request, row):
    """[(token, number)] of a request that nothing interrupts."""
    found = []
    for at in range(WORDS):
        base, rl = (each[None] for each in texts_of(request, START + at))
        got = expected(base, rl, [row], [request], [START + at], None, [START])
        number = channel.encode(got.replaced, got.changed, got.delta_logp)
        found.append((got.token.item(), number.item()))
    return found


@pytest.mark.parametrize("interface", ["V1", "V2"])
@pytest.mark.parametrize("seed", range(4))
def test_a_preempted_request_goes_on_at_the_position_where_it_was(interface, seed):
    """Requests come, are preempted, come back first of all in whatever slot is free, decide a token once more, end."""
    runner = Runner(interface, slots=SLOTS)
    random = np.random.default_rng(seed)
    rows = [rule("ce", "base", 2.0) if i % 7 == 3 else PLACED for i in range(40)]
    asked = [params(row, i, START) for i, row in enumerate(rows)]
    wanted = [alone(i, row) for i, row in enumerate(rows)]
    outputs = [[] for _ in rows]
    waiting, slots, preempted, decided = list(range(40)), {}, 0, 0
    while waiting or slots:
        removed = [slot for slot, i in slots.items() if len(outputs[i]) >= WORDS]
        for slot in removed:
            slots.pop(slot)
        for slot in [slot for slot in slots if random.random() < 0.05]:
            i = slots.pop(slot)
            removed.append(slot)
            if outputs[i] and random.random() < 0.5:
                outputs[i].pop()  # it was under way when the request was preempted
            waiting.insert(0, i)
            preempted += 1
        added = {}
        while waiting and len(slots) < SLOTS and random.random() < 0.8:
            slot = random.choice([slot for slot in range(SLOTS) if slot not in slots])
            slots[slot] = i = waiting.pop(0)
            added[slot] = asked[i], 10, outputs[i]
        runner.update(added, removed)
        order = list(range(SLOTS)) if runner.v1 else list(slots)
        if not slots:
            continue
        logits = [
            texts_of(slots[slot], 10 + len(outputs[slots[slot]])) if slot in slots else texts_of(99, 0)
            for slot in order
        ]
        runner.model.logits["base"], rl = (torch.stack(each) for each in zip(*logits, strict=True))
        got = forced(runner.apply(rl, order, [9 + len(outputs[slots[slot]]) for slot in order if slot in slots]))
        for slot, found in zip(order, got, strict=True):
            if slot in slots:
                i = slots[slot]
                token, number = wanted[i][len(outputs[i])]
                assert found == (token, pytest.approx(number, abs=1e-4)), (i, len(outputs[i]))
                outputs[i].append(token)
                decided += 1
    assert decided > 1600
    assert preempted > 40


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_each_number_of_a_batch_begins_at_a_multiple_of_16_bytes(rows):
    """Triton compiles a kernel anew for another address: in the first request, on a GPU (reports/gpu.md)."""
    table = SlotTable("cpu")
    for slot in range(rows):
        table.put(slot, Plan(ROWS[0], 17 + slot, 3 + slot, end=None))
    batch = table.batch(np.arange(rows))
    assert (batch.keys.tolist(), batch.starts.tolist()) == ([17, 18, 19][:rows], [3, 4, 5][:rows])
    assert [numbers.data_ptr() % 16 for numbers in (batch.keys, batch.starts)] == [0, 0]
