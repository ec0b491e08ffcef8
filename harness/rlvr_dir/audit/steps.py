"""A folder of checkpoints of one training: a column a step, and a chart for each of the main rows.

columns = steps_of(Path("runs/train/mine"), every=50)      # {50: .../checkpoint-50, 100: ...}
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.audit.claim import Claim
from rlvr_dir.checkpoints.adapter import CONFIG
from rlvr_dir.errors import UserError
from rlvr_dir.report.draw import drawing, line, look
from rlvr_dir.report.model import Section, frame
from rlvr_dir.stats import Estimate

WITHIN = ("", "actor/huggingface", "huggingface")  # of a step's folder, where libraries put the checkpoint
CHARTS = (
    "outcomes/avg/rl", "tokens/kl_rl_base/rl", "tokens/same_top/rl", "outcomes/tokens/rl", "weights/change/all",
)  # fmt: skip


def steps_of(run: Path, every: int) -> dict[int, Path]:
    """Return the checkpoints in a run's folder by their step: each that `every` divides, and the last.

    A step's folder has a name that ends in its number, such as `checkpoint-50` or `global_step_50`.

    Raises:
        UserError: There is none.
    """
    named = [(int(found[0]), child) for child in run.glob("*/") if (found := re.search(r"\d+$", child.name))]
    places = [(step, child / part) for step, child in named for part in WITHIN]
    whole = dict(
        sorted((step, place) for step, place in places if any((place / n).is_file() for n in ("config.json", CONFIG)))
    )
    if not whole:
        raise UserError(
            "has no checkpoints of steps", argument="rl", value=str(run),
            accepted="a folder of checkpoints whose names end in a number, such as checkpoint-50",
        )  # fmt: skip
    return {step: place for step, place in whole.items() if step % every == 0 or step == max(whole)}


def step_charts(
    claims: Sequence[Claim], steps: Mapping[str, int], estimates: Mapping[tuple[str, str], Estimate]
) -> list[Section]:
    """Draw each main row against the step; other columns are level lines.

    Args:
        claims: The rows that were measured.
        steps: The step of each column that is one.
        estimates: Each number by row and column.
    """
    sections = []
    for claim in (claim for claim in claims if claim.name in CHARTS):
        numbers = {column: _scaled(claim, estimate) for (name, column), estimate in estimates.items()
                   if name == claim.name and estimate.value is not None}  # fmt: skip
        at = sorted((steps[column], column) for column in numbers if column in steps)
        name, title = f"steps-{claim.name.replace('/', '-')}", claim.words(None)[0]
        rows: list[dict[str, Any]] = [
            {"step": steps.get(column), "column": column, "value": one.value, "low": one.low, "high": one.high}
            for column, one in numbers.items()
        ]
        with drawing(name, 2.6) as canvas:
            line(canvas.one, [step for step, _ in at], [numbers[column] for _, column in at], "RL", **look(0))
            for i, column in enumerate(column for column in numbers if column not in steps):
                canvas.one.axhline(
                    numbers[column].value, label=column, linestyle=":", linewidth=1, color=look(i + 1)["color"]
                )
            canvas.one.set_xlabel("step")
            canvas.one.set_ylabel(f"{title}{',' * bool(claim.suffix)}{claim.suffix}", wrap=True)
            canvas.one.legend()
        alt = f"Line chart: {title} against the step of the training."
        note = "Bars are 95 % intervals over problems. Steps share their noise. Level lines are further columns."
        sections.append(Section(name, title, frame(rows), (note,), canvas.svg, alt))
    return sections


def _scaled(claim: Claim, estimate: Estimate) -> Estimate:
    ends = (estimate.value, estimate.low, estimate.high)
    return Estimate(*(None if end is None else claim.unit * end for end in ends))
