"""Results as one long pandas frame, a row a response, for anybody's own plots, statistics and SQL.

    from harness.evals import frame, read_results

    responses = frame(read_results(["runs/demo"]))
    responses.groupby(["task", "setting"])["correct"].mean()           # Avg@n, as `rlvr-dir compare` has it
    responses.to_sql("responses", "sqlite:///responses.db")

`rlvr-dir table runs/demo --csv responses.csv` writes the same.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.evals.result import COUNTS, FLAGS, EvalResult
from harness.evals.settings import settings_of

if TYPE_CHECKING:
    import pandas


def frame(results: Sequence[EvalResult]) -> "pandas.DataFrame":
    """Return the responses of results, in their order.

    Columns: the label that comparisons give its setting (`setting`; missing where another result of the same seed has
    more samples, which counts in its place), what was asked (`task`, `name`, `base`, `rl`, `decoding`, `mode`,
    `primary`, `criterion`, `tau`, `gamma`, `top_p`, `temperature`, `max_tokens`, `seed`), who graded (`grader`,
    `data`), of what it is a part (`partial`), the result's `config_hash`, then `problem`, `sample`, `correct`,
    `tokens`, `replaced` and `changed` (of them), `truncated`, `no_box`, `ungraded`. What a result does not say is
    missing.
    """
    import pandas

    labels = {_asked(result): setting.label for setting in settings_of(results) for result in setting.results}
    parts = [pandas.DataFrame({"setting": labels.get(_asked(result)), **_columns(result)}) for result in results]
    return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()


def _asked(result: EvalResult) -> tuple[object, ...]:
    """Return what tells a result from all others."""
    return result.config_hash, result.pair, result.name, result.samples


def _columns(result: EvalResult) -> dict[str, Any]:
    """Return a value, or a value a response, problem by problem, by column."""
    decoding, sampling, samples = result.decoding, result.sampling, result.samples
    base, rl = result.pair
    tables = {name.removeprefix("n_"): getattr(result, name) for name in (*COUNTS, *FLAGS)}
    return {
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
        "top_p": sampling.top_p,
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "grader": result.provenance.get("grader"),
        "data": result.provenance.get("data"),
        "partial": result.partial,
        "config_hash": result.config_hash,
        "problem": np.repeat(result.problem_ids, samples),
        "sample": np.tile(np.arange(samples), len(result.problem_ids)),
        "correct": result.correct.ravel(),
        **{name: None if table is None else table.ravel() for name, table in tables.items()},
    }
