"""The context of a pair: whose positions count for which decoding, and a word where responses are cut short."""

import warnings
from importlib.util import find_spec

import pytest

from rlvr_dir.config import Decoding, EngineSpec, Sampling
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.decode.plan import plan_requests, warn_of_cuts
from rlvr_dir.records.config import RecordConfig
from tests.checkpoints.made import copied, edit
from tests.conftest import vllm_spec
from tests.facts import refuses, warns_of

PROMPT = tuple(range(4, 34))  # 30 tokens
LONG = Sampling(max_tokens=60, top_p=0.95)


@pytest.fixture
def narrow(peaked_pair, tmp_path):
    """Makes a pair whose `role` has only so many positions (and whose responses have no early end)."""

    def make(role="base", positions=40, **more):
        pair = peaked_pair
        for each in ("base", "rl"):
            changed = {"max_position_embeddings": positions, **more} if each == role else {}
            pair = copied(pair, tmp_path / f"{role}-{positions}-{each}", changed, role=each)
        return pair

    return make


def asked(mode, prompt=PROMPT, sampling=LONG, **decoding):
    return Request("", f"p/{mode}", 0, Decoding(mode=mode, **decoding), sampling, prompt_token_ids=prompt)


def lengths(pair, spec, *requests):
    """Tokens of each response by mode; each ends with its context, not with an end-of-text token."""
    with open_engine(pair, spec) as engine:
        done = list(engine.generate(requests))
    assert {r.finish_reason for r in done} == {"length"}
    return {r.request.decoding.mode: r.n_tokens for r in done}


def unending(pair):
    """The pair with an end-of-text token that its models never write, so that only the context ends a response."""
    for folder in (pair.base, pair.rl):
        edit(folder, {"eos_token_id": 310})
        edit(folder, {"eos_token_id": 310}, "generation_config.json")
        edit(folder, {"eos_token": "<pad>"}, "tokenizer_config.json")
    return pair


TAU = {"tau": -0.1}


@pytest.mark.parametrize("backend", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_bases_positions_count_only_where_base_is_read(narrow, backend):
    if backend == "vllm":
        pytest.importorskip("vllm", reason="vLLM is not installed")
    spec = EngineSpec(backend="transformers") if backend == "transformers" else vllm_spec()
    requests = (asked("base"), asked("rl"), asked("replace", **TAU))
    with pytest.warns(UserWarning, match="has no room") as seen:
        found = lengths(unending(narrow()), spec, *requests)
    assert found == {"base": 10, "rl": 60, "replace": 10}
    cuts = [str(each.message) for each in seen if "has no room" in str(each.message)]
    assert len(cuts) == 1
    assert "max_tokens=60 has no room after 1 of 1 prompts: responses are cut after 10 tokens" in cuts[0]


@pytest.mark.parametrize(
    ("role", "stated", "found", "words"),
    [
        ("rl", None, 10, "10 40 rl"),  # also for base
        ("rl", 96, 60, "max_model_len 96 rl 40"),
        ("base", 96, 60, "max_model_len 96 base 40"),
    ],
)
def test_the_limit_of_rl_counts_for_all_and_a_length_beyond_it_where_it_is_stated(narrow, role, stated, found, words):
    spec = EngineSpec(backend="transformers", max_model_len=stated)
    with warns_of(*words.split()):
        assert lengths(unending(narrow(role)), spec, asked("base"), asked("rl")) == {"base": found, "rl": found}


@pytest.mark.vllm
def test_both_engines_agree_beyond_the_positions(narrow):
    """vLLM's table of rotary angles is as long as the stated context, and holds what transformers computes."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    pair, tokens = unending(narrow("rl")), []
    for spec in (EngineSpec(backend="transformers", dtype="float32"), vllm_spec()):
        with (
            pytest.warns(UserWarning, match="was built for 40 positions"),
            open_engine(pair, spec.replace(max_model_len=96)) as engine,
        ):
            tokens.append({r.request.problem: r.token_ids for r in engine.generate([asked("base"), asked("rl")])})
    assert tokens[0] == tokens[1]


def test_the_warning_counts_prompts_and_tells_the_rooms(narrow):
    engine = open_engine(narrow(), EngineSpec(backend="transformers"), lazily=True)
    requests = [asked("base", PROMPT[:n], Sampling(max_tokens=20)) for n in (8, 15, 25, 25, 30)]
    plans = plan_requests(requests, engine.checkpoints)
    with pytest.warns(UserWarning, match="no room after 2 of 4 prompts: responses are cut after 10 to 15 tokens"):
        warn_of_cuts(plans, engine.context)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_cuts(plans, engine.context)  # it has been said
        warn_of_cuts(plans[:2], open_engine(engine.pair, engine.spec, lazily=True).context)


def test_embeddings_that_end_are_not_read_beyond(narrow):
    rope = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
    pair = narrow("rl", **rope)
    edit(pair.base, rope)
    with refuses("max_model_len", 96, "rl", 80):
        open_engine(pair, EngineSpec(backend="transformers", max_model_len=96))
    assert open_engine(pair, EngineSpec(backend="transformers"), lazily=True).context.rl_alone == 80  # 40 x 2


@pytest.mark.parametrize(
    ("rope", "positions"),
    [
        ({"rope_type": "linear", "factor": 2.0}, 80),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 40}, 40),
        ({"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 20, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0}, 40),
    ],
    ids=["linear", "yarn", "llama3"],
)  # fmt: skip
def test_scaled_positions_are_what_vllm_derives(narrow, rope, positions):
    pair = narrow("rl", rope_parameters={"rope_theta": 1e4, **rope})
    edit(pair.base, {"rope_parameters": {"rope_theta": 1e4, **rope}})
    assert open_engine(pair, EngineSpec(backend="transformers"), lazily=True).context.rl_alone == positions
    if rope["rope_type"] == "yarn":
        with refuses("max_model_len", "max_position_embeddings", 40, 80):
            open_engine(pair, EngineSpec(backend="transformers", max_model_len=64))
    if find_spec("vllm") is not None:
        from vllm.config import ModelConfig

        assert ModelConfig(pair.rl, dtype="float32").max_model_len == positions


def test_a_record_is_known_by_the_length_that_held_for_it(peaked_pair, narrow):
    def config(pair, mode, **settings):
        info = open_engine(pair, EngineSpec(backend="transformers", **settings), lazily=True).info()
        return RecordConfig.of(pair, Decoding(mode=mode), LONG, info)

    even, uneven = peaked_pair, narrow()
    assert config(even, "rl").engine["max_model_len"] == config(even, "base").engine["max_model_len"] == 1024
    assert "max_model_len_rl" not in config(even, "rl").engine  # as ever: records keep their names
    assert config(uneven, "base").engine["max_model_len"] == 40
    assert config(uneven, "rl").engine == config(even, "rl").engine
    assert config(uneven, "rl", max_model_len=32).engine["max_model_len"] == 32
