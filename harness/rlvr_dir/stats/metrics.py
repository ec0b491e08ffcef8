"""Define the metrics of a benchmark: each is an entry of `METRICS`, for one problem and over problems.

    values = benchmark_metrics([Responses(correct=[1, 0], n_tokens=[9, 30], n_replaced=[1, 2], n_changed=[0, 2]), ...])

To add a metric, add an entry. lm-eval's table and groups, results, MLflow and the names that a sweep accepts are
derived from the list, and `eval`'s table and the reports show metrics with a `column`. lm-eval aggregates the values of
single problems itself; results and records use `benchmark_metrics`.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from rlvr_dir.stats.majority import maj_at_k
from rlvr_dir.stats.passk import pass_at_k_per_problem


@dataclass(frozen=True, slots=True)
class Responses:
    """Hold the responses to one problem, an entry per sample. Metrics that need a field that is None are left out.

    `votes` are the answers for Maj@n. Equal answers vote together, and None does not vote.
    """

    correct: Sequence[bool] | None = None
    votes: Sequence[Hashable | None] | None = None
    no_box: Sequence[bool] | None = None
    ungraded: Sequence[bool] | None = None
    truncated: Sequence[bool] | None = None
    n_tokens: Sequence[int] | None = None
    n_replaced: Sequence[int] | None = None
    n_changed: Sequence[int] | None = None


def pass_ks(n: int) -> list[int]:
    """Return the k of the Pass@k to report from n samples: powers of two from 2 (Pass@1 is Avg@n)."""
    return [2**i for i in range(1, n.bit_length()) if 2**i <= n]


Value = float | tuple[float, float]  # a ratio stays a pair (numerator, denominator) until it is summed over problems


@dataclass(frozen=True, slots=True)
class Metric:
    """Define a metric, and how tables show it.

    `of` computes it from the responses to one problem, and returns None if these are not sufficient. A score has `ks`,
    the k for which it is reported given n samples, and its name ends in `@k`; `of` then takes k as well. `unit` is 100
    for a fraction, which is printed in percent. A larger score is better; a fact is neither better nor worse. `column`
    is its title in tables and `digits` the number of decimals in a report.
    """

    name: str
    of: Callable[..., Value | None]
    ks: Callable[[int], Sequence[int]] | None = None
    unit: float = 100.0
    column: str = ""
    digits: int = 1

    @property
    def higher_is_better(self) -> bool | None:
        """Return whether a larger value is better; None for facts such as lengths and shares."""
        return None if self.ks is None else True

    def names(self, n: int) -> list[str]:
        """Return its names for n samples per problem."""
        return [self.name] if self.ks is None else [f"{self.name}@{k}" for k in self.ks(n)]

    def values(self, responses: "Responses") -> dict[str, Value]:
        """Return its values for one problem, by name."""
        if self.ks is None:
            values = {self.name: self.of(responses)}
        else:
            ks = self.ks(len(responses.correct or ()))
            values = {f"{self.name}@{k}": self.of(responses, k) for k in ks}
        return {name: value for name, value in values.items() if value is not None}


def _share(name: str) -> Callable[[Responses], float | None]:
    """Return a function that computes the share of responses that have a flag."""

    def of(responses: Responses) -> float | None:
        flags = getattr(responses, name)
        return None if flags is None else sum(map(bool, flags)) / len(flags)

    return of


def _of_tokens(name: str) -> Callable[[Responses], Value | None]:
    """Return a function that counts the tokens of one kind: (tokens of the kind, tokens)."""

    def of(responses: Responses) -> Value | None:
        tokens = responses.n_tokens
        return None if tokens is None else (float(sum(getattr(responses, name) or ())), float(sum(tokens)))

    return of


def _replaced_per_response(responses: Responses) -> Value | None:
    """Sum the shares of flagged tokens of each response over the responses, as the authors' script does."""
    if responses.n_tokens is None:
        return None
    pairs = zip(responses.n_replaced or (), responses.n_tokens, strict=True)
    return math.fsum(flagged / n for flagged, n in pairs if n), float(len(responses.n_tokens))


def _mean_tokens(responses: Responses) -> float | None:
    return None if responses.n_tokens is None else sum(responses.n_tokens) / len(responses.n_tokens)


def _avg(responses: Responses, n: int) -> float | None:
    return None if responses.correct is None else sum(map(bool, responses.correct)) / n


def _pass(responses: Responses, k: int) -> float | None:
    if responses.correct is None:
        return None
    return float(pass_at_k_per_problem([[bool(right) for right in responses.correct]], k)[0])


def _maj(responses: Responses, n: int) -> float | None:
    if responses.correct is None or responses.votes is None:
        return None
    return maj_at_k([list(responses.votes)], [[bool(right) for right in responses.correct]])


METRICS = (
    Metric("avg", _avg, ks=lambda n: [n] if n else []),
    Metric("pass", _pass, ks=pass_ks),
    Metric("maj", _maj, ks=lambda n: [n] if n else []),
    Metric("replacement_ratio", _of_tokens("n_replaced"), column="flagged", digits=2),
    Metric("replacement_ratio_per_response", _replaced_per_response),
    Metric("changed_ratio", _of_tokens("n_changed"), column="changed", digits=2),
    Metric("mean_tokens", _mean_tokens, unit=1.0, column="tokens", digits=0),
    Metric("truncated_share", _share("truncated"), column="cut"),
    Metric("no_box_share", _share("no_box"), column="no box"),
    Metric("ungraded_share", _share("ungraded")),
)
COLUMNS = tuple(metric for metric in METRICS if metric.column)


def problem_metrics(responses: Responses) -> dict[str, Value]:
    """Return one problem's metrics, as fractions. Their names contain the number of samples."""
    return {name: value for metric in METRICS for name, value in metric.values(responses).items()}


def benchmark_metrics(problems: Sequence[Responses]) -> dict[str, float]:
    """Return the metrics of a benchmark: means over problems; ratios of sums, so that each token counts once."""
    every = [problem_metrics(problem) for problem in problems]
    metrics: dict[str, float] = {}
    for name in every[0] if every else ():
        column = [values[name] for values in every]
        ratios = [value for value in column if isinstance(value, tuple)]
        means = [value for value in column if not isinstance(value, tuple)]
        metrics[name] = ratio(ratios) if ratios else math.fsum(means) / len(means)
    return metrics


def ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the sum of numerators over the sum of denominators, so that each token (or response) counts once; 0/0 is
    0."""
    total = sum(pair[1] for pair in pairs)
    return sum(pair[0] for pair in pairs) / total if total else 0.0
