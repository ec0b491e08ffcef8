"""Scores responses to a task that is not ours as lm-eval does, and keeps the scores in the record.

A score is what lm-eval's own `evaluate` computes from the responses: its filters, `process_results`, metrics and
aggregation. It is kept in the record for each set of problems and number of samples that was asked, with what the task
scores by; so a record is read again without lm-eval, and without running any code that its task names.
"""

import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
from pydantic import Field

from harness.digest import digest_of
from harness.errors import DamagedError, UserError
from harness.evals.benchmark import BenchmarkFacts
from harness.evals.foreign import TaskScores, TaskScoresFile, plain
from harness.evals.task_file import ScoredTask, score_name
from harness.records import Key, Record, Row
from harness.spec.stored import Count, Text, check_stored
from harness.stats import standard_error

_NUMBERS = (int, float, np.number, np.bool_)


def task_scores(task: Any, reported: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> TaskScores:
    """Return what lm-eval's `evaluate` said of a task: its entry in `results`, and its logged samples.

    A metric is compared problem by problem where lm-eval aggregates it by its own `mean`, and has a number for each
    document.
    """
    from lm_eval.api.metrics import mean

    scores = {
        score_name(*key.split(",", 1)): float(value)
        for key, value in reported.items()
        if "," in key and isinstance(value, _NUMBERS)
    }
    by_problem: dict[str, tuple[float, ...]] = {}
    lower: list[str] = []
    for named in dict.fromkeys(sample["filter"] for sample in samples):
        rows = [sample for sample in samples if sample["filter"] == named]
        for metric in dict.fromkeys(metric for row in rows for metric in row["metrics"]):
            name, values = score_name(metric, named), [row[metric] for row in rows if metric in row["metrics"]]
            if task.higher_is_better().get(metric) is False:
                lower.append(name)
            numbers = len(values) == len(rows) and all(isinstance(value, _NUMBERS) for value in values)
            if task.aggregation().get(metric, mean) is mean and numbers and all(map(math.isfinite, values)):
                by_problem[name] = tuple(float(value) for value in values)
                if len(values) > 1:  # lm-eval computes the same, where it is asked to
                    scores.setdefault(score_name(f"{metric}_stderr", named), standard_error(by_problem[name]))
    return TaskScores(scores, by_problem, tuple(lower))


def computed_scores(task: ScoredTask, responses: Mapping[Key, Row]) -> TaskScores:
    """Let lm-eval score the responses to some documents of a task, as many samples of each as there are.

    Raises:
        UserError: what the task's own code raised; the rollouts are safe.
    """
    from lm_eval.api.model import LM
    from lm_eval.evaluator import evaluate

    name = task.task.config.task
    documents = sorted({int(problem.removeprefix(f"{name}/").partition(".")[0]) for problem, _ in responses})

    class Replay(LM):
        """Gives the responses that are there, each as often as it is asked for."""

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            seen: Counter[int] = Counter()
            found = []
            for each in requests:  # lm-eval numbers the documents that it was given
                key = f"{name}/{documents[each.doc_id]}.{each.idx}"
                found.append(responses[key, seen[id(each)]].text)
                seen[id(each)] += 1
            return found

        def loglikelihood(self, requests: list[Any]) -> NoReturn:
            raise UserError(f"task {name} asks for likelihoods; accepted: generate_until")

        loglikelihood_rolling = loglikelihood

    task.task.set_config(key="repeats", value=len(responses) // len(documents))
    first = documents == list(range(len(documents)))
    part: dict[str, Any] = {"limit": len(documents)} if first else {"samples": {name: documents}}
    try:
        with redirect_stderr(io.StringIO()):  # its bar
            how = {**part, "bootstrap_iters": 0, "log_samples": True}
            found: Any = evaluate(lm=Replay(), task_dict={"tasks": {name: task.task}}, **how)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"task={name!r} cannot be scored by lm-eval ({type(error).__name__}: {reason}); its rollouts are safe"
        ) from error
    return task_scores(task.task, found["results"][name], found["samples"][name])


def keep_scores(folder: Path, task: ScoredTask, scored: TaskScores, problems: Sequence[str], samples: int) -> None:
    """Keep the scores of some problems' first samples in their record.

    Raises:
        UserError: the disk is full, or another process writes the record.
    """
    with Record(folder).lock() as record:
        texts = _texts(record, problems, samples)
        head = {"graded_with": task.graded_with, "problems": list(problems), "samples": samples, "texts": texts}
        record.keep_scores({**head, "data": task.facts.data, "documents": task.facts.problems, **plain(scored)})


def _texts(record: Record, problems: Sequence[str], samples: int) -> str:
    """Return the digest of some problems' first responses."""
    return digest_of([record.rows[name, sample].text_digest for name in problems for sample in range(samples)])


class StoredScores(TaskScoresFile, frozen=True):
    """Scores in a record, of its first `samples` samples of some `problems`."""

    graded_with: dict[str, Text]
    problems: Annotated[tuple[Text, ...], Field(min_length=1)]
    samples: Annotated[Count, Field(ge=1)]
    data: Text | None
    documents: Count | None
    texts: Text

    @property
    def facts(self) -> BenchmarkFacts:
        """Return what is known of the task's documents."""
        return BenchmarkFacts(self.data, self.documents)


def stored_scores(record: Record) -> list[StoredScores]:
    """Return the scores in a record that are those of its responses, the latest first; no code of a task is run."""
    found: dict[tuple[Any, ...], StoredScores] = {}
    first = record.first
    for each in reversed(record.scores):
        try:
            kept = check_stored(each, StoredScores, record.path)
        except DamagedError:
            continue
        here = all(first.get(name, 0) >= kept.samples for name in kept.problems)
        if here and _texts(record, kept.problems, kept.samples) == kept.texts:
            found.setdefault((str(kept.graded_with), kept.problems, kept.samples), kept)
    return list(found.values())
