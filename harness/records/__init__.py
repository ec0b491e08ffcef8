"""The resumable store of responses: appended durably as they finish, the same in the end whatever happened.

    with RecordStore("runs/records").open(config, "aime24", problems, samples=32) as record:
        for rollout in decode(record.missing()):
            record.add(Row.from_rollout(rollout))
        record.finish()

Interrupt it anywhere and run it again. One file a record; docs/records.md has its bytes.
"""

from harness.records.config import RecordConfig, fingerprint
from harness.records.record import Record
from harness.records.replay import Replay
from harness.records.row import Key, Row
from harness.records.store import RecordStore
from harness.records.verdicts import judge_name

__all__ = ["Key", "Record", "RecordConfig", "RecordStore", "Replay", "Row", "fingerprint", "judge_name"]
