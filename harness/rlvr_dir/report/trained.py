"""Compare models trained in different ways from one base, as in the paper's main and reweighting tables.

The trainings of a method differ in their seed. They are one row with their mean, and an interval for other seeds and
other problems.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlvr_dir import stats
from rlvr_dir.config.pair import model_name
from rlvr_dir.errors import UserError
from rlvr_dir.report.layouts import Method, Score, anchor, benchmark_title, in_points, methods_table
from rlvr_dir.report.model import Chapter, Section, frame
from rlvr_dir.report.paper import model_called
from rlvr_dir.report.tables import compared_seeds, difference_rows
from rlvr_dir.results.compare import evidence
from rlvr_dir.results.matching import comparable_groups, distinguish
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.settings import Setting, cut_unlike, few_families, settings_of
from rlvr_dir.results.trainings import called, of_training, run_of
from rlvr_dir.stats import Estimate, RunScores, TrainingScores, mean_difference_over_runs, p_value

SEEDS_OF_OTHERS = "one training each, seeds as they vary in the others"
REFERENCE = "DAPO"  # the method that others are compared with, if present; otherwise the first


@dataclass(frozen=True, slots=True, eq=False)
class Trained(RunScores):
    """Hold the trainings of one method from one base on one benchmark: a setting per seed, all with the same
    problems."""

    base: tuple[str, str | None] = ("", None)  # its place, and what identifies its weights
    settings: tuple[Setting, ...] = ()

    @property
    def first(self) -> EvalResult:
        """Return the result of the first seed, for what all of them have in common."""
        return self.settings[0].first


def trained_chapter(results: Sequence[EvalResult]) -> Chapter | None:
    """Compare base and trained models, with two tables for each group that can be compared.

    The result is None if there is neither a training nor a second name.

    Raises:
        UserError: A name has two results of one seed.
    """
    results = with_unique_names(results)
    groups = comparable_groups(
        [r for r in results if r.decoding.mode == "base" or (called(r) and r.decoding.mode == "rl")],
        of_one_pair=False,
    )
    several = [group for group in groups if _is_table([r for r in group if r.decoding.mode == "rl"])]
    paragraphs, tables = [], []
    for i, group in enumerate(several):
        sentences, sections = _tables(group, f"-{i}" if i else "", distinguish(group, several))
        paragraphs, tables = [*paragraphs, *sentences], [*tables, *sections]
    return Chapter("Trained models", tuple(paragraphs), tuple(tables)) if tables else None


def with_unique_names(results: Sequence[EvalResult]) -> list[EvalResult]:
    """Name unnamed trainings after their folders, if their own names are the same."""
    folders: dict[str, set[str]] = {}
    for training in (result.provenance["training"] for result in results if of_training(result)):
        if not training["named"]:
            folders.setdefault(training["name"], set()).add(training["folder"])
    named = []
    for result in results:
        training = result.provenance.get("training")
        if training and not training["named"] and len(folders[training["name"]]) > 1:
            training = {**training, "name": training["folder"].rpartition("/")[2]}
            result = result.replace(provenance={**result.provenance, "training": training})
        named.append(result)
    return named


def _is_table(trained: Sequence[EvalResult]) -> bool:
    return len({(called(result), run_of(result)) for result in trained}) > 1 or any(map(of_training, trained))


def _bases(settings: Sequence[Setting]) -> Callable[[Setting], tuple[str, str | None]]:
    """Identify the base of a setting, by place and weights; unknown weights are those of the first there."""
    first: dict[str, str] = {}
    for setting in settings:
        if name := setting.first.weights.get("base"):
            first.setdefault(setting.first.pair[0], name)

    def base_of(setting: Setting) -> tuple[str, str | None]:
        place = setting.first.pair[0]
        return place, setting.first.weights.get("base", first.get(place))

    return base_of


def _trained(settings: Sequence[Setting], base_of: Callable[[Setting], tuple[str, str | None]]) -> list[Trained]:
    """Combine the seeds of each method. Raises UserError if a name has two results of one seed."""
    by_method: dict[tuple[tuple[str, str | None], str, str], dict[int | str, Setting]] = {}
    for setting in settings:
        name, run = called(setting.first), run_of(setting.first)
        seeds = by_method.setdefault((base_of(setting), name, setting.benchmark), {})
        if run in seeds:
            which = f"seed {run}" if isinstance(run, int) else run
            places = " and ".join(dict.fromkeys(same.first.pair[1] for same in (seeds[run], setting)))
            raise UserError(
                f"results: {name!r} names two results of {which} on {setting.benchmark} ({places})",
                accepted="a name for each, as A=PLACE B=PLACE",
            )
        seeds[run] = setting
    trained = [
        Trained(
            label=name,
            task=benchmark,
            units=tuple(seeds),
            values=np.array([setting.avg for setting in seeds.values()]),
            families=stats.common_families(setting.families for setting in seeds.values()),
            runs={seed: setting.values for seed, setting in seeds.items()},
            base=base,
            settings=tuple(seeds.values()),
        )
        for (base, name, benchmark), seeds in by_method.items()
    ]

    def spread(method: Trained) -> tuple[float, float] | None:
        return stats.seed_spread(other for other in trained if (other.base, other.task) == (method.base, method.task))

    return [replace(method, seed_spread=spread(method)) for method in trained]


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """Hold a method trained from one base, with the base's settings by benchmark, and the method of reference.

    `reference` is empty for that method itself.
    """

    model: str  # the name of the base
    name: str
    scores: TrainingScores[Trained]
    reference: TrainingScores[Trained]
    bases: Mapping[str, Setting]

    @property
    def whole(self) -> bool:
        """Return whether the method of reference was scored on the same benchmarks."""
        return self.reference.runs.keys() == self.scores.runs.keys()

    @property
    def beside(self) -> list[tuple[Setting, Setting]]:
        """Pair each trained model with its base."""
        runs = self.scores.runs.items()
        return [(seed, self.bases[b]) for b, scores in runs if b in self.bases for seed in scores.settings]

    def method(self, k: int) -> Method:
        """Return its row of the table, with the average if there are several benchmarks."""
        runs = self.scores.runs
        scores = {b: _score(self.scores.only([b]), self.reference.only([b]), k) for b in runs}
        average = _score(self.scores, self.reference if self.whole else TrainingScores(), k) if len(runs) > 1 else None
        seeds = sorted({len(scores.runs) for scores in runs.values()})
        label = f"{self.name} ({'–'.join(map(str, seeds))} seeds)" if seeds[-1] > 1 else self.name
        return Method(self.model, label, scores, average)

    def sentence(self, other: str, compared: Sequence[tuple[RunScores, RunScores]]) -> str:
        """Describe its difference from another."""
        d, seeds = mean_difference_over_runs(compared), len(compared_seeds(compared))
        alone = seeds == 1 and all(len(other.units) == 1 for _, other in compared)
        population = "of these two models" if not d.seeds else SEEDS_OF_OTHERS if alone else "one seed against several"
        titles = ", ".join(benchmark_title(result.task) for result, _ in compared)
        words = [
            f"mean over {titles}" if len(compared) > 1 else titles,
            f"{seeds} seeds" if seeds > 1 else population,
        ]
        words += ["95 %"] if d.low == d.low else []
        words += [f"p {p_value(d.p, d.at_most)}"] if d.p == d.p else []
        return f"{self.name} changes accuracy by {in_points(d)} against {other} ({', '.join(words)})."


def _tables(results: Sequence[EvalResult], slug: str, differing: str) -> tuple[list[str], list[Section]]:
    settings = settings_of(results)
    base_of = _bases(settings)
    trained = _trained([setting for setting in settings if setting.decoding.mode == "rl"], base_of)
    names = list(dict.fromkeys(scores.label for scores in trained))
    reference = REFERENCE if REFERENCE in names else names[0]
    k = max(1, min(setting.samples for scores in trained for setting in scores.settings) // 2)
    methods: list[Method] = []
    against, gains, rows = list[str](), list[str](), list[_Row]()
    all_bases = dict.fromkeys(scores.base for scores in trained)
    for base in all_bases:
        bases = {e.benchmark: e for e in settings if e.decoding.mode == "base" and base_of(e) == base}
        model = model_called(base[0]) or model_name(base[0])
        model += f" ({base[1]})" if sum(place == base[0] for place, _ in all_bases) > 1 else ""
        base_rows = _rows(model, [scores for scores in trained if scores.base == base], bases, names, reference)
        if bases:
            methods.append(Method(model, "Base", {b: Score.of(e, k) for b, e in bases.items()}))
        methods += [row.method(k) for row in base_rows]
        compared = [row for row in base_rows if row.reference.runs and row.whole][:1]  # the table contains the others
        against += [row.sentence(reference, row.scores.beside(row.reference)) for row in compared]
        gains += [
            row.sentence(f"the base {row.model}", row.scores.beside_base())
            for row in base_rows
            if row.name == reference and row.scores.base.keys() == row.scores.runs.keys()
        ]
        rows += base_rows
    suffix, paper = f" ({differing})" if differing else "", "tab:main, tab:compare, tab:rl_minerva"
    notes = _notes(trained, reference)
    tables = [methods_table(f"trained{slug}", f"Trained models{suffix}.", methods, notes=notes, paper=paper)]
    if pairs := [p for row in rows for p in (*row.scores.beside_base(), *row.scores.beside(row.reference))]:
        tables.append(_differences(pairs, f"trained-differences{slug}", suffix))
    return [*against, *gains, *cut_unlike(pair for row in rows for pair in row.beside)], tables


def _rows(
    model: str, trained: Sequence[Trained], bases: Mapping[str, Setting], names: Sequence[str], reference: str
) -> list[_Row]:
    """Return a row for each method that was trained from a base, in the order of `names`."""
    in_order = sorted(trained, key=lambda scores: scores.benchmark)
    by: dict[str, TrainingScores[Trained]] = {}
    for name in names:
        runs = {scores.benchmark: scores for scores in in_order if scores.label == name}
        by[name] = TrainingScores(runs, {b: _untrained(bases[b], scores) for b, scores in runs.items() if b in bases})
    return [
        _Row(model, name, scores, by[reference] if name != reference else TrainingScores(), bases)
        for name, scores in by.items()
        if scores.runs
    ]


def _notes(trained: Sequence[Trained], reference: str) -> list[str]:
    """Describe what the intervals of the table cover, and which checkpoints were selected by the scores themselves."""
    several = max(len(scores.runs) for scores in trained) > 1
    note = (
        f"Under each score: its 95 % interval over {'problems and seeds' if several else 'problems'}, and its "
        f"difference to {reference}, paired by problem{' and seed' if several else ''}; not corrected for the number "
        "of comparisons."
    )
    if any(len(scores.runs) == 1 for scores in trained):
        note += (
            " A score of one training is of this model: another seed may differ by more. One training minus one is of "
            "these two models, unless others of this table have several seeds: then what these vary by is in its "
            "interval (√2 s; s to the base)."
        )
    note = " ".join([note, *few_families(trained)])
    if chosen := {
        scores.label: checkpoint for scores in trained if (checkpoint := _checkpoint(scores)).startswith("best(")
    }:
        words = "; ".join(f"{name}: {checkpoint}" for name, checkpoint in chosen.items())
        return [
            note,
            f"The checkpoint was selected by these scores ({words}), which are therefore too high on that benchmark. "
            "`rlvr-dir analyse curves` estimates by how much.",
        ]
    return [note]


def _checkpoint(trained: Trained) -> str:
    """Return which checkpoint of its trainings was requested; by default the last."""
    return str((trained.first.provenance.get("training") or {}).get("checkpoint", "last"))


def _score(scores: TrainingScores[Trained], reference: TrainingScores[Trained], k: int) -> Score:
    """Return a mean over seeds and benchmarks with the difference from another method's."""
    mean, compared = scores.mean(), scores.beside(reference)
    by_benchmark = [runs.settings for runs in scores.runs.values()]
    settings = [setting for seeds in by_benchmark for setting in seeds]
    enough = all(k <= setting.samples for setting in settings)
    passed = np.mean([np.mean([seed.pass_at(k) for seed in seeds]) for seeds in by_benchmark]) if enough else None
    d = mean_difference_over_runs(compared) if compared else None
    return Score(
        Estimate(mean.mean, mean.low, mean.high),
        settings[0].samples if len({setting.samples for setting in settings}) == 1 else 0,
        k if enough else 0,
        None if passed is None else float(passed),
        (Estimate(d.mean, d.low, d.high).text(1, sign=True),) if d else (),
        anchor(settings[0].first),
        "*" if any(setting.partial for setting in settings) else "",
    )


def _untrained(base: Setting, trained: Trained) -> RunScores:
    """Return the scores of the base to be subtracted. It was sampled once, so they are the same for every seed."""
    runs = dict.fromkeys(trained.units, base.values)
    return RunScores("Base", base.benchmark, trained.units, base.values, families=base.families, runs=runs)


def _differences(compared: Sequence[tuple[RunScores, RunScores]], name: str, pair: str) -> Section:
    note = (
        "In points, paired by problem, and by seed where both have the same; else all seeds of both count. Intervals "
        "and p are over problems and seeds; where one training stands against one and no other shows how seeds vary, "
        "of these two models: their data depend on gain plus seeds alone, so no p over seeds can be had. Holm's "
        f"correction over these {len(compared)} rows."
    )
    compared_rows = stats.corrected(compared)
    rows, note = difference_rows(compared_rows), " ".join([note, *evidence(compared_rows)])
    return Section(name, f"Trained models, differences{pair}.", frame(rows), (note,), sortable=True)
