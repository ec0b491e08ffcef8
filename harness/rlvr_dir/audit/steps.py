"""Select the checkpoints of one training run that get a column in the audit.

columns = steps_of(Path("runs/train/mine"), every=50)      # {50: .../checkpoint-50, 100: ...}
"""

import re
from pathlib import Path

from rlvr_dir.checkpoints.adapter import CONFIG
from rlvr_dir.errors import UserError

WITHIN = ("", "actor/huggingface", "huggingface")  # subfolders of a step's folder where libraries write the checkpoint


def steps_of(run: Path, every: int) -> dict[int, Path]:
    """Return the checkpoints in the folder `run` by their step: each step that `every` divides, and the last.

    The name of a step's folder ends in its number, such as `checkpoint-50` or `global_step_50`.

    Raises:
        UserError: There is none.
    """
    named = [(int(found[0]), child) for child in run.glob("*/") if (found := re.search(r"\d+$", child.name))]
    places = [(step, child / part) for step, child in named for part in WITHIN]
    whole = sorted(each for each in places if any((each[1] / name).is_file() for name in ("config.json", CONFIG)))
    if not whole:
        accepted = "a folder of checkpoints whose names end in a number, such as checkpoint-50"
        raise UserError("has no checkpoints of steps", argument="rl", value=str(run), accepted=accepted)
    return {step: place for step, place in whole if step % every == 0 or step == whole[-1][0]}
