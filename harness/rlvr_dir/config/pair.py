"""Define the two checkpoints to compare, by path, hub id or a name of the zoo."""

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from rlvr_dir.config.base import Place, Spec, parse
from rlvr_dir.config.zoo import zoo
from rlvr_dir.errors import UserError, mention, unknown


class Model(NamedTuple):
    """Locate a model: a directory or hub id, and a revision on the hub."""

    place: str
    revision: str | None = None


class Pair(Spec, frozen=True):
    """Define a base checkpoint and the RL checkpoint trained from it: hub ids or local directories, with optional
    revisions.

    `rl` may contain a LoRA adapter of base, as PEFT writes it, instead of weights. `recipient` is a third model that
    the pair's change is transferred to. It then replaces base in every decoding, and recipient times RL / base replaces
    RL. `trust_remote_code` is off by default.
    """

    base: Place = Field(min_length=1, description="Base checkpoint: hub id or directory.")
    rl: Place = Field(min_length=1, description="RL checkpoint, or LoRA adapter of base: hub id or directory.")
    base_revision: str | None = Field(default=None, description="Branch, tag or commit of base on the hub.")
    rl_revision: str | None = Field(default=None, description="Branch, tag or commit of the RL checkpoint on the hub.")
    recipient: Place | None = Field(
        default=None, min_length=1,
        description="A third model that the change from base to RL is applied to: hub id or directory.",
    )  # fmt: skip
    recipient_revision: str | None = Field(default=None, description="Branch, tag or commit of recipient on the hub.")
    trust_remote_code: bool = Field(default=False, description="Run code that a checkpoint contains.")

    @model_validator(mode="after")
    def _check(self) -> "Pair":
        if self.recipient is not None and self.single:
            raise UserError(
                "cannot take over a change, because base and rl are one model",
                argument="recipient",
                value=self.recipient,
            )
        if self.recipient is None and self.recipient_revision is not None:
            raise UserError(
                "has no effect without recipient", argument="recipient_revision", value=self.recipient_revision
            )
        return self

    @property
    def models(self) -> "dict[str, Model]":
        """Return the place and revision of each model by its role."""
        return {role: Model(place, getattr(self, f"{role}_revision")) for role, place in places_of(dict(self)).items()}

    @property
    def single(self) -> bool:
        """Return whether base and RL are the same model, which is then loaded once and read once per token."""
        return (self.base, self.base_revision) == (self.rl, self.rl_revision)

    def argument(self, role: str) -> str:
        """Return a model as messages name it: `rl=org/model`, or the option that the user typed (`mention`)."""
        return mention(role, self.models[role].place)

    @classmethod
    def of_folder(cls, folder: str | Path) -> "Pair":
        """Read the pair in a directory: what its `pair.json` names (relative to it), or its `base` and `rl`.

        `rlvr-dir train` and `examples/tiny` write such directories.

        Raises:
            UserError: The directory does not contain a pair.
        """
        folder = Path(folder).expanduser()
        try:
            named = json.loads((folder / "pair.json").read_text())
        except FileNotFoundError:
            named = {role: role for role in ("base", "rl")}
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f": its pair.json cannot be read ({error})", argument="pair", value=str(folder)) from None
        if not isinstance(named, dict):
            raise UserError(
                ": its pair.json is no object", argument="pair", value=str(folder), accepted="base and rl, as in Pair"
            )
        for role in dict.fromkeys(("base", "rl", *places_of(named))):
            if (inside := folder / str(named.get(role, role))).is_dir():
                named[role] = str(inside.resolve())
            elif named.get(role) == role:
                if (folder / "config.json").is_file():
                    raise UserError(
                        "is one checkpoint",
                        argument="pair",
                        value=str(folder),
                        accepted=(
                            "both of them (pretrained and base; BASE RL of `rlvr-dir pair`), or a folder with base/ "
                            "and rl/, or with a pair.json that names them"
                        ),
                    )
                raise UserError(
                    f"has no folder {role}, and no pair.json that says where else {role} is",
                    argument="pair",
                    value=str(folder),
                    accepted="a folder with base/ and rl/, or with a pair.json that names them",
                )
        return parse(cls, named, where="pair.json ")


# The possible models; `rlvr_dir.policy.combine` explains what each is for.
ROLES = tuple(name for name in Pair.model_fields if f"{name}_revision" in Pair.model_fields)


def places_of(models: Any) -> dict[str, str]:
    """Return the place of each model, by role, in a pair's or a record's JSON; empty if that is not an object."""
    return {role: str(models[role]) for role in ROLES if isinstance(models, Mapping) and models.get(role)}


def preset(named: Any) -> Pair | None:
    """Return the pair for a name of the zoo, for NAME@CHECKPOINT, or for `tiny@STEP`; None if there is none."""
    if not isinstance(named, str):
        return None
    if named in TINY_RL:
        return Pair(base=TINY_BASE, rl=named)
    name, at, checkpoint = named.partition("@")
    if name not in zoo() or (at and not checkpoint):
        return None
    return parse(Pair, zoo()[name].at(checkpoint or None))


