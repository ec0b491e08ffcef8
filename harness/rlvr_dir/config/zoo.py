"""List the pairs of the zoo, published pairs whose facts are in `pairs.yaml` beside this file. Each lists its
unverified facts."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from rlvr_dir.config.base import Spec, load_yaml, parse

FILE = Path(__file__).with_name("pairs.yaml")

Fact = Literal[
    "base", "rl", "method", "size", "type", "licence", "context", "vocabulary", "precision", "template", "checkpoints"
]
OPTIONAL: tuple[Fact, ...] = ("licence", "context", "vocabulary", "precision", "template")  # null only if unverified
Tokens = Annotated[int, Field(gt=0)]


class ZooPair(Spec, frozen=True):
    """Store a pair of the zoo: two hub ids and what is known of them; a tuple of two is (base, RL)."""

    called: ClassVar[str] = "pair of the zoo"

    base: str = Field(pattern="^[^/]+/[^/]+$")
    rl: str = Field(pattern="^[^/]+/[^/]+$")
    method: str
    size: float = Field(gt=0)  # billions of parameters of each model
    type: str
    licence: str | None = None
    context: tuple[Tokens | None, Tokens | None] | None = None
    vocabulary: tuple[Tokens | None, Tokens | None] | None = None
    precision: tuple[str | None, str | None] | None = None
    template: tuple[bool | None, bool | None] | None = None
    checkpoints: Mapping[str, str] = Field(default_factory=dict)  # name after @ -> revision or repository
    note: str | None = None
    unverified: tuple[Fact, ...] = ()

    @model_validator(mode="after")
    def _says_what_is_missing(self) -> "ZooPair":
        for name in OPTIONAL:
            value: Any = getattr(self, name)
            if name not in self.unverified and (value is None or (isinstance(value, tuple) and None in value)):
                raise ValueError(f"{name} is not known of rl={self.rl!r}, so it has to be among unverified")
        return self

    def at(self, checkpoint: str | None) -> dict[str, str]:
        """Return the fields of a `Pair`: these models, with RL at a checkpoint if one is named (after @).

        A checkpoint that is not listed is used as a revision of the RL repository.
        """
        place = self.checkpoints.get(checkpoint or "", checkpoint)
        if place is None:
            return {"base": self.base, "rl": self.rl}
        if "/" in place and checkpoint in self.checkpoints:
            return {"base": self.base, "rl": place}
        return {"base": self.base, "rl": self.rl, "rl_revision": place}


@cache
def zoo() -> Mapping[str, ZooPair]:
    """Return the pairs of the zoo by name, in the order of their file."""
    data = load_yaml(FILE.read_text(encoding="utf-8"))
    return {name: parse(ZooPair, entry, where=f"{name}.") for name, entry in data.items()}
