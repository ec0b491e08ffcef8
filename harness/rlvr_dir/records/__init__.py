"""The resumable store of responses: appended durably as they finish, the same in the end whatever happened.

    with RecordStore("runs/records").open(config, "aime24", problems, samples=32) as record:
        for rollout in decode(record.missing()):
            record.add(Row.from_rollout(rollout))
        record.finish()

Interrupt it anywhere and run it again. One file a record; docs/records.md has its bytes.
"""

from rlvr_dir.records.config import RecordConfig, fingerprint
from rlvr_dir.records.record import Record
from rlvr_dir.records.replay import Replay
from rlvr_dir.records.row import Key, Row
from rlvr_dir.records.store import RecordStore
from rlvr_dir.records.verdicts import judge_name

__all__ = ["Key", "Record", "RecordConfig", "RecordStore", "Replay", "Row", "fingerprint", "judge_name"]
