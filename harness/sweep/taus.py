"""The thresholds of a pair for the ratios that a sweep wants: found once and written down, then read."""

import json
import math
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from harness.decode import Engine
from harness.errors import DamagedError
from harness.evals.traces import criterion_values
from harness.files import write_file
from harness.spec import Decoding
from harness.spec.decoding import CRITERIA
from harness.spec.stored import Name, Number, Stored, check_stored, read_mapping
from harness.spec.sweep import RATIO, SweepSpec
from harness.sweep.folder import SweepFolder
from harness.sweep.matched import MatchedTau, tau_for
from harness.sweep.points import listed_points, names

EVENTS = 400  # replaced tokens by which a threshold is refined: their number is known to 5 %
VARIED = ("decode.criterion", "decode.side", "decode.span")  # what makes another gate
Taus = dict[tuple[str, float], MatchedTau]  # by gate and wanted ratio


def wanted(spec: SweepSpec) -> list[tuple[str, float]]:
    """Return the gates and ratios that thresholds are needed for; none where thresholds are given as they are."""
    if not spec.matched:
        return []
    every = names(spec)
    ratios = every[RATIO].ratio or ()
    gates = [spec.decoding(p, 0.0).gate for p in listed_points(spec)]
    if not gates:  # a search: whatever it may propose
        varied = [every[name].listed or () if name in every else (None,) for name in VARIED]
        gates = [
            spec.decoding(
                {name: value for name, value in zip(VARIED, values, strict=True) if value is not None}, 0.0
            ).gate
            for values in product(*varied)
        ]
    return [(gate, ratio) for gate in dict.fromkeys(gates) for ratio in ratios]


def stored_taus(spec: SweepSpec, folder: SweepFolder, pair: str) -> Taus:
    """Return the thresholds that have been found already."""
    found = [MatchedTau(**row) for row in _stored(folder).get(pair, ())]
    return {(each.criterion, each.wanted): each for each in found}


_GATE = f"^({'|'.join(CRITERIA)})(/[0-9]{{1,3}})?( [^ ]{{1,40}}){{0,2}}$"  # perhaps a span, a side, a window


class MatchedRow(Stored, frozen=True):
    """A threshold of `matched.json`; `criterion` is a decoding's `gate`."""

    criterion: Annotated[Name, Field(pattern=_GATE)]
    tau: Number
    wanted: Number
    expected: Number
    first: Number | None = None


class MatchedRows(Stored, frozen=True):
    """The thresholds of a pair."""

    rows: tuple[MatchedRow, ...]


def _stored(folder: SweepFolder) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every pair.

    Raises:
        DamagedError: the file is none of thresholds.
    """
    if not folder.matched.is_file():
        return {}
    try:
        found = {}
        for pair, rows in read_mapping(folder.matched).items():
            found[pair] = check_stored({"rows": rows}, MatchedRows, folder.matched).model_dump()["rows"]
        return found
    except DamagedError as error:
        raise DamagedError(f"{error}; move it away, and the same thresholds are found again") from None


def find_taus(
    spec: SweepSpec, folder: SweepFolder, pair: str, engine: Engine, records: Path, *, progress: bool
) -> Taus:
    """Return all thresholds of a pair; those that are not known yet are found from what the pair writes.

    First from base's own generation; then each once more from a run that replaces with that threshold, since replacing
    changes the text that follows (the criterion's values there are those of base's text no more).
    """
    taus = stored_taus(spec, folder, pair)
    if not (missing := [each for each in wanted(spec) if each not in taus]):
        return taus

    def values_of(decodings: list[Decoding], samples: int) -> dict[Decoding, dict[str, np.ndarray]]:
        asked = spec.evaluation(pair, decodings, sampling=spec.sampling.replace(samples=samples))
        criteria = list(dict.fromkeys(criterion_of(gate) for gate, _ in measured))
        return criterion_values(asked, records, criteria=criteria, engine=engine, progress=progress)

    taus |= {(gate, ratio): tau_for(gate, (), ratio) for gate, ratio in missing if criterion_of(gate) == "random"}
    measured = [each for each in missing if each not in taus]
    if measured:
        base = Decoding(mode="base")
        values = values_of([base], spec.sampling.samples)[base]
        first = {(gate, ratio): tau_for(gate, values[criterion_of(gate)], ratio) for gate, ratio in measured}
        probes = {each: probe(spec, each[0], found.tau) for each, found in first.items()}
        tokens = len(values[criterion_of(measured[0][0])])
        enough = {each: probe_samples(spec.sampling.samples, tokens, each[1]) for each in measured}
        for samples in sorted(set(enough.values())):
            mine = [each for each in measured if enough[each] == samples]
            again = values_of(list(dict.fromkeys(probes[each] for each in mine)), samples)
            for each in mine:
                found = tau_for(each[0], again[probes[each]][criterion_of(each[0])], each[1])
                taus[each] = replace(found, first=first[each].tau)
    everyone = {**_stored(folder), pair: [asdict(found) for found in taus.values()]}
    write_file(folder.matched, json.dumps(everyone, indent=1).encode())
    return taus


def criterion_of(gate: str) -> str:
    """Return the criterion of a gate, which may name a side too: `delta_logp above`; with its span: `spike/32`."""
    return gate.split()[0]


def probe(spec: SweepSpec, gate: str, tau: float) -> Decoding:
    """Return the replacement on whose text a threshold is refined: the sweep's, with its first choices."""
    point: dict[str, Any] = {
        name: parameter.listed[0]
        for name, parameter in spec.parameters.items()
        if parameter.listed and parameter.ratio is None
    }
    criterion, side, span = VARIED
    if criterion in point:
        point[criterion] = gate
        point.pop(span, None)
    else:
        named, _, above = gate.partition(" ")
        if side in point:
            point[side] = above or None
        if span in point:
            point[span] = int(named.partition("/")[2])
    return spec.decoding(point, tau).control()


def probe_samples(samples: int, tokens: int, ratio: float) -> int:
    """Return how many samples a problem are worth decoding to refine a threshold: those that promise `EVENTS`.

    Args:
        samples: of the sweep, which are the most.
        tokens: of base's generation, in all samples.

    >>> probe_samples(32, 4_800_000, 0.002), probe_samples(8, 12_000, 0.01)
    (2, 8)
    """
    return min(samples, max(1, math.ceil(samples * EVENTS / (ratio * tokens))))
