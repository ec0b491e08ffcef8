# TRL, unchecked: built on transformers, and what its configuration fills in by itself is optional to its annotations.
from typing import Any

def __getattr__(name: str) -> Any: ...
