"""From results to a report: grouped by pair and way of drawing, in the paper's shapes, each number with its source."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.errors import UserError
from harness.evals.compare import Comparison, comparisons
from harness.evals.result import EvalResult
from harness.evals.settings import settings_of
from harness.evals.trainings import of_training
from harness.report import figures
from harness.report.beside import against_paper
from harness.report.groups import Group, grouped, pair_title
from harness.report.lists import differences, everything, provenance
from harness.report.lm_eval import lm_eval_section
from harness.report.model import Report, Section
from harness.report.scores import section
from harness.report.trained import told_apart, trained_section
from harness.report.verdict import verdict


def build(
    results: Sequence[EvalResult],
    *,
    name: str = "rlvr-dir report",
    first: Sequence[Section] = (),
    more: Sequence[Section] = (),
    runs: Mapping[str, str] | None = None,
    facts: Sequence[tuple[str, str]] = (),
    viewers: Sequence[tuple[str, str]] = (),
    paper_base: str | None = None,
) -> Report:
    """Build the report of some results.

    Args:
        results: at least one, or sections in `more`.
        name: the title.
        first: sections that stand before all others.
        more: further sections, of token statistics or of training.
        runs: addresses of MLflow runs by config hash.
        facts: what the foot of the page should say besides.
        viewers: of `token_viewers`.
        paper_base: what the paper calls the base of all results, where its place does not say it.

    Raises:
        UserError: there is nothing, or `paper_base` is refused.
    """
    if not results and not more:
        raise UserError("results: there is nothing to report; accepted: results, records, or an analysis")
    theirs = [result for result in results if not result.shares]
    ours = [result for result in results if result.shares]
    ours = told_apart(ours)
    every = grouped(ours)
    groups = _numbered([group for group in every if not all(map(of_training, group.results))])
    rows = comparisons([setting for group in groups for setting in group.settings])
    trained = trained_section(ours)
    said, further = "This report holds analyses only; it compares no results.", ()
    if groups:
        said, further = _verdict(groups, rows)
    elif trained is not None and trained.paragraphs:
        said, trained = trained.paragraphs[0], replace(trained, paragraphs=trained.paragraphs[1:])
    elif theirs:
        said = "This report holds tasks of lm-eval only: each is compared in its own units."
    sections = [*first, *([Section("Summary", further)] if further else [])]
    sections += [trained] if trained is not None else []
    for group in groups:
        sections.append(section(group, rows, several=len(groups) > 1))
    if rows:
        sections.append(Section("Differences", parts=(figures.differences(rows), differences(rows, groups))))
    if (against := against_paper(every, paper_base)) is not None:
        sections.append(against)
    if theirs:
        settings = settings_of(theirs)
        sections.append(lm_eval_section(theirs, settings, comparisons(settings)))
    sections += more
    if ours:
        sections.append(Section("Every result", parts=(everything(every),)))
    sources = {
        one.anchor: one
        for group in [*every, *_groups_of(theirs)]
        for result in group.results
        for one in [provenance(result, group, runs or {})]
    }
    return Report(name, said, tuple(sections), tuple(sources.values()), tuple(facts), tuple(viewers))


def _numbered(groups: list[Group]) -> list[Group]:
    """Number the groups that have tables and figures of their own, for the names of their files; one needs none."""
    return [replace(group, slug=f"{number}-") for number, group in enumerate(groups)] if len(groups) > 1 else groups


def _groups_of(results: Sequence[EvalResult]) -> list[Group]:
    """Return a group for each pair, which says what made its results; nothing else is asked of it."""
    pairs = dict.fromkeys(result.pair for result in results)
    return [
        Group(pair_title(rl), "", base, rl, tuple(r for r in results if r.pair == (base, rl)), ()) for base, rl in pairs
    ]


def _verdict(groups: Sequence[Group], rows: Sequence[Comparison]) -> tuple[str, tuple[str, ...]]:
    """Take the first group's verdict for the report's; those of others follow. Groups are never pooled."""
    said: list[str] = []
    for group in groups:
        mine = set(map(id, group.settings))
        first, more = verdict([row for row in rows if id(row.result) in mine])
        said += [f"{group.pair}: {text}" if len(groups) > 1 else text for text in (first, *more)]
    if len(groups) > len({(group.base, group.rl) for group in groups}):
        names = "; ".join(group.pair for group in groups)
        said.append(
            f"Results of one pair that are not alike are not compared, and have sections of their own: {names}."
        )
    return said[0], tuple(said[1:])
