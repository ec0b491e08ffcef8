"""Files of texts: every format that trainers write, and what is refused before a model loads."""

import json
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from rlvr_dir.analysis.texts import read_rows, texts_of
from tests.facts import refuses, warns_of

PROMPT = [{"role": "user", "content": "Ann has 45 pens a gets 7 b sees 3 how many ?"}]
REPLY = [{"role": "assistant", "content": "so 45"}]


def read(tmp_path, *rows):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_rows(path)


def ids(engine, text):
    return tuple(engine.tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": PROMPT, "response": "so 45"},
        {"prompt": PROMPT, "completion": REPLY, "step": 3, "reward": 1.0, "advantage": 0.2},  # TRL, conversational
        {"input": "{prompt}", "output": "so 45", "gts": "55", "score": 1.0, "step": 3},  # verl
    ],
)
@pytest.mark.filterwarnings("ignore:.*verl")
def test_prompts_and_responses_are_tokenized_as_in_decoding(tmp_path, tiny_engine, row):
    prompt = tiny_engine.chat_prompt(PROMPT)
    row = {name: prompt if value == "{prompt}" else value for name, value in row.items()}
    [text] = texts_of(read(tmp_path, row), tiny_engine)
    assert (text.before, text.tokens) == (ids(tiny_engine, prompt), ids(tiny_engine, "so 45"))
    assert text.counted.all()
    assert text.logp is None


@pytest.mark.parametrize(
    ("row", "counted", "logp"),
    [
        ({"prompt_ids": [5, 6], "completion_ids": [7, 8], "logprobs": [-1, None]}, [1, 1], [-1, np.nan]),  # TRL
        ({"prompt_token_ids": [5, 6], "token_ids": [7, 8], "response": "x"}, [1, 1], None),  # records export
        (  # prime-rl's token exports
            {"token_ids": [5, 6, 7, 8], "loss_mask": [False, False, True, False],
             "inference_logprobs": [0, 0, -1.5, 0]},
            [1, 0], [-1.5, 0],
        ),
        ({"prompt_ids": [5, 6], "response_ids": [7, 8], "response_mask": [0, 1], "rollout_log_probs": [0.0, -2.0]},
         [0, 1], [0, -2]),  # fields of verl's batches
    ],
)  # fmt: skip
def test_token_ids_are_used_where_the_file_has_them(tmp_path, tiny_engine, row, counted, logp):
    [text] = texts_of(read(tmp_path, row), tiny_engine)
    assert (text.before, text.tokens) == ((5, 6), (7, 8))
    assert text.counted.tolist() == counted
    assert logp is None or np.array_equal(text.logp, logp, equal_nan=True)


def test_plain_text_begins_at_the_beginning_of_text(tmp_path, tiny_engine):
    rows = read(tmp_path, {"text": "so 45 a"})
    plain, bos = ids(tiny_engine, "so 45 a"), tiny_engine.tokenizer.bos_token_id
    assert [(text.before, text.tokens) for text in texts_of(rows, tiny_engine)] == [((bos,), plain)]
    without = SimpleNamespace(bos_token_id=None, encode=tiny_engine.tokenizer.encode)  # then the first token begins it
    [text] = texts_of(rows, SimpleNamespace(tokenizer=without))
    assert (text.before, text.tokens) == (plain[:1], plain[1:])


def test_a_parquet_file_is_read_as_trl_writes_it(tmp_path, tiny_engine):
    rows = {"step": [1, 1], "prompt": [PROMPT, PROMPT], "completion": [REPLY, [{"role": "assistant", "content": "a"}]],
            "advantage": [0.5, np.nan], "logprobs": [None, [-1.0]]}  # fmt: skip
    pandas.DataFrame(rows).to_parquet(tmp_path / "completions_00001.parquet")
    first, second = texts_of(read_rows(tmp_path / "completions_00001.parquet"), tiny_engine)
    assert first.tokens == ids(tiny_engine, "so 45")
    assert second.logp.tolist() == [-1.0]


def test_a_file_of_verl_has_lost_its_special_tokens(tmp_path):
    with warns_of("verl"):
        read(tmp_path, {"input": "a", "output": "so"})


@pytest.mark.parametrize(
    ("row", "argument"),
    [
        ({}, "response"), ({"response": ""}, "response"), ({"response": 3}, "response"), ({"prompt": "x"}, "response"),
        ({"response": "a\ud800"}, "response"), ({"response": "so", "prompt": 5}, "prompt"),
        ({"response": "so", "prompt": [{"role": "user", "content": "a\ud800"}]}, "prompt"),
        ({"response": "so", "prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "prompt"),
        ({"token_ids": [1, -2]}, "token_ids"), ({"token_ids": "12"}, "token_ids"), ({"token_ids": [True]}, "token_ids"),
        ({"token_ids": [1, 2], "logprobs": [-1.0]}, "tokens"), ({"token_ids": [1], "logprobs": ["x"]}, "logprobs"),
        ({"token_ids": [1, 2], "loss_mask": [2.5, "a"]}, "loss_mask"), ([1, 2], "texts"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_text_is_refused(tmp_path, row, argument):
    with refuses(argument, 2):
        read(tmp_path, {"response": "so"}, row)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt_ids": [], "completion_ids": [5]}, {"prompt_ids": [5], "completion_ids": [6], "completion_mask": [0]},
        {"prompt": "so", "response": "so 45", "logprobs": [-1.0] * 9},
    ],
)  # fmt: skip
def test_a_text_without_a_token_to_score_is_refused(tmp_path, tiny_engine, row):
    with refuses("texts", "line 1"):
        texts_of(read(tmp_path, row), tiny_engine)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"not json\n"])
def test_a_file_that_is_none_is_refused(tmp_path, content):
    for name in ("texts.jsonl", "texts.parquet"):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with refuses("texts", path) if content is None or name.endswith("parquet") or not content else refuses():
            read_rows(path)
