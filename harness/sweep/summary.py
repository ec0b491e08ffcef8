"""What is complete of a sweep of decodings, handed to the report room, which puts it into words and draws it."""

from collections.abc import Sequence
from typing import Any

from harness.errors import UserError
from harness.evals.compare import comparisons
from harness.evals.settings import settings_of
from harness.report.sweep import CompleteTrial, DecodingSummary
from harness.spec.sweep import RATIO, SweepSpec
from harness.sweep.decodings import sampling_of
from harness.sweep.folder import SweepFolder
from harness.sweep.taus import stored_taus
from harness.sweep.trials import Trials

_ORDER = ("base", "rl", "replace", "extrapolate", "expo", "power")  # of references


def summarise(spec: SweepSpec, trials: Trials, folder: SweepFolder) -> DecodingSummary:
    """Return the summary of everything that is complete.

    Raises:
        UserError: a result file is missing.
    """
    entries = _entries(spec, trials, folder)
    best = [(trial.pair, trial.number) for pair in spec.pairs for trial in trials.best(pair)]
    return DecodingSummary(
        spec=spec,
        entries=entries,
        comparisons=comparisons(settings_of((r for entry in entries for r in entry.results), usual=spec.sampling)),
        best=[entry for entry in entries if entry.point is not None and (entry.pair, entry.number) in best],
        states=trials.states(),
        failed=sum(trial.state == "failed" for trial in trials),
        matched=_matched(spec, folder, entries),
    )


def _entries(spec: SweepSpec, trials: Trials, folder: SweepFolder) -> list[CompleteTrial]:
    found = []
    for trial in trials.complete():
        point = trial.point
        if (results := folder.results_of(trial.results)) is None:
            raise UserError(
                f"results of trial {trial.number} are missing or damaged in {folder.results}; run the sweep again, "
                "which makes them again from the records"
            )
        asked = None if trial.is_reference else point
        drawn = sampling_of(spec, point).unlike(spec.sampling)
        label = results[0].decoding.label() + (f" ({drawn})" if drawn else "")
        found.append(
            CompleteTrial(point["pair"], trial.number, asked, label, tuple(results), trial.metrics, drawn=drawn)
        )

    def place(entry: CompleteTrial) -> tuple[bool, bool, int]:
        mode = entry.results[0].decoding.mode
        return entry.point is not None, bool(entry.drawn), _ORDER.index(mode) if entry.point is None else entry.number

    return sorted(found, key=place)


def _matched(spec: SweepSpec, folder: SweepFolder, entries: Sequence[CompleteTrial]) -> list[dict[str, Any]]:
    """Return a row a point whose threshold was found: what was wanted, expected and reached."""
    rows = []
    for entry in entries:
        if entry.point is not None and RATIO in entry.point:
            found = stored_taus(spec, folder, entry.pair)[entry.results[0].decoding.criterion, entry.point[RATIO]]
            replaced = sum(int(result.n_replaced.sum()) for result in entry.results)
            tokens = sum(int(result.n_tokens.sum()) for result in entry.results)
            shares = {"wanted": found.wanted, "expected": found.expected, "reached": replaced / max(1, tokens)}
            rows.append({"pair": entry.pair, "criterion": found.criterion, "tau": found.tau, **shares})
    return rows
