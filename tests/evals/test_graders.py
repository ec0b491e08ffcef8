"""Grading beside decoding: every response once, stored verdicts taken, the score so far, failures told in the end."""

from types import SimpleNamespace

import pytest

from harness.decode.progress import Progress, time_left
from harness.evals import graders as module
from harness.evals.graders import Board, Graders


def rollout(tag, problem, text, tokens=10, sample=0):
    request = SimpleNamespace(tag=tag, problem=problem)
    return SimpleNamespace(
        request=request, problem=problem, key=(problem, sample), text=text,
        finish_reason="stop", n_tokens=tokens, n_replaced=1, n_changed=0, n_forwards=None
    )  # fmt: skip


def test_the_score_so_far_is_of_what_is_decoded_now():
    graders = Graders([{"amc/0": "7"}, {"amc/0": "8"}], None, ["robust", "robust"])
    board = Board(graders, [("amc rl", 3), ("amc base", 2)], 5, False)

    def done(tag, text, sample=0):
        one = rollout(tag, "amc/0", text, sample=sample)
        board.finished(one)
        graders.add(tag, one)

    assert board.note() == ""
    for sample, text in enumerate((r"\boxed{7}", r"\boxed{8}", "none")):
        done(0, text, sample)
    graders.finish(0)
    verdicts = graders.verdicts[0]
    assert [verdicts["amc/0", sample].kind for sample in range(3)] == ["correct", "wrong", "no_box"]
    assert board.note() == " | amc rl: 33.3 so far (3/3)"
    done(1, r"\boxed{8}")
    graders.finish(1)
    assert board.note() == " | amc base: 100.0 so far (1/2)"
    assert board.speed > 0
    board.close()
    graders.close()


def test_the_speed_does_not_fall_when_a_rollout_finishes(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("harness.decode.progress.time.monotonic", lambda: clock[0])
    said = []
    monkeypatch.setattr(Progress, "figures", lambda self, text: said.append(text))
    progress = Progress(4, True)
    clock[0] += 10
    progress.show(1000)
    progress.finished(rollout(0, "x", "", tokens=200))
    progress.close()
    assert said == [
        "? left, 100 tok/s, 0.0% replaced, 0.0% changed", "00:30 left, 100 tok/s, 0.5% replaced, 0.0% changed"
    ]  # fmt: skip


def test_a_job_without_gold_answers_has_no_score():
    graders = Graders([{}], None, ["robust"])
    graders.add(0, rollout(0, "x/0", r"\boxed{7}"))
    graders.finish(0)
    assert graders.verdicts == [{}]
    graders.close()


def test_a_grader_that_fails_is_told_when_the_job_is_finished(monkeypatch):
    def broken(items, grader):
        raise OSError("no grader today")

    monkeypatch.setattr(module, "grade_many", broken)
    graders = Graders([{"x/0": "7"}], None, ["robust"])
    graders.add(0, rollout(0, "x/0", r"\boxed{7}"))
    with pytest.raises(OSError, match="no grader today"):
        graders.finish(0)


def test_the_time_left_is_none_of_zero_while_longer_rollouts_run_than_have_finished():
    progress = Progress(20, False)
    progress.finished(rollout(0, "x", "", tokens=25))
    assert progress.tokens_left() is None  # of one of twenty
    for _ in range(3):
        progress.finished(rollout(0, "x", "", tokens=25))
    assert progress.tokens_left() == 16 * 25
    progress.show(16 * 50)  # each twice as long already
    assert progress.tokens_left() == 16 * (4 * 25 + 16 * 50) / 4
    progress.finished(rollout(0, "x", "", tokens=50))
    assert progress.tokens_left() == 15 * (4 * 25 + 16 * 50) / 5  # its tokens count once
    assert time_left(120.0, 2.0) == "01:00"
    assert (time_left(None, 2.0), time_left(5.0, 0.0)) == ("?", "?")
    progress.close()
