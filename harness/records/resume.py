"""Going on where it stopped: what is held comes from the record, only the rest is decoded."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from harness.records.record import Record
from harness.records.rollout import Key, StoredRollout


def resume(record: Record, generate: Callable[[list[Key]], Iterable[Any]]) -> Iterator[StoredRollout]:
    """Yields every rollout asked of `record`, and finishes it.

    Args:
        record: open for writing.
        generate: from the missing keys (problem, sample) to their rollouts, in any order; not called if none is.

    A rollout is stored before it is yielded: whatever a caller has seen, a restart will not decode again.
    """
    missing = record.missing()
    yield from record.rollouts()
    for rollout in generate(missing) if missing else ():
        yield record.add(rollout)
    if left := record.missing():
        raise RuntimeError(f"no rollout came back for {len(left)} of {len(missing)} missing keys, {left[0]} first")
    record.finish()
