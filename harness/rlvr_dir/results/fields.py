"""Define the stored fields of a result: tables of numbers, and their provenance."""

from typing import Annotated, Any

import numpy as np
from pydantic import (
    PlainValidator,
    ValidationInfo,
)

from rlvr_dir.config import parse
from rlvr_dir.config.base import short_repr
from rlvr_dir.config.stored import MOST, Count, Plain, Stored, Text
from rlvr_dir.errors import UserError


def _table(name: str, kinds: str, least: float, most: float, dtype: type) -> PlainValidator:
    """Return a validator for a table of numbers of some kinds (of numpy's dtypes), as a read-only array."""

    def check(value: Any, info: ValidationInfo) -> np.ndarray:
        try:
            table = np.asarray(value)
        except ValueError:  # rows of different lengths
            table = np.empty(0)
        good = table.ndim == 2 and table.size and table.dtype.kind in kinds and np.isfinite(table).all()
        if not good or table.min() < least or table.max() > most:
            cells = [cell for row in value if isinstance(row, list) for cell in row] if isinstance(value, list) else []
            wrong = [cell for cell in cells if type(cell) not in (bool, int, float) or not least <= cell <= most]
            problem = f"{short_repr(wrong[0])} in it" if wrong else "not such numbers, or rows of different lengths"
            accepted = f"{name}, (problems, samples)"
            raise UserError(f"{info.field_name} has {problem}", argument=info.field_name or "", accepted=accepted)
        table = table.astype(dtype)
        table.setflags(write=False)
        return table

    return PlainValidator(check)


Flags = Annotated[np.ndarray, _table("a table of 0 and 1", "biu", 0, 1, bool)]
Counts = Annotated[np.ndarray, _table("a table of whole numbers", "iu", 0, MOST, np.int64)]
Votes = Annotated[np.ndarray, _table("a table of whole numbers", "iu", -1, MOST, np.int64)]


def distinct(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(ids)) < len(ids):
        raise ValueError(f"problem_ids names {next(key for key in ids if ids.count(key) > 1)!r} twice")
    return ids


class TrainingSeed(Stored, frozen=True):
    """Identify the training that produced a result's RL model."""

    name: Text
    seed: Count


class Provenance(Stored, frozen=True):
    """Store how a result was made, as far as it is read again; other keys are free."""

    settings: Text | None = None  # the hash of the record's config
    shared: Text | None = None
    data: Text | None = None
    grader: Text | None = None
    partial: Text | None = None
    part: Text | None = None
    records: Text | None = None
    record: Text | None = None
    benchmark_size: Count | None = None
    examples: Count | None = None
    weights: dict[str, Text] | None = None
    graded_with: dict[str, Text] | None = None
    engine: Plain | None = None
    versions: Plain | None = None
    argv: tuple[Text, ...] | None = None
    training: TrainingSeed | None = None


def checked_provenance(value: Any) -> Any:
    parse(Provenance, value, where="provenance.")
    return value
