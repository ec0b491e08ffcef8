"""What the task files name: the filter that grades all responses of a task at once, and the metrics of a problem."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval.api.filter import Filter

from harness.evals.data import PUBLISHED, VERSIONS
from harness.evals.metrics import group_metrics, problem_metrics
from harness.evals.response import Response, facts
from harness.grading import Verdict, grade_many

GROUP_METRICS = group_metrics()


class BoxedAnswers(Filter):
    """Replaces each response by its boxed answer (empty where it has none), the verdict riding along.

    lm-eval hands a filter all responses of a task at once, so equal answers are graded once and the hard ones in
    worker processes. Answers instead of texts keep the samples file small; the texts stay in `resps`. Where a document
    has another version of its answers (`answers_<version>`), that is graded too and rides along as
    `verdict_<version>`; `golds` says which version is *the* verdict.
    """

    def __init__(self, grader: str = "robust", golds: str = PUBLISHED, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grader, self.golds = grader, golds

    def apply(self, resps: Iterable[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[Response]]:
        """One row of answers a problem, in the order of its samples."""
        rows = [list(row) for row in resps]
        others = [v for v in VERSIONS[1:] if docs and f"answers_{v}" in docs[0]]
        verdicts = {version: self._grade(rows, docs, version) for version in (PUBLISHED, *others)}
        chosen = verdicts.pop(self.golds if self.golds in verdicts else PUBLISHED)
        if failed := Counter(verdict.kind for row in chosen for verdict in row if not verdict.graded):
            counts = ", ".join(f"{kind}: {count}" for kind, count in failed.items())
            logging.getLogger(__name__).warning("some answers could not be graded and count as wrong (%s)", counts)
        return [
            [
                _answer(text, chosen[i][j], {name: given[i][j].kind for name, given in verdicts.items()})
                for j, text in enumerate(row)
            ]
            for i, row in enumerate(rows)
        ]

    def _grade(self, rows: list[list[str]], docs: Sequence[dict[str, Any]], version: str) -> list[list[Verdict]]:
        field = "answer" if version == PUBLISHED else f"answers_{version}"
        items = [
            (
                str(doc[field]) if version == PUBLISHED else tuple(doc[field]),
                str(text),
                facts(text).get("finish_reason", "stop"),
            )
            for row, doc in zip(rows, docs, strict=True)
            for text in row
        ]
        each = iter(grade_many(items, grader=self.grader))
        return [[next(each) for _ in row] for row in rows]


def _answer(text: str, verdict: Verdict, others: dict[str, str]) -> Response:
    return Response(
        verdict.answer or "",
        {
            "verdict": verdict.kind,
            "answer": verdict.answer,
            "grader": verdict.grader,
            **{f"verdict_{version}": kind for version, kind in others.items()},
            **facts(text),
        },
    )


def process_results(doc: dict[str, Any], results: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The metrics of one problem. Puts the facts of each sample into `doc["samples"]`, which the samples file keeps."""
    samples = [facts(answer) for answer in results[0]]
    doc["samples"] = samples
    return problem_metrics(samples)
