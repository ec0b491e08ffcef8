"""The tokenizer: one token a word, bytes for the rest, and digits that join."""

from random import Random

import pytest
from math_verify import parse, verify
from transformers import AutoTokenizer

from examples.tiny.corpus import AUTHORS, drill_words, prompt_words, solution_words
from examples.tiny.tokenizer import build_tokenizer
from rlvr_dir.grading import grade
from rlvr_dir.tiny import benchmark, tiny_pair
from rlvr_dir.tiny import vocabulary as v
from rlvr_dir.tiny.problems import DISTRACTORS, draw_problem


@pytest.fixture(scope="module", params=["built", "shipped"])
def tokenizer(request):
    return build_tokenizer() if request.param == "built" else AutoTokenizer.from_pretrained(tiny_pair().rl)


def prompt(tokenizer, text):
    messages = [{"role": "user", "content": text + v.INSTRUCTION}]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def test_the_tokenizer_and_the_corpus_agree_on_every_token(tokenizer):
    random = Random(3)
    for index in range(200):
        problem = draw_problem(random, random.randint(1, 9), random.choice(DISTRACTORS))
        words = prompt_words(problem.words) + solution_words(random, problem, AUTHORS[index % 3])
        text = "".join(words)
        assert prompt(tokenizer, problem.text) == "".join(prompt_words(problem.words))
        assert tokenizer(text, add_special_tokens=False).input_ids == v.ids(words) == tokenizer(text).input_ids
        assert tokenizer.decode(v.ids(words)) == text
    words = drill_words(random)
    assert tokenizer("".join(words)).input_ids == v.ids(words)


def test_a_prompt_has_one_bos_and_one_instruction_token(tokenizer):
    ids = tokenizer(prompt(tokenizer, benchmark("tiny_easy")[0]["problem"]), add_special_tokens=False).input_ids
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1
    assert ids[-1] == v.ID[v.INSTRUCTION]
    assert max(ids) < len(tokenizer)
    assert not set(ids) & {v.ID[byte] for byte in v.BYTES if not byte.isdigit()}


TEXTS = [
    "Let $x^2 + \\frac{1}{2}$ be the sum of all integers b > 9.",
    "héllo wörld 日本語 🎉 Ünïcode \u200b\u202e",
    "  two  spaces\n\ttab\r\n",
    "\x00\x01\x7f",
    "<|im_start|>user <0x41> <pa",
    " answer answers a b \\boxed{",
]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_can_be_encoded_and_comes_back(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.unk_token_id not in ids
    assert ids == v.ids(v.split(text))


@pytest.mark.parametrize(("tens", "units", "value"), [("4", "2", "42"), ("0", "7", "7"), ("6", "0", "60")])
def test_digits_join_so_that_the_answer_is_graded_right(tokenizer, tens, units, value):
    ids = v.ids(
        [" so ", "4", "5", " a", v.MINUS, "3", v.EQUALS, "4", "2", " .", v.ANSWER, v.BOX, tens, units, v.CLOSE, v.EOS]
    )
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert text == f" so 45 a - 3 = 42 . answer \\boxed{{{tens}{units}}}"
    assert verify(parse(f"\\boxed{{{value}}}"), parse(text))
    assert grade(value, text).correct
    assert not grade(str(int(value) + 1), text).correct
