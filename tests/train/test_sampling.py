"""Dynamic sampling's arithmetic, against loops over plain lists."""

from random import Random

import pytest
import torch

from harness.train.sampling import join, mixed_groups, take_groups

NAN = float("nan")


@pytest.mark.parametrize(
    ("accuracy", "mixed"),
    [
        ([1, 0, 1, 1], [True, False]),
        ([1, 1, 0, 0], [False, False]),
        ([0, 1, 1, 0], [True, True]),
        ([NAN, 1, NAN, 0], [False, False]),  # an ungraded response makes no contrast
    ],
)
def test_a_group_is_mixed_when_it_has_right_and_wrong(accuracy, mixed):
    assert mixed_groups(torch.tensor(accuracy, dtype=torch.float32), 2).tolist() == mixed


def test_mixed_groups_against_a_count():
    random = Random(0)
    for samples in (2, 3, 8):
        rewards = [float(random.random() < 0.3) for _ in range(samples * 50)]
        expected = [0 < sum(rewards[i : i + samples]) < samples for i in range(0, len(rewards), samples)]
        assert mixed_groups(torch.tensor(rewards), samples).tolist() == expected


def batch(prompt, completion, first):
    rows = len(prompt)
    return {
        "prompt_ids": torch.tensor(prompt),
        "prompt_mask": (torch.tensor(prompt) != 9).long(),
        "completion_ids": torch.tensor(completion),
        "completion_mask": (torch.tensor(completion) != 9).long(),
        "old_per_token_logps": -torch.ones(len(completion), len(completion[0])),
        "advantages": torch.arange(first, first + rows, dtype=torch.float32),
        "num_items_in_batch": torch.tensor(3),
    }


def test_groups_are_cut_whole_and_joined_with_their_own_padding():
    wide = batch([[9, 1, 2], [3, 4, 5], [6, 7, 8], [6, 7, 8]], [[1, 2], [3, 9], [4, 9], [5, 6]], 0)
    narrow = batch([[1], [2]], [[7, 8, 9], [7, 8, 8]], 10)
    joined = join([take_groups(wide, torch.tensor([1]), 2), take_groups(narrow, torch.tensor([0]), 2)], 9)
    assert joined["prompt_ids"].tolist() == [[6, 7, 8], [6, 7, 8], [9, 9, 1], [9, 9, 2]]  # left
    assert joined["completion_ids"].tolist() == [[4, 9, 9], [5, 6, 9], [7, 8, 9], [7, 8, 8]]  # right
    assert joined["completion_mask"].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert joined["prompt_mask"][2].tolist() == [0, 0, 1]
    assert joined["old_per_token_logps"][0].tolist() == [-1, -1, 0]
    assert joined["advantages"].tolist() == [2, 3, 10, 11]
    assert "num_items_in_batch" not in joined
