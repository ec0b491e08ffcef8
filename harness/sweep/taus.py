"""The thresholds of a pair for the ratios that a sweep wants: found once and written down, then read."""

import json
from pathlib import Path

from harness.decode import Engine
from harness.evals.traces import criterion_values
from harness.records.files import write_file
from harness.spec import Decoding
from harness.spec.sweep import RATIO, SweepSpec
from harness.sweep.folder import SweepFolder
from harness.sweep.matched import MatchedTau, tau_for
from harness.sweep.points import listed_points, names

Taus = dict[tuple[str, float], MatchedTau]  # by criterion and wanted ratio


def wanted(spec: SweepSpec) -> list[tuple[str, float]]:
    """Return the criteria and ratios that thresholds are needed for; none where thresholds are given as they are."""
    if not spec.matched:
        return []
    every = names(spec)
    ratios = every[RATIO].ratio or ()
    criteria = [spec.decoding(p, 0.0).criterion for p in listed_points(spec)]
    if not criteria:  # a search: whatever it may propose
        varied = every.get("decode.criterion")
        criteria = list(varied.listed or ()) if varied else [spec.decode.get("criterion", "delta_logp")]
    return [(str(criterion), ratio) for criterion in dict.fromkeys(criteria) for ratio in ratios]


def stored_taus(spec: SweepSpec, folder: SweepFolder, pair: str) -> Taus:
    """Return the thresholds that have been found already."""
    rows = folder.read_json(folder.matched).get(pair, [])
    found = [MatchedTau(**row) for row in rows]
    return {(each.criterion, each.wanted): each for each in found}


def find_taus(
    spec: SweepSpec, folder: SweepFolder, pair: str, engine: Engine, records: Path, *, progress: bool
) -> Taus:
    """Return all thresholds of a pair; where some are not known yet, find them from its base generation with traces."""
    taus = stored_taus(spec, folder, pair)
    if not (missing := [each for each in wanted(spec) if each not in taus]):
        return taus
    values = {}
    if any(criterion != "random" for criterion, _ in missing):
        base = spec.evaluation(pair, [Decoding(mode="base")])
        values = criterion_values(base, records, engine=engine, progress=progress)
    for criterion, ratio in missing:
        taus[criterion, ratio] = tau_for(criterion, values.get(criterion, ()), ratio)
    rows = [
        {"criterion": found.criterion, "tau": found.tau, "wanted": found.wanted, "expected": found.expected}
        for found in taus.values()
    ]
    everyone = {**folder.read_json(folder.matched), pair: rows}
    write_file(folder.matched, json.dumps(everyone, indent=1).encode())
    return taus
