"""Build a report from results: a first page that answers in a minute, then chapters, each number with its source."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlvr_dir.errors import UserError
from rlvr_dir.report import difference_figures, figures, first_lines, tables
from rlvr_dir.report.groups import Group, grouped
from rlvr_dir.report.layouts import benchmark_title
from rlvr_dir.report.model import Chapter, Report, Section
from rlvr_dir.report.paper import against_paper
from rlvr_dir.report.parts import parts_table
from rlvr_dir.report.replacements import replacements_chapter
from rlvr_dir.report.trained import trained_chapter, with_unique_names
from rlvr_dir.results.answer import READING
from rlvr_dir.results.compare import Comparison, comparison_kind, comparisons
from rlvr_dir.results.replacements import Replacements
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.show import shortfalls
from rlvr_dir.results.trainings import of_training

NOTHING = "There is nothing to compare: a comparison needs two decodings of the same problems."


def build(
    results: Sequence[EvalResult],
    *,
    name: str = "rlvr-dir report",
    more: Sequence[Chapter] = (),
    runs: Mapping[str, str] | None = None,
    details: Sequence[tuple[str, str]] = (),
    viewers: Sequence[tuple[str, str]] = (),
    replaced: Sequence[Replacements] = (),
    paper_base: str | None = None,
) -> Report:
    """Build the report of some results.

    Args:
        results: At least one, or chapters in `more`.
        name: The title.
        more: Further chapters, of token statistics or of training.
        runs: Addresses of MLflow runs by config hash.
        details: Further pairs of a name and a value, for the foot of the page.
        viewers: Those of `token_viewers`.
        replaced: Those of `replacements_shown`.
        paper_base: The paper's name for the base of all results, if its place does not determine it.

    Raises:
        UserError: There is nothing to report, or `paper_base` is unknown.
    """
    if not results and not more:
        raise UserError("results: there is nothing to report", accepted="results, records, or an analysis")
    results = with_unique_names(results)
    every = grouped(results)
    groups = [group for group in every if not all(map(of_training, group.results))]
    if len(groups) > 1:  # then each has its own tables and figures with different names
        groups = [replace(group, slug=f"{number}-") for number, group in enumerate(groups)]
    rows = comparisons([setting for group in groups for setting in group.settings])
    trained = trained_chapter(results)
    front: list[Section | None] = list(trained.sections[:1] if trained and not groups else ())
    if groups:
        front = [*_main_figures(groups[0], rows), tables.main_differences(groups[0], rows), tables.scores(groups[0])]
    front += [tables.picked(rows)]
    first_page = [section for section in front if section is not None]
    chapters: list[Chapter] = []
    if warnings := [*first_lines.caveats(rows), *_apart(groups), *_in_families(results, more)]:
        chapters.append(Chapter("What to know before reading on", tuple(warnings)))
    chapters += [trained] if trained else []
    for group in groups:
        chapters.append(tables.group_chapter(group, rows, several=len(groups) > 1))
    if rows:
        drawn, listed = difference_figures.differences(rows), tables.differences(rows, groups)
        n_shown = sum(len(section.frame) for section in first_page if section.name == "main-differences")
        parts = [part for part in [parts_table(rows)] if part is not None]
        chapters.append(Chapter("Differences", (), (*parts, drawn, *([] if n_shown == len(rows) else [listed]))))
    if (changed := replacements_chapter(replaced)) is not None:
        chapters.append(changed)
    if (against := against_paper(results, paper_base)) is not None:
        chapters.append(against)
    chapters += more
    if results:
        chapters.append(Chapter("All results", (), (tables.everything(every),)))
    once = {section.name for section in first_page}
    chapters = [
        replace(chapter, sections=tuple(section for section in chapter.sections if section.name not in once))
        for chapter in chapters
    ]
    sources = {
        source.anchor: source
        for group in every
        for result in group.results
        for source in [tables.source(result, group, runs or {})]
    }
    names = {id(setting): group.pair for group in groups for setting in group.settings} if len(groups) > 1 else {}
    lines = first_lines.first_lines(rows, names) or list(trained.paragraphs[:1] if trained else ())
    nothing = NOTHING if groups else "; ".join(chapter.title for chapter in chapters)  # of analyses only
    headline, *below = lines or [nothing]
    below += [f"{sentence}." for sentence in shortfalls(results)]
    kept = tuple(chapter for chapter in chapters if chapter.sections or chapter.paragraphs)
    first = [setting for group in groups[:1] for setting in group.settings if setting.task == group.tasks[0]]
    return Report(
        name, headline, tuple(below), tuple(first_page), kept, tuple(sources.values()), tuple(details), tuple(viewers),
        tiles=tuple(first_lines.tiles(first)),
        tiles_caption=first_lines.tiles_caption(first),
        reading=READING if any(comparison_kind(row) == "token" for row in rows) else (),
    )  # fmt: skip


def _main_figures(group: Group, rows: Sequence[Comparison]) -> list[Section | None]:
    """Draw accuracy and the two-by-two against changed tokens, for the benchmark with the most gated decodings.

    If there are too few controls for the second figure, it shows accuracy on another benchmark.
    """
    ways = {
        task: [
            setting
            for setting in group.settings
            if setting.task == task and setting.decoding.gated and setting.decoding.primary == "base"
        ]
        for task in group.tasks
    }
    ranked = sorted((task for task in ways if len(ways[task]) > 1), key=lambda task: -len(ways[task]))[:2]
    accuracy, taken_apart = [], []
    for task in ranked:
        of_task = [setting for setting in group.settings if setting.task == task]
        plain = [setting for setting in of_task if not setting.decoding.gated or setting.decoding.primary == "base"]
        word, part = figures.in_legible_parts(plain)[0]
        title = f"{benchmark_title(of_task[0].benchmark)}, {group.pair}"
        own = [row for row in rows if any(row.result is setting for setting in of_task)]
        accuracy.append(figures.against_share(part, f"changed-{word}{group.slug}{task}", title))
        taken_apart.append(difference_figures.two_by_two(own, f"veto-{group.slug}{task}", title))
    return [accuracy[0], taken_apart[0]] if taken_apart and taken_apart[0] else [*accuracy]


def _in_families(results: Sequence[EvalResult], analyses: Sequence[Chapter]) -> list[str]:
    """Return a note that analyses treat problems as independent, if benchmarks define families."""
    tasks = dict.fromkeys(result.task for result in results if result.families)
    titles = ", ".join(chapter.title for chapter in analyses)
    sentence = f"The problems of {', '.join(tasks)} have families, which these chapters treat as independent: {titles}."
    return [sentence] if tasks and analyses else []


def _apart(groups: Sequence[Group]) -> list[str]:
    """Return a note that results of one pair are in separate chapters if they cannot be compared."""
    if len(groups) == len({(group.base, group.rl) for group in groups}):
        return []
    names = "; ".join(group.pair for group in groups)
    return [f"Results of one pair that cannot be compared are in separate chapters: {names}."]
