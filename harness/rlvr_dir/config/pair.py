"""The two checkpoints under study, by path, hub id or by a name of the zoo."""

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
    """Where a model is: a directory or hub id, and a revision of the hub's."""

    place: str
    revision: str | None = None


class Pair(Spec, frozen=True):
    """A base checkpoint and its RLVR-trained successor: hub ids or local directories, with optional revisions.

    `rl` may hold a LoRA adapter of base, as PEFT writes it, instead of weights.
    `recipient` is a third model that the pair's change is carried over to: it then has base's place in every rule, and
    recipient times RL / base has RL's.
    `trust_remote_code` stays off unless the user says otherwise.
    """

    base: Place = Field(min_length=1, description="Base checkpoint: hub id or directory.")
    rl: Place = Field(min_length=1, description="RL checkpoint, or LoRA adapter of base: hub id or directory.")
    base_revision: str | None = Field(default=None, description="Branch, tag or commit of base on the hub.")
    rl_revision: str | None = Field(default=None, description="Branch, tag or commit of the RL checkpoint on the hub.")
    recipient: Place | None = Field(
        default=None, min_length=1,
        description="Another model that takes base's place, and with the pair's change RL's: hub id or directory.",
    )  # fmt: skip
    recipient_revision: str | None = Field(default=None, description="Branch, tag or commit of it on the hub.")
    trust_remote_code: bool = Field(default=False, description="Run code that a checkpoint brings along.")

    @model_validator(mode="after")
    def _check(self) -> "Pair":
        if self.recipient is not None and self.single:
            raise ValueError(f"recipient={self.recipient!r} has nothing to take over where base and rl are one model")
        if self.recipient is None and self.recipient_revision is not None:
            raise ValueError(f"recipient_revision={self.recipient_revision!r} has no effect without recipient")
        return self

    @property
    def models(self) -> "dict[str, Model]":
        """Map the role of each model that there is to its place and revision."""
        return {role: Model(place, getattr(self, f"{role}_revision")) for role, place in places_of(dict(self)).items()}

    @property
    def single(self) -> bool:
        """Whether base and RL are one model: then it is loaded once, and read once a token."""
        return (self.base, self.base_revision) == (self.rl, self.rl_revision)

    def argument(self, role: str) -> str:
        """Return a model as a message names it: `rl=org/model`, or the option that the user typed (`mention`)."""
        return mention(role, self.models[role].place)

    @classmethod
    def of_folder(cls, folder: str | Path) -> "Pair":
        """Read the pair in a directory: what its `pair.json` names (relative to it), or its `base` and `rl`.

        `rlvr-dir train` and `examples/tiny` write such directories.

        Raises:
            UserError: the directory holds no pair.
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


# The models that there may be; `rlvr_dir.policy.combine` says what each is for.
ROLES = tuple(name for name in Pair.model_fields if f"{name}_revision" in Pair.model_fields)


def places_of(facts: Any) -> dict[str, str]:
    """Return the place of each model, by role, that a pair's JSON names, or a record's; none where it is no object."""
    return {role: str(facts[role]) for role in ROLES if isinstance(facts, Mapping) and facts.get(role)}


def preset(named: Any) -> Pair | None:
    """Return the pair of a name of the zoo, of NAME@CHECKPOINT, or of `tiny@STEP`; None where there is none."""
    if not isinstance(named, str):
        return None
    if named in TINY_RL:
        return Pair(base=TINY_BASE, rl=named)
    name, at, checkpoint = named.partition("@")
    if name not in zoo() or (at and not checkpoint):
        return None
    return parse(Pair, zoo()[name].at(checkpoint or None))


TINY: Literal["tiny"] = "tiny"  # the embedded pair; `rlvr_dir.checkpoints.resolve` knows where its weights are
TINY_STEPS = (2, 4, 6, 8)  # of its RL, whose model is kept; the last is the pair's own RL
TINY_BASE = f"{TINY}@base"
TINY_RL = tuple(f"{TINY}@{step}" for step in TINY_STEPS)
_MADE = re.compile(
    r"rl|base|validation|seed-\d+|checkpoint-\d+|step-\d+"
)  # parts of a checkpoint's path that nobody chose
OPTIONS = {"rl": "pretrained", "rl_revision": "revision"}  # lm-eval's names for two fields, and our commands'
_FIELDS = {option: field for field, option in OPTIONS.items()}
PAIR_OPTIONS = ("pair", *(OPTIONS.get(name, name) for name in Pair.model_fields))


def find_pair(named: Any) -> "Pair | Literal['tiny']":
    """Find a pair by its name (of the zoo, `tiny`), by its folder, or by a mapping of its fields.

    A mapping may have lm-eval's names of fields, and `pair`, whose fields the others then change.

    Raises:
        UserError: no such pair, half a pair, two of them, or a field that is refused.
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
    """Make a pair of fields, as a file or options have them."""
    names = {_FIELDS.get(name, name): (name, value) for name, value in named_fields.items()}
    fields: dict[str, Any] = {name: value for name, (_, value) in names.items()}
    for name in ("base_revision", "rl_revision"):  # one of digits alone is read as a number
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
    needed = {"rl": "pretrained= (the RL checkpoint)", "base": "base= (the base checkpoint)"}
    missing = [role for role in needed if role not in fields]
    if not fields or not fields.keys() <= Pair.model_fields.keys():
        missing = []  # a key that is misspelt explains it
    if len(missing) == 1:
        name, value = names["base" if missing == ["rl"] else "rl"]
        raise UserError(
            f"is only half a pair: give {needed[missing[0]]} too, or {mention('pair', 'NAME')}",
            argument=name,
            value=value,
        )
    if missing:
        name, value = next(iter(names.values()))
        raise UserError(
            f"needs a pair: give pretrained=RL and {mention('base', 'BASE')}, or {mention('pair', 'NAME')}",
            argument=name,
            value=value,
        )
    return parse(Pair, fields, where="pair.")


NamedPair = Annotated[Pair | Literal["tiny"], BeforeValidator(find_pair)]


def pair_of(options: Mapping[str, Any]) -> "Pair | Literal['tiny'] | None":
    """Return the pair that options (`pair`, or `pretrained` and `base`, ...) name; None where they name none.

    Raises:
        UserError: as `find_pair`.
    """
    fields = {name: options[name] for name in PAIR_OPTIONS if name in options}
    return find_pair(fields) if fields else None


def model_name(checkpoint: str) -> str:
    """Name a checkpoint as the one who made it did: `DAPO/seed-0` for `runs/train/DAPO/seed-0/rl`; or its hub id's end.

    >>> [model_name(path) for path in ("org/SmolLM2", "models/smol/rl", "runs/train/DAPO/seed-0/rl", "rl")]
    ['SmolLM2', 'smol', 'DAPO/seed-0', 'rl']
    """
    parts = PurePath(checkpoint).parts
    if parts[-3:-1] == ("tiny", "weights"):
        return "tiny pair" if parts[-1] in ("base", "rl") else f"{TINY}@{parts[-1].removeprefix('step-')}"
    chosen = next((n for n, part in enumerate(reversed(parts), 1) if not _MADE.fullmatch(part) and part != "/"), 0)
    name = parts[-chosen:] if chosen else parts[-1:]
    return "/".join(name[:-1] if len(name) > 1 and name[-1] in ("rl", "validation") else name) or checkpoint
