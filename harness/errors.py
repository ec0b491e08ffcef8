"""The one exception for a user's mistake: a single sentence, shown without a traceback."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Something the user asked for cannot be done; the message names the argument, its value and what is accepted.

    Command-line entry points print it on one line and exit with status 2.
    """


def unknown(what: str, value: object, accepted: Iterable[object]) -> UserError:
    """Return the error for a name that is not among `accepted`, with the nearest accepted name where one is near."""
    names = [str(name) for name in accepted]
    near = get_close_matches(str(value), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UserError(f"{what}={value!r} is not known; accepted: {', '.join(names)}{hint}")
