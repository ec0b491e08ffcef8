"""Given text is scored by both engines alike, token for token, in one reading."""

import numpy as np
import pytest

from rlvr_dir.bench.random_pair import random_pair
from rlvr_dir.config import Decoding, EngineSpec, Pair, Sampling
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.decode.types import BrokenLogits, GivenText
from rlvr_dir.errors import UserError
from rlvr_dir.policy.given import Scoring
from rlvr_dir.policy.trace import FACTS
from tests.conftest import vllm_spec
from tests.decode.found import found_apart
from tests.facts import refuses

SCORING = Scoring(0.9, ((0.9, 0.7), (0.9, 1.0), (0.0, 1.0)))
CONTEXT = 256
RANKS = [FACTS.index(name) for name in ("rank_base", "rank_rl")]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return random_pair(tmp_path_factory.mktemp("given"), positions=CONTEXT)


def text(name, before, n, seed=0):
    ids = np.random.default_rng(seed).integers(4, 290, before + n).tolist()
    return GivenText(name, tuple(ids[:before]), tuple(ids[before:]))


# Of every length: one token, one that ends a text in the middle, more rows than are scored at once, the whole context.
TEXTS = [
    text("line 1", 1, 1), GivenText("line 2", (5, 6), (7, 1, 8, 3, 9, 1)), text("line 3", 40, 9, 1),
    text("line 4", 3, 140, 2), text("line 5", 6, CONTEXT - 6, 3),
    *(text(f"line {i}", 5, 20 + i, i) for i in range(6, 30)),
]  # fmt: skip


@pytest.fixture(scope="module")
def reference(pair):
    with open_engine(pair, EngineSpec(backend="transformers")) as engine:
        yield dict(engine.score(TEXTS, SCORING)), engine


def assert_alike(found, wanted):
    assert found.keys() == wanted.keys() == set(range(len(TEXTS)))
    for place, table in found.items():
        assert table.shape == (len(TEXTS[place].tokens), SCORING.width)
        assert table[:, FACTS.index("proposed")].tolist() == [*TEXTS[place].tokens]
        assert np.delete(np.abs(table - wanted[place]), RANKS, axis=1).max() < 2e-4
        assert np.abs(table - wanted[place])[:, RANKS].max() <= 1


def test_a_score_is_what_decoding_says_of_the_same_token(reference):
    engine = reference[1]
    sampling = Sampling(max_tokens=40, temperature=0.9)
    requests = [
        Request(f"What is {i}?", f"t/{i}", decoding=Decoding(mode="rl"), sampling=sampling, trace=1) for i in range(4)
    ]
    for rollout in engine.generate(requests):
        [(_, table)] = engine.score([GivenText("x", rollout.prompt_token_ids, rollout.token_ids)], SCORING)
        assert np.abs(table[:, : rollout.trace.table.shape[1]] - rollout.trace.table).max() < 1e-3
        assert (table[:, -3] > table[:, -2] + np.log(0.5)).all()  # each token is in the nucleus that it was drawn from


@pytest.mark.vllm
def test_vllm_scores_as_transformers_and_decodes_afterwards(pair, reference, monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # its model is looked into
    pytest.importorskip("vllm", reason="vLLM is not installed")
    request = Request("What is 2 + 2?", "one", decoding=Decoding(mode="rl"), sampling=Sampling(max_tokens=12))
    with open_engine(pair, vllm_spec(max_num_seqs=8, self_test=False), lazily=True) as engine:
        assert_alike(dict(engine.score(TEXTS, SCORING)), reference[0])
        assert [one.token_ids for one in engine.generate([request])] == [
            one.token_ids for one in reference[1].generate([request])
        ]
        config = engine._engine.vllm_config
        assert not config.scheduler_config.enable_chunked_prefill
        assert config.model_config.max_model_len == CONTEXT + 1
        model = engine._engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner.model
        model.base.model.embed_tokens.weight.data[9] = float("nan")
        with pytest.raises(BrokenLogits):
            list(engine.score(TEXTS, SCORING))
    same = Pair(base=pair.rl, rl=pair.rl)
    with pytest.warns(UserWarning, match="are one checkpoint"):
        engine = open_engine(same, vllm_spec(max_num_seqs=8, self_test=False), lazily=True)
    with engine:
        for place, table in engine.score(TEXTS, SCORING):  # one model, read once
            assert np.abs(table[:, -3:] - reference[0][place][:, -3:]).max() < 2e-4


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
def test_runner_v2_scores_as_transformers(pair, reference, tmp_path):
    assert_alike(found_apart(tmp_path, "decode.apart_given", pair, TEXTS, SCORING), reference[0])


@pytest.mark.vllm
def test_chunked_prefill_cannot_be_asked_for(pair):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    engine = open_engine(pair, vllm_spec(vllm_args={"enable_chunked_prefill": True}), lazily=True)
    with refuses("enable_chunked_prefill"):
        list(engine.score(TEXTS, SCORING))


def test_a_score_of_another_token_is_an_error(reference, monkeypatch):
    engine = reference[1]
    wrong = reference[0][0].copy()
    wrong[0, FACTS.index("proposed")] += 1
    monkeypatch.setattr(engine, "read_given", lambda *_: iter([(0, wrong)]))
    with pytest.raises(RuntimeError, match="line 1"):
        list(engine.score(TEXTS, SCORING))


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        (text("line 7", 7, CONTEXT - 6), CONTEXT),
        (GivenText("line 7", (5,), (6, 999)), "0 to"),
        (GivenText("line 7", (999,), (6, 7)), "0 to"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_a_model_loads(pair, given, accepted):
    with open_engine(pair, EngineSpec(backend="transformers"), lazily=True) as engine:
        with refuses("texts", "line 7", accepted) as error:
            list(engine.score([TEXTS[0], given], SCORING))
        assert error.value.value == "line 7"
        assert not engine.started


def test_tokens_that_only_rl_knows_are_refused_in_the_text_and_read_in_the_prompt(pair, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(pair.rl), AutoTokenizer.from_pretrained(pair.rl)
    own = tokenizer.add_tokens(["<think>"]) and len(tokenizer) - 1
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="only rl has"):
        engine = open_engine(pair.replace(rl=str(tmp_path)), EngineSpec(backend="transformers"), lazily=True)
    with refuses("texts", "line 1", own - 1):
        list(engine.score([GivenText("line 1", (5, 6), (7, own))], SCORING))
    [(_, table)] = engine.score([GivenText("line 1", (5, own), (7, 8))], SCORING)
    assert np.isfinite(table).all()


def test_several_workers_do_not_score():
    pytest.importorskip("ray", reason="Ray is not installed")
    from rlvr_dir.decode.engine import Engine

    with pytest.raises(UserError) as error:
        Engine.read_given(type("Pool", (), {"spec": EngineSpec(workers=2)})(), TEXTS, SCORING)
    assert (error.value.argument, error.value.value) == ("workers", 2)
