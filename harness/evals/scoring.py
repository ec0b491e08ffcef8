"""What the task files name: the filter that grades all responses of a task at once, and the metrics of a problem."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_eval.api.filter import Filter

from harness.evals.data import GOLD_VERSIONS, PUBLISHED
from harness.evals.metrics import group_metrics, responses_of
from harness.evals.response import Response, facts
from harness.grading import Gold, Verdict, grade_many, grader_name
from harness.stats import problem_metrics

GROUP_METRICS = group_metrics()


class BoxedAnswers(Filter):
    """Replaces each response by its boxed answer (empty where it has none), the verdict riding along.

    Our model has graded its responses already; those of other models are graded here, all of a task at once. Answers
    instead of texts keep the samples file small; the texts stay in `resps`. Where a document has another version of
    its gold answers (`answers_<version>`), the verdict by it rides along as `verdict_<version>`; `golds` says which
    version is *the* verdict.
    """

    def __init__(self, grader: str = "robust", golds: str = PUBLISHED, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grader, self.golds = grader_name(grader), golds

    def apply(self, resps: Iterable[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[Response]]:
        """Return one row of answers a problem, in the order of its samples."""
        rows = [list(row) for row in resps]
        versions = [PUBLISHED, *(v for v in GOLD_VERSIONS[1:] if docs and f"answers_{v}" in docs[0])]
        versions.sort(key=lambda version: version != self.golds)
        known = [[self._known(text) for text in row] for row in rows]
        todo = [
            (version, doc, text, verdicts)
            for row, doc, given in zip(rows, docs, known, strict=True)
            for text, verdicts in zip(row, given, strict=True)
            for version in versions
            if version not in verdicts
        ]
        items = [
            (gold_of(doc, version), str(text), facts(text).get("finish_reason", "stop"))
            for version, doc, text, _ in todo
        ]
        for (version, _, _, verdicts), verdict in zip(todo, grade_many(items, grader=self.grader), strict=True):
            verdicts[version] = verdict
        if failed := Counter(each[versions[0]].kind for row in known for each in row if not each[versions[0]].graded):
            counts = ", ".join(f"{kind}: {count}" for kind, count in failed.items())
            logging.getLogger(__name__).warning("some answers could not be graded and count as wrong (%s)", counts)
        return [
            [_answer(text, verdicts, versions) for text, verdicts in zip(row, given, strict=True)]
            for row, given in zip(rows, known, strict=True)
        ]

    def _known(self, text: str) -> dict[str, Verdict]:
        """Return the verdicts that a response brings along, by this grader."""
        verdicts = facts(text).get("verdicts", {})
        return {version: verdict for version, verdict in verdicts.items() if verdict.grader == self.grader}


def gold_of(doc: Mapping[str, Any], version: str) -> Gold:
    """Return a version of the gold answers of a document."""
    return str(doc["answer"]) if version == PUBLISHED else tuple(doc[f"answers_{version}"])


def _answer(text: str, verdicts: dict[str, Verdict], versions: Sequence[str]) -> Response:
    chosen, *others = versions
    verdict, counts = verdicts[chosen], facts(text)
    counts.pop("verdicts", None)
    return Response(
        verdict.answer or "",
        {
            "verdict": verdict.kind,
            "answer": verdict.answer,
            "grader": verdict.grader,
            **{f"verdict_{version}": verdicts[version].kind for version in others},
            **counts,
        },
    )


def process_results(doc: dict[str, Any], results: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the metrics of one problem; put the facts of its samples into `doc["samples"]`, for the samples file."""
    samples = [facts(answer) for answer in results[0]]
    doc["samples"] = samples
    return problem_metrics(responses_of(samples))
