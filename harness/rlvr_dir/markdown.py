"""Format Markdown tables, padded for reading as text, and intervals in percent, for all rooms."""

import re
from collections.abc import Sequence

from rlvr_dir.text import visible

_BAR = re.compile(r"(?<!\\)\|")


MOST_DIGITS = 6  # decimals of a bound near zero


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int | Sequence[bool] = 1) -> str:
    """Return a table of any text. A cell stays one line and one column.

    `left` selects the columns of words, which are aligned left: a number of first columns, or one flag per column.
    Others are numbers.
    """
    from tabulate import tabulate

    words = [i < left for i in range(len(head))] if isinstance(left, int) else left
    align = ["left" if word else "right" for word in words]
    # tabulate only accepts alignments of columns if there are rows
    head, *rows = ([_BAR.sub(r"\|", visible(cell)) for cell in row] for row in (head, *rows))
    return tabulate(rows, head, "pipe", disable_numparse=True, colalign=align if rows else None)


def interval(low: float, high: float, digits: int = 1, *, sign: bool = False, unit: float = 100) -> str:
    """Return an interval of fractions in percent, or times another `unit`; an empty text if it is not known (NaN).

    A bound that would be rounded to zero has as many digits as are needed to show on which side of zero it is.

    >>> interval(0.00004, 0.0121, sign=True)
    '[+0.004, +1.2]'
    """
    if low != low or high != high:
        return ""
    return f"[{_bound(unit * low, digits, sign)}, {_bound(unit * high, digits, sign)}]"


def _bound(value: float, digits: int, sign: bool) -> str:
    places = next((more for more in range(digits, MOST_DIGITS + 1) if float(f"{value:.{more}f}")), None)
    if places is None:  # zero, or so close that the side does not matter
        places, value = digits, 0.0
    return f"{value + 0.0:{'+' if sign else ''}.{places}f}"


def duration(seconds: float) -> str:
    """Return seconds as `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
