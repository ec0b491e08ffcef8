"""Several sweeps as one list, such as the whole paper: what each makes, and what all of them cost, in one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from harness.errors import UserError
from harness.markdown import markdown_table
from harness.price import ASSUMED_SPEED
from harness.spec import Spec


class Several(Spec, frozen=True):
    """The file of several sweeps: what each of them makes, by its name or file."""

    called: ClassVar[str] = "sweeps"

    name: str = Field(description="What they are together.")
    sweeps: Annotated[dict[str, str], Field(min_length=1)] = Field(description="NAME: what it makes.")


@dataclass(frozen=True, slots=True)
class Cost:
    """What is left to do of a sweep, at most. A token costs `gpus` at once: as many as hold one engine."""

    ways: int
    responses: int
    thresholds: int  # responses from which thresholds are refined, beside these
    tokens: int
    gpus: int | None  # of 80 GB; None where that is not known

    def gpu_hours(self, speed: float) -> float | None:
        """Return the GPU hours of decoding, where one engine makes so many tokens a second."""
        return None if self.gpus is None else self.tokens / speed / 3600 * self.gpus


def cost_table(costs: Mapping[str, tuple[str, Cost]], speed: float | None) -> str:
    """Write what each sweep makes and costs, and their sum."""
    own = speed or ASSUMED_SPEED
    rows = [_row(name, makes, cost, own) for name, (makes, cost) in costs.items()]
    every = [cost for _, cost in costs.values()]
    hours = [each for cost in every if (each := cost.gpu_hours(own)) is not None]
    sums = [sum(getattr(cost, name) for cost in every) for name in ("ways", "responses", "thresholds", "tokens")]
    rows.append(["all", "", *(f"{each:,}" for each in sums), "", f"{sum(hours):,.0f}"])
    head = ["sweep", "makes", "ways", "responses", "for thresholds", "tokens, at most", "GPUs an engine", "GPU hours"]
    whose = "as --speed says" if speed else "a round number and nobody's measurement (--speed sets it)"
    note = (
        f"GPU hours at {own:,.0f} tokens/s an engine, {whose}, of the fewest GPUs of 80 GB that should hold one; every "
        "response as long as it may be; for thresholds at most; of trainings the rollouts alone, without updates "
        "and validations. What the records hold is not counted."
    )
    return "\n".join([markdown_table(head, rows, left=2), "", note])


def _row(name: str, makes: str, cost: Cost, speed: float) -> Sequence[Any]:
    counts = [f"{each:,}" for each in (cost.ways, cost.responses, cost.thresholds, cost.tokens)]
    hours = cost.gpu_hours(speed)
    return [name, makes, *counts, str(cost.gpus or "?"), "?" if hours is None else f"{hours:,.0f}"]


def check_options(changes: Sequence[str], extend: bool) -> None:
    """Refuse what is said of one sweep; raises UserError."""
    if changes or extend:
        raise UserError("--set and --extend change one sweep, and this file names several; accepted: neither")
