# transformers, unchecked: reading its 2,700 files takes basedpyright longer than all the rest, and what they say of
# tokenizers, models and caches is often not what these do.
from typing import Any

def __getattr__(name: str) -> Any: ...
