"""What the task files name: the filter that grades all responses of a task at once, and the metrics of a problem."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval.api.filter import Filter

from harness.evals.metrics import group_metrics, problem_metrics
from harness.evals.response import Response, facts
from harness.grading import Verdict, grade_many

GROUP_METRICS = group_metrics()


class BoxedAnswers(Filter):
    """Replaces each response by its boxed answer (empty where it has none), the verdict riding along.

    lm-eval hands a filter all responses of a task at once, so equal answers are graded once and the hard ones in
    worker processes. Answers instead of texts keep the samples file small; the texts stay in `resps`.
    """

    def __init__(self, grader: str = "plain", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grader = grader

    def apply(self, resps: Iterable[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[Response]]:
        """One row of answers a problem, in the order of its samples."""
        rows = [list(row) for row in resps]
        items = [
            (str(doc["answer"]), str(text), facts(text).get("finish_reason", "stop"))
            for row, doc in zip(rows, docs, strict=True)
            for text in row
        ]
        verdicts = grade_many(items, grader=self.grader)
        if failed := Counter(verdict.kind for verdict in verdicts if not verdict.graded):
            counts = ", ".join(f"{kind}: {count}" for kind, count in failed.items())
            logging.getLogger(__name__).warning("some answers could not be graded and count as wrong (%s)", counts)
        each = iter(verdicts)
        return [[_answer(text, next(each)) for text in row] for row in rows]


def _answer(text: str, verdict: Verdict) -> Response:
    return Response(
        verdict.answer or "",
        {"verdict": verdict.kind, "answer": verdict.answer, "grader": verdict.grader, **facts(text)},
    )


def process_results(doc: dict[str, Any], results: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The metrics of one problem. Puts the facts of each sample into `doc["samples"]`, which the samples file keeps."""
    samples = [facts(answer) for answer in results[0]]
    doc["samples"] = samples
    return problem_metrics(samples)
