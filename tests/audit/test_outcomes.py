"""Each row about outcomes on responses whose numbers are known by hand."""

import numpy as np
import pandas
import pytest

from rlvr_dir.audit.outcomes import CLAIMS, rank_claim
from tests.audit.made import responses

BASE = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]])
RL = np.array([[1, 1, 1, 1], [0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]])


def values(base, rl):
    frame = pandas.concat([base, rl], ignore_index=True)
    return {claim.name.removeprefix("outcomes/"): claim.estimate(frame) for claim in CLAIMS}


def test_scores_and_lengths():
    found = values(responses("base", BASE, tokens=10), responses("rl", RL, tokens=14, no_box=1 - RL))
    expected = {
        "avg/base": 6 / 16, "avg/rl": 8 / 16, "gain": 2 / 16, "no_answer/base": 0, "no_answer/rl": 8 / 16,
        "truncated/base": 0, "truncated/rl": 0, "tokens/base": 10, "tokens/rl": 14, "pass/base": 3 / 4,
        "pass/rl": 3 / 4, "solved/base": 1 / 4, "solved/rl": 1 / 4,
    }  # fmt: skip
    for name, value in expected.items():
        assert found[name].value == pytest.approx(value), name
    parts = [found[f"gain/{part}"].value or 0.0 for part in ("answers", "right")]
    assert sum(parts) == pytest.approx(2 / 16)
    assert found["crossing"].value is None
    assert found["tokens_per_right/base"].value == pytest.approx(160 / 6)
    assert found["tokens_per_right/rl"].value == pytest.approx(16 * 14 / 8), "problems that are never solved count"
    votes = {f"{name}/{model}" for name in ("calibration_error", "tokens_per_right") for model in ("base", "rl")}
    assert set(found) == {*expected, *votes, "gain/answers", "gain/right", "crossing", "crossing/estimate"}


def test_calibration_of_majority_votes():
    """Agreements 1, 0.5, 0.75 and 0.25: right, wrong, right, and a tie of four answers of which one is right."""
    votes = np.array([[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 0, 1], [0, 1, 2, 3]])
    correct = np.array([[1, 1, 1, 1], [0, 0, 1, 0], [1, 1, 1, 0], [0, 0, 1, 0]])
    found = values(responses("base", correct, vote=votes.ravel()), responses("rl", correct, vote=-1))
    gaps = [1 - 1, 0.5 - 0, 0.75 - 1, 0.25 - 0.25]
    assert found["calibration_error/base"].value == pytest.approx(sum(map(abs, gaps)) / 4)
    assert found["calibration_error/rl"].value == 0, "no vote, and none is right"


def test_tokens_for_each_right_response_are_a_ratio_of_sums():
    found = values(responses("base", BASE, tokens=np.arange(16).reshape(4, 4)), responses("rl", 0 * RL))
    estimate = found["tokens_per_right/base"]
    assert estimate.value == pytest.approx(np.arange(16).sum() / 6)
    assert estimate.value is not None
    assert (estimate.low or 0) < estimate.value < (estimate.high or np.inf)
    assert found["tokens_per_right/rl"].value is None


def test_a_gain_that_is_all_more_answers():
    """Half of base's responses hold an answer, all of RL's; of the answers half are right in either."""
    answered = np.tile([1, 1, 0, 0], (5, 1))
    base = responses("base", np.tile([1, 0, 0, 0], (5, 1)), no_box=1 - answered)
    found = values(base, responses("rl", np.tile([1, 1, 0, 0], (5, 1)), no_box=0))
    assert (found["gain"].value, found["gain/answers"].value) == pytest.approx((0.25, 0.25))
    assert found["gain/right"].value == pytest.approx(0)


def test_where_base_overtakes():
    """RL is right always or never, base every other time: with two samples base is ahead."""
    base, rl = np.tile([1, 0], (40, 4)), np.repeat([[1], [0]], [24, 16], axis=0) * np.ones((1, 8), int)
    found = values(responses("base", base), responses("rl", rl))
    assert (found["crossing"].value, found["crossing/estimate"].value) == (2, 2)
    assert found["solved/base"].value == pytest.approx(16 / 40)


def test_a_model_and_itself():
    found = values(responses("base", BASE), responses("rl", BASE))
    assert found["gain"].value == found["gain/answers"].value == found["gain/right"].value == 0
    assert found["solved/base"].value == found["solved/rl"].value == 0
    assert found["crossing/estimate"].value is None


def test_what_a_rank_has_of_the_gain():
    parts = [responses("base", np.zeros((6, 4), int)), responses("rl", np.ones((6, 4), int))]
    parts.append(responses("rank 1", np.tile([1, 1, 1, 0], (6, 1))))
    frame = pandas.concat(parts, ignore_index=True)
    assert rank_claim(1, False).estimate(frame).value == pytest.approx(0.75)
    assert rank_claim(8, False).estimate(frame).value is None, "it was not decoded"
    assert "over 99 %" in rank_claim(1, True).published, "what was published was rescaled"
    assert rank_claim(1, False).published == rank_claim(8, True).published == ""


def test_problems_of_several_tasks_are_apart():
    base = pandas.concat([responses("base", BASE), responses("base", RL, task="u")], ignore_index=True)
    found = values(base, pandas.concat([responses("rl", RL), responses("rl", RL, task="u")], ignore_index=True))
    assert found["avg/base"].value == pytest.approx(14 / 32)
