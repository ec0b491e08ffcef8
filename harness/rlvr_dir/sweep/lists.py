"""Read a list of several sweeps, such as the whole paper, and show what each makes and what all of them cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from pydantic import Field

from rlvr_dir.config import Spec
from rlvr_dir.errors import UserError
from rlvr_dir.markdown import markdown_table


class SweepList(Spec, frozen=True):
    """Store a list of sweeps, with a description of each by its name or file."""

    called: ClassVar[str] = "sweeps"

    name: str = Field(description="What the sweeps have in common.")
    sweeps: Annotated[dict[str, str], Field(min_length=1)] = Field(description="NAME: what it makes.")


@dataclass(frozen=True, slots=True)
class Cost:
    """Hold what is left to do of a sweep, at most."""

    jobs: int  # decodings, or seeds of trainings
    responses: int
    thresholds: int  # additional responses to refine thresholds
    tokens: int


def cost_table(costs: Mapping[str, tuple[str, Cost]]) -> str:
    """Return what each sweep makes, what is left to do of it, and their sum, as a table."""
    names = [field.name for field in fields(Cost)]
    rows: list[Sequence[Any]] = [
        [name, makes, *(f"{getattr(cost, count):,}" for count in names)] for name, (makes, cost) in costs.items()
    ]
    rows.append(["all", "", *(f"{sum(getattr(cost, count) for _, cost in costs.values()):,}" for count in names)])
    head = ["sweep", "makes", "jobs", "responses", "for thresholds", "tokens, at most"]
    note = (
        "Every response as long as it may be; for thresholds at most; of trainings the rollouts that are learned from "
        "alone, without those that dynamic sampling throws away, updates and validations. What the records hold is not "
        "counted, what two sweeps share is counted in both."
    )
    return "\n".join([markdown_table(head, rows, left=2), "", note])


def check_options(changes: Sequence[str]) -> None:
    """Reject changes of one sweep for a list of them. Raises UserError."""
    if changes:
        raise UserError(
            "changes one sweep, and this file names several",
            argument="set",
            value=list(changes),
            hint="Run the sweep that you want to change by its own name.",
        )
