"""Read a condition on an audit's numbers, such as `gain < 0`; `--fail-if` sets the exit status by it.

    NAME [.low | .high] (< | <= | > | >=) NUMBER

NAME is the name of a row, such as `outcomes/gain`, or the part after its group, `gain`. `.low` and `.high` are the ends
of its interval. NUMBER is in the unit in which the page prints the row.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from rlvr_dir.audit.claim import Claim
from rlvr_dir.errors import UserError, nearest
from rlvr_dir.stats import Estimate

_CONDITION = re.compile(r"\s*([\w./]+?)(?:\.(low|high))?\s*(<=|>=|<|>)\s*([+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*")
_HOLDS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def condition(text: str, claims: Sequence[Claim]) -> Callable[[Mapping[str, Estimate]], bool]:
    """Return a function that takes the numbers by name and returns whether the condition in `text` holds.

    `claims` are the rows that it may name. The function raises UserError if the number was not measured, or has no
    interval.

    Raises:
        UserError: The text does not have this form, or no row has this name.
    """
    if (found := _CONDITION.fullmatch(text)) is None:
        raise UserError("cannot be read", argument="fail_if", value=text, accepted="NAME < NUMBER, such as 'gain < 0'")
    name, end, compare, number = found.groups()
    named = [claim for claim in claims if name in (claim.name, claim.name.partition("/")[2])]
    if not named:
        names = [claim.name for claim in claims]
        near = nearest(name, [short.partition("/")[2] for short in names], 1)
        hint = f"Did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"names {name!r}, which is no row", argument="fail_if", value=text, accepted=", ".join(names), hint=hint
        )

    def holds(numbers: Mapping[str, Estimate]) -> bool:
        value = getattr(numbers.get(named[0].name, Estimate(None)), end or "value")
        if value is None:
            raise UserError("needs a number that was not measured", argument="fail_if", value=text)
        return _HOLDS[compare](named[0].unit * value, float(number))

    return holds
