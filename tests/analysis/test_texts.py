"""Given text is scored exactly as the decoding that wrote it was."""

import numpy as np
import pytest

from rlvr_dir.analysis.texts import score_texts
from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.decode import Request
from tests.facts import refuses

PROMPT = [{"role": "user", "content": "Ann has 45 pens a gets 7 b sees 3 how many ?"}]


def test_teacher_forcing_gives_the_numbers_of_the_decoding(tiny_engine):
    prompt = tiny_engine.chat_prompt(PROMPT)
    request = Request(prompt, "p", decoding=Decoding(mode="base"), sampling=Sampling(max_tokens=60, samples=1), trace=0)
    [rollout] = tiny_engine.generate([request])
    written = rollout.token_ids[:-1] if rollout.finish_reason == "stop" else rollout.token_ids  # text has no EOS
    [row] = score_texts(tiny_engine, iter([{"prompt": PROMPT, "response": rollout.text, "id": 7}]))
    assert row["id"] == 7
    assert tuple(row["tokens"]) == tuple(written)
    for name in ("delta_logp", "logp_base", "logp_rl", "entropy_base", "entropy_rl", "kl_rl_base", "kl_base_rl"):
        assert np.allclose(row[name], rollout.trace.fact(name)[: len(written)], atol=2e-4), name
    assert row["mean_delta_logp"] == pytest.approx(np.mean(row["delta_logp"]), abs=1e-5)


def test_text_without_a_prompt_begins_at_the_beginning(tiny_engine):
    [row] = score_texts(tiny_engine, iter([{"response": "so 45 a + 7 = 52 ."}]))
    assert len(row["logp_base"]) == len(row["tokens"]) > 5


@pytest.mark.parametrize("row", [{}, {"response": ""}, {"response": 3}, {"response": "a\ud800"}, {"prompt": "x"}])
def test_a_row_without_text_is_refused(tiny_engine, row):
    with refuses("response", "2"):
        list(score_texts(tiny_engine, iter([{"response": "so"}, row])))


@pytest.mark.parametrize("prompt", [5, "a\ud800", [{"role": "user", "content": "a\ud800"}]])
def test_a_prompt_that_is_no_text_is_refused(tiny_engine, prompt):
    with refuses("prompt", "1"):
        list(score_texts(tiny_engine, iter([{"response": "so", "prompt": prompt}])))


def test_a_text_beyond_the_context_is_refused(tiny_engine):
    with refuses():
        list(score_texts(tiny_engine, iter([{"response": "so 45 " * 3000}])))
