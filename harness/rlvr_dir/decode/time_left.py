"""The time that is left of a stream of responses, from what has finished, what is running, and how fast it goes.

No response is longer than its limit. Lengths are taken to be log-normal, fitted by maximum likelihood with what is
still running, or was cut at the limit, as longer than it is: short ones finish first, and would bias a mean. What is
left is both a number of tokens and a number of steps, since a step gives every running response one token: in the end
few are running, and the longest decides.

A step's time has a part that is always there and one in proportion to the running responses. Which is which is seen as
soon as a batch becomes smaller; until then `FIXED` of a full step's time is taken to be always there.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

FIXED = 0.4
_GRID = 257  # points at which a law of lengths is looked at
_ROUNDS = 30  # of the fit
_SMALLER = 0.9  # of a full batch: from there on a step's time tells its two parts


def fit_lengths(ended: np.ndarray, longer: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation of the logarithm of lengths; those of `longer` are longer than it says."""
    from scipy.special import log_ndtr

    ended_logs, least = np.log(np.maximum(ended, 1.0)), np.log(np.maximum(longer, 1.0))
    every = np.concatenate([ended_logs, least])
    mean, deviation = every.mean(), max(every.std(), 0.3)
    for _ in range(_ROUNDS):  # expectation and maximisation
        z = (least - mean) / deviation
        hazard = np.exp(-z * z / 2 - log_ndtr(-z)) / np.sqrt(2 * np.pi)
        first = mean + deviation * hazard
        second = mean**2 + 2 * mean * deviation * hazard + deviation**2 * (1 + z * hazard)
        mean = (ended_logs.sum() + first.sum()) / len(every)
        variance = ((ended_logs**2).sum() + second.sum()) / len(every) - mean**2
        deviation = np.sqrt(max(variance, 1e-4))
    return float(mean), float(deviation)


def work_left(
    ended: Sequence[int], cut: Sequence[int], running: Sequence[int], waiting: int, most: int
) -> tuple[float, float]:
    """Return the tokens and the steps that are still to come.

    Args:
        ended: lengths of responses that ended by themselves.
        cut: lengths of those that were cut.
        running: tokens so far of those that are running.
        waiting: how many have not begun.
        most: tokens of the longest response that there may be.
    """
    from scipy.special import ndtr

    ages = np.minimum(np.asarray(running, float), most)
    mean, deviation = fit_lengths(np.asarray(ended, float), np.concatenate([np.asarray(cut, float), ages]))
    lengths = np.linspace(0, most, _GRID)
    longer = ndtr((mean - np.log(np.maximum(lengths, 1e-9))) / deviation)  # the share that is longer than each
    longer = np.maximum(longer, 1e-12)
    longer[-1] = 0.0
    step = lengths[1]
    areas = (longer[1:] + longer[:-1]) / 2 * step
    beyond = np.append(np.cumsum(areas[::-1])[::-1], 0.0)  # the integral of `longer` from each length on
    still = np.maximum(np.interp(ages, lengths, longer), 1e-12)
    rest = np.minimum(np.interp(ages, lengths, beyond) / still, most - ages)
    tokens = float(rest.sum() + waiting * beyond[0])
    if not waiting:  # the longest of those that are running
        later = np.interp(np.minimum(ages[:, None] + lengths, most), lengths, longer) / still[:, None]
        return tokens, float(step * (1 - np.prod(1 - np.minimum(later, 1.0), axis=0)).sum())
    # All slots are full until nothing waits; then those that run are of all ages, and the longest decides again.
    slots = len(ages)
    one_rest = float(step * beyond.sum() / beyond[0])
    tail = float(step * (1 - (1 - beyond / beyond[0]) ** slots).sum())
    full = max(tokens / slots - one_rest, waiting * beyond[0] / slots / 2)
    return tokens, float(full + tail)


class Pace:
    """Tell how fast steps are: over the last minutes, and with a full batch."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float, int]] = deque()  # when, tokens until then, responses running
        self._began: float | None = None
        self._full: tuple[float, float] | None = None  # responses and seconds of a step with the fullest batch

    def see(self, now: float, tokens: int, running: int) -> None:
        """Note how many tokens there are until now, and how many responses are running."""
        self._began = now if self._began is None else self._began
        self._seen.append((now, tokens, running))
        window = min(max((now - self._began) / 10, 30.0), 300.0)
        while len(self._seen) > 2 and self._seen[1][0] <= now - window:
            self._seen.popleft()

    def seconds(self, tokens: float, steps: float) -> float | None:
        """Return how long so many tokens, in so many steps, take; None before that can be known."""
        if len(self._seen) < 2:
            return None
        (since, before, _), (now, after, _) = self._seen[0], self._seen[-1]
        if after <= before or now <= since:
            return None
        responses = float(np.mean([running for _, _, running in self._seen]))
        a_step = (now - since) / (after - before) * responses
        if self._full is None or responses >= 0.99 * self._full[0]:
            self._full = responses, a_step
        most, whole = self._full
        share, fixed = responses / most, FIXED
        if share < _SMALLER:
            fixed = min(max((a_step / whole - share) / (1 - share), 0.0), 1.0)
        fixed /= fixed + (1 - fixed) * share
        return a_step * (fixed * steps + (1 - fixed) * tokens / max(responses, 1e-9))
