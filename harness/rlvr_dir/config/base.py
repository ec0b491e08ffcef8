"""Define the base class of all specs (frozen, without unknown keys) and the one function that loads them.

    spec = parse(Decoding, {"mode": "replace", "tau": -0.3})
    spec = parse(EvalSpec, read_yaml("spec.yaml", ["sampling.samples=8"]))

Validators of a spec raise `UserError` with the argument, its value and what is accepted; `parse` passes it on. Errors
that pydantic finds by itself are converted to a `UserError` here.
"""

import json
import re
import types
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from os.path import expanduser
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from rlvr_dir.digest import digest
from rlvr_dir.errors import UserError, unknown, unknown_key

Place = Annotated[str, AfterValidator(expanduser)]  # a path, in which ~ is expanded, or a hub id or an address
MOST_VALUES, MOST_DEPTH = 100_000, 100  # of a YAML file


class Spec(BaseModel, frozen=True):
    """Store immutable validated data. Equal specs have equal hashes, in any process and in any key order."""

    # Schemas are built when first needed, so a command line that only prints its help builds none.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)

    called: ClassVar[str] = ""  # the name of the whole spec in messages

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_values(cls, value: Any, info: ValidationInfo) -> Any:
        """Reject `yes` for a number, because pydantic would convert it to 1."""
        if truth_for_number(value, cls.model_fields[info.field_name or ""].annotation):
            raise PydanticCustomError("truth_value", "a truth value is not a number")
        return value

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the fields, by the names of options, keys and arguments."""
        return dict(cls.model_fields)

    def canonical(self) -> str:
        """Return the spec as JSON with sorted keys and no spaces: the text that is hashed."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    def hash(self) -> str:
        """Return the first 16 hexadecimal digits of the SHA-256 of `canonical()`."""
        return digest(self.canonical())

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some fields changed.

        Raises:
            UserError: The changed spec is not valid.
        """
        return parse(type(self), {**self.model_dump(), **changes})


def truth_for_number(value: Any, annotation: Any) -> bool:
    """Return whether a truth value, alone or in a list, was given for a type that allows numbers but no truth
    values."""
    accepted = _leaves(annotation)
    values = value if isinstance(value, list | tuple) else [value]
    meant = bool(accepted & {int, float}) and not accepted & {bool, Any}
    return meant and any(isinstance(item, bool) for item in values)


@cache
def _leaves(annotation: Any) -> frozenset[Any]:
    """Return the types in an annotation; `bool` for a literal truth value."""
    if get_origin(annotation) is Literal:
        return frozenset(type(value) for value in get_args(annotation))
    inner = get_args(annotation)
    return frozenset().union(*map(_leaves, inner)) if inner else frozenset([annotation])


S = TypeVar("S", bound=Spec)
_MERGE = "tag:yaml.org,2002:merge"  # the key `<<`, which may occur several times


def parse(spec: type[S], data: Any, where: str = "") -> S:
    """Validate `data` as a `spec`. In messages, names begin with `where` (`decode.`, `pair.json `).

    Raises:
        UserError: A value is not valid; the error names the first such argument, its value and what is accepted.
    """
    if isinstance(data, spec):
        return data
    if not isinstance(data, Mapping):
        raise _no_mapping(where.rstrip(". "), data, spec)
    try:
        return spec.model_validate(dict(data))
    except ValidationError as error:
        # A misspelt key explains a missing one, so it is reported first.
        first = min(error.errors(include_url=False), key=lambda error: error["type"] != "extra_forbidden")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):  # raised by a validator, which names the argument itself
        raise cause if isinstance(cause, UserError) else UserError(str(cause))
    names, inner, annotation = _walk(spec, first["loc"])
    name = (where + ".".join(names)).rstrip(". ")
    if first["type"] == "extra_forbidden":
        section = (where + ".".join(names[:-1])).rstrip(". ") or spec.called
        for key, field in inner.model_fields.items():
            nested = _not_none(field.annotation)
            if isinstance(nested, type) and issubclass(nested, Spec) and names[-1] in nested.options():
                raise UserError(
                    f"Unknown key {names[-1]!r} in {section}",
                    argument=names[-1],
                    hint=f"Did you mean '{key}.{names[-1]}'?",
                )
        raise unknown_key(names[-1], inner.options(), section)
    if first["type"] in ("model_type", "model_attributes_type"):
        raise _no_mapping(name, first["input"], inner)
    if first["type"] == "missing":
        raise UserError(f"{name} is missing" + (f" in the {spec.called}" if spec.called else ""), argument=name)
    if first["type"] == "literal_error" and get_origin(annotation) is Literal and len(short_repr(first["input"])) <= 80:
        raise unknown(name, first["input"], get_args(annotation))
    message = first["msg"]
    raise UserError(f"is not allowed: {message[0].lower()}{message[1:]}", argument=name, value=first["input"])


def _no_mapping(name: str, value: object, spec: type[Spec]) -> UserError:
    if not name:
        return UserError(f"the {spec.called or spec.__name__} is not a mapping of keys to values")
    return UserError(argument=name, value=value, accepted=f"a mapping of {', '.join(spec.model_fields)}")


def short_repr(value: object) -> str:
    """Return a value as text for a message, whatever its size."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with thousands of digits; deeply nested lists
        return f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}…"


