"""The names and values of an evaluation's metrics, from the per-sample facts of each problem; no lm-eval here."""

import math
from collections.abc import Sequence
from typing import Any

from harness.stats import maj_at_k, pass_at_k_per_problem

MAX_NAMED = 256  # groups name their metrics in advance: avg@1 .. avg@256


def pass_ks(n: int) -> list[int]:
    """The k of the Pass@k to report from n samples: powers of two from 2 (Pass@1 is Avg@n)."""
    return [2**i for i in range(1, n.bit_length()) if 2**i <= n]


def metric_list(n: int, other_golds: Sequence[str] = ()) -> list[dict[str, Any]]:
    """lm-eval's `metric_list` for n samples a problem: names that say how many samples were really drawn.

    `other_golds` are versions of the answers that are graded beside the one asked for, as `avg@n_<version>`.
    """
    shares = ["replacement_ratio", "replacement_ratio_per_response", "changed_ratio"]
    means = ["mean_tokens", "truncated_share", "no_box_share", "ungraded_share"]
    scores = [f"avg@{n}", *(f"pass@{k}" for k in pass_ks(n)), f"maj@{n}"]
    scores += [f"avg@{n}_{version}" for version in other_golds]
    return [
        *({"metric": name, "aggregation": "mean", "higher_is_better": True} for name in scores),
        *({"metric": name, "aggregation": ratio, "higher_is_better": False} for name in shares),
        *({"metric": name, "aggregation": "mean", "higher_is_better": False} for name in means),
    ]


def group_metrics() -> list[dict[str, Any]]:
    """lm-eval's `aggregate_metric_list` of a group: the paper's average, each benchmark counting once.

    A group cannot know the number of samples in advance, so every name it could meet is listed.
    """
    names = [f"{name}@{n}" for name in ("avg", "maj") for n in range(1, MAX_NAMED + 1)]
    names += [f"pass@{k}" for k in pass_ks(MAX_NAMED)]
    names += ["replacement_ratio", "mean_tokens", "truncated_share", "no_box_share"]
    return [{"metric": name, "aggregation": "mean", "weight_by_size": False} for name in names]


def problem_metrics(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One problem's metrics from its samples; a ratio stays a (numerator, denominator) pair until `ratio` adds them up.

    `samples` are objects as in lm-eval's samples file: `verdict` and `answer`, `verdict_<version>` by other versions of
    the answers, and `n_tokens`, `n_replaced`, `n_changed`, `finish_reason` where the model is ours.
    """
    n = len(samples)
    correct = [sample["verdict"] == "correct" for sample in samples]
    values: dict[str, Any] = {f"avg@{n}": sum(correct) / n}
    for k in pass_ks(n):
        values[f"pass@{k}"] = float(pass_at_k_per_problem([correct], k)[0])
    values[f"maj@{n}"] = maj_at_k([[sample["answer"] for sample in samples]], [correct])
    for name in samples[0]:
        if name.startswith("verdict_"):
            values[f"avg@{n}_{name[8:]}"] = sum(sample[name] == "correct" for sample in samples) / n
    values["no_box_share"] = sum(sample["answer"] is None for sample in samples) / n
    values["ungraded_share"] = sum(sample["verdict"] in ("timed_out", "grader_error") for sample in samples) / n
    if all(sample.get("n_tokens") is not None for sample in samples):
        tokens = [sample["n_tokens"] for sample in samples]
        replaced = [sample["n_replaced"] for sample in samples]
        values["replacement_ratio"] = (sum(replaced), sum(tokens))
        values["replacement_ratio_per_response"] = (
            math.fsum(r / t for r, t in zip(replaced, tokens, strict=True) if t),
            n,
        )
        values["changed_ratio"] = (sum(sample["n_changed"] for sample in samples), sum(tokens))
        values["mean_tokens"] = sum(tokens) / n
        values["truncated_share"] = sum(sample["finish_reason"] == "length" for sample in samples) / n
    return values


def ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Sum of numerators over sum of denominators: each token (or response) counts once, not each problem."""
    total = sum(pair[1] for pair in pairs)
    return sum(pair[0] for pair in pairs) / total if total else 0.0
