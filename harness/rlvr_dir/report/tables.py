"""Make the tables of results: scores, every result, differences; and describe where each result comes from."""

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import PurePath
from typing import Any

from rlvr_dir import stats
from rlvr_dir.analysis.problems import problems
from rlvr_dir.report import difference_figures, figures
from rlvr_dir.report.groups import Group
from rlvr_dir.report.layouts import (
    REJECT,
    VETO,
    Method,
    Score,
    anchor,
    avg_name,
    benchmark_title,
    grid,
    methods_table,
)
from rlvr_dir.report.model import KIND, Cell, Chapter, Section, Source, cell, frame
from rlvr_dir.report.paper import model_called
from rlvr_dir.results.compare import Comparison, comparison_kind, evidence
from rlvr_dir.results.matching import describe
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.settings import Setting, few_families
from rlvr_dir.results.show import percent
from rlvr_dir.stats import Estimate
from rlvr_dir.stats.metrics import COLUMNS, Metric

ROWS = 6  # gated decodings that the table of methods shows individually
PICKED = "†"
GATED = (
    "replace",
    "extrapolate",
    "resample",
    "veto",
    "reject",
)  # kinds of gated decodings, each of which its best may represent


Labelled = dict[tuple[str, str], dict[str, Setting]]  # settings by benchmark, by (label, mode)


def _listed(group: Group) -> tuple[Labelled, int]:
    """Return the settings for the table of scores, and how many gated ones the best were selected from."""
    model = model_called(group.base) or group.pair
    by: Labelled = {}
    for setting in group.settings:
        mode, own = setting.decoding.mode, setting.decoding.label()
        name = "" if setting.first.name == model else setting.first.name  # the name is already shown
        label = {"base": "Base", "rl": name or "RL"}.get(mode, f"{name}: {own}" if name else own)
        by.setdefault((label + setting.label.removeprefix(own), mode), {})[setting.benchmark] = setting
    gated = [key for key in by if key[1] in GATED]
    if len(gated) <= ROWS:
        return by, 0
    chosen = {key: settings for key, settings in by.items() if key not in gated}
    for mode, primary in product(GATED, ("base", "rl")):
        kind = [key for key in gated if key[1] == mode and next(iter(by[key].values())).decoding.primary == primary]
        if whole := [key for key in kind if len(by[key]) == len(group.benchmarks)]:
            top = max(whole, key=lambda key: sum(setting.avg for setting in by[key].values()))
            chosen[f"{top[0]} {PICKED}", mode] = by[top]
    return chosen, len(gated)


