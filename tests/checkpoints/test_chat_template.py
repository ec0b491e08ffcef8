"""The arguments of a chat template: honoured in every prompt, hashed and shown, or refused."""

import json
from types import SimpleNamespace

import pytest

from rlvr_dir.checkpoints.chat_template import arguments_of, unread
from rlvr_dir.config import EngineSpec, EvalSpec, parse
from rlvr_dir.decode import open_engine
from rlvr_dir.evals import evaluate
from rlvr_dir.lm_eval_model.args import parse_model_args
from rlvr_dir.lm_eval_model.lm import RlvrDirLM
from rlvr_dir.records import RecordStore
from rlvr_dir.results.settings import settings_of
from tests.checkpoints.made import THINKING, thinking
from tests.facts import refuses

OFF = {"enable_thinking": False}
TURN = [{"role": "user", "content": "1 + 1"}]
EMPTY = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


@pytest.fixture(scope="module")
def pair(peaked_pair, tmp_path_factory):
    """The peaked pair with Qwen3's argument in its template."""
    return thinking(peaked_pair, tmp_path_factory.mktemp("thinking"))


@pytest.mark.parametrize(
    ("text", "kwargs"),
    [
        ("enable_thinking=false", OFF),
        ("enable_thinking=False", OFF),
        ("enable_thinking=true,effort=high;budget=12", {"enable_thinking": True, "effort": "high", "budget": 12}),
        ("date_string=2024-07-26", {"date_string": "2024-07-26"}),
        ('{"enable_thinking": false, "tags": ["a", "b"]}', {**OFF, "tags": ["a", "b"]}),
    ],
)
def test_arguments_are_written_as_name_and_value_or_as_json(text, kwargs):
    assert parse(EngineSpec, {"chat_template_kwargs": text}).chat_template_kwargs == kwargs


@pytest.mark.parametrize("text", ["enable_thinking", "=false", "{enable_thinking: false", "a=1,a=2", "a b=1"])
def test_what_is_neither_is_refused(text):
    with refuses("chat_template_kwargs", "NAME", "VALUE", "enable_thinking"):
        parse(EngineSpec, {"chat_template_kwargs": text})


def test_the_arguments_of_a_template_are_what_it_reads_beside_the_conversation():
    assert arguments_of(SimpleNamespace(chat_template=THINKING)) == {"enable_thinking"}
    own = "{% set ns = namespace(n=0) %}{{ bos_token }}{{ strftime_now('%d') }}{{ range(3) | join(sep) }}{{ messages }}"
    assert arguments_of(SimpleNamespace(chat_template=own)) == {"sep"}
    assert arguments_of(SimpleNamespace(chat_template=None)) == set()
    assert unread({}, SimpleNamespace(chat_template=None)) is None


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"enable_thinkin": False}, "enable_thinkin enable_thinking"),
        ({**OFF, "tokenize": True}, "tokenize enable_thinking"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
    ],
)
def test_an_argument_that_the_template_does_not_read_is_refused_before_loading(pair, kwargs, sentence):
    with refuses("chat_template_kwargs", *sentence.split()):
        open_engine(pair, EngineSpec(backend="transformers", chat_template_kwargs=kwargs), lazily=True)


def test_without_a_template_every_argument_is_refused(pair, tmp_path):
    bare = thinking(pair, tmp_path)
    for role in ("base", "rl"):
        (tmp_path / role / "chat_template.jinja").unlink()
    with refuses("chat_template_kwargs", "enable_thinking"):
        open_engine(bare, EngineSpec(backend="transformers", chat_template_kwargs=OFF), lazily=True)


@pytest.mark.parametrize("backend", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_every_prompt_of_an_engine_is_written_with_them(pair, backend):
    if backend == "vllm":
        pytest.importorskip("vllm", reason="vLLM is not installed")
    plain = open_engine(pair, EngineSpec(backend=backend), lazily=True)
    given = open_engine(pair, EngineSpec(backend=backend, chat_template_kwargs=OFF), lazily=True)
    assert given.chat_prompt(TURN) == f"<|im_start|>user\n1 + 1<|im_end|>\n{EMPTY}"
    assert plain.chat_prompt(TURN) == "<|im_start|>user\n1 + 1<|im_end|>\n<|im_start|>assistant\n"
    assert given.info() == {**plain.info(), "chat_template_kwargs": OFF}  # so that no other record's hash changes


def test_an_evaluation_hashes_and_shows_them(pair, data_dir, tmp_path):
    def results(**engine):
        spec = EvalSpec(
            tasks=("amc",), pair=pair, data_dir=data_dir, limit=2, sampling={"samples": 2, "max_tokens": 4},
            engine={"backend": "transformers", **engine},
        )  # fmt: skip
        return evaluate(spec, records=tmp_path, progress=False)

    [plain], [off] = results(), results(chat_template_kwargs="enable_thinking=false")
    store = RecordStore(tmp_path)
    first, second = (store.record(result.provenance["record"]) for result in (plain, off))
    assert first.config.hash() != second.config.hash()
    assert "chat_template_kwargs" not in first.config.engine
    assert second.config.engine["chat_template_kwargs"] == OFF
    assert second.metadata.chat.endswith(") with enable_thinking=false")
    assert all(row.load().prompt_token_ids for row in second.rows.values())
    assert [one.label for one in settings_of([plain, off])] == ["rl", "rl (enable_thinking=false)"]
    [again] = results(chat_template_kwargs=json.dumps(OFF))
    assert again.provenance["record"] == off.provenance["record"]


@pytest.mark.parametrize("given", [OFF, {"chat_template_args": OFF}, {"chat_template_kwargs": "enable_thinking=false"}])
def test_lm_evals_own_names_of_them_are_model_arguments_too(given):
    assert parse_model_args(given).spec.engine.chat_template_kwargs == OFF
    with refuses("chat_template_kwargs", "off"):
        parse_model_args({**given, "chat": "off"})
    with refuses("enable_thinking", True, False):
        parse_model_args({**given, "enable_thinking": True, "chat_template_kwargs": "enable_thinking=false"})


def test_lm_evals_prompts_are_written_with_them(pair):
    with open_engine(pair, EngineSpec(backend="transformers", chat_template_kwargs=OFF), lazily=True) as engine:
        assert RlvrDirLM(engine=engine).apply_chat_template(TURN).endswith(EMPTY)
