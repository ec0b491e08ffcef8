"""Estimate the time that a stream of responses still takes, from its finished and running responses and its speed.

No response is longer than its limit. Lengths are modelled as log-normal. The fit is by maximum likelihood, and treats
running or cut responses as longer than their current length, because short ones finish first and would bias a mean. The
remaining work is a number of tokens and a number of steps. A step adds one token to every running response, so when few
are running, the longest determines the time.

The time of a step has a constant part and one in proportion to the number of running responses. The two are separated
once a batch becomes smaller. Until then the constant part is assumed to be `FIXED` of a full step's time.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

FIXED = 0.4
_GRID = 257  # points at which a distribution of lengths is evaluated
_ROUNDS = 30  # iterations of the fit
_SMALLER = 0.9  # share of a full batch; below it, the two parts of a step's time are estimated


def fit_lengths(ended: np.ndarray, longer: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation of the log lengths; each of the `longer` ones is a lower bound."""
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
    """Return the number of tokens and steps that remain.

    Args:
        ended: Lengths of responses that ended by themselves.
        cut: Lengths of responses that were cut.
        running: Tokens so far of the running responses.
        waiting: How many have not begun.
        most: Tokens of the longest possible response.
    """
    from scipy.special import ndtr

    ages = np.minimum(np.asarray(running, float), most)
    mean, deviation = fit_lengths(np.asarray(ended, float), np.concatenate([np.asarray(cut, float), ages]))
    lengths = np.linspace(0, most, _GRID)
    longer = ndtr((mean - np.log(np.maximum(lengths, 1e-9))) / deviation)  # the share longer than each
    longer = np.maximum(longer, 1e-12)
    longer[-1] = 0.0
    step = lengths[1]
    areas = (longer[1:] + longer[:-1]) / 2 * step
    beyond = np.append(np.cumsum(areas[::-1])[::-1], 0.0)  # the integral of `longer` from each length
    still = np.maximum(np.interp(ages, lengths, longer), 1e-12)
    rest = np.minimum(np.interp(ages, lengths, beyond) / still, most - ages)
    tokens = float(rest.sum() + waiting * beyond[0])
    if not waiting:  # the longest of the running ones
        later = np.interp(np.minimum(ages[:, None] + lengths, most), lengths, longer) / still[:, None]
        return tokens, float(step * (1 - np.prod(1 - np.minimum(later, 1.0), axis=0)).sum())
    # All slots are full until nothing waits. Then the running responses have all ages, and the longest determines the
    # time.
    slots = len(ages)
    one_rest = float(step * beyond.sum() / beyond[0])
    tail = float(step * (1 - (1 - beyond / beyond[0]) ** slots).sum())
    full = max(tokens / slots - one_rest, waiting * beyond[0] / slots / 2)
    return tokens, float(full + tail)


class Pace:
    """Measure the speed of steps: in the last minutes, and with a full batch."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float, int]] = deque()  # time, tokens until then, running responses
        self._began: float | None = None
        self._full: tuple[float, float] | None = None  # responses and seconds of a step with the fullest batch

    def see(self, now: float, tokens: int, running: int) -> None:
        """Record the number of tokens until now and of running responses."""
        self._began = now if self._began is None else self._began
        self._seen.append((now, tokens, running))
        window = min(max((now - self._began) / 10, 30.0), 300.0)
        while len(self._seen) > 2 and self._seen[1][0] <= now - window:
            self._seen.popleft()

    def seconds(self, tokens: float, steps: float) -> float | None:
        """Return the time for this many tokens in this many steps; None if it is not known yet."""
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
