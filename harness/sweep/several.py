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
    """Hold what is left to do of a sweep, at most.

    `engines` has a pair or training each: its tokens, and how many GPUs one engine takes (None: not known).
    """

    ways: int
    responses: int
    thresholds: int  # responses from which thresholds are refined, beside these
    engines: tuple[tuple[int, int | None], ...]

    @property
    def tokens(self) -> int:
        """Return the tokens of all."""
        return sum(tokens for tokens, _ in self.engines)

    @property
    def gpus(self) -> str:
        """Return the GPUs an engine, the fewest and the most."""
        known = sorted({gpus for _, gpus in self.engines if gpus})
        return "–".join(dict.fromkeys(map(str, [*known[:1], *known[-1:]]))) or "?"

    def gpu_hours(self, speed: float) -> float | None:
        """Return the GPU hours of decoding, where an engine makes so many tokens a second."""
        seconds = [tokens / speed * gpus for tokens, gpus in self.engines if gpus is not None]
        return sum(seconds) / 3600 if len(seconds) == len(self.engines) else None


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
        f"GPU hours at {own:,.0f} tokens/s an engine, {whose}, of the fewest GPUs of 80 GB that should hold its pair, "
        "of a training's as many as share its tensors; every response as long as it may be; for thresholds at most; of "
        "trainings the rollouts that are learned from alone, without those that dynamic sampling throws away, updates "
        "and validations. What the records hold is not counted, what two sweeps share is counted in both."
    )
    return "\n".join([markdown_table(head, rows, left=2), "", note])


def _row(name: str, makes: str, cost: Cost, speed: float) -> Sequence[Any]:
    counts = [f"{each:,}" for each in (cost.ways, cost.responses, cost.thresholds, cost.tokens)]
    hours = cost.gpu_hours(speed)
    return [name, makes, *counts, cost.gpus, "?" if hours is None else f"{hours:,.0f}"]


def check_options(changes: Sequence[str], extend: bool) -> None:
    """Refuse what is said of one sweep; raises UserError."""
    if changes or extend:
        raise UserError("--set and --extend change one sweep, and this file names several; accepted: neither")
