"""Responses as they are handed on to other programs and taken over from them, whatever the format.

Every format is one file of this room, which writes a `Material` and reads a `ForeignRun`, both of `Response`s. A reader
trusts nothing: it looks where a value should be (`at`), and `Response` checks it, so that a file is read or refused in
one sentence. What a source does not say is None, and is named in what is made of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, Strict, model_validator

from harness.errors import DamagedError, UserError
from harness.records.row import FinishReason
from harness.spec import Decoding, Sampling, parse
from harness.spec.sampling import Drawing
from harness.spec.stored import Count, Name, Stored, Text, is_number, parse_json

MOST_TOKENS = 1 << 20  # of a response
DRAWN = tuple(Drawing.options())


def _texts(value: Any) -> Any:
    return [str(each) if is_number(each) else each for each in (value if isinstance(value, list | tuple) else [value])]


def _places(value: Any) -> Any:
    found = value.split() if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return [int(each) if isinstance(each, str) and each.isascii() and each.isdecimal() else each for each in found]


_OrNone = BeforeValidator(lambda value: value if isinstance(value, str) else None)
_Places = Annotated[tuple[Count, ...], BeforeValidator(_places)]  # of tokens; in files as a list, or text with spaces


class Response(Stored, frozen=True):
    """One response. `gold` are the accepted answers, `answer` what the grader read, None where it read none.

    `correct` is the verdict, None where there is none on it alone; `kind` is what our grader says in a word. `replaced`
    and `changed` are positions of tokens, which only our own exports have.
    """

    problem: Annotated[
        Name,
        BeforeValidator(lambda value: str(value) if type(value) is int else value),
        Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$"),
    ]
    sample: Annotated[int, Strict(), Field(ge=0, le=1_000_000)]
    text: Text
    gold: Annotated[tuple[Text, ...], BeforeValidator(_texts)] = ()
    correct: Annotated[bool, Strict()] | None = None
    kind: str = ""
    answer: Annotated[Text | None, _OrNone] = None
    question: Annotated[Text | None, _OrNone] = None
    finish_reason: Annotated[
        FinishReason, BeforeValidator(lambda value: value if value in ("stop", "length") else "unknown")
    ] = "unknown"
    n_tokens: Annotated[int, Strict(), Field(ge=0, le=MOST_TOKENS)] | None = None
    prompt_tokens: Count | None = None
    replaced: _Places = ()
    changed: _Places = ()

    @model_validator(mode="after")
    def _check(self) -> "Response":
        for name in ("replaced", "changed"):
            if (at := max(getattr(self, name), default=-1)) >= (self.n_tokens or 0):
                raise ValueError(f"{name} has position {at} of {self.n_tokens or 0} tokens")
        return self


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """What one file says: whose responses, to what, how drawn (`DRAWN`, as far as told), and by whom judged.

    `source` is what only its format knows.
    """

    form: str
    task: str | None
    model: str | None
    responses: tuple[Response, ...]
    judge: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    decoding: Decoding | None = None
    remarks: tuple[str, ...] = ()
    source: dict[str, Any] = field(default_factory=dict)


Rows = Sequence[tuple[str, dict[str, Any]]]  # objects, each with the place that a sentence names


def at(value: Any, *path: Any) -> Any:
    """Return what stands at a place of some JSON, `at(row, "output", "raw", 0)`; None where there is nothing."""
    for key in path:
        try:
            value = value[key] if isinstance(value, dict | list) else None
        except (KeyError, IndexError, TypeError):
            return None
    return value


def mapping(value: Any, *path: str | int) -> dict[str, Any]:
    """Return the object that stands at a place of some JSON; an empty one where there is none."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def text(value: Any, *path: str | int) -> str | None:
    """Return the text that stands at a place of some JSON; None where there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else None


def rows_of(path: Path, data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects of a JSONL, each with the place that a sentence names.

    Raises:
        DamagedError: a line is no object, or there is none.
    """
    lines = [(f"{path} line {number}", line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    found = [(where, parse_json(line, where)) for where, line in lines]
    for where, row in found or [(path, None)]:
        if not isinstance(row, dict):
            raise DamagedError(f"{where} is no object" if found else f"{path} is empty")
    return found


def sampling_of(told: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the sampling fields that are valid, and one remark for each that is not."""
    known, remarks = {}, []
    for name, value in told.items():
        if value is None or (name == "seed" and is_number(value) and value < 0):  # what "no seed" is called by many
            continue
        try:
            if not is_number(value):
                raise UserError("no number")
            whole = int(value) if name in ("max_tokens", "seed") else float(value)
            parse(Sampling, {"samples": 1, "temperature": 1.0, name: whole})
            known[name] = whole
        except (UserError, ValueError, OverflowError):
            remarks.append(f"{name}={str(value)[:40]!r} is told, which no sampling here has; it is left out")
    return known, remarks


def told_by_ours(said: Any) -> tuple[dict[str, Any], Decoding | None]:
    """Return the sampling and the decoding that one of our own exports names as JSON, as far as they can be read."""
    found: list[Any] = []
    for name, kind in (("sampling", None), ("decoding", Decoding)):
        try:
            value = parse_json(text(said, name) or "null", name)
            found.append(parse(kind, value) if kind and value is not None else value)
        except UserError:
            found.append(None)
    return {name: value for name, value in mapping(found, 0).items() if name in DRAWN}, found[1]


def same(values: Iterable[Any]) -> Any:
    """Return the one value that all have; None where they differ."""
    found = [*values]
    return found[0] if found and all(value == found[0] for value in found) else None


def numbered(responses: Sequence[Response], where: object) -> tuple[Response, ...]:
    """Number the samples of each problem from 0, in the order of their own numbers.

    Raises:
        DamagedError: two have one number, or problems have different numbers of samples.
    """
    by: dict[str, dict[int, Response]] = {}
    for each in responses:
        if by.setdefault(each.problem, {}).setdefault(each.sample, each) is not each:
            raise DamagedError(f"{where} has sample {each.sample} of problem {each.problem!r} twice")
    first = next(iter(by), "")
    for problem, mine in by.items():
        if len(mine) != len(by[first]):
            raise DamagedError(
                f"{where} has {len(by[first])} responses to problem {first!r} and {len(mine)} to {problem!r}; "
                "accepted: as many to each, since an average of what is there would be of the ones that did not fail"
            )
    return tuple(
        mine[number].model_copy(update={"sample": i}) for mine in by.values() for i, number in enumerate(sorted(mine))
    )
