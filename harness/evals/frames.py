"""Results as one long pandas frame, a row a response, for anybody's own plots, statistics and SQL.

    from harness.evals import frame, read_results

    responses = frame(read_results(["runs/demo"]))
    responses.groupby(["task", "decoding"])["correct"].mean()          # Avg@n
    responses.to_sql("responses", "sqlite:///responses.db")

`rlvr-dir table runs/demo --csv responses.csv` writes the same.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.evals.foreign import LmEvalResult
from harness.evals.result import EvalResult

if TYPE_CHECKING:
    import pandas

_COUNTS = {"n_tokens": "tokens", "n_replaced": "replaced", "n_changed": "changed"}
_FLAGS = ("truncated", "no_box", "ungraded")


def frame(results: Sequence[EvalResult]) -> "pandas.DataFrame":
    """Return the responses of results, in their order.

    Columns: what was asked (`task`, `name`, `base`, `rl`, `decoding`, `mode`, `primary`, `criterion`, `tau`, `gamma`,
    `truncation`, `temperature`, `max_tokens`, `seed`), who graded (`grader`, `data`), of what it is a part (`partial`),
    the result's `config_hash`, then `problem`, `sample`, `correct`, `tokens`, `replaced` and `changed` (of them),
    `truncated`, `no_box`, `ungraded`. What a result does not say is missing. lm-eval's own tasks judge a problem, not a
    response: `correct` is missing, and each metric that is a mean over problems is a column of its name.
    """
    import pandas

    parts = [pandas.DataFrame({**_asked(result), **_responses(result)}) for result in results]
    return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()


def _asked(result: EvalResult) -> dict[str, Any]:
    """Return what all responses of a result have in common, by column."""
    decoding, sampling = result.decoding, result.sampling
    base, rl = result.pair
    said = {
        "task": result.task,
        "name": result.name or None,
        "base": base,
        "rl": rl,
        "decoding": decoding.label(),
        "mode": decoding.mode,
        "primary": decoding.primary,
        "criterion": decoding.criterion or None,
        "tau": decoding.tau,
        "gamma": decoding.gamma if decoding.gated or decoding.gamma else None,
        "truncation": None if "top_p" in result.lacks else sampling.truncation.words,
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "grader": result.provenance.get("grader"),
        "data": result.provenance.get("data"),
        "partial": result.partial,
        "config_hash": result.config_hash,
    }
    return {name: None if name in result.lacks else value for name, value in said.items()}


def _responses(result: EvalResult) -> dict[str, Any]:
    """Return a value a response, by column, problem by problem."""
    problems, samples = len(result.problem_ids), result.samples
    found: dict[str, Any] = {
        "problem": np.repeat(result.problem_ids, samples),
        "sample": np.tile(np.arange(samples), problems),
    }
    theirs = isinstance(result, LmEvalResult)
    if not theirs:
        found["correct"] = result.correct.ravel()
    for name, column in {**_COUNTS, **{flag: flag for flag in _FLAGS}}.items():
        told = name not in result.lacks and not (theirs and name in ("no_box", "ungraded"))
        found[column] = getattr(result, name).ravel() if told else None
    for one in result.by_metric() if theirs else ():
        assert isinstance(one, LmEvalResult)
        found[one.metric] = np.repeat(one.correct.ravel(), samples)
    return found
