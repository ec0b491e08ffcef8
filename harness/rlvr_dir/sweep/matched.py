"""Find the threshold at which a criterion flags a requested share of tokens, a quantile of its values.

    matched = tau_for(gate, values, 0.05)     # matched.tau, and matched.expected: the share of `values` beyond it

Criteria can only be compared fairly if they replace equally many tokens. Replacing changes the text that follows. So
`rlvr_dir.sweep.taus` takes a first threshold from the values on base's own text, and refines it once on the text that
results. The ratio that is reached is reported as well.
"""

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from rlvr_dir.config.stored import Name, Number, Stored
from rlvr_dir.errors import UserError
from rlvr_dir.policy.gates import Gate, Threshold


class MatchedTau(Stored, frozen=True):
    """Store a threshold, the ratio that was requested, and the ratio on the values that it was found from.

    `criterion` is a decoding's, in words. `first` is the threshold from base's own text, before it was refined; None if
    it was not.
    """

    criterion: Annotated[Name, Field(pattern="^[^ ]{1,99}( [^ ]{1,40}){0,2}$")]  # optionally with a side and a window
    tau: Number
    wanted: Number
    expected: Number
    first: Number | None = None


def is_uniform(gate: Gate) -> bool:
    """Return whether a criterion uses a uniform random number. Its threshold is then the ratio."""
    return gate.statistic == "random"


def tau_for(gate: Threshold, values: ArrayLike, ratio: float) -> MatchedTau:
    """Find the threshold whose share of values strictly beyond it is closest to `ratio`.

    Infinite values, of tokens whose Δ log p does not have the gate's sign, are beyond no threshold. Equal values are on
    the same side, so the share may differ from the requested one. Of all thresholds between two adjacent values, the
    one with the fewest digits is chosen. `random` needs no values, because its threshold is the ratio. The gate's own
    threshold is ignored.

    Raises:
        UserError: There are no values, a value is not a number, or the ratio is outside (0, 1).

    >>> from rlvr_dir.policy.gates import gate_of
    >>> tau_for(gate_of({"criterion": "kl", "tau": 0}), [0.0, 0.0, 0.1, 0.5], 0.25)
    MatchedTau(criterion='kl', tau=0.3, wanted=0.25, expected=0.25, first=None)
    """
    if not 0 < ratio < 1:
        raise UserError("is out of range", argument="ratio", value=ratio, accepted="a fraction between 0 and 1")
    below, criterion = gate.holds_below, gate.words
    if is_uniform(gate):
        return MatchedTau(criterion=criterion, tau=ratio if below else 1 - ratio, wanted=ratio, expected=ratio)
    x = np.asarray(values, dtype=np.float64).ravel()
    if not x.size or np.isnan(x).any():
        raise UserError(f"No threshold of {criterion} can be found, because some token has no value of it.")
    sign = 1.0 if below else -1.0
    finite = x[np.isfinite(x)]
    if not finite.size:
        raise UserError(
            f"No threshold of {criterion} can be found, because no token has that sign of Δ log p.",
            hint="Use another criterion.",
        )
    edges, counts = np.unique(sign * finite, return_counts=True)  # tokens are flagged where sign * value < sign * tau
    cumulated = np.concatenate([[0.0], np.cumsum(counts) / x.size])  # beyond none, one, ... all of the different values
    i = int(np.argmin(np.abs(cumulated - ratio)))
    low = edges[i - 1] if i else edges[0] - 1.0
    high = edges[i] if i < edges.size else edges[-1] + 1.0
    tau = sign * _between(low, high)
    return MatchedTau(criterion=criterion, tau=float(tau), wanted=ratio, expected=float(cumulated[i]))


def _between(low: float, high: float) -> float:
    """Return the number with the fewest digits in the middle half of a gap, or its middle if floats are too coarse."""
    middle, quarter = (low + high) / 2, (high - low) / 4
    for digits in range(1, 17):
        value = float(f"{middle:.{digits}g}")
        if abs(value - middle) <= quarter:
            return value
    return middle
