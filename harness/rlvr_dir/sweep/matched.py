"""Matched ratios: the threshold at which a criterion replaces a wanted share of tokens, a quantile of its values.

    matched = tau_for(gate, values, 0.05)     # matched.tau, and matched.expected: the share of `values` beyond it

Criteria can only be compared fairly where they replace as much as each other. Replacing changes the text that follows:
`rlvr_dir.sweep.taus` takes a first threshold from the values on base's own text and refines it once on the text that it
leads to. What the ratio that is reached still misses is reported beside it.
"""

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from rlvr_dir.config.stored import Name, Number, Stored
from rlvr_dir.errors import UserError
from rlvr_dir.policy.gates import Gate, Threshold


class MatchedTau(Stored, frozen=True):
    """A threshold, the ratio that was wanted, and the one it gives on the values it was found from.

    `criterion` is a decoding's, in words. `first` is the threshold that base's own text gave, before it was refined;
    None where it was not.
    """

    criterion: Annotated[Name, Field(pattern="^[^ ]{1,99}( [^ ]{1,40}){0,2}$")]  # perhaps a side, a window
    tau: Number
    wanted: Number
    expected: Number
    first: Number | None = None


def is_uniform(gate: Gate) -> bool:
    """Return whether a criterion compares a uniform number. Its threshold is then the ratio, whatever the values."""
    return gate.statistic == "random"


def tau_for(gate: Threshold, values: ArrayLike, ratio: float) -> MatchedTau:
    """Find the threshold whose share of values strictly beyond it is nearest to `ratio`.

    Infinite values, of tokens whose Δ log p has another sign than the gate asks for, are beyond none. Values that are
    equal are on one side together, so that share may miss the wanted one. Of all thresholds in the gap
    between two neighbouring values, the one with the fewest digits is taken. `random` needs no values: its threshold is
    the ratio. The gate's own threshold is not looked at.

    Raises:
        UserError: no values, values that are not numbers, or a ratio outside (0, 1).

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
    edges, counts = np.unique(sign * finite, return_counts=True)  # f holds where sign * value < sign * tau
    cumulated = np.concatenate([[0.0], np.cumsum(counts) / x.size])  # beyond none, one, ... all of the different values
    i = int(np.argmin(np.abs(cumulated - ratio)))
    low = edges[i - 1] if i else edges[0] - 1.0
    high = edges[i] if i < edges.size else edges[-1] + 1.0
    tau = sign * _between(low, high)
    return MatchedTau(criterion=criterion, tau=float(tau), wanted=ratio, expected=float(cumulated[i]))


def _between(low: float, high: float) -> float:
    """Return the number of fewest digits in the middle half of a gap, or its middle where floats are too coarse."""
    middle, quarter = (low + high) / 2, (high - low) / 4
    for digits in range(1, 17):
        value = float(f"{middle:.{digits}g}")
        if abs(value - middle) <= quarter:
            return value
    return middle
