"""Equal forwards: what an answer costs, who meets whom, the verdict on results whose numbers are known, the command."""

import re

import numpy as np
import pytest

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.results.forwards import (
    Answer,
    answers_of,
    budgets,
    correct_within,
    equal_forwards,
    lengths,
    markdown,
    models_of,
    within,
)
from rlvr_dir.results.settings import settings_of
from tests.facts import refuses
from tests.results.made import made

BASE, RL = Decoding(mode="base"), Decoding(mode="rl")
CONTROL, EXTRA = Decoding(mode="replace", tau=-0.3), Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)
PROBLEMS = 40


def result(decoding, solved, samples=4, tokens=10, pair=(), seed=0, **sampling):
    """Makes the first `solved` samples of each problem (one number, or one a problem) right, and vote together."""
    solved = np.broadcast_to(np.asarray(solved), PROBLEMS)
    correct = np.arange(samples) < solved[:, None]
    votes = np.where(correct, 0, 1 + np.arange(samples))  # wrong answers all differ
    return made(
        decoding, correct, task="made", sampling=Sampling(samples=samples, seed=seed, **sampling), votes=votes,
        problem_ids=tuple(map(str, range(PROBLEMS))), n_tokens=np.full(correct.shape, tokens), n_replaced=0 * correct,
        no_box=None, ungraded=None, provenance={"engine": {"pair": {"base": "base", "rl": "rl", **dict(pair)}}},
    )  # fmt: skip


def lot_of(*results, across=()):
    [lot] = equal_forwards(settings_of(results, across), across)
    return lot


@pytest.mark.parametrize(("decoding", "two", "three"), [(BASE, 1, 1), (RL, 1, 3), (CONTROL, 2, 3), (EXTRA, 2, 3)])
def test_a_token_costs_the_models_that_it_needs(decoding, two, three):
    assert (decoding.forwards(), decoding.forwards(3)) == (two, three)
    for pair, models in (((), two), ({"recipient": "big"}, three)):
        [setting] = settings_of([result(decoding, 1, pair=pair)])
        assert models_of(setting) == models


def test_an_answer_costs_its_tokens_times_models_times_votes():
    [setting] = settings_of([result(EXTRA, 2, tokens=30)])
    assert [(a.votes, a.forwards) for a in answers_of(setting)] == [(1, 60), (2, 120), (4, 240)]
    values = [answer.values.mean() for answer in answers_of(setting)]
    assert values[0] == 0.5
    assert values[1] == pytest.approx((1 / 6) * 1 + (4 / 6) * 0.5, abs=0.02)  # two right, one right, none
    assert values[2] == 1.0
    [lone] = settings_of([result(RL, 2).replace(votes=None)])
    assert [answer.votes for answer in answers_of(lone)] == [1]
    [seeds] = settings_of([result(RL, 2), result(RL, 0, seed=1)])
    assert Answer(seeds, 4).values.mean() == 0.5  # each seed votes by itself: answers are numbered within one
    [unlike] = settings_of([result(RL, 2, tokens=10), result(RL, 1, samples=1, tokens=100, seed=1)])
    assert Answer(unlike, 1).tokens == (4 * 10 + 100) / 5  # of responses, as the accuracy is


def test_the_best_of_each_side_meet_at_equal_forwards():
    some = np.where(np.arange(PROBLEMS) < 20, 4, 0)
    lot = lot_of(result(BASE, 0), result(RL, some), result(CONTROL, 2), result(EXTRA, 3))
    assert [(verdict.votes, verdict.starved) for verdict in lot.verdicts] == [(1, False), (2, False)]
    one, two = lot.verdicts
    assert (one.best.label, one.baseline.label) == ("extrapolate τ-0.3 γ0.1", "rl")
    assert one.difference.mean == pytest.approx(0.25)
    assert {answer.votes for answer in one.others} == {1, 2}
    assert {answer.votes for answer in two.others} == {1, 4}
    assert one.difference.contrasts == 2 * 4
    assert one.difference.low < 0.25 < one.difference.high
    text = markdown([lot])
    assert "Pass@k of base is not found above RL's at any k up to 4." in text
    assert "| one sample | majority of 2 | majority of 4 |" in re.sub(" +", " ", text)


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (4, 1, "extrapolation beats the best one-model baseline by 75.0 points: extrapolate τ-0.3 γ0.1 100.0 (20"),
        (1, 4, "extrapolation does not beat the best one-model baseline, it falls short of it by 75.0 points"),
        (2, 2, "inconclusive whether extrapolation beats the best one-model baseline (+0.0 points)"),
    ],
)
def test_the_verdict_says_what_the_problems_can_tell(ours, theirs, words):
    lot = lot_of(result(RL, theirs), result(EXTRA, ours))
    assert lot.verdicts[0].sentence.startswith(f"made, 20 forwards an answer: {words}")
    group = lot.to_dict()
    assert [answer["forwards"] for answer in group["answers"]] == [10, 20, 40, 20, 40, 80]
    assert group["verdicts"][0]["mean"] == (ours - theirs) / 4


