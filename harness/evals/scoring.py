"""What the task files name: the filter that grades all responses of a task at once, and the metrics of a problem."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_eval.api.filter import Filter

from harness.evals.metrics import group_metrics, responses_of
from harness.evals.response import Response, facts
from harness.grading import Gold, Verdict, grade_many, grader_name
from harness.stats import problem_metrics

GROUP_METRICS = group_metrics()


class BoxedAnswers(Filter):
    """Replaces each response by its boxed answer (empty where it has none), the verdict riding along.

    Our model has graded its responses already; those of other models are graded here, all of a task at once. Answers
    instead of texts keep the samples file small; the texts stay in `resps`.
    """

    def __init__(self, grader: str = "robust", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grader = grader_name(grader)

    def apply(self, resps: Iterable[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[Response]]:
        """Return one row of answers a problem, in the order of its samples."""
        rows = [list(row) for row in resps]
        known = [[self._known(text) for text in row] for row in rows]
        items = [
            (gold_of(doc), str(text), facts(text).get("finish_reason", "stop"))
            for row, doc, given in zip(rows, docs, known, strict=True)
            for text, verdict in zip(row, given, strict=True)
            if verdict is None
        ]
        fresh = iter(grade_many(items, grader=self.grader))
        verdicts = [[verdict or next(fresh) for verdict in given] for given in known]
        if failed := Counter(verdict.kind for row in verdicts for verdict in row if not verdict.graded):
            counts = ", ".join(f"{kind}: {count}" for kind, count in failed.items())
            logging.getLogger(__name__).warning("some answers could not be graded and count as wrong (%s)", counts)
        return [
            [_answer(*each) for each in zip(row, given, strict=True)] for row, given in zip(rows, verdicts, strict=True)
        ]

    def _known(self, text: str) -> Verdict | None:
        """Return the verdict that a response brings along, where it is by this grader."""
        verdict = facts(text).get("given")
        return verdict if verdict is not None and verdict.grader == self.grader else None


def gold_of(doc: Mapping[str, Any]) -> Gold:
    """Return the gold answer of a document, or several of which any one counts."""
    answer = doc["answer"]
    return str(answer) if isinstance(answer, str | int | float) else tuple(map(str, answer))


def _answer(text: str, verdict: Verdict) -> Response:
    counts = {name: value for name, value in facts(text).items() if name != "given"}
    told = {"verdict": verdict.kind, "answer": verdict.answer, "grader": verdict.grader}
    return Response(verdict.answer or "", {**told, **counts})


def process_results(doc: dict[str, Any], results: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the metrics of one problem; put the facts of its samples into `doc["samples"]`, for the samples file."""
    samples = [facts(answer) for answer in results[0]]
    doc["samples"] = samples
    return problem_metrics(responses_of(samples))
