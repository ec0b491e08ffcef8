"""The accuracy reward, on both forms in which TRL hands over completions."""

from harness.train.reward import accuracy


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
