"""The accuracy reward, on both forms in which TRL hands over completions."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

from rlvr_dir.train.reward import accuracy, accuracy_by, overlong


def test_the_last_box_decides():
    completions = [
        r" so \boxed{42}",
        r"\boxed{41} no, \boxed{42}",
        r"\boxed{42} no, \boxed{41}",
        "42",
        r"\boxed{42",
        r"\boxed{042}",
    ]
    assert accuracy(completions, ["42"] * 6) == [1.0, 1.0, 0.0, 0.0, 0.0, 1.0]


def test_conversations_count_like_text():
    conversation = [{"role": "assistant", "content": r" answer \boxed{07}"}]
    assert accuracy([conversation, conversation], ["7", "70"], prompts=None, trainer_state=None) == [1.0, 0.0]


def test_the_grader_can_be_chosen():
    completions, golds = [r"\boxed{10\,000}"], ["10000"]
    assert accuracy_by("robust")(completions, golds) == [1.0]
    assert accuracy_by("plain")(completions, golds, completion_ids=[[1]]) == accuracy(
        completions, golds, grader="plain"
    )


def test_rewards_work_in_a_forked_process_and_in_a_thread():
    """A formula needs a worker process; a child must not talk to its parent's."""
    completions, golds = [r"\boxed{\frac{x}{2}}", r"\boxed{x/3}"], ["0.5x", "0.5x"]
    expected = accuracy(completions, golds)
    assert expected == [1.0, 0.0]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(accuracy, (completions, ["0.5 x", "0.5 x"])) == expected
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(accuracy, completions, ["x/2", "x/2"]).result() == expected


def test_length_is_punished_at_the_end_only():
    assert overlong(10, 4)(completion_ids=[[0] * n for n in (1, 6, 8, 10, 12)], answer=None) == [0, 0, -0.5, -1, -1]
