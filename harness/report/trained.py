"""Models trained in different ways from one base, side by side, as in the paper's main and reweighting tables.

The trainings of a method differ in their seed: they are one row, the mean over them, with an interval for other seeds
and other problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness import stats
from harness.errors import UserError
from harness.evals.result import EvalResult
from harness.evals.settings import Setting, cut_unlike, settings_of
from harness.evals.trainings import called, of_training, run_of
from harness.report.claims import CLAIMS, Finding, judged, points
from harness.report.groups import comparable_groups, differing_settings
from harness.report.model import Cell, Chapter, Section, cell, frame
from harness.report.paper import LABELS, OURS, model_called
from harness.report.shapes import Method, Score, anchor, benchmark_title, methods_table
from harness.spec.pair import model_name
from harness.stats import Estimate, PairedDifference, p_value

REFERENCE = "DAPO"  # what the others are set against, where it is there; else the first


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The trainings of one method from one base, on one benchmark: a setting by seed, all of the same problems."""

    name: str
    base: str
    runs: dict[int | str, Setting] = field(default_factory=dict)

    @property
    def first(self) -> Setting:
        """Return the setting of the first seed, which stands for all in what they share."""
        return next(iter(self.runs.values()))

    @property
    def values(self) -> dict[int | str, np.ndarray]:
        """Return the samples of each seed: (problems, samples)."""
        return {seed: setting.values for seed, setting in self.runs.items()}


def trained_chapter(results: Sequence[EvalResult]) -> tuple[Chapter, list[Finding]] | None:
    """Set base and trained models side by side, two tables for each group that is alike; and what is said of the paper.

    None where there is neither a training nor a second name.

    Raises:
        UserError: a name has two results of one seed.
    """
    results = with_unique_names(results)
    known = comparable_groups(
        [r for r in results if r.decoding.mode == "base" or (called(r) and r.decoding.mode == "rl")], lambda r: 0
    )
    several = [group for group in known if _is_table([r for r in group if r.decoding.mode == "rl"])]
    said, tables, findings = [], [], []
    for i, group in enumerate(several):
        sentences, made, claimed = _tables(group, f"-{i}" if i else "", differing_settings(group, several))
        said, tables, findings = [*said, *sentences], [*tables, *made], [*findings, *claimed]
    return (Chapter("Trained models", tuple(said), tuple(tables)), findings) if tables else None


