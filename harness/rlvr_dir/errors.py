"""Define the exception for a user's mistake. Its facts (argument, value, what is accepted, a hint) become one
sentence."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import PurePath
from typing import Self

from rlvr_dir.text import visible, without_passwords

_LONGEST = 4000  # characters of a line
_LONGEST_VALUE = 300
_NOT_GIVEN: object = object()
# Noncharacters of Unicode, which no text contains: they enclose an argument that a sentence names (`mention`).
_BEGIN, _MIDDLE, _END = "\ufdd0", "\ufdd1", "\ufdd2"
_SIMPLE = re.compile(r"[\w.@+-]+")  # a text that needs no quotes
_NAMED = re.compile(f"{_BEGIN}([^{_MIDDLE}]*){_MIDDLE}([^{_END}]*){_END}")


class UserError(ValueError):
    """What the user asked for cannot be done.

    `UserError("must be negative", argument="tau", value=0.3, accepted="a number below 0", hint="Flip its sign.")` reads
    "tau=0.3 must be negative. Accepted: a number below 0. Flip its sign." Without a `value` the problem is a whole
    sentence and stands alone. Command-line entry points print the message without a traceback and exit with status 2.

    Args:
        problem: What is wrong: a predicate if a value is given, else a sentence.
        more: Further lines, printed under the message (a difference between two files).
        argument: The argument, key or option that is wrong, as Python names it (`max_tokens`).
        value: Its value.
        accepted: What the argument accepts, as text.
        hint: What to do next, as a sentence.

    The attributes have the same names. Names and values may come from strangers: invisible characters are escaped, and
    the passwords of addresses are left out.
    """

    def __init__(
        self,
        problem: object = "is not allowed",
        more: Iterable[str] = (),
        *,
        argument: str = "",
        value: object = _NOT_GIVEN,
        accepted="",  # noqa: ANN001 (text, or what `str` makes text of)
        hint: object = "",
    ) -> None:
        self.problem, self.more = str(problem), tuple(more)
        self._has_value = value is not _NOT_GIVEN
        first = None if argument else _NAMED.match(self.problem)  # a sentence that begins with an argument is about it
        self.argument = first[1] if first else argument
        self.value = first[2] if first else value if self._has_value else None
        self.accepted, self.hint = str(accepted), str(hint)
        self._options: dict[str, str] = {}
        super().__init__(self.sentence())

    def sentence(self, options: Mapping[str, str] | None = None) -> str:
        """Return the message.

        Args:
            options: How to write arguments, by name (`{"tau": "--tau"}` gives `--tau 0.3`); others are `tau=0.3`.
        """
        subject = mention(self.argument, self.value) if self._has_value and self.argument else ""
        space = " " if subject and not self.problem.startswith((":", ",")) else ""
        parts = [f"{subject}{space}{self.problem}"]
        parts += [f"Accepted: {self.accepted}"] if self.accepted else []
        parts += [self.hint] if self.hint else []
        text = ". ".join(part.removesuffix(".") for part in parts) + "." * bool(self.hint and self.hint.endswith("."))
        names = {**(options or {}), **self._options}
        lines = [_with_names(line, names) for line in (text, *self.more)]
        return without_passwords("\n".join(lines))

    def name_options(self, options: Mapping[str, str]) -> None:
        """Write arguments as these options from now on; an argument that was named before keeps its option."""
        self._options = {**options, **self._options}
        self.args = (self.sentence(),)

    def with_hint(self, hint: str) -> Self:
        """Return the same error with a hint added."""
        value = self.value if self._has_value else _NOT_GIVEN
        hints = " ".join(filter(None, (self.hint, hint)))
        return type(self)(
            self.problem, self.more, argument=self.argument, value=value, accepted=self.accepted, hint=hints
        )


class Busy(UserError):
    """Report that another process uses the resource. Wait for it, then try again."""


class DamagedError(UserError):
    """Report that a file does not have the content that rlvr-dir writes there. Other files can still be read."""


def mention(argument: str, value: object = _NOT_GIVEN) -> str:
    """Return an argument with its value for use in a message.

    `UserError` writes it as `tau=-0.3`, and the command line as `--tau -0.3`.
    """
    return f"{_BEGIN}{argument}{_MIDDLE}{_short(value)}{_END}"


def plain(text: str) -> str:
    """Return a text in which every `mention` argument is written as `name=value`."""
    return _NAMED.sub(lambda match: f"{match[1]}={match[2]}", text)


def _short(value: object) -> str:
    if value is _NOT_GIVEN:
        return ""
    if isinstance(value, PurePath):
        value = str(value)
    text = value if isinstance(value, str) and _SIMPLE.fullmatch(value) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _with_names(line: str, options: Mapping[str, str]) -> str:
    """Return a line with its `mention` arguments written out and everything invisible escaped."""
    parts, end = [], 0
    for match in _NAMED.finditer(line):
        name, value = match[1], match[2]
        written = f"{options[name]} {value}".rstrip() if name in options else f"{name}={value}"
        parts += [visible(line[end : match.start()], _LONGEST), visible(written, _LONGEST)]
        end = match.end()
    return "".join((*parts, visible(line[end:], _LONGEST)))


def nearest(value: object, names: Iterable[str], most: int = 5) -> list[str]:
    """Return the names that are spelt most like a value, the nearest first. Upper and lower case are the same."""
    folded: dict[str, list[str]] = {}
    for name in names:
        folded.setdefault(name.casefold(), []).append(name)
    near = get_close_matches(str(value).casefold(), list(folded), n=most)
    return [name for word in near for name in folded[word]][:most]


def unknown(argument: str, value: object, choices: Iterable[object]) -> UserError:
    """Return the error for a name that is not among the `known` ones. If one is spelt alike, the hint suggests it."""
    names = [str(name) for name in choices]
    near = nearest(value, names, 1)
    hint = f"Did you mean {near[0]!r}?" if near else ""
    return UserError("is not known", argument=argument, value=value, accepted=", ".join(names), hint=hint)


def unknown_key(
    key: str, choices: Iterable[str], section: str = "", synonyms: Mapping[str, str] | None = None
) -> UserError:
    """Return the error for a key that a section of a spec does not have. The hint suggests the key that was meant."""
    names = list(choices)
    near = (synonyms or {}).get(key.casefold()) or next(iter(nearest(key, names, 1)), None)
    return UserError(
        f"Unknown key {key!r}" + (f" in {section}" if section else ""),
        argument=key,
        accepted=", ".join(names),
        hint=f"Did you mean {near!r}?" if near else "",
    )
