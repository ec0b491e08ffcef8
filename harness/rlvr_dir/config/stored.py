"""Read files of unknown origin or from damaged disks, and check every value.

    class About(Stored, frozen=True):
        samples: Count = 1

    about = About.from_file(path)     # or an error with the file, the key, its value, and what is accepted

The class that reads a file is the one that was written. JSON is parsed by Python, because pydantic's own parser rejects
lone surrogates, which occur in paths that are not UTF-8.
"""

import json
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PlainValidator, Strict
from pydantic_core import PydanticCustomError

from rlvr_dir.config.base import Spec, parse
from rlvr_dir.errors import DamagedError, UserError

MOST_BYTES = 1 << 30  # of one file
MOST = 2**31 - 1  # of a count, so that sums of counts stay integers


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    return value


# Only JSON's own types: pydantic would accept "5", 5.0 and true for the number 5.
Count = Annotated[int, Strict(), Field(ge=0, le=MOST)]
Number = Annotated[float, Strict()]  # finite
Name = Annotated[str, Strict()]  # without lone surrogates, which pydantic's text cannot contain
Text = Annotated[str, PlainValidator(_text)]  # a path or an argument may contain them: bytes that are not UTF-8
Flag = Literal[0, 1, True, False]
Plain = dict[str, Any]


def is_text(value: object) -> bool:
    """Return whether a value is text that can be encoded as UTF-8."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < inf


class Stored(Spec, frozen=True):
    """Define the form of a file or of a part of it. Unknown keys are ignored, because a later version may add some.

    Lists have the type `tuple[...]`.
    """

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a JSON file.

        Raises:
            DamagedError: It cannot be read, is not JSON, or a value has the wrong type or is out of range.
        """
        return cls.from_plain(read_json(path), path)

    @classmethod
    def from_plain(cls, data: Any, where: object) -> Self:
        """Check plain values that were read. Messages begin with `where` (a file, a line of it).

        Raises:
            DamagedError: A value has the wrong type or is out of range.
        """
        try:
            return parse(cls, data)
        except UserError as error:
            raise DamagedError(f"{where}: {error}") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object with any keys.

    Raises:
        DamagedError: It does not.
    """
    if not isinstance(data := read_json(path), dict):
        raise DamagedError(f"{path} is not a mapping of keys to values")
    return data


def read_json(path: Path) -> Any:
    """Read a JSON file with any content.

    Raises:
        DamagedError: As for `read_bytes`, or it is not JSON.
    """
    return parse_json(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        DamagedError: It is not a file, cannot be read, or has more than `MOST_BYTES`.
    """
    try:
        if not path.is_file():  # reading a pipe would block
            raise DamagedError(f"{path} is no file")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise DamagedError(f"{path} has {size:,} bytes, which is not allowed", accepted=f"up to {MOST_BYTES:,}")
        return path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None


def parse_json(text: str | bytes, where: object) -> Any:
    """Parse JSON. Messages begin with `where`.

    Raises:
        DamagedError: The text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # a ValueError also for bytes that are not UTF-8
        raise DamagedError(f"{where} is not JSON ({' '.join(str(error).split())[:100]})") from None
