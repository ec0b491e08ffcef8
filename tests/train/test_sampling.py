"""Batches are cut by groups and joined with their own padding."""

import torch

from rlvr_dir.train.sampling import join, take_groups


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
