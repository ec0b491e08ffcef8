"""Responses of other programs' files, whatever the format: what each reader gives, and what all of them check.

A reader trusts nothing: every value is of its type and within its range, or the file is refused in a sentence. What a
source does not say is None here, and is named in what is made of it.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, UserError
from harness.records.official import MOST_TOKENS
from harness.records.row import FinishReason
from harness.spec import Decoding, Sampling, parse
from harness.spec.sampling import Drawing
from harness.spec.stored import MOST_BYTES, is_number, parse_json

LONGEST_ID = 200  # characters
DRAWN = tuple(Drawing.options())


@dataclass(frozen=True, slots=True)
class ForeignResponse:
    """One response. `correct` is their verdict, None where they gave none on it alone; `gold` any accepted answers.

    `replaced` and `changed` are positions of tokens, which only our own exports have.
    """

    problem: str
    sample: int
    text: str
    gold: tuple[str, ...]
    correct: bool | None = None
    answer: str | None = None
    question: str | None = None
    finish_reason: FinishReason = "unknown"
    n_tokens: int | None = None
    replaced: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """What one file says: whose responses, to what, how drawn (`DRAWN`, as far as told), and by whom judged."""

    form: str
    task: str | None
    model: str | None
    responses: tuple[ForeignResponse, ...]
    judge: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    decoding: Decoding | None = None
    remarks: tuple[str, ...] = ()


def read_bytes(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        DamagedError: it is no file, cannot be read, or has more than `MOST_BYTES`.
    """
    try:
        if not path.is_file():  # a pipe would be waited for
            raise DamagedError(f"{path} is no file")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise DamagedError(f"{path} has {size:,} bytes, which is refused; accepted: up to {MOST_BYTES:,}")
        return path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None


def rows_of(path: Path, data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects of a JSONL, each with the place that a sentence names.

    Raises:
        DamagedError: a line is no object, or there is none.
    """
    found = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            where = f"{path} line {number}"
            row = parse_json(line, where)
            if not isinstance(row, dict):
                raise DamagedError(f"{where} is no object")
            found.append((where, row))
    if not found:
        raise DamagedError(f"{path} is empty")
    return found


def sampling_of(told: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return what is told of a sampling, as far as it can be one of ours, and a remark on each value that cannot."""
    known, remarks = {}, []
    for name, value in told.items():
        if value is None:
            continue
        try:
            if not is_number(value):
                raise UserError("no number")
            whole = int(value) if name in ("max_tokens", "seed") else float(value)
            if name == "seed" and whole < 0:  # what "no seed" is called by many
                continue
            parse(Sampling, {"samples": 1, "temperature": 1.0, name: whole})
            known[name] = whole
        except (UserError, ValueError, OverflowError):
            remarks.append(f"{name}={str(value)[:40]!r} is told, which no sampling here has; it is left out")
    return known, remarks


def told_by_ours(said: Any, where: object) -> tuple[dict[str, Any], Decoding | None]:
    """Return the sampling and the decoding that one of our own exports names as JSON, as far as they can be read."""
    said = said if isinstance(said, dict) else {}
    found: dict[str, Any] = {}
    for name in ("sampling", "decoding"):
        try:
            found[name] = parse_json(said[name], where) if isinstance(said.get(name), str) else None
        except DamagedError:
            found[name] = None
    drawn, how = found["sampling"] if isinstance(found["sampling"], dict) else {}, None
    if isinstance(found["decoding"], dict):
        with suppress(UserError):
            how = parse(Decoding, found["decoding"])
    return {name: drawn[name] for name in DRAWN if name in drawn}, how


def same(values: Iterable[Any]) -> Any:
    """Return the one value that all have; None where they differ."""
    found = [*values]
    return found[0] if found and all(value == found[0] for value in found) else None


def length(value: Any, where: str) -> int | None:
    """Return a number of tokens; None where it is not told.

    Raises:
        DamagedError: it is none that a response can have.
    """
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= MOST_TOKENS:
        raise DamagedError(f"{where} has {str(value)[:40]!r} tokens; accepted: 0 to {MOST_TOKENS:,}")
    return value


def places(value: Any, tokens: int | None, where: str) -> tuple[int, ...]:
    """Return positions within a response of `tokens` tokens, from a list or from text with spaces.

    Raises:
        DamagedError: one of them is no position there.
    """
    found = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    if len(found) > (tokens or 0):
        raise DamagedError(f"{where} marks {len(found)} of {tokens or 0} tokens")
    out = []
    for each in found:
        text = str(each)
        if isinstance(each, bool) or not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise DamagedError(f"{where} marks the token {text[:40]!r}; accepted: a position")
        if (at := int(text)) >= (tokens or 0):
            raise DamagedError(f"{where} marks position {at} of {tokens or 0} tokens")
        out.append(at)
    return tuple(out)


def problem_id(value: Any, where: str) -> str:
    """Return the id of a problem as text.

    Raises:
        DamagedError: it is no text and no whole number, or too long.
    """
    if not (isinstance(value, str) or type(value) is int) or not 0 < len(text := str(value)) <= LONGEST_ID:
        raise DamagedError(f"{where} has {str(value)[:40]!r} as a problem's id; accepted: text or a whole number")
    if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in text):
        raise DamagedError(f"{where} has a problem's id that is no text: {text[:40]!r}")
    return text


def texts(value: Any, where: str, what: str) -> tuple[str, ...]:
    """Return one text, or a list of them, as a tuple; numbers are written as text.

    Raises:
        DamagedError: something else is among them.
    """
    each = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) or is_number(one) for one in each):
        raise DamagedError(f"{where} has {what}={str(value)[:60]!r}; accepted: text")
    return tuple(map(str, each))


def numbered(responses: Sequence[ForeignResponse], where: object) -> tuple[ForeignResponse, ...]:
    """Number the samples of each problem from 0, in the order of their own numbers.

    Raises:
        DamagedError: two have one number, or problems have different numbers of samples.
    """
    by: dict[str, dict[int, ForeignResponse]] = {}
    for each in responses:
        mine = by.setdefault(each.problem, {})
        if each.sample in mine:
            raise DamagedError(f"{where} has sample {each.sample} of problem {each.problem!r} twice")
        mine[each.sample] = each
    counts = {problem: len(mine) for problem, mine in by.items()}
    first = next(iter(counts.items()), ("", 0))
    for problem, count in counts.items():
        if count != first[1]:
            raise DamagedError(
                f"{where} has {first[1]} responses to problem {first[0]!r} and {count} to {problem!r}; accepted: as "
                "many to each, since an average of what is there would be of the ones that did not fail"
            )
    return tuple(replace(mine[number], sample=i) for mine in by.values() for i, number in enumerate(sorted(mine)))
