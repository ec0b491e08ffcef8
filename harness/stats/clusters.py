"""Error bars over seeds: of runs whose samples share noise within a seed, as the authors' do, and of trainings."""

import numpy as np
from numpy.typing import ArrayLike

from harness.stats.errors import finite, satterthwaite, standard_error, t_interval
from harness.stats.paired import PairedDifference, sign_flip_p


def clustered_errors(values: ArrayLike, per_seed: int) -> dict[str, float]:
    """Return standard errors of the mean of a (problems, samples) matrix whose columns are seed 0's, seed 1's, ...

    - `over_problems`: another benchmark like this one;
    - `over_seeds`: another set of seeds on these problems (NaN for one seed);
    - `over_both`: two-way clustering (Cameron, Gelbach and Miller 2011), V = V_problem + V_seed - V_problem-and-seed,
      each V the sum of squared cluster residuals over N^2, times G/(G-1) for G clusters; never below the larger of
      the first two, which the difference can fall under when there are few clusters.

    >>> errors = clustered_errors([[1, 1, 0, 0], [1, 1, 0, 0]], per_seed=2)
    >>> errors["over_problems"], errors["over_seeds"]
    (0.0, 0.5)
    """
    x = np.asarray(values, dtype=float)
    problems, samples = x.shape
    if samples % per_seed:
        raise ValueError(f"{samples} samples are not whole seeds of {per_seed}")
    cells = (x - x.mean()).reshape(problems, samples // per_seed, per_seed).sum(axis=2)  # (problems, seeds)

    def variance(residuals: np.ndarray) -> float:
        groups = residuals.size
        return float((residuals**2).sum() / x.size**2 * groups / (groups - 1)) if groups > 1 else float("nan")

    of_problem, of_seed, of_cell = variance(cells.sum(axis=1)), variance(cells.sum(axis=0)), variance(cells)
    both = np.fmax(of_problem + of_seed - of_cell, np.fmax(of_problem, of_seed))
    return {
        "over_problems": float(np.sqrt(of_problem)),
        "over_seeds": float(np.sqrt(of_seed)),
        "over_both": float(np.sqrt(both)),
    }


def difference_over_seeds(
    trained: ArrayLike, base: float, base_error: float, base_df: int, level: float = 0.95
) -> PairedDifference:
    """Compare the scores of a training's seeds with the one score of its base, all on the same problems.

    The base was sampled once, so that its sampling error is in the difference of every seed: the standard error is
    sqrt(sd(trained)^2 / seeds + base_error^2), the interval t with Welch's and Satterthwaite's degrees of freedom. It
    is for other seeds and other samples on these very problems, not for other problems.

    Args:
        trained: (seeds,) scores as fractions.
        base_error: `sampling_error` of the base's score; NaN, as of one sample a problem, gives no interval.
        base_df: its degrees of freedom, problems x (samples - 1).
    """
    d = finite("trained", trained) - base
    error = float(np.hypot(standard_error(d), base_error))
    low = high = float("nan")
    if d.size > 1 and np.isfinite(base_error):
        df = satterthwaite([(standard_error(d), d.size - 1), (base_error, base_df)])
        low, high = t_interval(float(d.mean()), error, df + 1, level)
    return PairedDifference(float(d.mean()), error, low, high, sign_flip_p(d), d.size)