def with_unique_names(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Call trainings that nobody named by their folders, where their own names are the same."""
    folders: dict[str, set[str]] = {}
    for about in (each.provenance["training"] for each in results if of_training(each)):
        if not about["named"]:
            folders.setdefault(about["name"], set()).add(about["folder"])
    found = []
    for result in results:
        about = result.provenance.get("training")
        if about and not about["named"] and len(folders[about["name"]]) > 1:
            about = {**about, "name": about["folder"].rpartition("/")[2]}
            result = result.replace(provenance={**result.provenance, "training": about})
        found.append(result)
    return found


def _is_table(trained: Sequence[EvalResult]) -> bool:
    return len({(called(result), run_of(result)) for result in trained}) > 1 or any(map(of_training, trained))


def _trained(settings: Sequence[Setting]) -> list[Trained]:
    """Put the seeds of each method together; raises UserError where a name has two results of one seed."""
    found: dict[tuple[str, str, str], Trained] = {}
    for one in settings:
        base, name, run = one.first.pair[0], called(one.first), run_of(one.first)
        mine = found.setdefault((base, name, one.benchmark), Trained(name, base))
        if run in mine.runs:
            which = f"seed {run}" if isinstance(run, int) else run
            places = " and ".join(dict.fromkeys(each.first.pair[1] for each in (mine.runs[run], one)))
            raise UserError(
                f"results: {name!r} names two results of {which} on {one.benchmark} ({places}); accepted: a name for "
                "each, as A=PLACE B=PLACE"
            )
        mine.runs[run] = one
    return list(found.values())


def _tables(results: Sequence[EvalResult], slug: str, told: str) -> tuple[list[str], list[Section], list[Finding]]:
    settings = settings_of(results)
    trained = _trained([one for one in settings if one.decoding.mode == "rl"])
    names = list(dict.fromkeys(one.name for one in trained))
    reference = REFERENCE if REFERENCE in names else names[0]
    k = max(1, min(setting.samples for one in trained for setting in one.runs.values()) // 2)
    seeds = max(len(one.runs) for one in trained)
    methods: list[Method] = []
    compared: list[tuple[Trained, str, PairedDifference]] = []
    against: dict[str, str] = {}  # by base: of the first method that is compared; the table has the others
    said: list[str] = []
    findings: list[Finding] = []
    for base in dict.fromkeys(one.base for one in trained):
        model = model_called(base) or model_name(base)
        bases = {e.benchmark: e for e in settings if e.decoding.mode == "base" and e.first.pair[0] == base}
        methods += [Method(model, "Base", {b: Score.of(e, k) for b, e in bases.items()})] if bases else []
        in_order = sorted((one for one in trained if one.base == base), key=lambda one: one.first.benchmark)
        by = {name: {one.first.benchmark: one for one in in_order if one.name == name} for name in names}
        for name, found in ((name, found) for name, found in by.items() if found):
            others = by[reference] if name != reference else {}
            paired = {b: (one, others[b]) for b, one in found.items() if b in others}
            scores = {b: _score([one], [others[b]] if b in others else [], k) for b, one in found.items()}
            whole = others.keys() == found.keys()
            average = (
                _score(list(found.values()), list(others.values()) if whole else [], k) if len(found) > 1 else None
            )
            many = sorted({len(one.runs) for one in found.values()})
            label = f"{name} ({'–'.join(map(str, many))} seeds)" if many[-1] > 1 else name
            methods.append(Method(model, label, scores, average))
            if others and whole:
                d = _minus(list(found.values()), list(others.values()))
                sentence = _sentence(name, reference, d, found)
                against.setdefault(base, sentence)
                if {LABELS.get(name, name), name} & {"Ours", *OURS.values()} or name.startswith("low_prob"):
                    findings.append(Finding(claim=CLAIMS[5], found=sentence, verdict=judged(d)))
            elif found.keys() <= bases.keys() and name == reference:
                d = _minus_base(list(found.values()), [bases[b] for b in found])
                said.append(_sentence(name, f"the base {model}", d, found))
            compared += [(one, "Base", _minus_base([one], [bases[b]])) for b, one in found.items() if b in bases]
            compared += [(one, reference, _minus([one], [other])) for one, other in paired.values()]
    over = "problems and seeds" if seeds > 1 else "problems"
    note = (
        f"Under each score: its 95 % interval over {over}, and its difference to {reference}, paired by problem"
        f"{' and seed' if seeds > 1 else ''}; not corrected for the number of comparisons."
    )
    if any(len(one.runs) == 1 for one in trained):
        note += " Of one training the interval is over problems alone: another seed may differ by more."
    notes = [note]
    if chosen := {one.name: asked for one in trained if (asked := _checkpoint(one)).startswith("best(")}:
        words = "; ".join(f"{name}: {asked}" for name, asked in chosen.items())
        notes.append(
            f"The checkpoint was chosen by the scores themselves ({words}): too high on that benchmark. "
            "`rlvr-dir analyse curves` says by how much."
        )
    about, paper = f" ({told})" if told else "", "tab:main, tab:compare, tab:rl_minerva"
    tables = [methods_table(f"trained{slug}", f"Trained models{about}.", methods, notes=notes, paper=paper)]
    tables += [_differences(compared, f"trained-differences{slug}", about)] if compared else []
    alone = [one for one in settings if one.decoding.mode == "base"]
    pairs = [(seed, one) for one in alone for each in trained for seed in each.runs.values() if _meet(seed, one)]
    return [*against.values(), *said, *cut_unlike(pairs)], tables, findings


def _meet(one: Setting, base: Setting) -> bool:
    """Tell whether a trained model's setting has this base beside it."""
    return (one.first.pair[0], one.benchmark) == (base.first.pair[0], base.benchmark)


def _checkpoint(one: Trained) -> str:
    """Return which checkpoint of its trainings was asked for; the last where nobody says."""
    return str((one.first.first.provenance.get("training") or {}).get("checkpoint", "last"))


def _sentence(name: str, other: str, d: PairedDifference, found: dict[str, Trained]) -> str:
    seeds = max(len(one.runs) for one in found.values())
    titles = ", ".join(map(benchmark_title, found))
    words = [
        f"mean over {titles}" if len(found) > 1 else titles,
        f"{seeds} seeds" if seeds > 1 else "one training each",
    ]
    meaning = {"confirmed": "a significant gain", "contradicted": "a significant loss"}.get(judged(d), "inconclusive")
    return f"{name} changes accuracy by {points(d)} against {other} ({', '.join(words)}, 95 %): {meaning}."


def _score(rows: Sequence[Trained], others: Sequence[Trained], k: int) -> Score:
    """Return a mean over seeds and benchmarks with the difference to another method's."""
    found, first = stats.score_over_runs([one.values for one in rows]), rows[0].first
    every = [setting for one in rows for setting in one.runs.values()]
    known = all(k <= one.samples for one in every)
    passed = float(np.mean([np.mean([e.pass_at(k) for e in one.runs.values()]) for one in rows])) if known else None
    d = _minus(rows, others) if others else None
    return Score(
        Estimate(found.mean, found.low, found.high),
        first.samples if len({setting.samples for setting in every}) == 1 else 0,
        k if known else 0,
        passed,
        (Estimate(d.mean, d.low, d.high).text(1, sign=True),) if d else (),
        anchor(first.first),
        "*" if any(setting.partial for setting in every) else "",
    )


def _minus(rows: Sequence[Trained], others: Sequence[Trained]) -> PairedDifference:
    by = {other.first.benchmark: other.values for other in others}
    return stats.difference_over_runs([(one.values, by[one.first.benchmark]) for one in rows])


def _minus_base(rows: Sequence[Trained], bases: Sequence[Setting]) -> PairedDifference:
    """Subtract the base, which was sampled once: from every seed the same."""
    pairs = zip(rows, bases, strict=True)
    return stats.difference_over_runs([(one.values, dict.fromkeys(one.runs, base.values)) for one, base in pairs])


def _differences(compared: Sequence[tuple[Trained, str, PairedDifference]], name: str, about: str) -> Section:
    corrected = stats.holm([d.p if d.p == d.p else 1.0 for *_, d in compared])
    rows = [
        {
            "Benchmark": benchmark_title(one.first.benchmark),
            "Training": Cell(one.name, link=anchor(one.first.first)),
            "minus": minus,
            "Difference": cell(Estimate(d.mean, d.low, d.high), plus=True),
            "Seeds": len(one.runs),
            "p": Cell(p_value(d.p), d.p) if d.p == d.p else "–",
            "p (Holm)": Cell(p_value(float(holm)), float(holm)) if d.p == d.p else "–",
        }
        for (one, minus, d), holm in zip(compared, corrected, strict=True)
    ]
    note = (
        "In points, paired by problem, and by seed where both have one: then their other seeds are left out. Intervals "
        "and p are over problems and, of several trainings, over seeds as well; Holm's correction over these "
        f"{len(rows)} rows."
    )
    return Section(name, f"Trained models, differences{about}.", frame(rows), (note,), sortable=True)
