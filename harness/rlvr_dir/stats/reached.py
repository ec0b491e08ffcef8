"""Find where a curve that is measured at some places reaches a level."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.stats.best import simultaneous_level
from rlvr_dir.stats.errors import combined
from rlvr_dir.stats.estimate import Estimate
from rlvr_dir.stats.families import Labels, by_family
from rlvr_dir.stats.paired import difference_error


def reached(
    places: Sequence[float], differences: ArrayLike, samples: int, end: float = 1.0, families: Labels | None = None
) -> Estimate:
    """Return where a rising curve reaches its level: between the last place below it and the first one above.

    A place is below or above if its 95 % interval over problems excludes the level; these intervals hold jointly for
    all places (`simultaneous_level`). So the interval is wide where the curve is near its level, and a place without a
    significant difference is not taken as reached. The interval begins at the first place if none is below, and ends at
    `end` if none is above. The value is where the straight lines between the means first reach the level; it is empty
    if they do not.

    Args:
        places: Increasing numbers.
        differences: (places, problems), each a mean over `samples`, of the curve minus its level.
        samples: The number of samples per problem.
        end: A place at which the curve is known to have reached it.
        families: A label per problem; then intervals are over these.

    >>> reached([0.0, 0.1], [[-0.5] * 20, [0.5] * 20], samples=8).text(1)
    '5.0 [0.0, 10.0]'
    """
    d = np.asarray(differences, dtype=float)
    level = simultaneous_level(np.array([by_family(row, families, float(row.mean())) for row in d]))
    bands = [combined(float(row.mean()), [difference_error([row], samples, [families])], level)[:2] for row in d]
    below = next((at for at, (_, high) in enumerate(bands) if not high < 0), len(bands))
    above = next((at for at, (low, _) in enumerate(bands) if low > 0), None)
    return Estimate(
        _meeting(places, d.mean(axis=1)), places[max(below - 1, 0)], end if above is None else places[above]
    )


def _meeting(places: Sequence[float], means: np.ndarray) -> float | None:
    """Return where the line through some points is first at zero; None if all of it is below."""
    up = np.flatnonzero(means >= 0)
    if not up.size:
        return None
    at = int(up[0])
    if not at:
        return places[0]
    rise = means[at] - means[at - 1]
    return float(places[at] - (places[at] - places[at - 1]) * means[at] / rise)
