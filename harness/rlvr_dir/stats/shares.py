"""Compute shares of tokens with intervals over problems, because the tokens of one problem are not independent."""

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError
from rlvr_dir.stats.estimate import Estimate
from rlvr_dir.stats.families import Families, Labels

NEAR_EMPTY = 6  # problems with a hit: with fewer, the upper end of a ratio to their share is meaningless
TOO_FEW = 4  # for both shares together: with fewer, the lower end is, too


def token_share(hits: ArrayLike, tokens: ArrayLike, families: Labels | None = None) -> Estimate:
    """Return the sum of `hits` over that of `tokens`, each (problems,), with an interval over problems.

    With r the share and v its variance from leaving out each of the n problems with tokens, the interval of the log
    odds of r is +- t_{0.975, n-1} sqrt(v) / (r (1 - r)). (With few problems the percentile bootstrap is too short:
    docs/statistics.md.) v is at least that of independent tokens. A share of 0 or 1 has Wilson's bound for n trials.
    The result is empty if there are no tokens.

    With `families`, a label per problem, each family is left out instead of each problem, and the degrees of freedom
    are at most `Families.degrees`.

    Raises:
        UserError: The result is not between 0 and 1.
    """
    hits, tokens = np.asarray(hits, dtype=float), np.asarray(tokens, dtype=float)
    return _share(hits, tokens, float(1 / tokens.sum()) if tokens.any() else 0.0, families)


def problem_share(hits: ArrayLike, tokens: ArrayLike, families: Labels | None = None) -> Estimate:
    """Return the mean over problems of `hits` over `tokens`, each (problems,), with an interval over problems.

    Each problem counts once, however long its responses are. If the share grows with the length, this interval has
    better coverage than that of `token_share` (reports/coverage.md). Otherwise it is computed in the same way and
    raises the same error.
    """
    hits, tokens = np.asarray(hits, dtype=float), np.asarray(tokens, dtype=float)
    is_known = tokens > 0
    divisors = np.where(is_known, tokens, 1.0)
    floor = float((is_known / divisors).sum() / max(1, is_known.sum()) ** 2)
    return _share(np.where(is_known, hits / divisors, 0.0), is_known.astype(float), floor, families)


def _share(hits: np.ndarray, sizes: np.ndarray, floor: float, families: Labels | None) -> Estimate:
    """Return the sum of `hits` over that of `sizes`; `floor` r (1 - r) is the least variance of a share r."""
    df = float("inf")
    if families is not None:
        groups = Families.of(families, np.size(hits))
        hits, sizes, df = groups.sums(hits), groups.sums(sizes), groups.degrees
    hits, sizes = of_problems(hits, sizes)
    if not sizes.size:
        return Estimate(None)
    value, n = float(hits.sum() / sizes.sum()), sizes.size
    if not -1e-9 <= value <= 1 + 1e-9:
        raise UserError(
            f"A share of {value} is not possible", accepted="0 to 1", hint="Use `token_mean` for other numbers"
        )
    value = min(max(value, 0.0), 1.0)
    if n < 2:
        return Estimate(value, None, None)
    df = min(df, n - 1)
    t, spread = t_quantile(df + 1), value * (1 - value)
    if spread <= 0:
        bound = t * t / (df + 1 + t * t)
        return Estimate(value, 0.0, bound) if value < 0.5 else Estimate(value, 1 - bound, 1.0)
    variance = variance_without_each((hits.sum() - hits) / (sizes.sum() - sizes))
    return log_odds_interval(value, max(variance, floor * spread), df + 1)


def token_mean(sums: ArrayLike, tokens: ArrayLike, families: Labels | None = None) -> Estimate:
    """Return the mean over tokens of any number, from its sums and the tokens, each (problems,), with an interval.

    It is a t interval over problems, with the variance from leaving out each of the n problems with tokens and n - 1
    degrees of freedom. The result is empty if there are no tokens. With `families`, a label per problem, it is as in
    `token_share`.
    """
    df = float("inf")
    if families is not None:
        groups = Families.of(families, np.size(sums))
        sums, tokens, df = groups.sums(sums), groups.sums(tokens), groups.degrees
    sums, tokens = of_problems(sums, tokens)
    if not tokens.size:
        return Estimate(None)
    value = float(sums.sum() / tokens.sum())
    if tokens.size < 2:
        return Estimate(value, None, None)
    variance = variance_without_each((sums.sum() - sums) / (tokens.sum() - tokens))
    half = t_quantile(min(df, tokens.size - 1) + 1) * float(np.sqrt(variance))
    return Estimate(value, value - half, value + half)


