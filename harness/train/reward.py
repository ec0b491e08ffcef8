"""The verifiable reward: 1 where the last box of the response is right, 0 where it is not."""

from collections.abc import Sequence
from typing import Any

from harness.grading import grade_many

Completion = str | list[dict[str, Any]]  # plain text, or the messages of a conversation


def response_text(completion: Completion) -> str:
    """What the model wrote, whichever way TRL hands it over."""
    return completion if isinstance(completion, str) else "".join(message["content"] for message in completion)


def accuracy(
    completions: Sequence[Completion],
    answer: Sequence[str],
    **_: Any,  # TRL also hands over prompts, ids, the trainer's state
) -> list[float | None]:
    """A TRL reward function over a dataset with a column `answer`; None where the grader itself failed."""
    pairs = [(gold, response_text(completion)) for gold, completion in zip(answer, completions, strict=True)]
    return [float(verdict.correct) if verdict.graded else None for verdict in grade_many(pairs)]
