"""The name of a record: what can change a token is in it, and where it was decoded is not."""

import pytest

from rlvr_dir.config import Decoding, Pair, Sampling
from rlvr_dir.records import RecordConfig, RecordStore

DECODING = Decoding(mode="replace", tau=-0.3)
INFO = {
    "backend": "vllm", "vllm": "0.32.0", "device": "cuda", "torch": "2.13.0", "algorithm": 1,
    "dtype": "bfloat16", "head_dtype": "float32", "max_model_len": 4096, "self_test": "ok", "pair": {},
    "chat_template": {"from": "x", "sha256": "ab"}, "eos_token_ids": [1, 2], "tensor_parallel_size": 1,
}  # fmt: skip
# As versions before 2026-11-29 named the records of such an engine with so much tensor parallelism.
EARLIER = {1: "91cf9e8458736841", 2: "556512d942e1a1a5", 4: "3f9ae5289211b843"}
EARLIER_SHORT = "e50a3dde8cf1a059"  # tensor parallelism 4, max_model_len 2048


def config(decoding=DECODING, longest=None, **facts):
    pair = Pair(base="org/base", rl="org/rl")
    return RecordConfig.of(pair, decoding, Sampling(), {**INFO, **facts}, prompt="p", data="d", longest=longest)


def earlier(longest=None, **facts):
    return config(longest=longest, **facts).earlier({**INFO, **facts}, DECODING)


def test_a_record_of_one_gpu_keeps_its_name():
    assert config().hash() == EARLIER[1]


@pytest.mark.parametrize(
    "facts",
    [
        {"tensor_parallel_size": 8},
        {"freed_args": {"disable_custom_all_reduce": True}},
        {"self_test": "full"},
        {"workers": 4},
        {"max_model_len": 2048, "own_max_model_len": 4096},
        {"max_model_len": 8192, "own_max_model_len": 4096},
    ],
    ids=lambda facts: " ".join(facts),
)
def test_where_a_record_is_decoded_is_no_part_of_its_name(facts):
    there = config(longest=2000, **facts)
    assert (there.hash(), there.provenance["shared"]) == (config().hash(), config().provenance["shared"])


@pytest.mark.parametrize(
    "facts",
    [
        {"dtype": "float16"},
        {"deterministic": True},
        {"vllm_args": {"kv_cache_dtype": "fp8"}},
        {"vllm": "0.33.0"},
        {"device": "cpu"},
        {"decision": "triton"},
        {"max_model_len": 2048},  # of models whose rotary angles depend on it
        {"max_model_len": 1024, "own_max_model_len": 4096},  # responses end there
    ],
    ids=lambda facts: " ".join(facts),
)
def test_what_changes_tokens_is_part_of_it(facts):
    assert config(longest=2000, **facts).hash() != config().hash()


def test_the_own_context_of_rl_counts_where_rl_is_read_alone():
    facts = {"max_model_len": 2048, "own_max_model_len": 1024, "own_max_model_len_rl": 4096}
    alone = config(Decoding(mode="rl"), longest=2000, **facts)
    assert alone.engine["max_model_len"] == 4096
    assert config(longest=2000, **facts).engine["max_model_len"] == 2048


def test_earlier_names_are_known_that_of_the_present_engine_first():
    names = [known.hash() for known in earlier(tensor_parallel_size=4)]
    assert names[0] == EARLIER[4]
    assert set(EARLIER.values()) <= set(names)
    short = {"max_model_len": 2048, "own_max_model_len": 4096, "tensor_parallel_size": 4}
    assert earlier(longest=2000, **short)[0].hash() == EARLIER_SHORT
    [first, *_] = earlier(freed_args={"disable_custom_all_reduce": True})
    assert first.hash() == "96fc6ad3bd72022c"


@pytest.mark.parametrize("begun", [1, 2, 4])
@pytest.mark.parametrize("now", [1, 2, 8])
def test_a_record_of_an_earlier_version_is_continued_under_its_name(tmp_path, begun, now):
    store = RecordStore(tmp_path)
    old = config().model_copy(update={"engine": {**config().engine, "tensor_parallel_size": begun}})
    with store.open(old, "t", ["t/0"], 1):
        assert old.hash() == EARLIER[begun]
    facts = {"tensor_parallel_size": now}
    kept = store.kept_as(config(**facts), earlier(**facts), "t")
    with store.open(kept, "t", ["t/0"], 2) as record:
        assert record.name == f"{EARLIER[begun]}/t"
        assert not record.repairs
    assert store.names() == [(EARLIER[begun], "t")]
    assert store.kept_as(config(**facts), earlier(**facts), "other").hash() == EARLIER[1]
