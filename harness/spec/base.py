"""The common base of all specs: frozen, closed to unknown keys, hashed canonically, refused in one sentence."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import UserError, unknown


class Spec(BaseModel):
    """Immutable validated data. Equal specs have equal hashes, in any process and in any key order."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def canonical(self) -> str:
        """The spec as JSON with sorted keys and no spaces: the text that is hashed."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    def hash(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of `canonical()`."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]

    def replace(self, **changes: Any) -> Self:
        """A validated copy with some fields changed.

        Raises:
            UserError: the changed spec is not valid.
        """
        return parse(type(self), {**self.model_dump(), **changes})


S = TypeVar("S", bound=Spec)


def parse(spec: type[S], data: Mapping[str, Any], where: str = "") -> S:
    """`data` as a `spec`, or one sentence saying what is wrong with it.

    Raises:
        UserError: names the first offending argument, its value and what would be accepted.
    """
    try:
        return spec.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name = where + ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        raise unknown("argument", name, spec.model_fields)
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:  # raised by a validator over the whole spec, which names the argument itself
        raise UserError(message)
    raise UserError(f"{name}={first['input']!r} is refused: {message[0].lower()}{message[1:]}")
