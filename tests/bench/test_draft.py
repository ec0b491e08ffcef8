"""Hold the replay of look-up drafts against the engine's own search."""

import numpy as np
import pytest
import torch

from harness.bench.draft import tokens_a_step
from harness.decode.vllm_pair.lookup import Texts


def searched(responses, k, rows):
    """Replay the same by the texts and the search of the engine: tokens a row and step."""
    length = max(len(prompt) + len(tokens) for _, prompt, tokens in responses)
    texts, written = Texts(rows, length, "cpu"), torch.zeros(rows, length, dtype=torch.int32)
    waiting, running, free, steps = list(responses), {}, list(range(rows))[::-1], 0
    while waiting or running:
        fresh = []
        while waiting and free:
            slot, (problem, prompt, tokens) = free.pop(), waiting.pop(0)
            texts.add(slot, problem)
            running[slot], whole = [len(prompt), len(prompt) + len(tokens)], torch.tensor([*prompt, *tokens])
            written[slot, : len(whole)] = whole
            fresh.append(slot)
        old, drafts = [slot for slot in running if slot not in fresh], {}
        if old:
            rows_of = texts.rows(np.array(old))
            lengths = torch.tensor([running[slot][0] for slot in old])
            texts.follow(rows_of, written, lengths, torch.tensor(old), k + 1)
            drafts = dict(zip(old, texts.drafts(rows_of, k).tolist(), strict=True))
        steps += len(running)
        for slot, (at, end) in list(running.items()):
            kept = 0
            while (
                kept < len(drafts.get(slot, ())) and at + kept < end and drafts[slot][kept] == written[slot, at + kept]
            ):
                kept += 1
            running[slot][0] = min(at + kept + 1, end)
            if running[slot][0] == end:
                # its text is whole before the slot is given away: the engine has booked its last step by then
                ends = texts.rows(np.array([slot]))
                texts.follow(ends, written, torch.tensor([end]), torch.tensor([slot]), k + 1)
                free.append(slot)
                del running[slot]
    return sum(len(tokens) for *_, tokens in responses) / steps


@pytest.mark.parametrize(("seed", "rows", "k"), [(0, 2, 4), (1, 3, 2), (2, 5, 4), (3, 12, 8)])
def test_the_replay_counts_what_the_engines_search_finds(seed, rows, k):
    numbers = np.random.default_rng(seed)
    responses = [
        (f"p{problem}", tuple(numbers.integers(0, 3, 5)), tuple(numbers.integers(0, 3, numbers.integers(3, 40))))
        for _ in range(4)
        for problem in range(3)
    ]
    prompts = {problem: prompt for problem, prompt, _ in responses}
    responses = [(problem, prompts[problem], tokens) for problem, _, tokens in responses]
    assert tokens_a_step(responses, k, rows) == pytest.approx(searched(responses, k, rows))


def test_a_sibling_that_is_written_already_drafts_all_of_a_response():
    once = [("p", (1, 2), tuple(range(10, 51)))]
    assert tokens_a_step(once, 4, 1) == 1
    steps = 41 + 2 + (41 - 2) / 5  # the prompt's own step, one until two tokens are shared, then five at a time
    assert tokens_a_step(once * 2, 4, 1) == pytest.approx(82 / steps, rel=0.03)
    assert tokens_a_step(once * 2, 4, 2) == 1  # side by side they have nothing for each other
