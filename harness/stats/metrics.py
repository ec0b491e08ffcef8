"""The metrics of a benchmark, each defined here once: of one problem, and over problems.

    values = benchmark_metrics([Responses(correct=[1, 0], n_tokens=[9, 30], n_replaced=[1, 2], n_changed=[0, 2]), ...])

lm-eval aggregates the values of single problems itself; results and records go through `benchmark_metrics`.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from harness.stats.majority import maj_at_k
from harness.stats.passk import pass_at_k_per_problem


@dataclass(frozen=True, slots=True)
class Responses:
    """What is known of the responses to one problem, an entry a sample; what is None gives no metric.

    `votes` are the answers for Maj@n, equal ones vote together, None does not vote.
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


def problem_metrics(responses: Responses) -> dict[str, float | tuple[float, float]]:
    """Return one problem's metrics, as fractions, under names that say how many samples were drawn.

    A ratio stays a pair (numerator, denominator) until `ratio` adds them up over problems.
    """
    values: dict[str, float | tuple[float, float]] = {}
    if responses.correct is not None:
        correct, n = [bool(each) for each in responses.correct], len(responses.correct)
        values[f"avg@{n}"] = sum(correct) / n
        for k in pass_ks(n):
            values[f"pass@{k}"] = float(pass_at_k_per_problem([correct], k)[0])
        if responses.votes is not None:
            values[f"maj@{n}"] = maj_at_k([list(responses.votes)], [correct])
    if responses.n_tokens is not None:
        tokens, replaced = responses.n_tokens, responses.n_replaced or ()
        values["replacement_ratio"] = (float(sum(replaced)), float(sum(tokens)))
        each = math.fsum(r / t for r, t in zip(replaced, tokens, strict=True) if t)
        values["replacement_ratio_per_response"] = (each, float(len(tokens)))
        values["changed_ratio"] = (float(sum(responses.n_changed or ())), float(sum(tokens)))
        values["mean_tokens"] = sum(tokens) / len(tokens)
    for name in ("truncated", "no_box", "ungraded"):
        flags = getattr(responses, name)
        if flags is not None:
            values[f"{name}_share"] = sum(map(bool, flags)) / len(flags)
    return values


def benchmark_metrics(problems: Sequence[Responses]) -> dict[str, float]:
    """Return the metrics of a benchmark: the mean over problems; of ratios the sums, so that each token counts once."""
    every = [problem_metrics(each) for each in problems]
    found: dict[str, float] = {}
    for name in every[0] if every else ():
        column = [values[name] for values in every]
        ratios = [each for each in column if isinstance(each, tuple)]
        means = [each for each in column if not isinstance(each, tuple)]
        found[name] = ratio(ratios) if ratios else math.fsum(means) / len(means)
    return found


def ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the sum of numerators over the sum of denominators: each token (or response) counts once; 0/0 is 0."""
    total = sum(pair[1] for pair in pairs)
    return sum(pair[0] for pair in pairs) / total if total else 0.0
