"""The processor's two interfaces and its channel, without an engine around them."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness.bench.decision import watched
from harness.decode.vllm_pair import channel
from harness.policy import Noise, Rule, RuleRow, decide, request_key

pytest.importorskip("vllm", reason="vLLM is not installed")
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


@pytest.mark.parametrize("number", [0.0, 31.0, 260.0, -1.5, float("nan"), float("-inf")])
def test_a_number_that_is_not_the_channels_is_refused(number):
    with pytest.raises(ValueError, match="lies in no band"):
        channel.decode(np.array([64.0, number]))


def test_what_is_no_number_comes_back_as_none():
    replaced, changed = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    sent = channel.encode(replaced, changed, torch.tensor([float("nan"), -0.5, float("nan")]))
    assert sent.isfinite().all()  # vLLM's sampler meets numbers alone
    got = channel.decode(sent.numpy())
    assert np.isnan(got[2]).tolist() == [True, False, True]
    assert (got[0].tolist(), got[1].tolist()) == ([False, True, False], [False, False, False])
    table = torch.tensor([[-1.0, float("nan"), 0.5, 0.7, float("nan"), float("nan"), 3.0, 0.0, 17.0, 0.1]])
    sent = channel.encode_trace(table)
    assert sent.isfinite().all()
    ids = channel.slots(torch.tensor([4]), 10)[0].tolist()
    np.testing.assert_array_equal(channel.decode_trace([4], [(ids, sent[0].tolist())], 10), table.numpy())


ROWS = [
    RuleRow("delta_logp", "base", -0.1, 0.0, 1.0, 0.8),
    RuleRow("never", "rl", top_p=0.7),
    RuleRow("kl", "base", 0.05, 0.5, 1.2, 1.0),
    RuleRow("always", "base", 0.0, 0.3, 1.0, 0.9),
]


def processor_and_logits(vocab=40, padded=48):
    from harness.decode.vllm_pair.plugin import CONTEXT_KEY
    from harness.decode.vllm_pair.processor import PairProcessor

    generator = torch.Generator().manual_seed(1)
    base = torch.randn(6, padded, generator=generator) * 2
    rl = base + torch.randn(6, padded, generator=generator) * 0.3
    context = {CONTEXT_KEY: SimpleNamespace(base_logits=base)}
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context=context),
        scheduler_config=SimpleNamespace(max_num_seqs=16),
    )
    return PairProcessor, config, base, rl, vocab


V2_STATES = SimpleNamespace(max_num_reqs=16, device=torch.device("cpu"))


def v2_context(slots, position):
    """A step of runner V2 as its processors see it: rows in any order, named by slots."""
    return SimpleNamespace(
        idx_mapping_np=np.array(slots),
        idx_mapping=torch.tensor(slots, dtype=torch.int32),
        pos=torch.as_tensor(position),
    )


def params(row, key, vocab):
    from vllm import SamplingParams

    from harness.decode.vllm_pair.processor import extra_args

    return SamplingParams(temperature=0.0, extra_args=extra_args(row, key, vocab))


def expected(base, rl, rows, keys, positions, vocab):
    noise = Noise.at(torch.tensor(keys), torch.tensor(positions))
    return decide(base, rl, Rule(rows), noise, vocab_size=vocab)


def forced(logits):
    """(token, number) of each row that has exactly one finite logit, else None."""
    finite = logits.isfinite()
    return [(row.nonzero().item(), logits[i][row].item()) if row.sum() == 1 else None for i, row in enumerate(finite)]


def test_a_response_that_no_model_can_go_on_with_is_ended():
    from vllm import SamplingParams

    from harness.decode.vllm_pair.processor import extra_args

    make, config, base, rl, vocab = processor_and_logits()
    processor = make(config, V2_STATES)
    for slot in range(6):
        fields = extra_args(RuleRow("never", "rl"), 17 + slot, vocab, end=31)
        processor.add_request(slot, SamplingParams(temperature=0.0, extra_args=fields))
    context = v2_context(range(6), torch.full((6,), 3))
    wanted = forced(processor.apply(rl.clone(), context))
    base[2], rl[4] = float("nan"), float("nan")
    wanted[2] = wanted[4] = (31, channel.NO_NUMBER)
    assert forced(processor.apply(rl.clone(), context)) == wanted


@pytest.mark.parametrize("interface", ["V1", "V2"])
def test_both_interfaces_force_the_decided_token(interface):
    make, config, base, rl, vocab = processor_and_logits()
    keys = [request_key(0, "p", s) for s in range(4)]
    place = [0, 2, 3, 5]  # batch rows of the pair requests; rows 1 and 4 are plain requests
    prompt, written = [5, 9, 2, 30], [0, 3, 11, 7]
    logits = rl.clone()
    if interface == "V1":
        from vllm import SamplingParams
        from vllm.v1.sample.logits_processor import BatchUpdate

        processor = make(config, torch.device("cpu"), False)
        added = [
            (place[k], params(ROWS[k], keys[k], vocab), list(range(prompt[k])), [7] * written[k]) for k in range(4)
        ]
        added += [(row, SamplingParams(), [1, 2], []) for row in (1, 4)]
        processor.update_state(BatchUpdate(batch_size=6, removed=[], added=added, moved=[]))
        got = processor.apply(logits)
    else:
        from vllm import SamplingParams

        processor = make(config, V2_STATES)
        processor.add_request(11, params(ROWS[3], 17, vocab))  # a request that has ended; nobody says so
        slot_of_row = [11, 3, 8, 0, 7, 4]  # V2 names requests by slots, in any order
        for k, row in enumerate(place):
            assert processor.add_request(slot_of_row[row], params(ROWS[k], keys[k], vocab))
        assert not processor.add_request(3, SamplingParams())
        assert not processor.add_request(7, SamplingParams())
        position = torch.zeros(6, dtype=torch.long)
        position[place] = torch.tensor([p + w - 1 for p, w in zip(prompt, written, strict=True)])
        got = processor.apply(logits, v2_context(slot_of_row, position))
    want = expected(base[place], rl[place], ROWS, keys, [p + w for p, w in zip(prompt, written, strict=True)], vocab)
    facts = channel.encode(want.replaced, want.changed, want.delta_logp)
    result = forced(got)
    assert [result[row] for row in place] == list(zip(want.token.tolist(), facts.tolist(), strict=True))
    assert result[1] is None
    assert torch.equal(got[[1, 4]], rl[[1, 4]])  # plain requests untouched


def test_v1_follows_requests_through_removals_moves_and_swaps():
    from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

    make, config, base, rl, vocab = processor_and_logits()
    processor = make(config, torch.device("cpu"), False)
    keys = [request_key(1, "q", s) for s in range(4)]
    added = [(k, params(ROWS[k], keys[k], vocab), [1] * 4, []) for k in range(4)]
    processor.update_state(BatchUpdate(batch_size=4, removed=[], added=added, moved=[]))
    processor.update_state(
        BatchUpdate(
            batch_size=3,
            removed=[1],
            added=[],
            moved=[(3, 1, MoveDirectionality.UNIDIRECTIONAL), (0, 2, MoveDirectionality.SWAP)],
        )
    )
    order = [2, 3, 0]  # which request now sits in batch rows 0, 1, 2
    config.compilation_config.static_forward_context["rlvr_pair"].base_logits = base[:3]
    got = forced(processor.apply(rl[:3].clone()))
    want = expected(base[:3], rl[:3], [ROWS[k] for k in order], [keys[k] for k in order], [4] * 3, vocab)
    assert [token for token, _ in got] == want.token.tolist()


@pytest.mark.parametrize(
    "change",
    [{"n": 2}, {"presence_penalty": 0.5}, {"repetition_penalty": 1.1}, {"logit_bias": {3: 1.0}}, {"min_tokens": 4}],
    ids=lambda c: next(iter(c)),
)
def test_what_would_move_one_model_only_is_refused(change):
    make, *_, vocab = processor_and_logits()
    good = params(ROWS[0], 1, vocab)
    make.validate_params(good)
    for name, value in change.items():
        setattr(good, name, value)
    with pytest.raises(ValueError, match=rf"{next(iter(change))}=.* is refused"):
        make.validate_params(good)


def test_guided_decoding_is_refused():
    from vllm.sampling_params import StructuredOutputsParams

    make, *_, vocab = processor_and_logits()
    guided = params(ROWS[0], 1, vocab)
    guided.structured_outputs = StructuredOutputsParams(regex="[0-9]+")
    with pytest.raises(ValueError, match=r"structured_outputs=.* is refused"):
        make.validate_params(guided)


def test_several_logits_rows_a_request_are_refused():
    make, config, _, rl, vocab = processor_and_logits()
    processor = make(config, V2_STATES)
    processor.add_request(0, params(ROWS[0], 1, vocab))
    with pytest.raises(RuntimeError, match="speculative decoding is refused"):
        processor.apply(rl.clone(), v2_context([0], torch.zeros(6)))


def test_the_watch_sees_what_it_is_there_for():
    x = torch.arange(4.0)

    def wait():
        x[x > 1]
        x.max().item()
        (x > 1).nonzero()
        torch.tensor([1, 2])

    assert {"index", "_local_scalar_dense", "nonzero", "lift_fresh"} <= {*watched(wait)["waits"]}


@pytest.mark.parametrize(
    ("ours", "trace"),
    [(range(6), None), (range(6), 2), ((0, 1, 3, 5), None), ((0, 1, 3, 5), 2)],
    ids=["all", "all traced", "beside plain requests", "traced beside plain requests"],
)
@pytest.mark.parametrize("interface", ["V1", "V2"])
def test_a_steady_step_waits_for_nothing_and_copies_nothing_to_the_device(interface, ours, trace):
    """As on a GPU (`dense`), on a CPU: what would be a wait or a copy there is an operator here as well."""
    from vllm import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate

    make, config, base, rl, vocab = processor_and_logits(vocab=600, padded=608)
    keys = [request_key(0, "p", s) for s in range(6)]
    rules = [*ROWS, RuleRow("random", "base", 0.3, 0.0, 1.0, 0.8), RuleRow("entropy_rl", "rl", 0.3, 0.1, 1.0, 0.9)]
    outputs = [[7] * s for s in range(6)]
    wanted = []
    for k, key in enumerate(keys):
        wanted.append(params(rules[k], key, vocab) if k in ours else SamplingParams())
        if k in ours:
            wanted[k].extra_args["rlvr"]["trace"] = trace
    if interface == "V1":
        processor = make(config, torch.device("cpu"), False)
        added = [(k, wanted[k], [1] * 4, outputs[k]) for k in range(6)]
        processor.update_state(BatchUpdate(batch_size=6, removed=[], added=added, moved=[]))
    else:
        processor = make(config, V2_STATES)
        for k in range(6):
            processor.add_request(k + 3, wanted[k])
        processor.apply_staged_writes()
    processor.dense = True
    context = v2_context(range(3, 9), [3 + len(output) for output in outputs])
    for step in range(4):
        logits = rl.clone() + 0.1 * step
        found = watched(partial(processor.apply, logits, *([] if interface == "V1" else [context])))
        if step:
            assert found["waits"] == []
        positions = [4 + len(output) for output in outputs]
        want = expected(base, rl + 0.1 * step, rules, keys, positions, vocab)
        for k in range(6):
            assert logits[k].argmax() == want.token[k] if k in ours else logits[k].equal(rl[k] + 0.1 * step)
        for output, token in zip(outputs, want.token.tolist(), strict=True):
            output.append(token)
        context.pos += 1


@pytest.mark.parametrize("asked", ["auto", "torch", "triton", "cuda"])
def test_the_environment_chooses_the_path_of_the_decision(asked, monkeypatch, caplog):
    from harness.decode.vllm_pair import step
    from harness.errors import UserError

    monkeypatch.setenv(step.VARIABLE, asked)
    step.decision_path.cache_clear()
    try:
        if asked == "cuda":
            with pytest.raises(UserError, match="RLVR_DIR_DECISION='cuda' is not known; accepted: auto, triton, torch"):
                step.decision_path("cpu")
        else:
            path = "triton" if asked == "triton" else "torch"
            with caplog.at_level("INFO", logger="rlvr_dir"):
                assert step.decision_path("cpu") == step.decision_path("cpu") == path
            assert [record.message for record in caplog.records] == [f"the decision of a step runs in {path} on cpu"]
    finally:
        step.decision_path.cache_clear()
