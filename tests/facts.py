"""Expect a user's mistake, or a warning, by its facts: argument, values, names, paths. Wording is free."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rlvr_dir.errors import UserError
from rlvr_dir.grading import grader_name

ROBUST = grader_name("robust")  # the default grader, with its version


def states(message: object, *facts: object) -> bool:
    """Return whether a message contains each of these facts."""
    missing = [fact for fact in map(str, facts) if fact not in str(message)]
    assert not missing, f"{missing} not in {str(message)!r}"
    return True


@contextmanager
def refuses(*facts: object, kind: type[Exception] = UserError) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error of this kind that states the facts. If it names an argument, that is the first of them."""
    with pytest.raises(kind) as info:
        yield info
    assert isinstance(info.value, kind)
    argument = getattr(info.value, "argument", "")
    named = argument.split()[-1:]  # `gen_kwargs top_p`: the place, then the argument
    assert not named or [*map(str, facts[:1])] == named, f"{argument!r}: {info.value}"
    states(info.value, *facts)


@contextmanager
def warns_of(*facts: object, kind: type[Warning] = UserWarning) -> Iterator[list[warnings.WarningMessage]]:
    """Expect a warning of this kind that states the facts."""
    with pytest.warns(kind) as seen:
        yield list(seen)
    texts = [str(warning.message) for warning in seen]
    assert any(all(str(fact) in text for fact in facts) for text in texts), f"{facts} not in {texts}"
