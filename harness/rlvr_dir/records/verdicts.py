"""Store verdicts in a record, with their judge, the text and the gold answer.

A judge is a grader's name with its version (`robust-N`; `rlvr_dir.grading` explains when it is increased). It ends in
`+TASK` if the answers of another benchmark with the record's questions were used: `robust-N+minerva_r1zero`.
"""

from sys import intern
from typing import Annotated, Any, Literal

from pydantic import Field, Strict
from pydantic.dataclasses import dataclass

from rlvr_dir.config.stored import Count, Name, Text
from rlvr_dir.digest import installed
from rlvr_dir.grading import VERDICT_KINDS, Gold, Verdict
from rlvr_dir.records.row import Key

_GRADING = ("math-verify", "latex2sympy2-extended", "sympy")


@dataclass(slots=True)
class StoredVerdict:
    """Store a judge's verdict on a response, with the digest of the text, and the gold answer."""

    judge: Annotated[str, Strict(), Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}$")]
    problem: Name
    sample: Count
    text: Name
    gold: Text | tuple[Text, ...]
    kind: Literal[VERDICT_KINDS]  # pyright: ignore[reportInvalidTypeForm]
    answer: Text | None = None

    def __post_init__(self) -> None:
        self.judge, self.problem, self.text = map(intern, (self.judge, self.problem, self.text))  # of many, or a row's

    @property
    def key(self) -> Key:
        """Return (problem, sample)."""
        return self.problem, self.sample

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def verdict(self) -> Verdict:
        """Return the verdict itself."""
        return Verdict(self.kind, self.answer, self.judge.split("+")[0])

    def holds(self, text_digest: str, gold: Gold) -> bool:
        """Return whether it is for this text and gold answer, and the grader did not fail."""
        gold = gold if isinstance(gold, str) else tuple(gold)
        return (self.text, self.gold) == (text_digest, gold) and self.verdict.graded


def judge_name(grader: str, task: str, record_task: str) -> str:
    """Return the judge of a task's result: a grader, by the answers of `record_task` or of another task."""
    return grader if task == record_task else f"{grader}+{task}"


def versions(judge: str) -> dict[str, str]:
    """Return what verdicts depend on besides text and gold answer: the versions of the grader and the libraries."""
    return {"grader": judge.split("+")[0], **installed(*_GRADING)}
