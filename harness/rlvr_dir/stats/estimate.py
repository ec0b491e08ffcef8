"""Define a number with its 95 % interval, and how both are printed.

>>> Estimate(0.5542, 0.441, 0.667).text(2)
'55.42 [44.10, 66.70]'
"""

from dataclasses import dataclass
from math import isfinite

from rlvr_dir.markdown import interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """Hold a number and its 95 % interval; None if it, or the interval, is not known.

    With a `low` and no `high` there is only a lower bound, which is printed as `≥ 3.20`.
    """

    value: float | None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            object.__setattr__(self, name, float(number) if number is not None and isfinite(number) else None)

    def number(self, digits: int = 2, *, unit: float = 100.0, sign: bool = False) -> str:
        """Return the number, times `unit`, as text; a dash if it is not known."""
        return "–" if self.value is None else f"{unit * self.value:{'+' if sign else ''}.{digits}f}"

    def interval(self, digits: int = 2, *, unit: float = 100.0, sign: bool = False) -> str:
        """Return the interval, `[44.10, 66.70]`, or the lower bound, as text; empty if it is not known."""
        if self.low is not None and self.high is None:
            return f"≥ {unit * self.low:{'+' if sign else ''}.{digits}f}"
        if self.low is None or self.high is None:
            return ""
        return interval(self.low, self.high, digits, sign=sign, unit=unit)

    def text(self, digits: int = 2, *, unit: float = 100.0, sign: bool = False) -> str:
        """Return both as text."""
        kwargs = {"unit": unit, "sign": sign}
        return f"{self.number(digits, **kwargs)} {self.interval(digits, **kwargs)}".rstrip()


def p_value(p: float, at_most: bool = False) -> str:
    """Return a p value with three decimals; a smaller one as `< 0.001`, never 0.000; an empty text for NaN.

    `at_most` means that p is the least value that a test with random signs can return, before or after a correction: it
    is written as `≤ 0.012`.
    """
    if p != p:
        return ""
    return "< 0.001" if p < 0.001 else f"{'≤ ' if at_most and p < 1 else ''}{p:.3f}"
