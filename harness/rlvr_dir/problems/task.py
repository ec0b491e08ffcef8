"""Define our lm-eval task: a math benchmark with n samples per problem, graded together, with n in its metrics'
names."""

import io
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.task import ConfigurableTask

from rlvr_dir.config import Presentation, parse
from rlvr_dir.errors import UserError
from rlvr_dir.grading import DEFAULT_GRADER, Gold, Verdict, grade_many, grader_name
from rlvr_dir.problems.benchmark import OURS, Benchmark
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.stats import Responses, problem_metrics, ratio
from rlvr_dir.stats.metrics import METRICS

MAX_NAMED = 256  # groups list their metrics in advance: avg@1 .. avg@256


class Response(str):
    """Extend `str` with `info`: the engine's counts (tokens, replacements) and later the verdict.

    lm-eval's return type is text, and a subclass passes its filters, JSON and pickle. Any string operation returns a
    plain `str`, so facts may be missing after another filter, but are never wrong.
    """

    __slots__ = ("info",)
    info: dict[str, Any]

    def __new__(cls, text: object = "", info: Mapping[str, Any] | None = None) -> "Response":
        response = super().__new__(cls, text)
        response.info = dict(info or {})
        return response

    def __reduce__(self) -> tuple[type, tuple[str, dict[str, Any]]]:
        return type(self), (str(self), self.info)


def info_of(response: str) -> dict[str, Any]:
    """Return a copy of the information that a response carries; empty for a plain string."""
    return dict(getattr(response, "info", {}))


class SampledMathTask(ConfigurableTask):
    """Present a benchmark to the models according to its files and the run's settings.

    `repeats`, `prompt`, `examples` and `grader` can be set for a run: `--metadata '{"repeats": 8}'` or
    `samples=8,grader=plain` in the model arguments (lm-eval passes both to the task as metadata). With `temperature=0`
    there is one sample. Everything else is in the YAML.
    """

    def __init__(self, config: dict[str, Any], benchmark: Benchmark | None = None, **kwargs: Any) -> None:
        config = {key: value for key, value in config.items() if key != "class"}
        metadata = config.get("metadata") or {}
        requested = metadata.get("repeats", metadata.get("samples", 1 if metadata.get("temperature") == 0 else None))
        repeats = config.get("repeats", 1) if requested is None else requested
        if isinstance(repeats, bool) or not str(repeats).isdecimal() or int(repeats) < 1:
            raise UserError(
                argument="repeats", value=repeats, accepted="a whole number of samples per problem, 1 or more"
            )
        if benchmark is None:
            fields = {name: metadata[name] for name in Presentation.model_fields if metadata.get(name) is not None}
            name = config["dataset_kwargs"]["benchmark"]
            benchmark = find_benchmark(name, metadata.get("data_dir"), parse(Presentation, fields))
        self.benchmark = benchmark
        presentation = self.benchmark.presentation
        if presentation.prompt:
            config["doc_to_text"] = presentation.prompt
        if presentation.examples:
            examples = [example.model_dump() for example in presentation.examples]
            config |= {"num_fewshot": len(examples), "fewshot_config": {"sampler": "first_n", "samples": examples}}
        answers = {"function": BoxedAnswers, "grader": grader_name(self.benchmark.grader)}
        config |= {"repeats": int(repeats), "filter_list": [{"name": "boxed", "filter": [answers]}]}
        super().__init__(config={**config, "metric_list": metric_list(int(repeats))}, **kwargs)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Load the problems, each with the facts of the benchmark, because the model learns these only from the
        problems."""
        from datasets import Dataset, DatasetDict

        fields = asdict(self.benchmark.metadata) | {"families": None}  # a row names its own
        self.dataset = DatasetDict(
            {"test": Dataset.from_list([{**row, OURS: fields} for row in self.benchmark.problems])}
        )

    def build_all_requests(self, **kwargs: Any) -> None:
        """Build the requests like lm-eval, without its bar for a few milliseconds, which a sweep would print hundreds
        of times."""
        with redirect_stderr(io.StringIO()):
            super().build_all_requests(**kwargs)


class BoxedAnswers(Filter):
    """Replace each response by its boxed answer (empty if it has none), which carries the verdict.

    Our model has graded its responses already. Those of other models are graded here, all of a task together. Answers
    instead of texts keep the samples file small; the texts are in `resps`.
    """

    def __init__(self, grader: str = DEFAULT_GRADER, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grader = grader_name(grader)

    def apply(self, resps: Iterable[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[Response]]:
        """Return one row of answers per problem, in the order of its samples."""
        rows = [[*row] for row in resps]
        texts = [(text, doc, info_of(text)) for row, doc in zip(rows, docs, strict=True) for text in row]
        given_verdicts: list[Verdict | None] = [info.pop("given", None) for _, _, info in texts]
        given_verdicts = [
            verdict if verdict is not None and verdict.grader == self.grader else None for verdict in given_verdicts
        ]
        todo = [(gold_of(doc), str(text), info.get("finish_reason", "stop")) for text, doc, info in texts]
        todo = [item for item, verdict in zip(todo, given_verdicts, strict=True) if verdict is None]
        fresh = iter(grade_many(todo, grader=self.grader))
        verdicts = [verdict or next(fresh) for verdict in given_verdicts]
        if failed := Counter(verdict.kind for verdict in verdicts if not verdict.graded):
            counts = ", ".join(f"{kind}: {count}" for kind, count in failed.items())
            logging.getLogger(__name__).warning("some answers could not be graded and count as wrong (%s)", counts)
        answers = iter(
            Response(
                verdict.answer or "",
                {"verdict": verdict.kind, "answer": verdict.answer, "grader": verdict.grader, **info},
            )
            for verdict, (_, _, info) in zip(verdicts, texts, strict=True)
        )
        return [[next(answers) for _ in row] for row in rows]


def process_results(doc: dict[str, Any], results: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the metrics of one problem, and store the facts of its samples in `doc["samples"]`, for their file."""
    doc["samples"] = [info_of(answer) for answer in results[0]]
    return problem_metrics(responses_of(doc["samples"]))


