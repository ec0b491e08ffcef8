"""Accuracy within a number of tokens, and paired differences of length and truncation."""

from collections.abc import Sequence

import numpy as np

from harness import stats
from harness.evals.compare import comparisons
from harness.evals.settings import Setting
from harness.markdown import interval, markdown_table

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  # of all responses are no longer than a budget


def correct_within(setting: Setting, tokens: int) -> np.ndarray:
    """Return which responses are right and no longer than so many tokens: (problems, samples of all seeds)."""
    return np.hstack([result.correct & (result.n_tokens <= tokens) for result in setting.results])


def budgets(settings: Sequence[Setting]) -> list[int]:
    """Return the numbers of tokens to look at: quantiles (`SHARES`) of the lengths of all responses."""
    tokens = np.concatenate([result.n_tokens.ravel() for setting in settings for result in setting.results])
    return sorted({int(each) for each in np.quantile(tokens, SHARES, method="higher")})


def within(settings: Sequence[Setting]) -> str:
    """Return the table of what is answered rightly within a budget of tokens: a row a setting, a column a budget."""
    columns = budgets(settings)
    rows = []
    for setting in settings:
        shares = [correct_within(setting, tokens).mean() for tokens in columns]
        rows.append([setting.label, *(f"{100 * share:.1f}" for share in shares)])
    head = ["answered rightly within", *(f"{tokens:,} tokens" for tokens in columns)]
    return markdown_table(head, rows, left=1)


def lengths(settings: Sequence[Setting]) -> str:
    """Return the table of paired differences of length and truncation, of the pairs that `compare` takes by itself.

    p is corrected over the table, both of its halves together (Holm). Empty where nothing can be paired.
    """
    pairs = [(row.result, row.reference) for row in comparisons(settings)]
    tokens = [stats.paired_difference(_lengths(one), _lengths(other)) for one, other in pairs]
    cut = [stats.paired_difference(_cut(one), _cut(other)) for one, other in pairs]
    corrected = stats.holm([each.p for each in (*tokens, *cut)])
    rows = []
    for i, (one, other) in enumerate(pairs):
        t, c = tokens[i], cut[i]
        row = [one.label, other.label, f"{t.mean:+.1f}", interval(t.low, t.high, sign=True, unit=1)]
        row += [f"{corrected[i]:.3g}", f"{100 * c.mean:+.1f}", interval(c.low, c.high, sign=True)]
        rows.append([*row, f"{corrected[len(pairs) + i]:.3g}"])
    head = ["decoding", "minus", "tokens", "95 % interval", "p (Holm)", "cut, points", "95 % interval", "p (Holm)"]
    return markdown_table(head, rows, left=2) if rows else ""


def _lengths(setting: Setting) -> np.ndarray:
    """Return the mean tokens of each problem: (problems,)."""
    return np.hstack([result.n_tokens for result in setting.results]).mean(axis=1)


def _cut(setting: Setting) -> np.ndarray:
    """Return which responses ran into the token limit: (problems, samples of all seeds)."""
    return np.hstack([result.truncated for result in setting.results]).astype(float)
