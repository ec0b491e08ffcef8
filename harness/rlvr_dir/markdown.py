"""Markdown tables, padded to be read as they are, and intervals in percent: those that every room prints with."""

import re
from collections.abc import Sequence

from rlvr_dir.text import visible

_BAR = re.compile(r"(?<!\\)\|")


MOST_DIGITS = 6  # after the point, of a bound near zero


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int | Sequence[bool] = 1) -> str:
    """Return a table of text, whatever is in it: a cell stays one line and one column.

    `left` says which columns are words, set to the left: the first so many, or one flag a column. Others are numbers.
    """
    from tabulate import tabulate

    words = [i < left for i in range(len(head))] if isinstance(left, int) else left
    align = ["left" if word else "right" for word in words]
    # tabulate takes alignments of columns only where there are rows
    head, *rows = ([_BAR.sub(r"\|", visible(cell)) for cell in row] for row in (head, *rows))
    return tabulate(rows, head, "pipe", disable_numparse=True, colalign=align if rows else None)


def interval(low: float, high: float, digits: int = 1, *, sign: bool = False, unit: float = 100) -> str:
    """Write an interval of fractions in percent, or times another `unit`; nothing where it is not known (NaN).

    A bound that would be rounded to zero is written with the digits that say on which side of zero it is.

    >>> interval(0.00004, 0.0121, sign=True)
    '[+0.004, +1.2]'
    """
    if low != low or high != high:
        return ""
    return f"[{_bound(unit * low, digits, sign)}, {_bound(unit * high, digits, sign)}]"


def _bound(value: float, digits: int, sign: bool) -> str:
    places = next((more for more in range(digits, MOST_DIGITS + 1) if float(f"{value:.{more}f}")), None)
    if places is None:  # zero, or so near that nobody asks on which side
        places, value = digits, 0.0
    return f"{value + 0.0:{'+' if sign else ''}.{places}f}"


def duration(seconds: float) -> str:
    """Return seconds as `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
