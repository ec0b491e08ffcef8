"""The scores of a result as any format can have them: a name, a value, its unit and what it is a mean of."""

import math
import re
from dataclasses import dataclass, field

from harness.evals.result import EvalResult

_NAME = re.compile(r"(avg|pass|maj)@([0-9]+)(?:_(.+))?")
_IDS = {"avg": "accuracy", "pass": "pass_at_k", "maj": "maj_at_k"}
_SHOWN = {"avg": "Avg@{}", "pass": "Pass@{}", "maj": "Maj@{}"}


@dataclass(frozen=True, slots=True)
class Score:
    """Hold one score. `value` is a fraction of 1, but for lm-eval's metrics, which have units of their own.

    `error` is the standard error over problems, None where none is computed.
    """

    name: str
    id: str
    shown: str
    value: float
    parameters: dict[str, int] = field(default_factory=dict)
    error: float | None = None
    lower_is_better: bool = False
    proportion: bool = True


def scores_of(result: EvalResult) -> list[Score]:
    """Return the scores of a result, the first of which is the one that its single responses make."""
    if not result.shares:
        return _of_lm_eval(result)
    found = []
    for name, value in result.metrics().items():
        match = _NAME.fullmatch(name)
        if match is None or (match[3] or "") in ("se", "se_sampling"):
            continue
        kind, k = match[1], int(match[2])
        error = result.standard_error if kind == "avg" else None
        found.append(
            Score(
                name,
                _IDS[kind],
                _SHOWN[kind].format(k),
                value,
                {"samples" if kind == "avg" else "k": k},
                error if error is None or math.isfinite(error) else None,
            )
        )
    return found


def counts_of(result: EvalResult) -> dict[str, float]:
    """Return what is counted of the responses: shares of tokens and responses, and mean lengths, by name."""
    return {name: value for name, value in result.metrics().items() if "@" not in name and math.isfinite(value)}


def _of_lm_eval(result: EvalResult) -> list[Score]:
    errors = {one.metric: one.standard_error for one in result.by_metric()}
    found = []
    for name in result.metric_names:
        value, error = (result.scores or {})[name], errors.get(name, math.nan)
        if math.isfinite(value):
            lower = name in result.lower_is_better
            told = error if math.isfinite(error) else None
            found.append(Score(name, name, name, value, error=told, lower_is_better=lower, proportion=False))
    return found
