"""What is read back from files: others may have written them, and disks damage them, so every value is checked.

class About(Stored, frozen=True):
    samples: Count = 1

about = About.from_file(path)     # or one sentence: the file, the key, its value, and what is accepted

The class that reads a file is the one that was written. JSON is parsed by Python: pydantic's own parser refuses lone
surrogates, which paths have whose bytes are no UTF-8.
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
MOST = 2**31 - 1  # of a count, so that sums of counts stay whole numbers


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    return value


# JSON's own types and no other: pydantic would take "5", 5.0 and true for the number 5.
Count = Annotated[int, Strict(), Field(ge=0, le=MOST)]
Number = Annotated[float, Strict()]  # finite
Name = Annotated[str, Strict()]  # without lone surrogates, which pydantic's text cannot have
Text = Annotated[str, PlainValidator(_text)]  # a path or an argument may have them: bytes that are no UTF-8
Flag = Literal[0, 1, True, False]
Plain = dict[str, Any]


def is_text(value: object) -> bool:
    """Return whether a value is text that can be written as UTF-8."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < inf


class Stored(Spec, frozen=True):
    """The form of a file or of a part of it; keys that it does not name are left alone, a later version may have more.

    Lists are given as `tuple[...]`.
    """

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a JSON file.

        Raises:
            DamagedError: it cannot be read, is no JSON, or a value is not of its type or out of its range.
        """
        return cls.from_plain(read_json(path), path)

    @classmethod
    def from_plain(cls, data: Any, where: object) -> Self:
        """Check plain values that were read; `where` (a file, a line of it) begins the sentence.

        Raises:
            DamagedError: a value is not of its type, or out of its range.
        """
        try:
            return parse(cls, data)
        except UserError as error:
            raise DamagedError(f"{where}: {error}") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a JSON file that is an object of whatever keys.

    Raises:
        DamagedError: it is not one.
    """
    if not isinstance(data := read_json(path), dict):
        raise DamagedError(f"{path} is not a mapping of keys to values")
    return data


def read_json(path: Path) -> Any:
    """Read a JSON file, whatever it holds.

    Raises:
        DamagedError: what `read_bytes` raises, or it is no JSON.
    """
    return parse_json(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        DamagedError: it is no file, cannot be read, or has more than `MOST_BYTES`.
    """
    try:
        if not path.is_file():  # a pipe would be waited for
            raise DamagedError(f"{path} is no file")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise DamagedError(f"{path} has {size:,} bytes, which is not allowed", accepted=f"up to {MOST_BYTES:,}")
        return path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None


def parse_json(text: str | bytes, where: object) -> Any:
    """Parse JSON; `where` begins the sentence.

    Raises:
        DamagedError: it is no JSON, or nests too deep.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # of bytes that are no UTF-8 a ValueError, too
        raise DamagedError(f"{where} is not JSON ({' '.join(str(error).split())[:100]})") from None
