"""What a person sees of a running evaluation: counts, the time left, and the score so far."""

from types import SimpleNamespace

from harness.decode.progress import Progress, time_left
from harness.evals.board import Board
from harness.spec import Decoding


def work(n, gold):
    return SimpleNamespace(
        task="amc", decoding=Decoding(mode="rl"), requests=(None,) * n, gold={"published": gold} if gold else {}
    )


def rollout(tag, problem, text, tokens=10):
    request = SimpleNamespace(tag=tag, problem=problem)
    return SimpleNamespace(request=request, text=text, finish_reason="stop", n_tokens=tokens, n_replaced=1)


def test_the_score_so_far_is_of_what_is_decoded_now():
    board = Board([work(3, {"amc/0": "7"}), work(2, {"amc/0": "8"})], 5, False, "robust")
    assert board.note() == ""
    for text in (r"\boxed{7}", r"\boxed{8}", "none"):
        board.finished(rollout(0, "amc/0", text))
    board.settle()
    assert board.note() == " | amc rl: 33.3 so far (3/3)"
    board.finished(rollout(1, "amc/0", r"\boxed{8}"))
    board.settle()
    assert board.note() == " | amc rl: 100.0 so far (1/2)"
    assert board.speed > 0
    board.close()


def test_work_that_is_not_graded_has_no_score():
    board = Board([work(1, {})], 1, False, "robust")
    board.finished(rollout(0, "x/0", r"\boxed{7}"))
    board.settle()
    assert board.note() == ""
    board.close()


def test_the_time_left_takes_the_rest_to_be_as_long_as_the_finished():
    progress = Progress(10, False)
    assert progress.tokens_left() is None
    for _ in range(4):
        progress.finished(rollout(0, "x", "", tokens=25))
    assert progress.tokens_left(30) == 6 * 25 - 30
    assert time_left(120.0, 2.0) == "01:00"
    assert (time_left(None, 2.0), time_left(5.0, 0.0)) == ("?", "?")
    progress.close()
