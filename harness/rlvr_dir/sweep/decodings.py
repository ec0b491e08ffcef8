"""How the points of a sweep of decodings are decoded and drawn, and the references that belong to them."""

from collections.abc import Iterable
from functools import cache

from rlvr_dir.config import Decoding, Sampling, parse
from rlvr_dir.config.sweep import RATIO, SweepSpec
from rlvr_dir.sweep.matched import is_uniform, tau_for
from rlvr_dir.sweep.points import Point, reference
from rlvr_dir.sweep.taus import Taus, gate_of


def decoding_of(spec: SweepSpec, point: Point, taus: Taus) -> Decoding:
    """Return how a point or a reference is decoded."""
    if "reference" in point:
        return parse(Decoding, point["reference"])
    if RATIO not in point:
        return spec.decoding(point)
    decoding = spec.decoding(point, 0.0)
    if is_uniform(gate := gate_of(decoding)):
        return spec.decoding(point, tau_for(gate, (), point[RATIO]).tau)
    return spec.decoding(point, taus[decoding.criterion, point[RATIO]].tau)


@cache
def _controls(decoding: Decoding) -> tuple[Decoding, ...]:
    """Return the controls of a decoding, which a sweep asks for again and again."""
    return tuple(decoding.controls())


def sampling_of(spec: SweepSpec, point: Point) -> Sampling:
    """Return how a point or a reference is drawn: as the sweep says, but for some references."""
    return parse(Sampling, point["sampling"]) if "sampling" in point else spec.sampling


def references(spec: SweepSpec, pair: str, decodings: Iterable[Decoding]) -> list[Point]:
    """Return base, RL, those asked for, the points' controls, and what is drawn otherwise; none twice."""
    decodings = dict.fromkeys(decodings)
    controls = [control for decoding in decodings for control in _controls(decoding)]
    wanted = dict.fromkeys([Decoding(mode="base"), Decoding(mode="rl"), *spec.references, *controls])
    drawn_otherwise = [reference(pair, decoding, sampling) for decoding, sampling in spec.other_samplings]
    return [*(reference(pair, decoding) for decoding in wanted if decoding not in decodings), *drawn_otherwise]
