"""The result of a task that is not ours: the metrics that lm-eval computed, beside what our engine counted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.digest import digest_of
from harness.evals.result import config_hash_of
from harness.spec import Decoding, Sampling
from harness.stats import Responses, benchmark_metrics

if TYPE_CHECKING:
    from harness.evals.loop import Done


@dataclass(frozen=True)
class LmEvalResult:
    """What lm-eval says of a task, in its own units (`scores`), and our counts as fractions (`metrics`).

    `n_tokens` is over all responses; `seconds` as in `EvalResult`.
    """

    task: str
    decoding: Decoding
    sampling: Sampling
    problem_ids: tuple[str, ...]
    scores: dict[str, float]
    counts: dict[str, float]
    n_tokens: int
    seconds: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)
    partial: None = None

    @classmethod
    def of(cls, done: "Done", reported: Mapping[str, Any], about: Mapping[str, Any]) -> "LmEvalResult":
        """Make it from a finished job and the task's entry in lm-eval's `results`: `{"exact_match,none": 0.5, ...}`.

        A metric is named `METRIC/FILTER`, or `METRIC` where lm-eval has no filter's name.
        """
        job, prefix = done.job, f"{done.job.task}/"
        scores = {
            name.replace(",none", "").replace(",", "/"): float(value)
            for name, value in reported.items()
            if isinstance(value, int | float) and "," in name
        }
        by_problem: dict[str, list[dict[str, Any]]] = {}
        for (problem, _), response in done.responses.items():
            by_problem.setdefault(problem.removeprefix(prefix), []).append(response.counts())
        rows = [
            Responses(
                truncated=[each["finish_reason"] == "length" for each in row],
                n_tokens=[each["n_tokens"] for each in row],
                n_replaced=[each["n_replaced"] for each in row],
                n_changed=[each["n_changed"] for each in row],
            )
            for row in by_problem.values()
        ]
        return cls(
            task=job.task,
            decoding=job.decoding,
            sampling=job.sampling,
            problem_ids=tuple(by_problem),
            scores=scores,
            counts=benchmark_metrics(rows),
            n_tokens=done.n_tokens,
            seconds=done.seconds,
            provenance=done.provenance(about),
        )

    @property
    def samples(self) -> int:
        """Return the samples a problem."""
        return self.sampling.samples

    @property
    def config_hash(self) -> str:
        """Name what was asked and what lm-eval made of it: its metrics are not ours to define."""
        asked = config_hash_of(self.task, self.decoding, self.sampling, self.problem_ids, self.provenance)
        return digest_of([asked, self.scores])

    def metrics(self) -> dict[str, float]:
        """Return our counts, as fractions: replacement ratios, lengths, the share of truncated responses."""
        return self.counts

    def to_json(self) -> str:
        """Return everything as JSON."""
        asked = {"decoding": self.decoding.model_dump(mode="json"), "sampling": self.sampling.model_dump(mode="json")}
        names = ("task", "problem_ids", "scores", "counts", "n_tokens", "seconds", "provenance")
        return json.dumps({**{name: getattr(self, name) for name in names}, **asked}, ensure_ascii=False)
