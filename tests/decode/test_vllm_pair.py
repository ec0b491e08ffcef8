"""The product engine on the real vLLM: right logits, right law, and the same tokens whatever happens to the batch."""

from dataclasses import replace

import numpy as np
import pytest

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.decode.progress import Progress
from rlvr_dir.decode.ray.worker import _Taking
from rlvr_dir.decode.trace import MAX_TOP
from rlvr_dir.decode.types import BrokenLogits
from rlvr_dir.errors import UserError
from tests.conftest import vllm_spec
from tests.decode.apart import requests_of
from tests.decode.found import found_apart
from tests.decode.inside import computed_logits, furthest, worker_model
from tests.decode.requests import (
    DECODINGS,
    assert_drawn_by,
    assert_same,
    by_key,
    facts,
    law_after,
    make_requests,
    read_once,
)
from tests.facts import refuses

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm", reason="vLLM is not installed")


def test_sequences_are_identical_to_the_reference_engine(vllm_engine, transformers_engine):
    requests = make_requests(36, samples=2)
    ours = list(vllm_engine.generate(requests))
    assert len(ours) == 72
    assert_same(ours, transformers_engine.generate(requests))
    by_mode = {d.label(): [r for r in ours if r.request.decoding == d] for d in DECODINGS}
    assert all(r.n_replaced == 0 for r in by_mode["base"] + by_mode["rl"])
    assert all(sum(r.n_changed for r in rows) > 0 for label, rows in by_mode.items() if "τ" in label)
    for rollout in ours:
        since, until = rollout.request.decoding.tokens(rollout.request.sampling.max_tokens)
        assert not rollout.replaced[:since].any()
        assert until is None or not rollout.replaced[until:].any()


def test_other_samplings_are_those_of_the_reference_engine_side_by_side(vllm_engine, transformers_engine):
    ways = ({"top_p": 0.95}, {"top_p": 0.3}, {}, {"top_p": 1.0, "temperature": 1.5}, {"temperature": 0})
    each = [make_requests(18, samples=1, max_tokens=24, **way) for way in ways]
    requests = [replace(row[i], problem=f"{i}/{way}") for i in range(18) for way, row in enumerate(each)]
    ours = list(vllm_engine.generate(requests))
    assert_same(ours, transformers_engine.generate(requests))
    drawn = [{r.request.problem.split("/")[0]: r.token_ids for r in ours if r.request.sampling == row[0].sampling}
             for row in each]  # fmt: skip
    assert all(one != other for i, one in enumerate(drawn) for other in drawn[:i])


def test_traces_come_back_whole_from_mixed_batches_and_change_no_token(vllm_engine, transformers_engine):
    plain = make_requests(12, samples=2)
    asked = [replace(request, trace=(None, 0, 2, 5, MAX_TOP)[i % 5]) for i, request in enumerate(plain)]
    untraced, ours = by_key(vllm_engine.generate(plain)), by_key(vllm_engine.generate(asked))
    theirs = by_key(transformers_engine.generate(asked))
    compared = 0
    for key, mine in ours.items():
        assert facts(mine) == facts(untraced[key]) == facts(theirs[key])
        if mine.request.trace is None:
            assert mine.trace is None
            continue
        assert mine.trace.top == mine.request.trace
        assert mine.trace.table.shape == theirs[key].trace.table.shape
        width = 10  # the lists of the likeliest may swap equals; the facts may not
        assert np.abs(mine.trace.table[:, :width] - theirs[key].trace.table[:, :width]).max() < 1e-3
        assert np.abs(mine.trace.fact("delta_logp") - mine.delta_logp).max() < 1e-4
        kept = ~mine.changed
        assert (mine.trace.proposed[kept] == np.array(mine.token_ids)[kept]).all()
        assert (mine.trace.proposed[mine.changed] != np.array(mine.token_ids)[mine.changed]).all()
        for model in ("base", "rl"):
            ids, logp = mine.trace.likeliest(model)
            assert ids.shape == logp.shape == (mine.n_tokens, mine.request.trace)
            assert (np.diff(logp, axis=1) <= 0).all()
        compared += mine.n_tokens
    assert compared > 300
    with refuses("trace", 11, 10):
        list(vllm_engine.generate([replace(plain[0], trace=11)]))


