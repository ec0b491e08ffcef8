"""What produced a result, under a name that cannot be taken for one model where two made it.

system_of(result).id    # Qwen/Qwen2.5-32B, or rlvr-dir/DAPO-Qwen-32B-with-Qwen2.5-32B-replace-tau-0.3
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePath

from harness.evals.result import EvalResult
from harness.spec.pair import model_name

_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)
_SPELT = {"τ": "tau", "γ": "gamma", "≥": "-at-least-", " ": "-"}


@dataclass(frozen=True, slots=True)
class System:
    """Hold the name of what decoded: `id` as a hub's `ORG/NAME`, `models` by role, as others know them.

    `single` tells whether one published model did it alone. A checkpoint on a disk is `local/NAME-ROLE`: its path
    belongs to a machine and is not told.
    """

    name: str
    id: str
    models: dict[str, str]
    single: bool

    @property
    def developer(self) -> str:
        """Return the first part of `id`."""
        return self.id.partition("/")[0]

    @property
    def model(self) -> str:
        """Return the second part of `id`."""
        return self.id.partition("/")[2]

    @property
    def kind(self) -> str:
        """Say how many models it is, and whether a rule is part of it."""
        if self.single:
            return "one model"
        return "one model, by a rule" if len(self.models) == 1 else "several models at once, by a rule"

    @property
    def on_hub(self) -> bool:
        """Tell whether it is one model that a hub knows by this id."""
        return self.single and self.developer not in ("local", "unknown")


def system_of(result: EvalResult) -> System:
    """Return what produced a result.

    Base or RL alone is that model. Two models at once (or three), and weights that were extrapolated
    from two, are a system of its own, whose name has the rule; so is one model that is drawn from its law to a power.
    """
    models = {role: _public(place, role) for role, place in {"base": "", "rl": "", **result.models}.items()}
    mode = result.decoding.mode
    if mode in ("base", "rl") and len(models) == 2:
        return System(models[mode].rpartition("/")[2], models[mode], {mode: models[mode]}, True)
    if mode == "power" and result.decoding.primary and len(models) == 2:
        only = models[result.decoding.primary]
        name = f"{only.rpartition('/')[2]}, {result.decoding.label()}"
        return System(name, f"rlvr-dir/{slug(name)}", {result.decoding.primary: only}, False)
    base, rl, *third = (model.rpartition("/")[2] for model in models.values())
    rule = result.decoding.label()
    name = " on ".join([f"{rl} with {base}", *third])
    return System(f"{name}, {rule}", f"rlvr-dir/{slug(f'{name} {rule}')}", models, False)


def slug(text: str) -> str:
    """Return a text as a part of a path: letters, digits, '.', '_' and '-', at most 150 of them."""
    spelt = "".join(_SPELT.get(letter, letter) for letter in text)
    return (
        re.sub(r"-{2,}(?![0-9])", "-", re.sub(r"[^A-Za-z0-9._-]+", "-", spelt)).strip("-. ")[:150].rstrip("-. ") or "x"
    )


def _public(checkpoint: str, role: str) -> str:
    """Return a checkpoint's hub id; of one on a disk a name without its place."""
    if not checkpoint or checkpoint == "?":
        return f"unknown/{role}"
    if _HUB.fullmatch(checkpoint) and not Path(checkpoint).exists():
        return checkpoint
    own = model_name(checkpoint)
    return f"local/{slug(own if PurePath(own).name == role else f'{own}-{role}')}"
