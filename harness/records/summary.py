"""The numbers of one record, from its responses and a grader's verdicts: for lists, exports and comparisons."""

from typing import Any

import numpy as np

from harness import stats
from harness.errors import UserError
from harness.records.record import Record


def counts(record: Record) -> dict[str, Any]:
    """Return sizes and ratios, which need no verdicts; of an imported record those that its source tells.

    `replacement_ratio` is over all tokens; `replacement_ratio_per_response` is the plain mean of per-response ratios,
    which the authors' notebook prints.
    """
    rows = [*record]
    if not rows:
        return {"rollouts": 0, "problems": 0}
    lacks = record.config.lacks if record.config else ()
    counted: dict[str, Any] = {}
    if {"n_tokens", "n_replaced"}.isdisjoint(lacks):
        counted = {name: [getattr(row, name) for row in rows] for name in ("n_tokens", "n_replaced", "n_changed")}
    truncated = None if "truncated" in lacks else [row.finish_reason == "length" for row in rows]
    all_in_one = stats.Responses(truncated=truncated, **counted)
    return {
        "rollouts": len(rows),
        "problems": len({row.problem for row in rows}),
        **({} if "n_tokens" in lacks else {"tokens": sum(row.n_tokens for row in rows)}),
        **stats.benchmark_metrics([all_in_one]),
    }


def correctness(record: Record, judge: str) -> np.ndarray:
    """Return a table of (problems, samples) bool of what was asked and finished, problems in the record's order.

    Raises:
        UserError: a verdict or a sample is missing; fewer than were asked for are never averaged.
    """
    done, verdicts = record.complete, record.verdicts(judge)
    if not verdicts:
        known = ", ".join(record.judges) or "none yet"
        raise UserError(f"record {record.name} has no verdicts by grader={judge!r}; it has: {known}")
    if not done:
        raise UserError(f"record {record.name} has nothing that is complete: run its command again")
    by_problem: dict[str, list[bool]] = {}
    for problem, sample in record.held:
        if sample < done.get(problem, 0):
            if (problem, sample) not in verdicts:
                raise UserError(f"record {record.name} has no verdict on {problem} sample {sample} by grader={judge!r}")
            by_problem.setdefault(problem, []).append(verdicts[problem, sample].verdict.correct)
    if len({len(row) for row in by_problem.values()}) != 1:
        raise UserError(f"record {record.name} has not the same samples of every problem: it is not complete")
    return np.array(list(by_problem.values()))


def scores(record: Record, judge: str) -> dict[str, Any]:
    """Return Avg@n and Pass@k with error bars; of imported records also those by seed, and by problem and seed."""
    correct = correctness(record, judge)
    n = correct.shape[1]
    found: dict[str, Any] = stats.benchmark_metrics([stats.Responses(correct=row) for row in correct.tolist()])
    found["problems"] = len(correct)
    found[f"avg@{n}_se"] = stats.standard_error(correct)
    per_seed = record.config.source.get("per_seed") if record.config else None
    if per_seed and n % per_seed == 0:
        errors = stats.clustered_errors(correct, per_seed)
        found |= {f"avg@{n}_se_seeds": errors["over_seeds"], f"avg@{n}_se_both": errors["over_both"]}
    else:
        found[f"avg@{n}_se_sampling"] = stats.sampling_error(correct)
    return found


def agreement(record: Record, first: str, second: str) -> dict[str, int]:
    """Count how often two graders agree on a record's responses, and which way they differ."""
    a, b = correctness(record, first), correctness(record, second)
    return {
        "both": int((a & b).sum()),
        "neither": int((~a & ~b).sum()),
        f"only {first}": int((a & ~b).sum()),
        f"only {second}": int((~a & b).sum()),
    }
