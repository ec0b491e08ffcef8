"""Read the rows of an analysis: their estimates, and how its responses were sampled."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rlvr_dir.analysis.result import Analysis, Frame
from rlvr_dir.config import Sampling, parse
from rlvr_dir.report.model import Section
from rlvr_dir.stats import Estimate


def estimate(row: Mapping[str, Any], name: str) -> Estimate:
    """Return the estimate in three columns of a row."""
    return Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"])


def estimates(data: Frame, name: str) -> list[Estimate]:
    """Return the estimates of all rows."""
    return [estimate(row, name) for row in data.to_dict("records")]


def tasks_of(analysis: Analysis) -> str:
    """Name the benchmarks of an analysis, marked if only some of their problems were used."""
    parts = analysis.context.get("limited") or {}
    return ", ".join(f"{task} ({parts[task]})" if task in parts else str(task) for task in analysis.context["tasks"])


def drawn(analysis: Analysis) -> str:
    """Describe how an analysis' responses were sampled."""
    sampling = parse(Sampling, analysis.context["sampling"])
    many = {*analysis.context.get("samples", {}).values()} or {sampling.samples}  # lm-eval tasks have their own
    return f"{' or '.join(map(str, sorted(many)))} samples, {sampling.words}"


def limited(analysis: Analysis, sections: Iterable[Section]) -> tuple[Section, ...]:
    """Add to each title that only some problems were used, because a title is also shown without the chapter's text."""
    if not analysis.context.get("limited"):
        return tuple(sections)
    return tuple(
        replace(section, title=f"{section.title.rstrip('.')}. Only on {tasks_of(analysis)}.") for section in sections
    )
