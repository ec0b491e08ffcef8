"""The metrics of `harness.stats` as lm-eval's task files declare them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.grading import Verdict
from harness.records import Key, Row
from harness.stats import Responses, problem_metrics, ratio
from harness.stats.metrics import pass_ks

MAX_NAMED = 256  # groups name their metrics in advance: avg@1 .. avg@256


def responses_of(samples: Sequence[Mapping[str, Any]]) -> Responses:
    """Return the responses to one problem from objects as in lm-eval's samples file.

    They have `verdict` and `answer`, and `n_tokens`, `n_replaced`, `n_changed`, `finish_reason` where the model is ours
    (and `n_forwards` of `mode=power`).
    """
    counted = all(sample.get("n_tokens") is not None for sample in samples)
    counts = {name: [sample[name] for sample in samples] for name in ("n_tokens", "n_replaced", "n_changed") if counted}
    return Responses(
        correct=[sample["verdict"] == "correct" for sample in samples],
        votes=[sample["answer"] for sample in samples],
        no_box=[sample["answer"] is None for sample in samples],
        ungraded=[sample["verdict"] in ("timed_out", "grader_error") for sample in samples],
        truncated=[sample["finish_reason"] == "length" for sample in samples] if counted else None,
        n_forwards=[sample["n_forwards"] for sample in samples] if "n_forwards" in samples[0] else None,
        **counts,
    )


def sample_facts(
    task: str,
    names: Iterable[str],
    samples: int,
    rows: Mapping[Key, Row],
    verdicts: Mapping[Key, Verdict],
) -> dict[str, list[dict[str, Any]]]:
    """Return what `responses_of` reads of some problems' first samples, by the problem's id: its name after `task`."""

    def judged(key: Key) -> dict[str, Any]:
        return {"verdict": verdicts[key].kind, "answer": verdicts[key].answer} if verdicts else {}

    return {
        name.removeprefix(f"{task}/"): [{**rows[name, k].counts(), **judged((name, k))} for k in range(samples)]
        for name in names
    }


def metric_list(n: int) -> list[dict[str, Any]]:
    """Return lm-eval's `metric_list` for n samples a problem: names that say how many samples were really drawn."""
    none, zero = [False] * n, [0] * n
    made_up = Responses(none, zero, none, none, none, zero, zero, zero)
    return [
        {
            "metric": name,
            "aggregation": ratio if isinstance(value, tuple) else "mean",
            "higher_is_better": "@" in name,
        }
        for name, value in problem_metrics(made_up).items()
    ]


def group_metrics() -> list[dict[str, Any]]:
    """Return lm-eval's `aggregate_metric_list` of a group: the paper's average, each benchmark counting once.

    A group cannot know the number of samples in advance, so every name it could meet is listed.
    """
    names = [f"{name}@{n}" for name in ("avg", "maj") for n in range(1, MAX_NAMED + 1)]
    names += [f"pass@{k}" for k in pass_ks(MAX_NAMED)]
    names += ["replacement_ratio", "changed_ratio", "mean_tokens", "truncated_share", "no_box_share"]
    return [{"metric": name, "aggregation": "mean", "weight_by_size": False} for name in names]
