"""Sections that need no results: analyses, and the paper's own tables drawn by the functions that draw ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, UserError
from harness.report import paper
from harness.report.analyses import GatedForm, TheoremForm, TokensForm, TrainingForm, TrajectoryForm, WeightsForm
from harness.report.gated import gated_section
from harness.report.model import Section, Table
from harness.report.other import theorem_section, training_section
from harness.report.shapes import grid_table, methods_table, on_rl_table, title
from harness.report.tokens import token_section
from harness.report.trajectory import trajectory_section
from harness.report.weights import weight_section
from harness.spec.stored import check_stored, read_json

ANALYSES = {
    "tokens": (TokensForm, token_section),
    "gated": (GatedForm, gated_section),
    "weights": (WeightsForm, weight_section),
    "trajectory": (TrajectoryForm, trajectory_section),
    "theorem": (TheoremForm, theorem_section),
    "training": (TrainingForm, training_section),
}


def analysis_sections(places: Sequence[Path]) -> list[Section]:
    """Make a section for each analysis in some files, or in folders of them.

    Raises:
        UserError: a place holds none.
    """
    sections: list[Section] = []
    for place in places:
        files = sorted(place.glob("*.json")) if place.is_dir() else [place]
        found = [(file, data) for file in files if (data := _analysis(file)) is not None]
        if not found:
            raise UserError(f"analysis={str(place)!r} holds nothing that `rlvr-dir analyse` wrote")
        found.sort(key=lambda each: list(ANALYSES).index(each[1]["kind"]))
        sections += [_section(file, data, len(sections) + i) for i, (file, data) in enumerate(found)]
    return sections


def _analysis(file: Path) -> dict[str, Any] | None:
    try:
        data = read_json(file)
    except DamagedError:
        return None
    return data if isinstance(data, dict) and str(data.get("kind")) in ANALYSES else None


def _section(file: Path, data: dict[str, Any], number: int) -> Section:
    """Make the section of an analysis.

    Raises:
        DamagedError: it is none that `rlvr-dir analyse` wrote.
    """
    form, section = ANALYSES[data["kind"]]
    check_stored(data, form, file)
    try:
        return section(data, number)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # parts that do not fit
        raise DamagedError(f"{file} does not fit together ({type(error).__name__}: {str(error)[:100]})") from None


def paper_tables() -> list[Table]:
    """Return every table of results that the paper prints."""
    tables = [
        methods_table(
            "paper-main",
            "The paper: DAPO and its reweighting.",
            paper.methods("main"),
            second=False,
            paper="tab:main",
        ),
        methods_table(
            "paper-reweighting",
            "The paper: kinds of reweighting.",
            paper.methods("reweighting"),
            paper="tab:compare",
        ),
        methods_table(
            "paper-minerva",
            "The paper: trained models on Minerva.",
            paper.methods("minerva"),
            paper="tab:rl_minerva",
        ),
        on_rl_table(
            "paper-on-rl",
            "The paper: extrapolating on the RL model, DAPO-32B, AIME24.",
            paper.on_rl(),
            paper="tab:rl_extra",
        ),
    ]
    for task, label in (("aime24", "tab:full_param_extra"), ("minerva", "tab:minerva_param_extra")):
        for name, grid in paper.grids(task).items():
            notes = [f"RL: {grid.rl.avg:.2f}."] if grid.rl else []
            caption = f"The paper: threshold and strength of {grid.pair} on {title(task)}."
            second = task == "aime24"
            tables.append(
                grid_table(f"paper-grid-{task}-{name}", caption, grid, second=second, notes=notes, paper=label)
            )
    return tables


def paper_section() -> Section:
    """Put all tables of the paper under one heading."""
    text = "As printed: the paper gives no intervals, and a bold number is not a win. Marks follow the printed values."
    return Section("The paper's tables", (text,), tuple(paper_tables()))
