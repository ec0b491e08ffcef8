"""Compute the rewards: 1 if the last box of a response is right and 0 if not, and DAPO's penalty on length.

The grader is that of evaluation. Its time is bounded, it runs in its own worker processes, and every process can use
it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlvr_dir.grading import DEFAULT_GRADER, grade_many
from rlvr_dir.policy.advantages import overlong_penalty

Completion = str | list[dict[str, Any]]  # plain text, or the messages of a conversation
Reward = Callable[..., list[float | None]]


def response_text(completion: Completion) -> str:
    """Return what the model wrote, for both of TRL's formats."""
    return completion if isinstance(completion, str) else "".join(message["content"] for message in completion)


def accuracy(
    completions: Sequence[Completion],
    answer: Sequence[str],
    *,
    grader: str = DEFAULT_GRADER,
    **_: Any,  # # TRL also passes prompts, ids and the trainer's state
) -> list[float | None]:
    """Reward right answers with 1 and others with 0, for TRL and a dataset with a column `answer`.

    None is a response on which the grader itself failed.
    """
    pairs = [(gold, response_text(completion)) for gold, completion in zip(answer, completions, strict=True)]
    return [float(verdict.correct) if verdict.graded else None for verdict in grade_many(pairs, grader=grader)]


def accuracy_by(grader: str) -> Reward:
    """Return `accuracy` with a grader by name. TRL's logs also name it `accuracy`."""

    def reward(completions: Sequence[Completion], answer: Sequence[str], **columns: Any) -> list[float | None]:
        return accuracy(completions, answer, **{**columns, "grader": grader})

    reward.__name__ = "accuracy"
    return reward


def overlong(limit: int, buffer: int) -> Reward:
    """Make a TRL reward function, -1 to 0, of the number of tokens written."""

    def reward(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float | None]:
        return overlong_penalty(torch.tensor([len(ids) for ids in completion_ids]), limit, buffer).tolist()

    reward.__name__ = "overlong"
    return reward
