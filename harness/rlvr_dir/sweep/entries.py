"""List the entries of a sweep: its points and the references that they are compared with, each once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, TypeVar

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.config.sweep import RATIO, SweepSpec
from rlvr_dir.evals.order import points_first
from rlvr_dir.sweep.matched import is_uniform, tau_for
from rlvr_dir.sweep.points import Point, key
from rlvr_dir.sweep.taus import Taus, gate_of

Item = TypeVar("Item")  # `Drawn` for a sweep of decodings, a `TrainSpec` for a sweep of trainings
Drawn = tuple[Decoding, Sampling]


@dataclass(frozen=True)
class Entry(Generic[Item]):
    """Describe a point or, with `point` None, a reference: its decoding and sampling, or its training.

    `number` is its place among the points, or among the references, in tables. In a search the number of a reference
    changes with every batch, so it is not compared.
    """

    pair: str
    point: Point | None
    item: Item
    number: int = field(compare=False)

    def __hash__(self) -> int:
        return hash((self.pair, self.point and key(self.point)))


def decoding_of(spec: SweepSpec, point: Point, taus: Taus) -> Decoding | None:
    """Return the decoding of a point; None if its threshold has not been found yet."""
    if RATIO not in point:
        return spec.decoding(point)
    decoding = spec.decoding(point, 0.0)
    gate = gate_of(decoding)
    tau = tau_for(gate, (), point[RATIO]) if is_uniform(gate) else taus.get((decoding.criterion, point[RATIO]))
    return None if tau is None else spec.decoding(point, tau.tau)


@cache
def _controls(spec_controls: tuple[str, ...] | bool, decoding: Decoding) -> tuple[Decoding, ...]:
    modes = spec_controls or ()
    return tuple(control for control in decoding.controls() if modes is True or control.mode in modes)


def controls_of(spec: SweepSpec, decoding: Decoding) -> tuple[Decoding, ...]:
    """Return the controls of a decoding that the sweep requests, the decoding's own control last."""
    return _controls(spec.controls, decoding)


def entries_of(spec: SweepSpec, points: Iterable[Point], taus: Mapping[str, Taus]) -> list[Entry[Drawn]]:
    """Return points and references in the order in which they are decoded: base, RL, then each point and its controls.

    Points whose threshold has not been found yet are left out. The numbers of references follow the order in which
    tables list them: base, RL, `references`, controls, `samplings`.
    """
    entries, numbered, first = list[Entry[Drawn]](), list(enumerate(points)), 0
    for pair in spec.pairs:
        runs = [(n, p, decoding_of(spec, p, taus[pair])) for n, p in numbered if p["pair"] == pair]
        own = [(n, point, decoding) for n, point, decoding in runs if decoding is not None]
        decodings = {decoding for _, _, decoding in own}
        controls = [control for _, _, decoding in own for control in controls_of(spec, decoding)]
        base_and_rl = [Decoding(mode="base"), Decoding(mode="rl")]
        wanted = dict.fromkeys([*base_and_rl, *spec.references, *controls])
        drawn = [(decoding, spec.sampling) for decoding in wanted if decoding not in decodings] + spec.other_samplings
        references = [Entry(pair, None, item, first + n) for n, item in enumerate(drawn)]
        first += len(drawn)

        ordered = points_first([*base_and_rl, *(decoding for _, _, decoding in own), *wanted])
        place = {(decoding, spec.sampling): n for n, decoding in enumerate(ordered)}
        varied = [Entry(pair, point, (decoding, spec.sampling), n) for n, point, decoding in own]
        entries += sorted([*varied, *references], key=lambda entry: place.get(entry.item, len(place)))
    return entries
