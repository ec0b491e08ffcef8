"""Models trained in different ways from one base, side by side, as in the paper's main and reweighting tables.

The trainings of a method differ in their seed: they are one row, the mean over them, with an interval for other seeds
and other problems.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness import stats
from harness.errors import UserError
from harness.evals.result import EvalResult
from harness.evals.settings import Setting, cut_unlike, settings_of
from harness.evals.trainings import called, of_training, run_of
from harness.markdown import interval
from harness.report.groups import lots, set_apart
from harness.report.known import model_of
from harness.report.model import Cell, Column, Row, Section, Table
from harness.report.scores import anchor, score
from harness.report.shapes import MethodRow, Score, methods_table, title
from harness.report.verdict import p_value
from harness.spec.pair import model_name

REFERENCE = "DAPO"  # what the others are set against, where it is there; else the first


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The trainings of one method from one base, on one benchmark: a setting by seed, all of the same problems."""

    name: str
    base: str
    runs: dict[int | str, Setting]

    @property
    def first(self) -> Setting:
        """Return the setting of the first seed, which stands for all in what they share."""
        return next(iter(self.runs.values()))

    @property
    def values(self) -> dict[int | str, np.ndarray]:
        """Return the samples of each seed: (problems, samples)."""
        return {seed: setting.values for seed, setting in self.runs.items()}


def trained_section(results: Sequence[EvalResult]) -> Section | None:
    """Set base and trained models side by side, two tables for each lot that is alike, with what they say in words.

    None where there is neither a training nor a second name.

    Raises:
        UserError: a name has two results of one seed.
    """
    results = told_apart(results)
    known = lots(
        [r for r in results if r.decoding.mode == "base" or (called(r) and r.decoding.mode == "rl")], lambda r: 0
    )
    several = [lot for lot in known if _is_table([r for r in lot if r.decoding.mode == "rl"])]
    said, tables = [], []
    for i, lot in enumerate(several):
        sentences, made = _tables(lot, f"-{i}" if i else "", set_apart(lot, several))
        said, tables = [*said, *sentences], [*tables, *made]
    return Section("Trained models", tuple(said), tuple(tables)) if tables else None


