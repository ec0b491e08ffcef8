"""List the keys of a YAML file with their defaults and meanings, from its spec.

print("\n".join(keys(SweepSpec)))
"""

import json
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from rlvr_dir.config.base import Spec

_COLUMN = 40  # where descriptions begin


def keys(spec: type[Spec], values: Mapping[str, Any] | None = None, indent: str = "") -> Iterator[str]:
    """Yield one line per key, `name: default  # What it means.`: YAML, except for required keys.

    A section's keys are indented below it. Sections that are left out by default are comments.

    Args:
        values: Other defaults than the spec's own, as plain values.
    """
    for name, info in spec.options().items():
        missing = values is None and info.is_required()
        value: Any = None if missing else _default(info) if values is None else values.get(name)
        if isinstance(extra := info.json_schema_extra, dict) and "written" in extra:  # not the validated value
            value = extra["written"]
        section = _section(info.annotation)
        opened = section is not None and isinstance(value, dict)
        text = "" if missing or opened else json.dumps(value, ensure_ascii=False)
        comment = " ".join(filter(None, ("Required." if missing else "", info.description)))
        yield (f"{indent}{name}: {text}".ljust(_COLUMN) + (f"  # {comment}" if comment else "")).rstrip()
        if section is not None:
            yield from keys(section, value if opened else None, f"{indent}  " if opened else f"{indent}#   ")


def _default(info: FieldInfo) -> Any:
    """Return a field's default as it is written in a file."""
    kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    return TypeAdapter(kind).dump_python(info.get_default(call_default_factory=True), mode="json")


def _section(kind: Any) -> type[Spec] | None:
    """Return the spec that a key contains; None if it contains something else."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Spec)), None)
