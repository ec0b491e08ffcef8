"""Error bars for runs whose samples share noise within a seed, as the authors' do: by problem, by seed, by both."""

import numpy as np
from numpy.typing import ArrayLike


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
