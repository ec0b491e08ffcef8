"""Find the thresholds of a pair for the ratios of a sweep once, store them, and read them later."""

import json
import math
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlvr_dir.config import Decoding
from rlvr_dir.config.stored import Stored, read_mapping
from rlvr_dir.config.sweep import RATIO, SweepSpec
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.files import write_file
from rlvr_dir.policy.gates import Gate, Threshold, parameters
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.matched import MatchedTau, is_uniform, tau_for
from rlvr_dir.sweep.points import listed_points

if TYPE_CHECKING:
    from rlvr_dir.decode import Engine

EVENTS = 400  # flagged tokens needed to refine a threshold: their number is then known to 5 %
Taus = dict[tuple[str, float], MatchedTau]  # by criterion, in a decoding's words, and requested ratio


def wanted(spec: SweepSpec) -> dict[tuple[str, float], Decoding]:
    """Return the criteria and ratios that need thresholds, each with the first decoding that uses it.

    The result is None if thresholds are given directly.
    """
    if not spec.matched:
        return {}
    varied = spec.varied()
    names = [f"decode.{name}" for name in ("criterion", *parameters()) if f"decode.{name}" in varied]
    searched = [dict(zip(names, values, strict=True)) for values in product(*(varied[name].listed for name in names))]
    decodings: dict[tuple[str, float], Decoding] = {}
    for point in listed_points(spec) or searched:  # a search may propose any
        decoding = spec.decoding(point, 0.0)
        for ratio in varied[RATIO].listed:
            decodings.setdefault((decoding.criterion, ratio), decoding)
    return decodings


def stored_taus(spec: SweepSpec, folder: SweepFolder, pair: str) -> Taus:
    """Return the thresholds that have been found already."""
    return {(tau.criterion, tau.wanted): tau for tau in _stored(folder).get(pair, ())}


class MatchedRows(Stored, frozen=True):
    """Store the thresholds of a pair in `matched.json`."""

    rows: tuple[MatchedTau, ...]


def _stored(folder: SweepFolder) -> dict[str, tuple[MatchedTau, ...]]:
    """Return the thresholds of every pair.

    Raises:
        DamagedError: The file does not contain thresholds.
    """
    if not folder.matched.is_file():
        return {}
    try:
        pairs = read_mapping(folder.matched).items()
        return {pair: MatchedRows.from_plain({"rows": rows}, folder.matched).rows for pair, rows in pairs}
    except DamagedError as error:
        raise DamagedError(f"{error}; move it away, and the same thresholds are found again") from None


def find_taus(
    spec: SweepSpec, folder: SweepFolder, pair: str, engine: "Engine", records: Path, *, progress: bool
) -> Taus:
    """Return all thresholds of a pair; those that are not known yet are found from the pair's responses.

    The first estimate uses base's own generation. Each threshold is then refined on a run that replaces with it,
    because replacing changes the text that follows, and so the criterion's values.
    """
    from rlvr_dir.evals.traces import criterion_values

    decodings, taus = wanted(spec), stored_taus(spec, folder, pair)
    missing = {name: gate_of(decoding) for name, decoding in decodings.items() if name not in taus}
    taus |= {name: tau_for(gate, (), name[1]) for name, gate in missing.items() if is_uniform(gate)}
    gates = {name: gate for name, gate in missing.items() if name not in taus}

    def values_of(decodings: list[Decoding], samples: int) -> dict[Decoding, dict[Gate, np.ndarray]]:
        evaluation = spec.evaluation(pair, decodings, sampling=spec.sampling.replace(samples=samples))
        without_tau = list(dict.fromkeys(gate.without_threshold() for gate in gates.values()))
        return criterion_values(evaluation, records, gates=without_tau, engine=engine, progress=progress)

    if gates:
        base = Decoding(mode="base")
        values = values_of([base], spec.sampling.samples)[base]
        first = {name: tau_for(gate, values[gate.without_threshold()], name[1]) for name, gate in gates.items()}
        taus |= first
        probes = {name: probe(decodings[name], tau.tau) for name, tau in first.items() if spec.refined}
        tokens = len(next(iter(values.values())))
        enough = {name: probe_samples(spec.sampling.samples, tokens, name[1]) for name in probes}
        for samples in sorted(set(enough.values())):
            names = [name for name in probes if enough[name] == samples]
            refined = values_of(list(dict.fromkeys(probes[name] for name in names)), samples)
            for name in names:
                gate = gates[name]
                tau = tau_for(gate, refined[probes[name]][gate.without_threshold()], name[1])
                taus[name] = tau.replace(first=first[name].tau)
    rows = {**_stored(folder), pair: taus.values()}
    plain = {name: [tau.model_dump() for tau in of_pair] for name, of_pair in rows.items()}
    write_file(folder.matched, json.dumps(plain, indent=1).encode())
    return taus


def gate_of(decoding: Decoding) -> Threshold:
    """Return the criterion of a decoding, which has a threshold.

    Raises:
        UserError: It has none.
    """
    if not isinstance(decoding.gate, Threshold):
        raise UserError(
            "has no threshold, so no ratio of decode.tau can be reached",
            argument="criterion",
            value=decoding.criterion,
            hint="Use another criterion, or values of decode.tau.",
        )
    return decoding.gate


def probe(decoding: Decoding, tau: float) -> Decoding:
    """Return the replacement whose text is used to refine a threshold: the first decoding with it, without gamma.

    The gate's own threshold is `tau`.
    """
    at_tau = decoding.replace(tau=tau)
    return at_tau.control() if at_tau.mode == "extrapolate" else at_tau


def probe_samples(samples: int, tokens: int, ratio: float) -> int:
    """Return how many samples per problem to decode to refine a threshold: as many as should contain `EVENTS`.

    Args:
        samples: Those of the sweep, which are the most.
        tokens: Those of base's generation, in all samples.

    >>> probe_samples(32, 4_800_000, 0.002), probe_samples(8, 12_000, 0.01)
    (2, 8)
    """
    return min(samples, max(1, math.ceil(samples * EVENTS / (ratio * tokens))))
