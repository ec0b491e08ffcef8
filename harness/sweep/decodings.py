"""The decodings of a sweep: of its points, of the references that belong to them, and the metrics of their results."""

from collections.abc import Sequence
from math import isfinite
from statistics import fmean
from typing import Any

from harness.evals import EvalResult
from harness.spec import Decoding, Sampling, parse
from harness.spec.sweep import RATIO, SweepSpec
from harness.sweep.matched import is_uniform, tau_for
from harness.sweep.points import Point, reference
from harness.sweep.taus import Taus, gate_of


def decoding_of(spec: SweepSpec, point: Point, taus: Taus) -> Decoding:
    """Return how a point or a reference is decoded."""
    if "reference" in point:
        return parse(Decoding, point["reference"])
    if RATIO not in point:
        return spec.decoding(point)
    asked = spec.decoding(point, 0.0)
    if is_uniform(gate := gate_of(asked)):
        return spec.decoding(point, tau_for(gate, (), point[RATIO]).tau)
    return spec.decoding(point, taus[asked.criterion, point[RATIO]].tau)


def sampling_of(spec: SweepSpec, point: Point) -> Sampling:
    """Return how a point or a reference is drawn: as the sweep says, but for some references."""
    return parse(Sampling, point["sampling"]) if "sampling" in point else spec.sampling


def references(
    spec: SweepSpec, pair: str, points: Sequence[Point], taus: Taus, controlled: Sequence[Point] | None = None
) -> list[Point]:
    """Return base, RL, those asked for, the gamma = 0 control of `controlled` (default all points), and last what is
    drawn otherwise; none twice.
    """
    mine = dict.fromkeys(decoding_of(spec, point, taus) for point in points)
    gates = [decoding_of(spec, point, taus) for point in (points if controlled is None else controlled)]
    wanted = [Decoding(mode="base"), Decoding(mode="rl"), *spec.references, *(each.control() for each in gates)]
    others = [reference(pair, *each) for each in spec.drawn_otherwise]
    return [*(reference(pair, each) for each in dict.fromkeys(wanted) if each not in mine), *others]


def metrics(spec: SweepSpec, results: Sequence[EvalResult]) -> dict[str, float]:
    """Return every metric of a trial by its name in sweeps: the unweighted mean over its benchmarks.

    Ours are fractions, those of lm-eval's tasks in their own units. Metrics of more samples than there are have no
    value: greedy decoding has one.
    """
    every: list[dict[str, Any]] = []
    for result in results:
        values = {name.replace("@", "_at_"): value for name, value in result.metrics().items()}
        values |= {name: value for name, value in (result.scores or {}).items() if name in result.metric_names}
        for name in (*(metric.name for metric in spec.metric), *spec.constraints):
            if name.startswith("pass_at_") and name not in values and int(name[8:]) <= result.samples:
                values[name] = result.pass_at(int(name.removeprefix("pass_at_")))
        every.append(values)
    names = [name for name in every[0] if all(name in values for values in every)]
    means = {name: float(fmean(values[name] for values in every)) for name in names}
    return {name: value for name, value in means.items() if isfinite(value)}  # one sample has no sampling error
