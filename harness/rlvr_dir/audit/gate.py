"""A condition on an audit's numbers, such as `gain < 0`, that decides the exit status of the command (`--fail-if`).

    NAME [.low | .high] (< | <= | > | >=) NUMBER

NAME is the name of a row, such as `outcomes/gain`, or what follows its group: `gain`. `.low` and `.high` are
the ends of its interval. NUMBER is in the unit in which the page prints the row.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rlvr_dir.audit.claim import Claim
from rlvr_dir.errors import UserError, unknown
from rlvr_dir.stats import Estimate

_CONDITION = re.compile(r"([\w./]+?)(?:\.(low|high))?\s*(<=|>=|<|>)\s*([+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?)")
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


class Condition(NamedTuple):
    """A row, which end of its interval (or its value), and what that is compared with."""

    text: str
    claim: Claim
    end: str
    compare: str
    number: float

    def holds(self, estimates: Mapping[str, Estimate]) -> bool:
        """Return whether it holds for these numbers, by the name of the claim.

        Raises:
            UserError: The number was not measured, or has no interval.
        """
        value = getattr(estimates.get(self.claim.name, Estimate(None)), self.end)
        if value is None:
            raise UserError("needs a number that was not measured", argument="fail_if", value=self.text)
        return _HOLDS[self.compare](self.claim.unit * value, self.number)


def condition(text: str, claims: Sequence[Claim]) -> Condition:
    """Read a condition on one of these claims.

    Raises:
        UserError: It does not have this form, or no row has this name.
    """
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise UserError("cannot be read", argument="fail_if", value=text, accepted="NAME < NUMBER, such as 'gain < 0'")
    name, end, compare, number = found.groups()
    for claim in claims:
        if name in (claim.name, claim.name.partition("/")[2]):
            return Condition(text, claim, end or "value", compare, float(number))
    raise unknown("fail_if", name, [claim.name for claim in claims])