def gold_of(doc: Mapping[str, Any]) -> Gold:
    """Return the gold answer of a document, or several of which any one counts."""
    answer = doc["answer"]
    return str(answer) if isinstance(answer, str | int | float) else tuple(map(str, answer))


def responses_of(samples: Sequence[Mapping[str, Any]]) -> Responses:
    """Return the responses to one problem from objects as in lm-eval's samples file.

    They have `verdict` and `answer`; for our model also counts of tokens, and `finish_reason`.
    """
    counted = all(sample.get("n_tokens") is not None for sample in samples)
    counts = {name: [sample[name] for sample in samples] for name in ("n_tokens", "n_replaced", "n_changed") if counted}
    return Responses(
        correct=[sample["verdict"] == "correct" for sample in samples],
        votes=[sample["answer"] for sample in samples],
        no_box=[sample["answer"] is None for sample in samples],
        ungraded=[sample["verdict"] in ("timed_out", "grader_error") for sample in samples],
        truncated=[sample["finish_reason"] == "length" for sample in samples] if counted else None,
        **counts,
    )


def metric_list(n: int) -> list[dict[str, Any]]:
    """Return lm-eval's `metric_list` for n samples per problem, with names that contain the number of samples.

    Only scores are better if they are higher. Lengths and shares are facts, which have no arrow in its table.
    """
    made_up = {"verdict": "", "answer": None, "finish_reason": "", "n_tokens": 0, "n_replaced": 0, "n_changed": 0}
    responses = responses_of([made_up] * n)
    return [
        {
            "metric": name,
            "aggregation": ratio if isinstance(value, tuple) else "mean",
            "higher_is_better": metric.higher_is_better,
        }
        for metric in METRICS
        for name, value in metric.values(responses).items()
    ]


# The metrics of a group: the paper's average, in which each benchmark counts once. A group does not know the number of
# samples in advance, so every possible name is listed.
GROUP_METRICS = [
    {"metric": name, "aggregation": "mean", "weight_by_size": False}
    for metric in METRICS
    for name in dict.fromkeys(name for n in range(1, MAX_NAMED + 1) for name in metric.names(n))
]


# For a group, lm-eval warns about each of these that does not occur.
logging.getLogger("lm_eval.api.group").addFilter(lambda record: "no values found for metric" not in record.getMessage())
