"""Grading beside decoding: stored verdicts are taken, the score so far is shown, failures are told in the end."""

from types import SimpleNamespace

import pytest

from harness.decode.progress import Progress, time_left
from harness.evals import loop
from harness.evals.loop import Board
from harness.spec import Decoding, Sampling
from tests.evals.asked import evaluate


def rollout(tag, tokens=10):
    return SimpleNamespace(request=SimpleNamespace(tag=tag), n_tokens=tokens, n_replaced=1, n_changed=0)


def test_the_score_so_far_is_of_what_is_decoded_now():
    jobs = [
        SimpleNamespace(task="amc", decoding=Decoding(mode=m), requests=range(n)) for m, n in (("rl", 3), ("base", 2))
    ]
    right = [[], []]
    board = Board(jobs, right, 5, False)
    assert board.note() == ""
    for tag, correct, said in [
        (0, [True, False, False], " | amc rl: 33.3 so far (3/3)"),
        (1, [True], " | amc base: 100.0 so far (1/2)"),
    ]:
        right[tag] += correct
        board.finished(rollout(tag))
        assert board.note() == said
    assert board.speed > 0
    board.close()


def test_a_grader_that_fails_is_told_when_every_response_is_safe(engine, data_dir, tmp_path, monkeypatch):
    def broken(items, grader):
        raise OSError("no grader today")

    asked = (engine, [Decoding()], ["amc"], Sampling(samples=2, max_tokens=4))
    how = {"limit": 2, "data_dir": data_dir, "records": tmp_path}
    with monkeypatch.context() as patched:
        patched.setattr(loop, "grade_many", broken)
        with pytest.raises(OSError, match="no grader today"):
            evaluate(*asked, **how)
    monkeypatch.setattr(engine, "generate", None)  # nothing is decoded again
    assert evaluate(*asked, **how)[0].correct.shape == (2, 2)


def test_the_time_left_is_none_of_zero_while_longer_rollouts_run_than_have_finished():
    progress = Progress(20, False)
    progress.finished(rollout(0, tokens=25))
    assert progress.tokens_left() is None  # of one of twenty
    for _ in range(3):
        progress.finished(rollout(0, tokens=25))
    assert progress.tokens_left() == 16 * 25
    progress.show(16 * 50)  # each twice as long already
    assert progress.tokens_left() == 16 * (4 * 25 + 16 * 50) / 4
    progress.finished(rollout(0, tokens=50))
    assert progress.tokens_left() == 15 * (4 * 25 + 16 * 50) / 5  # its tokens count once
    assert time_left(120.0, 2.0) == "01:00"
    assert (time_left(None, 2.0), time_left(5.0, 0.0)) == ("?", "?")
    progress.close()