@pytest.mark.parametrize(("role", "trace"), [("base", None), ("rl", None), ("rl", 0)])
def test_nan_in_mid_run_names_model_request_and_position(vllm_engine, role, trace):
    requests = [replace(request, trace=trace) for request in make_requests(12, samples=1, max_tokens=24)]
    whole = by_key(vllm_engine.generate(requests))
    token, broken, at = read_once(whole.values())
    embeddings = getattr(worker_model(vllm_engine), role).model.embed_tokens.weight.data
    sound, kept = embeddings[token].clone(), []
    embeddings[token] = float("nan")
    try:
        with pytest.raises(BrokenLogits) as error:
            kept.extend(vllm_engine.generate(requests))
    finally:
        embeddings[token] = sound
        vllm_engine.forget_prompts()
    request, place = broken.request, getattr(vllm_engine.pair, role)
    assert str(error.value).startswith(
        f"{role}={place!r}: NaN or infinite logits after {at + 1} tokens of the response to "
        f"problem={request.problem!r} (sample={request.sample}, {request.decoding.label()})"
    )
    assert all(facts(rollout) == facts(whole[key]) for key, rollout in by_key(kept).items())
    assert_same(vllm_engine.generate(requests), whole.values())


def test_both_submodels_give_the_logits_of_transformers_under_chunked_prefill(vllm_engine, transformers_engine):
    found = computed_logits(vllm_engine, 5)
    assert sum(len(base) for *_, base, _ in found) >= 150
    assert furthest(found, transformers_engine) <= 1e-4


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(mode="replace", tau=-0.005),
        Decoding(mode="extrapolate", tau=-0.002, gamma=2.0),
        Decoding(mode="extrapolate", primary="rl", criterion="random", tau=0.3, gamma=1.0),
        Decoding(mode="veto", tau=-0.005),
        Decoding(mode="reject", tau=-0.005),
        Decoding(mode="replace", decider="rl", tau=-0.005),
        Decoding(mode="resample", decider=0.6, tau=-0.005),
    ],
    ids=lambda d: d.label(),
)
def test_draws_of_the_engine_follow_the_closed_form(vllm_engine, transformers_engine, decoding):
    n, sampling = 3000, Sampling(max_tokens=1, top_p=0.9, temperature=6.0)
    requests = [Request("What is 2 + 2?", "law", sample, decoding, sampling) for sample in range(n)]
    rollouts = list(vllm_engine.generate(requests))
    law, p = law_after(transformers_engine, rollouts[0].prompt_token_ids, requests[0])
    assert_drawn_by(law, [r.token_ids[0] for r in rollouts])
    share = np.mean([r.n_replaced for r in rollouts])
    assert 0.05 < p < 0.95
    assert abs(share - p) <= 4 * (p * (1 - p) / n) ** 0.5 + 1e-9


def test_plain_requests_beside_ours_change_nothing_and_sample_from_rl(vllm_engine):
    from vllm import SamplingParams

    requests = make_requests(20, samples=2)
    alone = list(vllm_engine.generate(requests))
    ids = list(alone[0].prompt_token_ids)
    for i in range(15):
        params = SamplingParams(temperature=(0.0, 0.8)[i % 2], top_p=0.9, max_tokens=20 + i, ignore_eos=True)
        vllm_engine._engine.add_request(f"plain-{i}", {"type": "token", "prompt_token_ids": ids}, params)
    assert_same(alone, vllm_engine.generate(requests))
    while vllm_engine._engine.has_unfinished_requests():
        vllm_engine._engine.step()
    compared = 0
    for i, rollout in enumerate(alone[:12]):
        ids = rollout.prompt_token_ids
        params = SamplingParams(temperature=0.0, max_tokens=12)
        vllm_engine._engine.add_request(f"greedy-{i}", {"type": "token", "prompt_token_ids": list(ids)}, params)
        while vllm_engine._engine.has_unfinished_requests():
            outputs = vllm_engine._engine.step()
        plain = outputs[0].outputs[0].token_ids
        greedy = Request("", f"greedy/{i}", 0, Decoding(mode="rl"), Sampling(temperature=0, max_tokens=12), ids)
        [ours] = vllm_engine.generate([greedy])
        for theirs, mine in zip(plain, ours.token_ids, strict=False):
            if theirs >= vllm_engine.checkpoints.vocab_size:
                break  # plain vLLM may emit an id that is padding, and goes another way from there
            assert theirs == mine
            compared += 1
    assert compared >= 24


