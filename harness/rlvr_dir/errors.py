"""The one exception for a user's mistake: a single sentence, shown without a traceback."""

from collections.abc import Iterable
from difflib import get_close_matches

from rlvr_dir.text import visible, without_passwords

_LONGEST = 4000  # characters of a line


class UserError(ValueError):
    """Something the user asked for cannot be done; the message names the argument, its value and what is accepted.

    Command-line entry points print it on one line and exit with status 2. Names and values in it may come from anybody:
    `visible` writes out what could steer a terminal, and no password of an address is repeated. Lines of `more` (a
    difference between two files) stand beneath.
    """

    def __init__(self, sentence: object, more: Iterable[str] = ()) -> None:
        super().__init__(without_passwords("\n".join(visible(line, _LONGEST) for line in (sentence, *more))))


class Busy(UserError):
    """Another process is at it; to wait for that one helps."""


class DamagedError(UserError):
    """A file is not what rlvr-dir writes there, or not any more; of many files the others are still read."""


def nearest(value: object, names: Iterable[str], most: int = 5) -> list[str]:
    """Return the names that are spelt like a value, the nearest first; capitals count as small letters."""
    folded: dict[str, list[str]] = {}
    for name in names:
        folded.setdefault(name.casefold(), []).append(name)
    near = get_close_matches(str(value).casefold(), list(folded), n=most)
    return [name for word in near for name in folded[word]][:most]


def unknown(argument: str, value: object, accepted: Iterable[object]) -> UserError:
    """Return the error for a name that is not among `accepted`; a near one stands before the list."""
    names = [str(name) for name in accepted]
    near = nearest(value, names, 1)
    hint = f"did you mean {near[0]!r}? Accepted" if near else "accepted"
    return UserError(f"{argument}={value!r} is not known; {hint}: {', '.join(names)}")
