"""The numbers of one record, from its rollouts and a grader's verdicts: for lists, exports and comparisons."""

from typing import Any

import numpy as np

from harness import stats
from harness.errors import UserError
from harness.records.store import Snapshot
from harness.records.verdicts import judges, read_verdicts, verdict_path


def counts(snapshot: Snapshot) -> dict[str, Any]:
    """Return sizes and ratios, which need no verdicts; of an imported record those that its source tells.

    `replacement_ratio` is over all tokens; `replacement_ratio_per_response` is the plain mean of per-response ratios,
    which the authors' notebook prints.
    """
    entries = [*snapshot.entries()]
    if not entries:
        return {"rollouts": 0, "problems": 0}
    lacks = snapshot.config.lacks if snapshot.config else ()
    counted: dict[str, Any] = {}
    if {"n_tokens", "n_replaced"}.isdisjoint(lacks):
        counted = {n: [getattr(entry, n) for entry in entries] for n in ("n_tokens", "n_replaced", "n_changed")}
    truncated = None if "truncated" in lacks else [entry.finish_reason == "length" for entry in entries]
    all_in_one = stats.Responses(truncated=truncated, **counted)
    return {
        "rollouts": len(entries),
        "problems": len({entry.problem for entry in entries}),
        **({} if "n_tokens" in lacks else {"tokens": sum(entry.n_tokens for entry in entries)}),
        **stats.benchmark_metrics([all_in_one]),
    }


def correctness(snapshot: Snapshot, grader: str) -> np.ndarray:
    """Return a table of (problems, samples) bool of what was asked and finished, problems in the record's order.

    Raises:
        UserError: a verdict or a sample is missing; fewer than were asked for are never averaged.
    """
    if not verdict_path(snapshot.folder, grader).is_file():
        known = ", ".join(judges(snapshot.folder)) or "none yet"
        raise UserError(f"record {snapshot.name} has no verdicts by grader={grader!r}; it has: {known}")
    verdicts = read_verdicts(snapshot.folder, grader)
    by_problem: dict[str, list[bool]] = {}
    done = snapshot.complete
    if not done:
        raise UserError(f"record {snapshot.name} has nothing that is complete: run its command again")
    for problem, sample in snapshot.held:
        if sample >= done.get(problem, 0):
            continue
        row = verdicts.get((problem, sample))
        if row is None:
            raise UserError(f"record {snapshot.name} has no verdict on {problem} sample {sample} by grader={grader!r}")
        column = by_problem.setdefault(problem, [])
        column.append(row["kind"] == "correct")
    if len({len(column) for column in by_problem.values()}) != 1:
        raise UserError(f"record {snapshot.name} has not the same samples of every problem: it is not complete")
    return np.array(list(by_problem.values()))


def scores(snapshot: Snapshot, grader: str) -> dict[str, Any]:
    """Return Avg@n and Pass@k with error bars; of imported records also those by seed, and by problem and seed."""
    correct = correctness(snapshot, grader)
    n = correct.shape[1]
    found: dict[str, Any] = stats.benchmark_metrics([stats.Responses(correct=row) for row in correct.tolist()])
    found["problems"] = len(correct)
    found[f"avg@{n}_se"] = stats.standard_error(correct)
    per_seed = snapshot.config.source.get("per_seed") if snapshot.config else None
    if per_seed and n % per_seed == 0:
        errors = stats.clustered_errors(correct, per_seed)
        found |= {f"avg@{n}_se_seeds": errors["over_seeds"], f"avg@{n}_se_both": errors["over_both"]}
    else:
        found[f"avg@{n}_se_sampling"] = stats.sampling_error(correct)
    return found


def agreement(snapshot: Snapshot, first: str, second: str) -> dict[str, int]:
    """Count how often two graders agree on a record's responses, and which way they differ."""
    a, b = correctness(snapshot, first), correctness(snapshot, second)
    return {
        "both": int((a & b).sum()),
        "neither": int((~a & ~b).sum()),
        f"only {first}": int((a & ~b).sum()),
        f"only {second}": int((~a & b).sum()),
    }
