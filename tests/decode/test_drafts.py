"""Drafts change the number of passes and nothing else: every rule, alone and mixed, token by token as in lock-step."""

from collections import Counter

import numpy as np
import pytest

from rlvr_dir.config import Decoding, EngineSpec, Sampling
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.decode.drafts import Drafting
from rlvr_dir.decode.lock_step import LockStep
from tests.checkpoints.made import copied
from tests.checkpoints.test_loading import of_two_vocabularies
from tests.decode.requests import DECODINGS, assert_same, make_requests
from tests.facts import refuses

LOCK_STEP = EngineSpec(backend="transformers", dtype="float32")


@pytest.fixture
def passes(monkeypatch):
    """Count how often each model reads, by role."""
    counted, read = Counter(), LockStep.read

    def counting(self, role, *args, **kwargs):
        counted[role] += 1
        return read(self, role, *args, **kwargs)

    monkeypatch.setattr(LockStep, "read", counting)
    return counted


def decoded(pair, requests, **settings):
    with open_engine(pair, LOCK_STEP.replace(**settings)) as engine:
        return list(engine.generate(requests))


@pytest.mark.parametrize(("k", "rows"), [(2, 5), (3, 1), (8, 64), (16, 7)])
def test_all_rules_together_give_the_tokens_of_lock_step(peaked_pair, k, rows):
    requests = make_requests(len(DECODINGS), samples=1, max_tokens=24)
    assert_same(decoded(peaked_pair, requests, draft=k, max_num_seqs=rows), decoded(peaked_pair, requests))


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"top_p": 0.7, "temperature": 0.6}, {"top_p": 0.95}])
def test_greedy_and_truncated_sampling(peaked_pair, sampling):
    requests = make_requests(len(DECODINGS), samples=1, max_tokens=24, **sampling)
    assert_same(decoded(peaked_pair, requests, draft=4), decoded(peaked_pair, requests))


def test_traces_and_stop_strings(peaked_pair):
    sampling = Sampling(max_tokens=24, seed=1)
    plain = [Request(f"What is {i}?", f"test/{i}", 0, DECODINGS[2], sampling, trace=3) for i in range(6)]
    expected = decoded(peaked_pair, plain)
    [ends] = {rollout.text[4:6] for rollout in expected[:1]}
    stopped = [Request(one.prompt, one.problem, 1, one.decoding, sampling, stop=(ends,)) for one in plain]
    mine, theirs = (decoded(peaked_pair, [*plain, *stopped], **how) for how in ({"draft": 5}, {}))
    assert_same(mine, theirs)
    tables = [
        {r.request.problem: r.trace.table for r in rollouts if r.trace is not None} for rollouts in (mine, theirs)
    ]
    assert len(tables[0]) == len(plain)
    for problem, table in tables[0].items():
        np.testing.assert_allclose(table, tables[1][problem], atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*only rl has 4 tokens")
def test_a_third_model_and_tokens_that_only_rl_has(peaked_pair, tmp_path):
    for pair in (peaked_pair.replace(recipient=peaked_pair.rl), of_two_vocabularies(tmp_path)):
        requests = make_requests(len(DECODINGS), samples=1, max_tokens=16)
        assert_same(decoded(pair, requests, draft=4), decoded(pair, requests))


def test_the_other_model_reads_a_block_at_once(peaked_pair, passes):
    """If base alone writes, every draft is kept. So RL needs one pass per block, and base wastes none."""
    requests = [Request("What is 1?", "test/1", 0, Decoding(mode="base"), Sampling(max_tokens=24, seed=1))]
    [rollout] = decoded(peaked_pair, requests, draft=6)
    assert passes == {"base": rollout.n_tokens, "rl": -(-rollout.n_tokens // 6)}


def test_dropped_drafts_do_not_fill_the_caches(peaked_pair, monkeypatch):
    """RL writes alone and agrees with base seldom: most drafts are dropped, and their columns are removed."""
    widths, close = [], Drafting.close_holes

    def closing(self):
        close(self)
        widths.append((self.mask.shape[1], int(self.mask.sum(1).max()), self.caches["rl"].get_seq_length()))

    monkeypatch.setattr(Drafting, "close_holes", closing)
    requests = [
        Request(f"What is {i}?", f"test/{i}", 0, Decoding(mode="rl"), Sampling(max_tokens=200, seed=1))
        for i in range(8)
    ]
    assert_same(decoded(peaked_pair, requests, draft=8), decoded(peaked_pair, requests))
    assert max(columns / longest for columns, longest, _ in widths) <= 1.5
    assert all(cached == columns for columns, _, cached in widths)
    assert any(columns > longest for columns, longest, _ in widths)


def test_a_record_does_not_depend_on_drafts_and_who_cannot_draft_says_so(peaked_pair, tmp_path):
    with open_engine(peaked_pair, LOCK_STEP) as one, open_engine(peaked_pair, LOCK_STEP.replace(draft=4)) as other:
        assert one.info() == other.info()
    with refuses("draft", 4):
        open_engine(peaked_pair, EngineSpec(backend="vllm", draft=4))
    windowed = copied(peaked_pair, tmp_path / "windowed", {"sliding_window": 16, "use_sliding_window": True})
    with refuses("draft", 4):
        open_engine(windowed, LOCK_STEP.replace(draft=4))