ANOTHER_START = pytest.mark.whole(reason="vLLM in a process of its own")


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("few_blocks", id="preempted", marks=ANOTHER_START),
        pytest.param("two_ranks", id="tensor-parallel", marks=ANOTHER_START),
        pytest.param("fused", id="fused-decision-on-v2", marks=ANOTHER_START),
        pytest.param("runner_v2", id="runner-v2", marks=ANOTHER_START),  # what GPUs run
    ],
)
def test_another_engine_gives_the_same_tokens(vllm_engine, peaked_pair, tmp_path, how):
    preemptions, rollouts = found_apart(tmp_path, "decode.apart", how, peaked_pair)
    assert how not in ("few_blocks", "runner_v2") or preemptions >= 5
    requests = requests_of(how)
    ours = by_key(vllm_engine.generate(requests))
    assert_same(ours.values(), rollouts)
    traced = [rollout for rollout in rollouts if rollout.trace is not None]
    assert len(traced) == sum(request.trace is not None for request in requests)
    for rollout in traced:
        assert np.abs(rollout.trace.fact("delta_logp") - rollout.delta_logp).max() < 1e-4
        theirs = ours[rollout.request.problem, rollout.request.sample].trace.table
        assert np.abs(rollout.trace.table[:, :10] - theirs[:, :10]).max() < 1e-3


def test_a_plain_request_with_a_nucleus_beside_traces_is_one_sentence(vllm_engine):
    from vllm import SamplingParams

    requests = [replace(request, trace=2) for request in make_requests(6, samples=1)]
    params = SamplingParams(temperature=0.8, top_p=0.9, max_tokens=200, ignore_eos=True)
    vllm_engine._engine.add_request("plain", {"type": "token", "prompt_token_ids": [5, 6, 7]}, params)
    try:
        with pytest.raises(UserError) as error:
            list(vllm_engine.generate(requests))
        assert error.value.argument == "trace"
    finally:
        vllm_engine._engine.abort_request(["plain"])
    assert len(list(vllm_engine.generate(requests))) == 6


def test_a_second_engine_in_one_process_is_refused(vllm_engine, peaked_pair):
    with refuses("backend", "vllm"):
        open_engine(peaked_pair, vllm_spec())


def test_rollouts_come_as_they_finish_and_an_abandoned_run_leaves_nothing_behind(vllm_engine):
    requests = [
        Request("Hi", f"stream/{i}", sampling=Sampling(max_tokens=n)) for i, n in enumerate((200, 3, 200, 5, 200))
    ]
    stream = vllm_engine.generate(requests)
    first = next(stream)
    assert first.n_tokens <= 5
    with pytest.raises(RuntimeError, match="already generating"):
        next(vllm_engine.generate(requests))
    stream.close()
    assert not vllm_engine._engine.has_unfinished_requests()
    assert len(list(vllm_engine.generate(requests[1:2]))) == 1


def test_stop_strings_end_a_response_in_both_engines(vllm_engine, transformers_engine):
    free = by_key(transformers_engine.generate(make_requests(6, samples=1)))
    key, whole = max(free.items(), key=lambda item: len(item[1].text))
    stop = whole.text[8:10]
    request = Request(whole.request.prompt, *key, whole.request.decoding, whole.request.sampling, stop=(stop,))
    for engine in (vllm_engine, transformers_engine):
        [done] = engine.generate([request])
        assert done.finish_reason == "stop"
        assert done.text == whole.text[: whole.text.index(stop)]
        assert done.token_ids == whole.token_ids[: done.n_tokens]


def test_each_submodel_has_its_own_compile_role(vllm_engine):
    """The compile cache is keyed by the configuration; two submodels with one key load each other's code."""
    model = worker_model(vllm_engine)
    configs = [
        next(m for m in side.modules() if hasattr(m, "vllm_config")).vllm_config for side in (model.rl, model.base)
    ]
    assert [c.additional_config["rlvr_role"] for c in configs] == ["rl", "base"]
    assert configs[0].compute_hash() != configs[1].compute_hash()
    assert "head_dtype" not in vllm_engine.info()  # of float32, as before this was told: records keep their names


def test_what_comes_in_joins_vllms_running_batch(vllm_engine):
    """The half of Ray's worker that differs by engine: more requests arrive at every rollout."""
    requests = make_requests(8)
    waiting, late, served = requests[:4], requests[4:], []
    for rollout in vllm_engine.serve(_Taking(lambda held: waiting.pop() if waiting else None), Progress(0, False)):
        served.append(rollout)
        if late:
            waiting.append(late.pop())
    assert_same(served, vllm_engine.generate(requests))