def token_difference(a: tuple[ArrayLike, ArrayLike], b: tuple[ArrayLike, ArrayLike]) -> Estimate:
    """Return the mean over tokens of `a` minus that of `b`, both (sums, tokens) by problem, in the same order of
    problems.

    It has a t interval, with the variance from leaving out each problem, including its tokens in both groups. The
    result is empty if one side has no tokens.
    """
    (sa, na), (sb, nb) = ((np.asarray(s, dtype=float), np.asarray(n, dtype=float)) for s, n in (a, b))
    if not na.sum() or not nb.sum():
        return Estimate(None)
    value = float(sa.sum() / na.sum() - sb.sum() / nb.sum())
    if min(np.count_nonzero(na), np.count_nonzero(nb)) < 2:
        return Estimate(value)
    without = [(s.sum() - s) / (n.sum() - n) for s, n in ((sa, na), (sb, nb))]
    is_known = na + nb > 0
    half = t_quantile(int(is_known.sum())) * float(np.sqrt(variance_without_each((without[0] - without[1])[is_known])))
    return Estimate(value, value - half, value + half)


def share_ratio(a: tuple[ArrayLike, ArrayLike], b: tuple[ArrayLike, ArrayLike]) -> Estimate:
    """Return the share of `a` over the share of `b`, both (hits, tokens) by problem, in the same order of problems.

    Its logarithm has a t interval, with the variance from leaving out each problem on both sides. Half a token is added
    to the hits of both sides, so that a tail without hits gives a large ratio instead of an infinite one. The variance
    is then at least that of independent hits.

    If fewer than NEAR_EMPTY problems have a hit in `b`, an upper end would be meaningless, and there is only a lower
    one. For it, half a problem's hits are added to both sides, and the variance of independent problems with a hit is
    added. If fewer than TOO_FEW problems have a hit on either side, it is 0, because nothing is known.
    """
    (ah, at), (bh, bt) = ((np.asarray(h, dtype=float), np.asarray(t, dtype=float)) for h, t in (a, b))
    if not at.sum() or not bt.sum():
        return Estimate(float("nan"), None, None)
    value = float(((ah.sum() + 0.5) / at.sum()) / ((bh.sum() + 0.5) / bt.sum()))
    n = int(np.count_nonzero(at + bt))
    if n < 2:
        return Estimate(value, None, None)
    hit = [int(np.count_nonzero(h)) for h in (ah, bh)]
    if sum(hit) < TOO_FEW:
        return Estimate(value, 0.0)
    near_empty = hit[1] < NEAR_EMPTY
    half = 0.5 * float(ah.sum() + bh.sum()) / sum(hit) if near_empty else 0.5
    without = [np.log((h.sum() - h + half) / (t.sum() - t)) for h, t in ((ah, at), (bh, bt))]
    variance = variance_without_each((without[0] - without[1])[at + bt > 0])
    if near_empty:
        variance += sum(1 / (problems + 0.5) for problems in hit)
        value_for_low = float(((ah.sum() + half) / at.sum()) / ((bh.sum() + half) / bt.sum()))
        return Estimate(value, value_for_low / float(np.exp(t_quantile(n) * np.sqrt(variance))))
    if not ah.any():  # no hits have no spread, so assume independent ones
        variance = max(variance, 1 / 0.5 + 1 / (bh.sum() + 0.5))
    factor = float(np.exp(t_quantile(n) * np.sqrt(variance)))
    return Estimate(value, value / factor, value * factor)


def of_problems(sums: ArrayLike, tokens: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return both as arrays of the problems that have tokens."""
    sums, tokens = np.asarray(sums, dtype=float), np.asarray(tokens, dtype=float)
    return sums[tokens > 0], tokens[tokens > 0]


def variance_without_each(without: np.ndarray) -> float:
    """Return the variance of an estimate from its values without each problem (the jackknife)."""
    return float((without.size - 1) * without.var())


def log_odds_interval(value: float, variance: float, n: float) -> Estimate:
    """Return a share between 0 and 1, with this variance over n problems, with the t interval of its log odds."""
    half = t_quantile(n) * float(np.sqrt(variance)) / (value * (1 - value))
    odds = float(np.log(value / (1 - value)))
    return Estimate(value, _share_of(odds - half), _share_of(odds + half))


def t_quantile(n: float) -> float:
    """Return the number of standard errors in half a 95 % interval of a mean over n problems."""
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.975))


def _share_of(log_odds: float) -> float:
    from scipy.special import expit

    return float(expit(log_odds))