def scores(group: Group) -> Section:
    """List base, RL and the gated decodings. If these are many, the best of each kind represents them, with a note."""
    samples = {setting.samples for setting in group.settings}
    k, model = max(1, min(samples) // 2), model_called(group.base) or group.pair
    chosen, among = _listed(group)
    notes = ["Brackets are 95 % intervals over problems."]
    notes += few_families(group.settings)
    notes += ["The average counts each benchmark once."] if len(group.benchmarks) > 1 else []
    if len(samples) > 1:
        notes.append(f"Settings differ in their number of samples: {', '.join(map(str, sorted(samples)))}.")
    if any(len(setting.seeds) > 1 for setting in group.settings):
        notes.append("If a setting has several seeds, its score is their mean; the last table lists each.")
    if among:
        notes.append(
            f"{PICKED} The best of its kind among {among} settings, selected on these data, so its score is "
            "optimistic. All settings are in the last table."
        )
    methods = [
        Method(
            model,
            label,
            {b: Score.of(setting, k) for b, setting in by_benchmark.items()},
            _average(list(by_benchmark.values()), group, k),
        )
        for (label, _), by_benchmark in chosen.items()
    ]
    if any(setting.partial for by_benchmark in chosen.values() for setting in by_benchmark.values()):
        notes.append("* Only a part of the samples is finished; the score will change.")
    name, paper = f"main-{group.slug or 'scores'}".rstrip("-"), "tab:main, tab:compare, tab:rl_minerva"
    return methods_table(name, f"Decodings, {group.pair}.", methods, notes=notes, paper=paper)


def _average(settings: Sequence[Setting], group: Group, k: int) -> Score | None:
    """Average over all benchmarks of the group, with an interval; None if one is missing."""
    if len(settings) < len(group.benchmarks) or len(settings) == 1:
        return None
    interval = stats.mean_interval([(setting.avg, *setting.interval) for setting in settings])
    mean, passed = (
        sum(column) / len(settings)
        for column in zip(*((setting.avg, setting.pass_at(k)) for setting in settings), strict=True)
    )
    return Score(Estimate(mean, *interval), settings[0].samples, k, passed)


def group_chapter(group: Group, rows: Sequence[Comparison], *, several: bool) -> Chapter:
    """Make a pair's grids and figures, benchmark by benchmark."""
    sections: list[Section] = [scores(group)]
    drawn: list[Section] = []
    for task in group.tasks:
        of_task = [setting for setting in group.settings if setting.task == task]
        where = f"{benchmark_title(of_task[0].benchmark)}, {group.pair}"
        sections += [
            section
            for primary in ("base", "rl")
            if (section := _grid(of_task, primary, group.slug + task, where, rows))
        ]
        for primary, name, on in (("base", "", ""), ("rl", "-on-rl", ", RL proposing")):
            ways = [setting for setting in of_task if not setting.decoding.gated or setting.decoding.primary == primary]
            if sum(way.decoding.gated for way in ways) > 1:
                for share, start in (("changed", "changed"), ("replaced", "ratio")):
                    drawn += [
                        figures.against_share(
                            part,
                            f"{start}{name}-{word}{group.slug}{task}",
                            where + on + (", controls" if word else ""),
                            share,
                        )
                        for word, part in figures.in_legible_parts(ways)
                    ]
        if (gammas := figures.against_gamma(of_task, f"gamma-{group.slug}{task}", where)) is not None:
            drawn.append(gammas)
        base, rl = (
            next((setting for setting in of_task if setting.decoding.mode == mode), None) for mode in ("base", "rl")
        )
        if (
            steps := difference_figures.two_by_two(
                [row for row in rows if any(row.result is setting for setting in of_task)],
                f"veto-{group.slug}{task}",
                where,
            )
        ) is not None:
            drawn.append(steps)
        if len(cells := cells_of(of_task, "base")) > 3 and min(len(set(axis)) for axis in zip(*cells, strict=True)) > 1:
            drawn.append(figures.heat_map(cells, rl, f"heat-{group.slug}{task}", where))
        steps = [setting for (_, gamma), setting in cells.items() if gamma == 0]
        if base is not None and len(steps) > 1:
            drawn.append(figures.per_problem(problems(base, steps, rl), f"problems-{group.slug}{task}", where))
    return Chapter(f"Scores, {group.pair}" if several else "Scores", (), (*sections, *drawn))


def cells_of(
    settings: Sequence[Setting], primary: str, modes: Collection[str] = ("replace", "extrapolate")
) -> dict[tuple[float, float], Setting]:
    """Return the settings of some modes gated by Δ log p, or else by the only criterion, by (tau, gamma)."""
    gated = [
        setting
        for setting in settings
        if setting.decoding.mode in modes and setting.decoding.primary == primary and not setting.decoding.names_decider
    ]
    criteria = {setting.decoding.criterion for setting in gated if not setting.decoding.everywhere}
    criterion = criteria.pop() if len(criteria) == 1 else "delta_logp"
    cells: dict[tuple[float, float], Setting] = {}
    for setting in gated:
        if setting.decoding.criterion == criterion:
            cells.setdefault((float(setting.decoding.tau or 0), setting.decoding.gamma), setting)
    return cells


def _grid(
    settings: Sequence[Setting], primary: str, name: str, where: str, rows: Sequence[Comparison]
) -> Section | None:
    """Lay out thresholds and strengths of Δ log p on base, or on the RL model, in a grid; None if there is none.

    On base, only thresholds with a control and an extrapolation are included, and a grid needs two cells of one and a
    second strength.
    """
    cells, on_rl = cells_of(settings, primary), primary == "rl"
    if not on_rl:
        taus = {tau for tau, gamma in cells if gamma} & {tau for tau, gamma in cells if not gamma}
        cells = {(tau, gamma): setting for (tau, gamma), setting in cells.items() if tau in taus}
    if not any(gamma for _, gamma in cells) or (not on_rl and len(cells) < 3):
        return None
    rl = next((setting for setting in settings if setting.decoding.mode == "rl"), None)
    among = avg_name(Score.of(setting) for setting in [*cells.values(), *([rl] if rl and on_rl else [])])
    taus, own = {tau for tau, _ in cells}, 0.0 if on_rl else -1.0
    for mode, place in (("reject", REJECT), ("veto", VETO)):
        of_mode = cells_of(settings, primary, (mode,)).items()
        cells = {(tau, place): control for (tau, gamma), control in of_mode if gamma == own and tau in taus} | cells
    beside = {key: text for key, setting in cells.items() if (text := _over_control(setting, rows))}
    printed = {
        key: Score.of(setting, beside=[] if on_rl else [beside.get(key, "")]).cell(among)
        for key, setting in cells.items()
    }
    gated = [(tau, setting) for (tau, gamma), setting in cells.items() if gamma >= -1 and (on_rl or gamma == 0)]
    controls = dict(sorted(gated, key=lambda entry: -entry[1].decoding.gamma))
    ratios = {
        "replaced": {tau: setting.replacement_ratio for tau, setting in controls.items()},
        "changed": {tau: setting.changed_ratio for tau, setting in controls.items()},
    }
    if on_rl:
        note = (
            "The gate alone draws a rejected token again from RL itself: what extrapolation adds is in the last row, "
            "which the paper's table does not have."
        )
        title, alone = f"Extrapolating on the RL model itself, {where}.", Score.of(rl).cell(among) if rl else Cell("–")
        return grid(
            f"on-rl-{name}",
            title,
            printed,
            ratios,
            rl=alone,
            differences=beside,
            notes=[note],
            paper="tab:rl_extra",
        )
    note = (
        "Under each score: its 95 % interval over problems; of extrapolations also the difference to the γ = 0 row, "
        "of that row to reject, and of reject to the veto, paired by problem, with its p (Holm, over all paired "
        "differences)."
    )
    notes = [f"RL: {Estimate(rl.avg, *rl.interval).text(2)}."] if rl else []
    title = f"Threshold and strength on {where} ({among})."
    paper = "tab:full_param_extra, tab:minerva_param_extra"
    return grid(f"grid-{name}", title, printed, ratios, notes=[*notes, note], paper=paper)


def _over_control(setting: Setting, rows: Sequence[Comparison]) -> str:
    """Return the difference of a decoding from its control, in points: `+0.4 [−0.5, +1.2] p 1.000` (Holm's p)."""
    for row in rows:
        if row.result is setting and comparison_kind(row) in ("against control", "token", "decision"):
            d = row.difference
            p = f" p {row.holm_text}" if row.holm_p == row.holm_p else ""
            return Estimate(d.mean, d.low, d.high).text(1, sign=True) + p
    return ""


def compared_seeds(compared: Sequence[tuple[Any, Any]]) -> set[Any]:
    """Return the seeds of trainings that differences cover."""
    return {seed for result, _ in compared for seed in result.units}


def difference_rows(rows: Sequence[stats.Comparison[Any]], pairs: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return comparisons as rows: what is subtracted, the difference with its interval, p and Holm's p."""
    table_rows = []
    for i, row in enumerate(rows):
        d = row.difference
        trained = isinstance(row.result, stats.RunScores)
        links = [anchor(side.first) if hasattr(side, "first") else "" for side in (row.result, row.reference)]
        table_row: dict[str, Any] = ({"Pair": pairs[i]} if pairs else {}) | {
            "Benchmark": benchmark_title(row.result.benchmark),
            "Training" if trained else "Decoding": Cell(row.result.label, link=links[0]),
            "minus": Cell(row.reference.label, link=links[1]),
            "Difference": cell(Estimate(d.mean, d.low, d.high), 1, plus=True),
        }
        if isinstance(row.result, Setting):
            alone = Estimate(0, *d.sampling).interval(1, sign=True)
            table_row["Sampling only"] = "–" if row.result.first.sampling.greedy else alone or "–"
        if trained:
            over = {None: "–", True: "problems and seeds", False: "of these two models"}[d.seeds]
            table_row |= {"Seeds": len(compared_seeds([(row.result, row.reference)])), "Over": over}
        table_row |= {"p": Cell(row.p_text or "–", None if d.p != d.p else d.p)}
        table_rows.append({**table_row, "p (Holm)": Cell(row.holm_text or "–", None if d.p != d.p else row.holm_p)})
    return table_rows


def differences(rows: Sequence[Comparison], groups: Sequence[Group]) -> Section:
    """List every comparison with its interval and p values."""
    pairs = {id(setting): group.pair for group in groups for setting in group.settings} if len(groups) > 1 else {}
    named = [pairs[id(row.result)] for row in rows] if pairs else []
    note = (
        "Differences in points, paired by problem, with all seeds of a setting pooled. The 95 % interval is for other "
        "problems of this kind; “sampling only” is for other samples of these problems. p is the larger p value of a t "
        f"test and a sign-flip test; p (Holm) is corrected over these {len(rows)} rows."
    )
    notes = (note, *evidence(rows))
    return Section(
        "differences", "Paired differences.", frame(difference_rows(rows, pairs=named)), notes, sortable=True
    )


def picked(rows: Sequence[Comparison]) -> Section | None:
    """List the best replacement and the best extrapolation of each benchmark, compared with RL."""
    picks = []
    against = [row for row in rows if comparison_kind(row) == "against rl" and row.result.decoding.gated]
    for task in dict.fromkeys(row.task for row in against):
        for mode in ("replace", "extrapolate"):
            of_mode = [row for row in against if (row.task, row.result.decoding.mode) == (task, mode)]
            if len(of_mode) < 2:
                continue
            top = max(of_mode, key=lambda row: row.difference.mean)
            setting, d = top.result, top.difference
            picks.append(
                {
                    "Benchmark": benchmark_title(setting.benchmark),
                    "Best of": f"{len(of_mode)} of {'replacement' if mode == 'replace' else 'extrapolation'}",
                    "Decoding": Cell(setting.label, link=anchor(setting.first)),
                    "Score": cell(Estimate(setting.avg, *setting.interval)),
                    "minus RL": cell(Estimate(d.mean, d.low, d.high), 1, plus=True, beside=[f"p {top.holm_text}"]),
                    **{
                        title: cell(
                            setting.share(name), 1, suffix=" %", beside=[f"pooled {percent(setting.pooled(name))}"]
                        )
                        for title, name in (("Flagged", "n_replaced"), ("Changed", "n_changed"))
                    },
                }
            )
    note = (
        "Selected on these problems, and intervals are not corrected for that, so expect less on others. p: Holm's. "
        "Flagged and changed shares of tokens are means over problems; pooled: of all tokens together."
    )
    return Section("picked", "What was selected on these data.", frame(picks), (note,)) if picks else None


def main_differences(group: Group, rows: Sequence[Comparison]) -> Section | None:
    """List the comparisons of the settings in the table of scores; None without any."""
    listed = {id(setting) for settings in _listed(group)[0].values() for setting in settings.values()}
    main_rows = [row for row in rows if id(row.result) in listed and comparison_kind(row) != "other"]
    note = (
        "Differences are paired by problem. The table compares RL with base, each decoding with RL, each extrapolation "
        "with γ = 0, and each replacement with its controls: replace − reject is the effect of writing RL's token, "
        "reject − resample the effect of RL deciding which tokens to drop, and resample − base the effect of sampling "
        f"again. p (Holm) is corrected over all {len(rows)} comparisons of this report."
    )
    if not main_rows:
        return None
    return Section("main-differences", "Differences.", frame(difference_rows(main_rows)), (note, *evidence(main_rows)))


def everything(groups: Sequence[Group]) -> Section:
    """List all results, one per row, which can be sorted by any column."""
    samples = {result.samples for group in groups for result in group.results}
    same = len(samples) == 1
    n, k = (f"@{min(samples)}", f"@{max(1, min(samples) // 2)}") if same else ("", "")
    rows = []
    for group in groups:
        for r in group.results:
            metrics, score = r.metrics(), Score.of(Setting.of([r]))
            rows.append(
                ({"Pair": group.pair} if len(groups) > 1 else {})
                | {
                    "Benchmark": benchmark_title(r.benchmark),
                    "Decoding": Cell((f"{r.name}: " if r.name else "") + r.label, link=score.link),
                    "Seed": r.sampling.seed,
                    f"Avg{n}": score.cell("" if same else "Avg"),
                    "s.e. sampling": cell(r.sampling_error),
                    f"Pass{k}": cell(score.passed, beside=[] if same else [f"@{score.k}"]),
                    f"Maj{n}": cell(r.maj),
                    **{metric.column.capitalize(): _fact(metric, metrics.get(metric.name)) for metric in COLUMNS},
                    KIND: "" if r.decoding.gated else "reference",
                }
            )
    return Section("results", "One row per result and seed.", frame(rows), sortable=True)


def _fact(metric: Metric, value: float | None) -> Cell:
    return cell(value, metric.digits, unit=metric.unit, suffix=" %" if metric.unit == 100 else "")


def source(result: EvalResult, group: Group, runs: Mapping[str, str]) -> Source:
    """Describe how a result was made: settings, versions, its record and run."""
    p = result.provenance
    s, drawn = result.sampling, describe(result)
    engine, versions = (value if isinstance(value := p.get(name), dict) else {} for name in ("engine", "versions"))
    engine = {k: engine[k] for k in ("backend", "vllm", "transformers", "torch", "dtype", "device") if k in engine}
    words = [f"{s.samples} samples", *(drawn[name] for name in ("temperature", "top_p", "max_tokens") if drawn[name])]
    argv = [str(word) for word in p["argv"]] if isinstance(p.get("argv"), list) and p["argv"] else []
    details = {
        "config hash": result.config_hash,
        "pair": f"{place(group.base)} → {place(group.rl)}",
        "decoding": result.decoding.label(),
        "drawn": ", ".join([*words, f"seed {s.seed}"]),
        "problems": f"{result.limited or len(result.problem_ids)} of {result.task}, digest {p.get('data', 'unknown')}",
        "shown before each problem": drawn["examples"] if p.get("examples") else "",
        "chat template": drawn["template"],
        "graded": str(p.get("grader", "unknown")),
        "engine": ", ".join(f"{k} {v}" for k, v in engine.items()),
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
        "command": " ".join([PurePath(argv[0]).name, *argv[1:]]) if argv else "",
        "partial": result.partial or "",
        "record": str(p.get("record") or ""),  # as text, not a link, because the store is not part of the page
    }
    run = runs.get(result.config_hash, "")
    links = (("the MLflow run", run),) if run.startswith(("http://", "https://")) else ()
    return Source(
        anchor(result)[1:], f"{result.benchmark}, {result.label}", tuple((k, v) for k, v in details.items() if v), links
    )


def place(checkpoint: str) -> str:
    """Return a hub id unchanged, and the last three names of a local folder, which is all that others can use."""
    parts = PurePath(checkpoint).parts
    return "…/" + "/".join(parts[-3:]) if PurePath(checkpoint).is_absolute() and len(parts) > 4 else checkpoint
