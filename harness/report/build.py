"""From results to a report: grouped by pair and way of drawing, in the paper's shapes, each number with its source."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.analysis.contrasts import Contrast, contrasts
from harness.errors import UserError
from harness.report import figures
from harness.report.beside import against_paper
from harness.report.groups import Entry, Group, grouped
from harness.report.lists import differences, everything, source
from harness.report.model import Report, Section
from harness.report.scores import section
from harness.report.trained import trained_section
from harness.report.verdict import verdict


def build(
    entries: Sequence[Entry],
    *,
    name: str = "rlvr-dir report",
    more: Sequence[Section] = (),
    out: Path | None = None,
    runs: Mapping[str, str] | None = None,
    facts: Sequence[tuple[str, str]] = (),
    viewers: Sequence[tuple[str, str]] = (),
) -> Report:
    """The report of some results.

    Args:
        entries: at least one.
        name: the title.
        more: further sections, of token statistics or of training.
        out: the folder the report goes to, from which links to records lead.
        runs: addresses of MLflow runs by config hash.
        facts: what the foot of the page should say besides.
        viewers: of `token_viewers`.

    Raises:
        UserError: there is nothing.
    """
    if not entries and not more:
        raise UserError("results: there is nothing to report; accepted: results, records, or an analysis")
    groups = grouped(entries)
    rows = contrasts([group.results for group in groups])
    said, further = (
        _verdict(groups, rows) if entries else ("This report holds analyses only; it compares no results.", ())
    )
    sections = [Section("Summary", further)] if further else []
    if (trained := trained_section(entries)) is not None:
        sections.append(trained)
    for group in groups:
        sections.append(section(group, rows, several=len(groups) > 1))
    if rows:
        sections.append(Section("Differences", parts=(figures.differences(rows), differences(rows))))
    if (against := against_paper(groups)) is not None:
        sections.append(Section("Beside the paper", parts=(against,)))
    sections += more
    if entries:
        sections.append(Section("Every result", parts=(everything(groups),)))
    sources = {
        one.anchor: one
        for group in groups
        for entry in group.entries
        for one in [source(entry.result, group, out, runs or {})]
    }
    return Report(name, said, tuple(sections), tuple(sources.values()), tuple(facts), tuple(viewers))


def _verdict(groups: Sequence[Group], rows: Sequence[Contrast]) -> tuple[str, tuple[str, ...]]:
    """The first pair's verdict is the report's; those of further pairs follow. Pairs are never pooled."""
    said: list[str] = []
    for group in groups:
        mine = set(map(id, group.results))
        first, more = verdict([row for row in rows if id(row.result) in mine])
        said += [f"{group.pair}: {text}" if len(groups) > 1 else text for text in (first, *more)]
    return said[0], tuple(said[1:])
