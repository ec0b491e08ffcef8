"""The author's own reading at the head of a report: what the paper says, what is found here, and a verdict a row."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from harness.report.model import Cell, Column, Row, Section, Table
from harness.spec import Spec, parse, read_yaml


class Finding(Spec, frozen=True):
    """One claim of the paper beside what these results say of it."""

    called: ClassVar[str] = "finding"

    claim: str = Field(min_length=1, description="What the paper says.")
    found: str = Field(default="", description="What is found here, with its interval.")
    verdict: Literal["confirmed", "inconclusive", "contradicted", "not tested"] = Field(description="In a word.")


class Findings(Spec, frozen=True):
    """The file that `rlvr-dir report --findings` reads."""

    called: ClassVar[str] = "findings"

    findings: tuple[Finding, ...] = Field(min_length=1, description="A row each.")
    notes: tuple[str, ...] = Field(default=(), description="Said beneath the table.")


def findings_section(path: Path) -> Section:
    """Return the section that a file of findings makes, which stands before all others.

    Raises:
        UserError: the file is none, or holds something else.
    """
    found = parse(Findings, read_yaml(path))
    rows = tuple(Row((Cell(one.claim), Cell(one.found or "–"), Cell(one.verdict))) for one in found.findings)
    columns = tuple(Column(name, words=True) for name in ("The paper says", "Found here", "Verdict"))
    name = "The paper's claims, and what these results say of them."
    return Section("The paper's claims", (), (Table("claims", name, columns, rows, found.notes),))
