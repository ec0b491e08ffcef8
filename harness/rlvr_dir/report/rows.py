"""Rows of an analysis: their estimates, and what an analysis of responses says of itself."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rlvr_dir.analysis.result import Analysis, Frame
from rlvr_dir.config import Sampling, parse
from rlvr_dir.report.model import Section
from rlvr_dir.stats import Estimate


def estimate(row: Mapping[str, Any], name: str) -> Estimate:
    """Return the estimate that three columns of a row hold."""
    return Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"])


def estimates(data: Frame, name: str) -> list[Estimate]:
    """Return those of all rows."""
    return [estimate(row, name) for row in data.to_dict("records")]


def tasks_of(analysis: Analysis) -> str:
    """Name the benchmarks of an analysis, marked where only some of their problems were asked."""
    parts = analysis.facts.get("limited") or {}
    return ", ".join(f"{task} ({parts[task]})" if task in parts else str(task) for task in analysis.facts["tasks"])


def drawn(analysis: Analysis) -> str:
    """Describe how an analysis' responses were drawn."""
    sampling = parse(Sampling, analysis.facts["sampling"])
    many = {*analysis.facts.get("samples", {}).values()} or {sampling.samples}  # tasks of lm-eval have their own
    return f"{' or '.join(map(str, sorted(many)))} samples, {sampling.words}"


def limited(analysis: Analysis, sections: Iterable[Section]) -> tuple[Section, ...]:
    """Describe in each title that only some problems were asked: it goes where the chapter's text does not."""
    if not analysis.facts.get("limited"):
        return tuple(sections)
    return tuple(
        replace(section, title=f"{section.title.rstrip('.')}. Only on {tasks_of(analysis)}.") for section in sections
    )
