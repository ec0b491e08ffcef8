"""The table of replacements, counted by hand, from records with and without the proposed tokens."""

from collections import Counter

import numpy as np
import pytest

from rlvr_dir.config import Decoding
from rlvr_dir.results.replacements import all_replacements, as_text, replacements
from tests.results.made import made
from tests.results.replaced import CORRECT, GATED, ROWS, WORDS, record_of, response, tokenizer


def test_each_replacement_is_counted_with_both_tokens_own_numbers():
    found = replacements(made(GATED, CORRECT), record_of(*ROWS), tokenizer())
    first, *others = found.frame.to_dict("records")
    assert (first["proposed_text"], first["written_text"]) == ("b", "c")
    assert (first["times"], first["problems"], first["responses"]) == (4, 2, 3)
    assert first["share"] == 4 / 8
    assert first["delta_logp"] == np.mean([-1, 0, -1, 0])
    assert first["delta_logp_written"] == np.mean([-0.5, 0, -0.5, 0])
    assert first["right"] == 2 / 3
    assert (first["problem"], first["sample"], first["position"]) == ("p0", 0, 1)
    assert (first["before"], first["after"]) == ("a", "c<end>")
    assert Counter(row["times"] for row in others) == {1: 4}
    assert (found.tokens, found.flagged, found.changed, found.unknown) == (18, 9, 8, 0)
    assert found.kinds == {"end of text": 1 / 9, "whitespace": 1 / 9, "template": 2 / 9, "other": 5 / 9}


def test_only_the_responses_that_a_result_has_are_counted():
    found = replacements(made(GATED, [[True], [True]]), record_of(*ROWS), tokenizer())
    assert (found.tokens, found.changed) == (8, 4)
    assert found.frame["right"].tolist() == [1, 1, 1]


def test_without_a_tokenizer_there_are_ids_and_without_proposals_a_count_of_what_is_unknown():
    old = response("p1", 0, ["b", "<end>", "<|user|>", "<end>"], ["c", "a", "b", "<end>"], [1, 1, 1, 0], known=False)
    found = replacements(made(GATED, CORRECT), record_of(*ROWS[:2], old, *ROWS[3:]))
    assert (found.changed, found.unknown) == (8, 3)
    assert found.frame["times"].sum() == 5
    assert found.frame["proposed"].tolist()[0] == WORDS.index("b")
    assert found.frame[["proposed_text", "written_text", "before", "after"]].isna().all().all()
    assert not found.kinds


@pytest.mark.parametrize("decoding", [Decoding(mode="rl"), GATED])
def test_results_without_a_gate_or_a_record_have_none(decoding):
    assert all_replacements([made(decoding, CORRECT)], lambda records: tokenizer()) == []


def test_a_text_has_as_many_rows_as_are_asked_for():
    found = replacements(made(GATED, CORRECT), record_of(*ROWS), tokenizer())
    for most in (0, 2, 5, 9):
        rows = [line for line in as_text(found, most).splitlines() if line.startswith("| ‘")]
        assert len(rows) == min(most, 5)
