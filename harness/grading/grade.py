"""Verdicts: the gold answer against the last box of a response, in bulk, de-duplicated, with a bound on every one."""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.errors import unknown
from harness.grading.boxes import find_box
from harness.grading.pool import verify_many

KINDS: tuple[str, ...] = (
    "correct",
    "wrong",
    "no_box",  # the response has no closed, non-empty box
    "unclosed_box",  # it has a box that never closes
    "truncated",  # no closed box, and the response ran into the token limit
    "too_long",  # the box holds more than MAX_ANSWER characters: not an answer
    "timed_out",  # math-verify did not finish within its processor time
    "grader_error",  # math-verify failed, or cannot read the gold answer
)
MAX_ANSWER = 400  # characters; the longest gold of the four benchmarks has fewer than 300
_MEMO_LIMIT = 200_000
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)

_memo: dict[tuple[str, str, str], str] = {}
_memo_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a grader said of one response. `answer` is the content of the box, None where there is none."""

    kind: str
    answer: str | None = None
    grader: str = "plain"

    @property
    def correct(self) -> bool:
        """Whether the response counts as right; every kind but `correct` does not."""
        return self.kind == "correct"

    @property
    def graded(self) -> bool:
        """False where the machinery failed (`timed_out`, `grader_error`): report such a verdict beside the score."""
        return self.kind not in ("timed_out", "grader_error")


def _plain(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The paper's grader: math-verify on the content of the box, gold first, and nothing else of the response.

    Two plain integers are compared as integers, which is what math-verify answers for them, without starting it.
    """
    kinds: list[str | None] = [
        ("correct" if int(gold) == int(answer) else "wrong")
        if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer)
        else None
        for gold, answer in pairs
    ]
    todo = [i for i, kind in enumerate(kinds) if kind is None]
    for i, kind in zip(todo, verify_many([pairs[i] for i in todo]), strict=True):
        kinds[i] = kind
    return kinds


GRADERS: dict[str, Callable[[Sequence[tuple[str, str]]], list[str]]] = {"plain": _plain}
"""Graders by name: each takes distinct (gold, answer) pairs and returns one kind a pair."""


def grade(gold: str, response: str, finish_reason: str = "stop", *, grader: str = "plain") -> Verdict:
    """One verdict; see `grade_many`."""
    return grade_many([(gold, response, finish_reason)], grader=grader)[0]


def grade_many(
    items: Iterable[tuple[str, str] | tuple[str, str, str]],
    *,
    grader: str = "plain",
) -> list[Verdict]:
    """Grades (gold, response) or (gold, response, finish_reason) items; the verdicts come in the same order.

    A response that ran into the token limit (`finish_reason="length"`) but holds a closed box is graded by that box,
    as the paper does; without one it is `truncated`. Equal (gold, answer) pairs are graded once a process, whoever
    asks. Works from any thread: math-verify runs in worker processes, which start only when a pair needs them.

    Raises:
        UserError: no grader has that name.
    """
    if grader not in GRADERS:
        raise unknown("grader", grader, GRADERS)
    verdicts: list[Verdict | None] = []
    keys: list[tuple[str, str, str]] = []
    for gold, response, *rest in items:
        box = find_box(response)
        keys.append((grader, gold.strip(), box.content or ""))
        if box.content is None:
            kind = "truncated" if rest and rest[0] == "length" else box.status
            verdicts.append(Verdict(kind, None, grader))
        elif len(box.content) > MAX_ANSWER:
            verdicts.append(Verdict("too_long", box.content, grader))
        else:
            verdicts.append(None)
    kinds = _lookup(grader, [key for key, verdict in zip(keys, verdicts, strict=True) if verdict is None])
    return [
        verdict if verdict is not None else Verdict(kinds[key], key[2], grader)
        for key, verdict in zip(keys, verdicts, strict=True)
    ]


def _lookup(grader: str, keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """The kind of each key, from the memo where known; a grader_error may be the machine and is not remembered."""
    with _memo_lock:
        kinds = {key: _memo[key] for key in keys if key in _memo}
    todo = [key for key in dict.fromkeys(keys) if key not in kinds]
    fresh = dict(zip(todo, GRADERS[grader]([key[1:] for key in todo]), strict=True))
    with _memo_lock:
        if len(_memo) > _MEMO_LIMIT:
            _memo.clear()
        _memo.update({key: kind for key, kind in fresh.items() if kind != "grader_error"})
    return kinds | fresh
