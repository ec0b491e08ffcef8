"""Check whether counts follow a law."""

import numpy as np
from scipy import stats


def p_value(counts, law):
    """The p value of a chi-square test of counts against a law; cells that expect fewer than 5 are one.

    Nothing may be counted where the law has no probability.
    """
    counts, law = (np.asarray(each, dtype=float) for each in (counts, law))
    assert counts[law == 0].sum() == 0
    expected = law / law.sum() * counts.sum()
    likely = expected >= 5
    cells = [[*each[likely], each[~likely].sum()] for each in (counts, expected)]
    if cells[1][-1] < 5:  # what is left joins the last likely cell
        cells = [[*each[:-2], each[-2] + each[-1]] for each in cells]
    assert len(cells[1]) > 1
    return stats.chisquare(*cells).pvalue
