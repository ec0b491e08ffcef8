# Triton, unchecked: its kernels are a language of their own in Python's syntax.
from typing import Any

def __getattr__(name: str) -> Any: ...
