"""The audit: what is said of RLVR, measured on any pair of checkpoints, in one table and on one page.

    from rlvr_dir import audit
    audit("my-base", "my-rl", tasks="mine.jsonl", rows="tokens,weights")      # a pandas frame, a row a claim

`claim.py` says what a claim is; `tokens.py`, `weights.py`, `interventions.py` and `outcomes.py` list them; `gather.py`
reads and decodes what they need, `run.py` makes the table, `page.py` shows it.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """Let this module be called: `rlvr_dir.audit` is the room, and the function of the same name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from rlvr_dir.audit.run import audit

        return audit(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