def _walk(spec: type[Spec], location: Sequence[int | str]) -> tuple[list[str], type[Spec], Any]:
    """Return the names of the fields in an error's location, the innermost spec, and the annotation of the last field.

    Locations also contain pydantic's names for the members of a union, and the names end before them.
    """
    names: list[str] = []
    at: Any = spec
    for part in location:
        origin = get_origin(at)
        if isinstance(at, type) and issubclass(at, Spec):
            spec = at
            field = at.options().get(str(part), at.model_fields.get(str(part)))
            at = None if field is None else _not_none(field.annotation)
        elif origin is dict:
            at = _not_none(get_args(at)[1])
        elif origin in (tuple, list):
            at = _not_none(get_args(at)[0])
        else:
            break
        names.append(str(part))
    if isinstance(at, type) and issubclass(at, Spec):
        spec = at
    return names, spec, at


def _not_none(annotation: Any) -> Any:
    """Return `X` for `X | None`; other types unchanged."""
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [member for member in get_args(annotation) if member is not type(None)]
        return rest[0] if len(rest) == 1 else annotation
    return annotation


def read_yaml(path: Path | str | None, changes: Iterable[str] = ()) -> dict[str, Any]:
    """Read the mapping in a YAML file (None: an empty one) and apply changes of the form `a.b=value`.

    Raises:
        UserError: The file does not exist or is not a YAML mapping, or a change does not name a key.
    """
    try:
        text = "{}" if path is None else Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", argument="file", value=str(path)) from None
    except UnicodeDecodeError as error:
        raise UserError(f"is not YAML ({error})", argument="file", value=str(path)) from None
    data = yaml_mapping(text, path)
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise UserError(argument="set", value=change, accepted="KEY=VALUE, as sampling.samples=8")
        set_key(data, name.strip(), _yaml(value, "set"))
    return data


def yaml_mapping(text: Any, where: object) -> dict[str, Any]:
    """Return the mapping that a YAML text contains. Messages begin with `where`.

    Raises:
        UserError: The text is not YAML, or not a mapping of texts to values.
    """
    data = _yaml(text, where)
    if not isinstance(data, dict):
        raise UserError(f"{where} {'is empty' if data is None else 'is not a mapping'}", accepted="keys with values")
    if wrong := [key for key in data if not isinstance(key, str)]:
        raise UserError(f"{where}: the key {short_repr(wrong[0])} is not allowed", accepted="text")
    return data


def _yaml(text: Any, where: object) -> Any:
    import yaml

    try:
        data = load_yaml(text)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{where} is not YAML ({' '.join(str(error).split())[:160]})") from None
    pending, seen = [(data, 0)], 0
    while pending:  # aliases can make a few lines of YAML arbitrarily large
        value, depth = pending.pop()
        seen += 1
        if seen > MOST_VALUES or depth > MOST_DEPTH:
            raise UserError(f"{where} has more than {MOST_VALUES:,} values, or nests deeper than {MOST_DEPTH}")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        pending += [(item, depth + 1) for item in inner]
    return data


# Names of our fields in other data sets.
SYNONYMS = {
    "question": "problem", "prompt": "problem", "query": "problem", "input": "problem", "text": "problem",
    "solution": "answer", "gold": "answer", "target": "answer", "label": "answer", "final_answer": "answer",
}  # fmt: skip


