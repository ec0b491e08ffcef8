"""Measure what papers report about RLVR on any pair of checkpoints, in one table and on one page.

    from rlvr_dir import audit
    audit("my-base", "my-rl", tasks="mine.jsonl", rows="tokens,weights")      # a pandas frame, one row per claim

`claim.py` defines a claim. `tokens.py`, `weights.py`, `interventions.py` and `outcomes.py` list the claims. `gather.py`
reads and generates the data that they need, `run.py` makes the table, and `page.py` shows it.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """Represent this module as a callable: `rlvr_dir.audit` is the package and the function of the same name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from rlvr_dir.audit.run import audit

        return audit(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
