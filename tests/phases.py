"""Which phases a command names, in the order in which they begin; how long they take does not matter."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.progress import Entry


@contextmanager
def named_phases() -> Iterator[list[str]]:
    """Gives the list that the names are put into."""
    names: list[str] = []

    def noted(self, name, value):
        if name == "name" and value:
            names.append(value)
        object.__setattr__(self, name, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Entry, "__setattr__", noted, raising=False)
        yield names