def read_jsonl(path: Path | str, names: tuple[str, ...]) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects of a JSONL file, each with its line number. All of them have the keys `names`.

    Raises:
        OSError: The file cannot be read.
        UserError: A line is not an object, a key is missing or repeated, or JSON converted a TeX command to a control
            character; or the file is not UTF-8.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8", accepted=f"one object a line with {', '.join(names)}") from None
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        row = _read_line(line, f"{path} line {number}", names)
        if missing := [name for name in names if not isinstance(row, dict) or name not in row]:
            has = f"; it has {', '.join([repr(key) for key in row][:5])}" if isinstance(row, dict) and row else ""
            meant = [
                key for key in (row if isinstance(row, dict) else ()) if SYNONYMS.get(key.casefold()) == missing[0]
            ]
            raise UserError(
                f"{path} line {number} has no {missing[0]!r}{has}",
                accepted=f"an object with {', '.join(names)}",
                hint=f"Rename {meant[0]!r} to {missing[0]!r} in every line." if meant else "",
            )
        rows.append((number, row))
    return rows


# What JSON makes of `\frac`, `\times`, `\neq` and similar commands with a single backslash: a control character and the
# rest of the word. A problem may contain line breaks and tabs, so only words that do not begin a line are matched.
_LOST = (
    r"[\b\f](?=[A-Za-z])|\t(?=(?:imes|ext[a-z]*|heta|frac|riangle|ilde|(?:an|au)(?=[\\({^_]))(?![A-Za-z]))"
    r"|\r(?=(?:ight|ho|angle|floor|ceil)(?![A-Za-z]))|\n(?=(?:eq|abla|ot|otin|geq|leq)(?![A-Za-z]))"
)
_LOST_IN = {"problem": re.compile(_LOST), "answer": re.compile(rf"[\t\r](?=[A-Za-z])|{_LOST}")}
_LETTERS = {"\b": "b", "\f": "f", "\t": "t", "\r": "r", "\n": "n"}


def _read_line(line: str, where: str, names: tuple[str, ...]) -> Any:
    """Return the value of a line of JSON.

    Raises:
        UserError: The line is not JSON, an object has a key twice, or a backslash was lost in a problem or an answer.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            twice = next(key for key in row if sum(key == other for other, _ in pairs) > 1)
            raise UserError(f"{where} has the key {twice!r} twice", hint="Remove one of them.")
        return row

    accepted = f"an object with {', '.join(names)}"
    try:
        row = json.loads(line, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        backslash = "escape" in error.msg or "\\" in line[max(0, error.pos - 1) : error.pos + 1]
        hint = r'In JSON a backslash is written as two: "\\frac{1}{2}".' if backslash else ""
        problem = f"{where} is not JSON: {error.msg} at character {error.colno}"
        raise UserError(problem, accepted=accepted, hint=hint) from None
    except UserError:
        raise
    except (ValueError, RecursionError) as error:  # Python does not read numbers of more than 4,300 digits
        long = isinstance(error, ValueError)
        problem = "has a number with thousands of digits" if long else "nests too many brackets"
        hint = "Write the number as text, in quotes." if long else ""
        raise UserError(f"{where} {problem}", accepted=accepted, hint=hint) from None
    for name in ("problem", "answer", "answers"):
        values = row.get(name) if isinstance(row, dict) else None
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str) and (lost := _LOST_IN[name.removesuffix("s")].search(value)):
                word = re.match("[A-Za-z]*", value[lost.end() :])
                command = _LETTERS[lost[0]] + (word[0] if word else "")
                raise UserError(
                    f"in {where} has a control character where TeX has \\{command}",
                    argument=name,
                    value=value[:80],
                    hint=rf'In JSON a backslash is written as two: "\\{command}".',
                )
    return row


def load_yaml(text: str) -> Any:
    """Read YAML with plain values. Repeated keys are not allowed, because YAML would silently use the last one.

    Raises:
        yaml.YAMLError: The text is not YAML, or a key is repeated.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Read plain values only."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGE]
            seen: set[Hashable] = set()
            for key in (key for key in keys if isinstance(key, Hashable)):  # others are rejected below
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {short_repr(key)} is there twice", node.start_mark
                    )
                seen.add(key)
            return super().construct_mapping(node, deep)

    return yaml.load(text, Loader)


def set_key(data: dict[str, Any], name: str, value: Any) -> None:
    """Set a key such as `sampling.samples`. The parameters of a sweep contain a dot in their names.

    Raises:
        UserError: A part of the name is not a mapping.
    """
    parts = name.split(".")
    if parts[0] == "parameters" and len(parts) > 2:
        parts = ["parameters", ".".join(parts[1:3]), *parts[3:]]
    for part in parts[:-1]:
        if data.get(part) is None:
            data[part] = {}
        data = data[part]
        if not isinstance(data, dict):
            raise UserError(f"is not allowed: {part} holds no keys", argument="set", value=name)
    data[parts[-1]] = value
