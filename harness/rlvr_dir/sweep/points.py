"""List the points of a sweep, the values that are tried together, and name each point."""

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from rlvr_dir.config.search import Parameter, Range, Search

Point = dict[str, Any]  # pair, and a value by parameter name; `decode.tau.ratio` if the threshold must be found


def key(point: Mapping[str, Any]) -> str:
    """Return a point's name: equal points have equal names, in any process."""
    return json.dumps(point, sort_keys=True, separators=(",", ":"))


def listed_points(spec: Search) -> list[Point]:
    """Return all points of a grid, or of a random draw from the sweep's seed; empty for a search.

    A longer draw begins with the shorter one, so a sweep can be extended.
    """
    if spec.method == "grid":
        drawn = list(_grid(spec))[: spec.run_cap]
    elif spec.method == "random":
        drawn = _draw(spec)
    else:
        return []
    return [{"pair": pair, **point} for pair in spec.pairs for point in drawn]


def _grid(spec: Search) -> Iterator[Point]:
    parameters = spec.varied()
    for values in product(*(parameter.listed for parameter in parameters.values())):
        yield dict(zip(parameters, values, strict=True))


def _draw(spec: Search) -> list[Point]:
    parameters = spec.varied()
    random, wanted = np.random.default_rng(spec.seed), spec.run_cap or 0
    points: dict[str, Point] = {}
    for _ in range(100 * wanted):  # a small space runs out of new points
        units = random.random(len(parameters))
        point = {name: _at(parameter, unit) for (name, parameter), unit in zip(parameters.items(), units, strict=True)}
        points.setdefault(key(point), point)
        if len(points) == wanted:
            break
    return list(points.values())


def _at(parameter: Parameter, unit: float) -> Any:
    """Return the value at a place between 0 and 1, for a range with four significant digits."""
    if not isinstance(parameter, Range):
        return parameter.listed[int(unit * len(parameter.listed))]
    low, high = parameter.min, parameter.max
    value = low * (high / low) ** unit if parameter.log else low + (high - low) * unit
    return float(f"{value:.4g}")
