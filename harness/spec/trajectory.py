"""A trajectory: several RL checkpoints of one training, in order, each with the step it was kept at.

trajectory_of(["tiny@2", "tiny@4"])                       # the tiny pair's own
trajectory_of([], {"pair": "rlvr-math-1.5b"})             # all that the zoo lists of a pair
trajectory_of(["org/run@step_100", "org/run@step_200"], {"base": "org/base"})
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.spec.base import parse
from harness.spec.pair import TINY, TINY_RL, Pair, model_name, preset
from harness.spec.zoo import zoo

_STEP = re.compile(r"(?:^|[@/]|step[-_ ]?|checkpoint-)([0-9]+)$", re.IGNORECASE)


@dataclass(frozen=True)
class Checkpoint:
    """One RL checkpoint of a training: what tables call it, after how many steps, and base with it as a pair."""

    name: str
    step: float
    pair: Pair


def trajectory_of(
    names: Sequence[str] = (), options: Mapping[str, Any] | None = None, steps: Sequence[float] | None = None
) -> tuple[Checkpoint, ...]:
    """Find the checkpoints of a training.

    Args:
        names: `NAME@STEP` of the zoo or of the tiny pair, folders, or hub ids with `@REVISION`. None of them stands for
            all that is listed of the pair that `options` name, which is the tiny one if they name none.
        options: `pair`, or `base`, `base_revision`, `trust_remote_code`, as commands have them.
        steps: their steps; left out, the number at the end of each name (`@4`, `step-4`, `checkpoint-4`, `runs/4`).

    Raises:
        UserError: there are none, their bases differ, no base is named, or a step is missing or not after the last.
    """
    fields = dict(options or {})
    named = bool(names)
    names = list(names) or _listed(fields)
    if fields.get("pair") is not None and "base" in fields:
        raise UserError(f"pair={fields['pair']!r} and base={fields['base']!r} name two pairs; give one of them")
    if named and "pair" in fields:
        raise UserError(f"pair={fields['pair']!r} has no effect where checkpoints are named; give one of the two")
    pairs = [_pair(name, fields) for name in names]
    if "base" in fields and pairs[0].base != parse(Pair, {"base": fields["base"], "rl": "rl"}).base:
        raise UserError(f"base={fields['base']!r} is not that of {names[0]!r}, {pairs[0].base!r}; leave it out")
    if others := [pair.base for pair in pairs if pair.models["base"] != pairs[0].models["base"]]:
        raise UserError(
            f"checkpoints: they have two bases, {pairs[0].base!r} and {others[0]!r}; accepted: those of one training"
        )
    numbers = list(steps) if steps is not None else [_step(name) for name in names]
    if len(numbers) != len(names):
        raise UserError(
            f"steps={numbers} are {len(numbers)} numbers for {len(names)} checkpoints; accepted: one for each"
        )
    if numbers[0] <= 0 or any(b <= a for a, b in pairwise(numbers)):
        words = ", ".join(f"{step:g}" for step in numbers)
        raise UserError(f"steps={words} do not rise from above 0, where base is; accepted: checkpoints in order")
    return tuple(Checkpoint(*parts) for parts in zip(_short_names(names), numbers, pairs, strict=True))


def _listed(options: Mapping[str, Any]) -> list[str]:
    """Return the names of all checkpoints that are listed of the pair that is named; of the tiny one if none is."""
    name = str(options.get("pair") or TINY)
    if name == TINY and "base" not in options:
        return list(TINY_RL)
    checkpoints = zoo()[name].checkpoints if name in zoo() and "base" not in options else {}
    if checkpoints and all(step.isdecimal() for step in checkpoints):
        return [f"{name}@{step}" for step in sorted(checkpoints, key=int)]
    source = f"base={options['base']!r}" if "base" in options else f"pair={name!r}"
    listed = [pair_name for pair_name, pair in zoo().items() if any(step.isdecimal() for step in pair.checkpoints)]
    raise UserError(
        f"{source} lists no checkpoints by step; accepted: pair={TINY} or {', '.join(listed)}, "
        "or name them: CHECKPOINT "
        "CHECKPOINT … --base BASE"
    )


def _pair(name: str, options: Mapping[str, Any]) -> Pair:
    """Return base with a checkpoint."""
    if (named_pair := preset(name)) is not None:
        return named_pair
    if "base" not in options:
        raise UserError(f"checkpoint {name!r} has no base: give --base BASE, or NAME@STEP of a pair that has a name")
    place, at, revision = name.partition("@")
    if not at or Path(name).expanduser().exists():
        place, revision = name, ""
    fields = {key: options[key] for key in ("base", "base_revision", "trust_remote_code") if key in options}
    return parse(Pair, {**fields, "rl": place, "rl_revision": revision or None})


def _step(name: str) -> float:
    """Return the step that a checkpoint's name ends in.

    >>> [_step(name) for name in ("tiny@4", "org/run@step_500", "org/run-step-700", "x/checkpoint-16", "x/40")]
    [4.0, 500.0, 700.0, 16.0, 40.0]
    """
    if (match := _STEP.search(name.rstrip("/"))) is None:
        raise UserError(f"checkpoint {name!r} does not end in its step (as in step-400); give --steps 100,200,…")
    return float(match[1])


def _short_names(names: Sequence[str]) -> list[str]:
    """Return how tables call them: as they were named, but of a path its own name where that tells them apart.

    >>> _short_names(["runs/x/step-2", "org/run@4"]), _short_names(["a/2/actor", "a/4/actor"])
    (['x/step-2', 'org/run@4'], ['a/2/actor', 'a/4/actor'])
    """
    short = [name if "@" in name else model_name(name) for name in names]
    return short if len(set(short)) == len(short) else list(names)
