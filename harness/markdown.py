"""Markdown tables, padded to be read as they are: the one that every room prints with."""

from collections.abc import Sequence


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int | Sequence[bool] = 1) -> str:
    """Return a table of text that is printed as it is.

    `left` says which columns are words, set to the left: the first so many, or one flag a column. Others are numbers.
    """
    from tabulate import tabulate

    words = [i < left for i in range(len(head))] if isinstance(left, int) else left
    align = ["left" if each else "right" for each in words]
    # tabulate takes alignments of columns only where there are rows
    return tabulate(rows, head, "pipe", disable_numparse=True, colalign=align if rows else None)
