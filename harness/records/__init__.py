"""The resumable store of rollouts: appended durably as they finish, the same bytes in the end whatever happened.

    with RecordStore("runs/records").open(config, "aime24", problems, samples=32) as record:
        for rollout in decode(record.missing()):
            record.add(rollout)
        record.finish()

Interrupt it anywhere and run it again. Plain files; docs/records.md says which.
"""

from harness.records.config import RecordConfig, fingerprint
from harness.records.journal import Entry
from harness.records.record import Record
from harness.records.rollout import Key, StoredRollout
from harness.records.store import RecordStore, Snapshot
from harness.records.verdicts import judge_name

__all__ = [
    "Entry",
    "Key",
    "Record",
    "RecordConfig",
    "RecordStore",
    "Snapshot",
    "StoredRollout",
    "fingerprint",
    "judge_name",
]
