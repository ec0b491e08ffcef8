"""Name and find several RL checkpoints of one training, which a sweep's file gives as one pair.

checkpoints_of(["tiny@2", "tiny@4"])                       # the tiny pair's own
checkpoints_of(["org/run@step_100", "runs/step-200"], {"base": "org/base"})
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_dir.config.base import parse
from rlvr_dir.config.pair import Pair, model_name, preset
from rlvr_dir.errors import UserError, mention


def checkpoints_of(names: Sequence[str], options: Mapping[str, Any] | None = None) -> list[tuple[str, Pair]]:
    """Return the name of each checkpoint in tables, and a pair of base and this checkpoint.

    Args:
        names: `NAME@STEP` of the zoo or of the tiny pair, folders, or hub ids with `@REVISION`.
        options: `base`, `base_revision`, `trust_remote_code`, for checkpoints whose names do not determine their base.

    Raises:
        UserError: There are no checkpoints, their bases differ, or no base is given.
    """
    fields = dict(options or {})
    if not names:
        raise UserError(
            "names no checkpoint",
            argument="rl",
            value=[],
            accepted="a list of them, as [org/run@step_100, org/run@step_200]",
        )
    if "pair" in fields:
        raise UserError(
            "has no effect where checkpoints are named; give one of the two", argument="pair", value=fields["pair"]
        )
    pairs = [_pair(name, fields) for name in names]
    if "base" in fields and pairs[0].base != parse(Pair, {"base": fields["base"], "rl": "rl"}).base:
        raise UserError(
            f"is not that of {names[0]!r}, {pairs[0].base!r}; leave it out", argument="base", value=fields["base"]
        )
    if others := [pair.base for pair in pairs if pair.models["base"] != pairs[0].models["base"]]:
        raise UserError(
            f"checkpoints: they have two bases, {pairs[0].base!r} and {others[0]!r}", accepted="those of one training"
        )
    return list(zip(_short_names(names), pairs, strict=True))


def _pair(name: str, fields: Mapping[str, Any]) -> Pair:
    """Return a pair of base and a checkpoint."""
    if (named_pair := preset(name)) is not None:
        return named_pair
    if "base" not in fields:
        raise UserError(
            f"The checkpoint {name!r} has no base",
            argument="base",
            accepted=f"{mention('base', 'BASE')} beside it, or NAME@STEP of a pair that has a name",
        )
    place, at, revision = name.partition("@")
    if not at or Path(name).expanduser().exists():
        place, revision = name, ""
    shared = {key: fields[key] for key in ("base", "base_revision", "trust_remote_code") if key in fields}
    return parse(Pair, {**shared, "rl": place, "rl_revision": revision or None})


def _short_names(names: Sequence[str]) -> list[str]:
    """Return names for tables: as given, or for a path the shortest end that distinguishes it.

    >>> _short_names(["runs/x/step-2", "org/run@4"]), _short_names(["a/2/actor", "a/4/actor"])
    (['x/step-2', 'org/run@4'], ['a/2/actor', 'a/4/actor'])
    """
    short = [name if "@" in name else model_name(name) for name in names]
    return short if len(set(short)) == len(short) else list(names)