TINY: Literal["tiny"] = "tiny"  # the pair that ships with rlvr-dir; `rlvr_dir.checkpoints.resolve` finds its weights
TINY_STEPS = (2, 4, 6, 8)  # steps with a stored RL model; the last is the pair's own RL
TINY_BASE = f"{TINY}@base"
TINY_RL = tuple(f"{TINY}@{step}" for step in TINY_STEPS)
_GENERIC_NAME = re.compile(
    r"rl|base|validation|checkpoints|seed-\d+|checkpoint-\d+|step-\d+"
)  # parts of a checkpoint's path that are not a name
OPTIONS = {"rl": "pretrained", "rl_revision": "revision"}  # lm-eval's names for two fields, and our commands'
_FIELDS = {option: field for field, option in OPTIONS.items()}
PAIR_OPTIONS = ("pair", *(OPTIONS.get(name, name) for name in Pair.model_fields))


def find_pair(named: Any) -> "Pair | Literal['tiny']":
    """Find a pair by its name (of the zoo, `tiny`), by its folder, or by a mapping of its fields.

    A mapping may use lm-eval's names of fields, and `pair`, whose fields the other entries then override.

    Raises:
        UserError: There is no such pair, or only half of one, or two; or a field is not valid.
    """
    if isinstance(named, Pair) or named == TINY:
        return named
    if isinstance(named, Mapping):
        return _of_fields(named)
    if (pair := preset(named)) is not None:
        return pair
    if isinstance(named, str | Path) and Path(named).expanduser().is_dir():
        return Pair.of_folder(named)
    raise unknown("pair", named, (*zoo(), TINY, *TINY_RL, "a folder with base and rl"))


def _of_fields(named_fields: Mapping[str, Any]) -> "Pair | Literal['tiny']":
    """Make a pair from the fields of a file or of options."""
    names = {_FIELDS.get(name, name): (name, value) for name, value in named_fields.items()}
    fields: dict[str, Any] = {name: value for name, (_, value) in names.items()}
    for name in ("base_revision", "rl_revision"):  # digits alone are read as a number
        fields |= {name: str(fields[name])} if isinstance(fields.get(name), int) else {}
    named = fields.pop("pair", None)
    if named is None and fields == {"rl": TINY}:
        return TINY
    if named is not None:
        if clash := [f"{names[role][0]}={fields[role]!r}" for role in ("rl", "base") if role in fields]:
            raise UserError(f"and {clash[0]} name two pairs; give one of them", argument="pair", value=named)
        pair = find_pair(named)
        if isinstance(pair, str):
            if fields:
                name, value = names[next(iter(fields))]
                raise UserError(
                    f"has no effect with {mention('pair', pair)}, which ships with rlvr-dir", argument=name, value=value
                )
            return pair
        return parse(Pair, {**pair.model_dump(), **fields})
    needed = {"rl": mention("pretrained", "RL"), "base": mention("base", "BASE")}
    missing = [role for role in needed if role not in fields]
    if not fields or not fields.keys() <= Pair.model_fields.keys():
        missing = []  # a misspelt key explains it
    if len(missing) == 1:
        name, value = names["base" if missing == ["rl"] else "rl"]
        raise UserError(
            f"is only half a pair. Add {needed[missing[0]]}, or name a pair with {mention('pair', 'NAME')}",
            argument=name,
            value=value,
        )
    if missing:
        name, value = next(iter(names.values()))
        raise UserError(
            f"needs a pair: {needed['rl']} and {needed['base']}, or {mention('pair', 'NAME')}",
            argument=name,
            value=value,
        )
    return parse(Pair, fields, where="pair.")


NamedPair = Annotated[Pair | Literal["tiny"], BeforeValidator(find_pair)]


def pair_of(options: Mapping[str, Any]) -> "Pair | Literal['tiny'] | None":
    """Return the pair that options (`pair`, or `pretrained` and `base`, ...) name; None if they name none.

    Raises:
        UserError: As for `find_pair`.
    """
    fields = {name: options[name] for name in PAIR_OPTIONS if name in options}
    return find_pair(fields) if fields else None


def model_name(checkpoint: str) -> str:
    """Name a checkpoint after its training, `DAPO/seed-0` for `runs/train/DAPO/seed-0/rl`, or after the end of its hub
    id.

    >>> [model_name(path) for path in ("org/SmolLM2", "models/smol/rl", "runs/train/DAPO/seed-0/rl", "rl")]
    ['SmolLM2', 'smol', 'DAPO/seed-0', 'rl']
    """
    parts = PurePath(checkpoint).parts
    if parts[-3:-1] == ("tiny", "weights"):
        return "tiny pair" if parts[-1] in ("base", "rl") else f"{TINY}@{parts[-1].removeprefix('step-')}"
    own = (n for n, part in enumerate(reversed(parts), 1) if not _GENERIC_NAME.fullmatch(part) and part != "/")
    count = next(own, 0)
    name = parts[-count:] if count else parts[-1:]
    return "/".join(name[:-1] if len(name) > 1 and name[-1] in ("rl", "validation") else name) or checkpoint
