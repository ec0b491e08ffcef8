"""Store responses so that decoding can resume: each is appended durably as it finishes.

The final content does not depend on interruptions.

    with RecordStore("runs/records").open(config, "aime24", problems, samples=32) as record:
        for rollout in decode(record.missing()):
            record.add(Row.from_rollout(rollout))
        record.finish()

Interrupt it anywhere and run it again. Each record is one file; docs/records.md describes its bytes.
"""

from rlvr_dir.records.config import RecordConfig, fingerprint
from rlvr_dir.records.record import Record
from rlvr_dir.records.replay import Replay
from rlvr_dir.records.row import Key, Row
from rlvr_dir.records.store import RecordStore
from rlvr_dir.records.verdicts import judge_name

__all__ = ["Key", "Record", "RecordConfig", "RecordStore", "Replay", "Row", "fingerprint", "judge_name"]