def test_a_short_answer_of_one_model_may_vote_until_it_costs_as_much():
    """RL answers in 200 tokens and the pair in 1,000: RL's majority of 8 costs less than one answer of the pair."""
    random = np.random.default_rng(0)
    rl, extra = (random.integers(low, 9, PROBLEMS) for low in (2, 5))
    long, short = result(EXTRA, extra, samples=8, tokens=1000), result(RL, rl, samples=8, tokens=200)
    one = lot_of(short, long).verdicts[0]
    assert [(answer.votes, answer.forwards) for answer in one.others] == [(1, 200), (8, 1600)]
    assert one.best.forwards == 2000
    assert one.baseline.votes == 8
    assert "beats" not in one.sentence
    few = lot_of(*(each.replace(correct=each.correct[:, :4], votes=each.votes[:, :4], n_tokens=each.n_tokens[:, :4],
        n_replaced=each.n_replaced[:, :4], n_changed=each.n_changed[:, :4], truncated=each.truncated[:, :4],
        sampling=Sampling(samples=4)) for each in (short, long)))  # fmt: skip
    assert [verdict.starved for verdict in few.verdicts] == [True]
    assert "no equal forwards: one model has samples for 800 an answer at most" in few.verdicts[0].sentence


def test_an_answer_that_costs_more_meets_no_cheaper_one():
    """Each answer of several models is held to what one model does with as many forwards as it has itself."""
    cheap, dear = result(CONTROL, 3, tokens=10), result(EXTRA, 2, tokens=100)
    lot = lot_of(result(RL, np.where(np.arange(PROBLEMS) < 30, 4, 0), tokens=10), cheap, dear)
    one = lot.verdicts[0]
    assert one.difference.contrasts == 2 + 2  # the cheap one meets RL's 1 and 2 samples, the dear one 1 and 4
    assert (one.best.setting.decoding, one.difference.mean) == (CONTROL, pytest.approx(0.0))


def test_other_temperatures_meet_where_that_is_asked_for_and_nothing_else_does():
    results = result(EXTRA, 3), result(RL, 2, temperature=0.6), result(RL, 4, samples=1, temperature=0)
    with refuses("forwards"):
        equal_forwards(settings_of(results))
    lot = lot_of(*results, across=("temperature", "top_p"))
    assert [answer.setting.label for answer in lot.verdicts[0].others].count("rl (greedy)") == 1
    with refuses("forwards"):
        equal_forwards(settings_of([result(EXTRA, 3), result(RL, 2, pair={"rl": "another"})]))


def test_within_a_budget_only_what_is_done_counts():
    short, long = result(RL, 2, tokens=10), result(EXTRA, 4, tokens=100)
    tokens = long.n_tokens.copy()
    tokens[: PROBLEMS // 2] = 20
    settings = settings_of([short, long.replace(n_tokens=tokens)])
    assert budgets(settings) == [10, 20, 100]  # of 160 responses of 10, 80 of 20, 80 of 100
    assert [correct_within(settings[0], b).mean() for b in (9, 10)] == [0, 0.5]
    assert [correct_within(settings[1], b).mean() for b in (10, 20, 100)] == [0, 0.5, 1.0]
    assert "50.0" in within(settings)
    [row] = [line for line in lengths(settings).splitlines() if line.startswith("| extrapolate")]
    cells = [cell.strip() for cell in row.split("|")]
    assert (cells[3], cells[6]) == ("+50.0", "+0.0")  # tokens; nothing was cut