def told_apart(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Call trainings that nobody named by their folders, where their own names are the same."""
    unnamed = [each for each in results if of_training(each) and not each.provenance["training"]["named"]]
    folders: dict[str, set[str]] = {}
    for result in unnamed:
        folders.setdefault(called(result), set()).add(result.provenance["training"]["folder"])
    found = []
    for result in results:
        about = result.provenance.get("training")
        if about and not about["named"] and len(folders[about["name"]]) > 1:
            about = {**about, "name": about["folder"].rpartition("/")[2]}
            result = result.replace(provenance={**result.provenance, "training": about})
        found.append(result)
    return found


def _is_table(trained: Sequence[EvalResult]) -> bool:
    runs = {(called(result), run_of(result)) for result in trained}
    return len(runs) > 1 or any(map(of_training, trained))


def _trained(settings: Sequence[Setting]) -> list[Trained]:
    """Put the seeds of each method together.

    Raises:
        UserError: a name has two results of one seed.
    """
    found: dict[tuple[str, str, str], Trained] = {}
    for one in settings:
        base, name, run = one.first.pair[0], called(one.first), run_of(one.first)
        mine = found.setdefault((base, name, one.benchmark), Trained(name, base, {}))
        if run in mine.runs:
            which = f"seed {run}" if isinstance(run, int) else run
            places = " and ".join(dict.fromkeys(each.first.pair[1] for each in (mine.runs[run], one)))
            raise UserError(
                f"results: {name!r} names two results of {which} on {one.benchmark} ({places}); accepted: a name for "
                "each, as A=PLACE B=PLACE"
            )
        mine.runs[run] = one
    return list(found.values())


def _tables(results: Sequence[EvalResult], slug: str, told: str) -> tuple[list[str], list[Table]]:
    settings = settings_of(results)
    trained = _trained([one for one in settings if one.decoding.mode == "rl"])
    names = list(dict.fromkeys(one.name for one in trained))
    reference = REFERENCE if REFERENCE in names else names[0]
    k = max(1, min(setting.samples for one in trained for setting in one.runs.values()) // 2)
    seeds = max(len(one.runs) for one in trained)
    methods, compared, said = [], [], []
    for base in dict.fromkeys(one.base for one in trained):
        model = model_of(base) or model_name(base)
        mine = {e.benchmark: e for e in settings if e.decoding.mode == "base" and e.first.pair[0] == base}
        alone = {benchmark: score(e, k=k) for benchmark, e in mine.items()}
        methods += [MethodRow(model, "Base", alone)] if alone else []
        by = {name: {e.first.benchmark: e for e in trained if (e.base, e.name) == (base, name)} for name in names}
        for name, found in by.items():
            others = by[reference] if name != reference else {}
            scores = {b: _score([one], [others[b]] if b in others else [], k) for b, one in found.items()}
            average = None
            if len(found) > 1:
                average = _score(
                    list(found.values()), list(others.values()) if others.keys() == found.keys() else [], k
                )
            many = sorted({len(one.runs) for one in found.values()})
            label = f"{name} ({'–'.join(map(str, many))} seeds)" if many and many[-1] > 1 else name
            methods += [MethodRow(model, label, scores, average)] if found else []
            if others and others.keys() == found.keys():
                said.append(_sentence(name, reference, _minus(list(found.values()), list(others.values())), found))
            elif found and found.keys() <= mine.keys() and name == reference:
                d = _minus_base(list(found.values()), [mine[b] for b in found])
                said.append(_sentence(name, f"the base {model}", d, found))
            compared += [(one, "Base", _minus_base([one], [mine[b]])) for b, one in found.items() if b in mine]
            compared += [(one, reference, _minus([one], [others[b]])) for b, one in found.items() if b in others]
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
    about = f" ({told})" if told else ""
    tables = [
        methods_table(
            f"trained{slug}", f"Trained models{about}.", methods, notes=notes,
            paper="tab:main, tab:compare, tab:rl_minerva", unranked=("Base",),
        )
    ]  # fmt: skip
    tables += [_table_of_differences(compared, f"trained-differences{slug}", about)] if compared else []
    said.sort(key=lambda sentence: "the base " in sentence)  # what is asked of methods first
    alone = [one for one in settings if one.decoding.mode == "base"]
    pairs = [(seed, one) for one in alone for each in trained for seed in each.runs.values() if _meet(seed, one)]
    return [*said, *cut_unlike(pairs)], tables


def _meet(one: Setting, base: Setting) -> bool:
    """Tell whether a trained model's setting has this base beside it."""
    return (one.first.pair[0], one.benchmark) == (base.first.pair[0], base.benchmark)


def _checkpoint(one: Trained) -> str:
    """Return which checkpoint of its trainings was asked for; the last where nobody says."""
    return str((one.first.first.provenance.get("training") or {}).get("checkpoint", "last"))


def _sentence(name: str, other: str, d: stats.PairedDifference, found: Mapping[str, Trained]) -> str:
    runs = sorted({len(one.runs) for one in found.values()})
    words = [f"mean over {', '.join(map(title, sorted(found)))}"] if len(found) > 1 else [title(next(iter(found)))]
    words += [f"{runs[-1]} seeds" if runs[-1] > 1 else "one training each", f"95 %, p {p_value(d.p)}, not corrected"]
    what = f"{100 * d.mean:+.1f} points {interval(d.low, d.high, sign=True)}".rstrip()
    meaning = "inconclusive"
    if d.p < 0.05:
        meaning = "a significant gain" if d.mean > 0 else "a significant loss"
    return f"{name} changes accuracy by {what} against {other} ({', '.join(words)}): {meaning}."


def _score(rows: Sequence[Trained], others: Sequence[Trained], k: int) -> Score:
    """Return a mean over seeds and benchmarks, in percent, with the difference to another method's."""
    found, first = stats.score_over_runs([one.values for one in rows]), rows[0].first
    every = [setting for one in rows for setting in one.runs.values()]
    passed = (
        [[each.pass_at(k) for each in one.runs.values()] for one in rows] if all(k <= e.samples for e in every) else []
    )
    d, known = _minus(rows, others) if others else None, found.low == found.low
    return Score(
        100 * found.mean,
        samples=first.samples if len({setting.samples for setting in every}) == 1 else 0,
        low=100 * found.low if known else None,
        high=100 * found.high if known else None,
        k=k if passed else 0,
        passed=100 * float(np.mean([np.mean(each) for each in passed])) if passed else None,
        error=100 * found.error,
        beside=f"{100 * d.mean:+.1f} {interval(d.low, d.high, sign=True)}".rstrip() if d else "",
        link=anchor(first.first),
        sign="*" if any(setting.partial for setting in every) else "",
    )


def _minus(rows: Sequence[Trained], others: Sequence[Trained]) -> stats.PairedDifference:
    by = {other.first.benchmark: other.values for other in others}
    return stats.difference_over_runs([(one.values, by[one.first.benchmark]) for one in rows])


def _minus_base(rows: Sequence[Trained], bases: Sequence[Setting]) -> stats.PairedDifference:
    """Subtract the base, which was sampled once: from every seed the same."""
    pairs = zip(rows, bases, strict=True)
    return stats.difference_over_runs([(one.values, dict.fromkeys(one.runs, base.values)) for one, base in pairs])


def _table_of_differences(
    compared: Sequence[tuple[Trained, str, stats.PairedDifference]], name: str, about: str
) -> Table:
    titles = ("Difference", "95 % interval", "Seeds", "p", "p (Holm)")
    columns = [Column(each, words=True) for each in ("Benchmark", "Training", "minus")] + [Column(t) for t in titles]
    corrected = stats.holm([d.p if d.p == d.p else 1.0 for _, _, d in compared])
    rows = []
    for (one, minus, d), holm in zip(compared, corrected, strict=True):
        cells = (
            Cell(title(one.first.benchmark)),
            Cell(one.name, link=anchor(one.first.first)),
            Cell(minus),
            Cell(f"{100 * d.mean:+.2f}", 100 * d.mean),
            Cell(interval(d.low, d.high, 2, sign=True) or "–"),
            Cell(str(len(one.runs)), len(one.runs)),
            *((Cell(p_value(d.p), d.p), Cell(p_value(float(holm)), float(holm))) if d.p == d.p else (Cell("–"),) * 2),
        )
        rows.append(Row(cells))
    note = (
        "In points, paired by problem, and by seed where both have one: then their other seeds are left out. Intervals "
        "and p are over problems and, of several trainings, over seeds as well; Holm's correction over these "
        f"{len(rows)} rows."
    )
    return Table(name, f"Trained models, differences{about}.", tuple(columns), tuple(rows), (note,), sortable=True)
