"""Compute verdicts on responses by gold answers, in bulk, de-duplicated, with a time limit for each."""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from rlvr_dir.errors import UserError, unknown
from rlvr_dir.grading.answer_line import find_answer_line, grade_answer_line
from rlvr_dir.grading.bounds import too_large
from rlvr_dir.grading.boxes import MAX_ANSWER, Box, find_box
from rlvr_dir.grading.pool import Item, grade_items
from rlvr_dir.grading.robust import grade_robust

VERDICT_KINDS: tuple[str, ...] = (
    "correct",
    "wrong",
    "no_box",  # the response has no closed, non-empty box; by `math_dapo`, no "Answer:"
    "unclosed_box",  # its last box never closes
    "truncated",  # one of these two, and the response reached the token limit
    "too_long",  # the box contains more than MAX_ANSWER characters, so it is not an answer
    "too_large",  # the box asks for an astronomically large number, such as 9^{9^{9^9}} (bounds.py)
    "timed_out",  # math-verify did not finish within its processor time
    "grader_error",  # math-verify failed, or cannot read the gold answer
)
_MEMO_LIMIT = 200_000
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)

_Key = tuple[str, tuple[str, ...], str]  # grader, golds, answer
_memo: dict[_Key, str] = {}
_memo_lock = threading.Lock()


VERSION = 6
"""The version of the `robust` grader. Raise it with any change of a verdict: stored verdicts hold for a version."""

VERSIONS = {"plain": "plain", "robust": f"robust-{VERSION}", "math_dapo": "math_dapo"}
"""The name that a grader's verdicts have in results and records."""

OLDER = {VERSIONS["robust"]: (*(f"robust-{number}" for number in range(VERSION - 1, 1, -1)), "robust")}
"""The names of earlier versions, the latest first; their verdicts stay in a record."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Store a grader's verdict on a response; `answer` is the text that it graded, the content of a box, or None."""

    kind: str
    answer: str | None = None
    grader: str = VERSIONS["robust"]

    @property
    def correct(self) -> bool:
        """Return whether the response counts as right; only the kind `correct` does."""
        return self.kind == "correct"

    @property
    def graded(self) -> bool:
        """Return False if grading failed (`timed_out`, `grader_error`). Report such a verdict next to the score."""
        return self.kind not in ("timed_out", "grader_error")


def _without_math_verify(gold: str, answer: str) -> str | None:
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):
        return "correct" if int(gold) == int(answer) else "wrong"
    return "too_large" if too_large(answer, {}) and not too_large(gold, {}) else None


def _plain(items: Sequence[Item]) -> list[str]:
    """Grade like the paper: math-verify on the content of the box, gold first, and nothing else of the response.

    Two plain integers are compared as integers, which gives math-verify's result without starting it. Requests for
    astronomically large numbers are not sent to it either, because it would time out and call them wrong.
    """
    return grade_items(items, _without_math_verify)


GRADERS: dict[str, Callable[[Sequence[Item]], list[str]]] = {
    "plain": _plain,
    "robust": grade_robust,
    "math_dapo": grade_answer_line,
}
"""Graders by the name they are asked for: each takes distinct (golds, answer) items and returns one kind an item."""

FINDERS: dict[str, Callable[[str], Box]] = {"math_dapo": find_answer_line, "plain": partial(find_box, cut=False)}
"""Find the answer of a response for a grader that does not look for its last box, or as the paper does."""


def grader_name(grader: str) -> str:
    """Return the name of a grader's verdicts: that of its newest version, which may also be requested directly.

    Raises:
        UserError: No grader has that name.
    """
    if grader in VERSIONS.values():
        return grader
    if grader not in VERSIONS:
        raise unknown("grader", grader, GRADERS)
    return VERSIONS[grader]


Gold = str | tuple[str, ...]
"""What is right: one answer, or several of which any one counts."""


def grade(gold: Gold, response: str, finish_reason: str = "stop", *, grader: str = "robust") -> Verdict:
    """Grade one response; see `grade_many`."""
    return grade_many([(gold, response, finish_reason)], grader=grader)[0]


def grade_many(
    items: Iterable[tuple[Gold, str] | tuple[Gold, str, str]],
    *,
    grader: str = "robust",
) -> list[Verdict]:
    """Grade (gold, response) or (gold, response, finish_reason) items; the verdicts have the same order.

    A gold may be a tuple (or list) of answers, of which any one counts. A response that reached the token limit
    (`finish_reason="length"`) is graded by its answer if it contains one: a closed box and no later one that was cut.
    Otherwise it is `truncated`. Equal (gold, answer) pairs are graded once per process. Any thread may call this.
    math-verify runs in worker processes, which start only when a pair needs them.

    Raises:
        UserError: No grader has that name, or an item has no gold.
    """
    grader = grader_name(grader)
    find = FINDERS.get(grader, find_box)
    verdicts: list[Verdict | None] = []
    answers: list[tuple[tuple[str, ...], str]] = []
    for number, (gold, response, *rest) in enumerate(items):
        golds = (gold,) if isinstance(gold, str) else tuple(gold)
        if not golds:
            hint = "Give one answer, or several of which any one counts."
            raise UserError(f"Item {number} has no gold answer", argument="gold", value=gold, hint=hint)
        box = find(response)
        answers.append((tuple(gold.strip() for gold in golds), box.content or ""))
        if box.content is None:
            kind = "truncated" if rest and rest[0] == "length" else box.status
            verdicts.append(Verdict(kind, None, grader))
        elif len(box.content) > MAX_ANSWER:
            verdicts.append(Verdict("too_long", box.content, grader))
        else:
            verdicts.append(None)
    todo = [pair for pair, verdict in zip(answers, verdicts, strict=True) if verdict is None]
    kinds = _lookup(grader, [(grader, *item) for item in todo])
    return [
        verdict or Verdict(kinds[grader, golds, answer], answer, grader)
        for (golds, answer), verdict in zip(answers, verdicts, strict=True)
    ]


def _lookup(grader: str, keys: Sequence[_Key]) -> dict[_Key, str]:
    """Return each key's kind, from memory if known; a grader_error may be due to the machine and is not remembered."""
    judge = next(GRADERS[key] for key, name in VERSIONS.items() if name == grader)
    with _memo_lock:
        kinds = {key: _memo[key] for key in keys if key in _memo}
    todo = [key for key in dict.fromkeys(keys) if key not in kinds]
    fresh = dict(zip(todo, judge([key[1:] for key in todo]), strict=True))
    with _memo_lock:
        if len(_memo) > _MEMO_LIMIT:
            _memo.clear()
        _memo.update({key: kind for key, kind in fresh.items() if kind != "grader_error"})
    return kinds | fresh
