"""Make the table of the five parts of a replacement's effect, which add up, and of other orders."""

from collections.abc import Sequence
from typing import Any

from rlvr_dir.report.model import Section, cell, frame
from rlvr_dir.results.compare import OTHERS, PARTS, Comparison, five_parts, other_contrasts
from rlvr_dir.stats import Estimate


def parts_table(rows: Sequence[Comparison]) -> Section | None:
    """Return the five parts of each replacement whose cells were all decoded; None if there is none."""
    table: list[dict[str, Any]] = []
    others = False
    for parts in five_parts(rows):
        replaced, base = parts["cut of other"].result, parts["second draw"].reference
        identity = {"Replacement": f"{replaced.label}, {replaced.benchmark}"}
        table += [identity | {"Part": words, "Points": _points(parts[name])} for name, words in PARTS.items()]
        whole = cell(replaced.avg - base.avg, 1, plus=True)
        table.append(identity | {"Part": "replace − base: the sum", "Points": whole})
        more = other_contrasts(parts, rows)
        others = others or bool(more)
        table += [identity | {"Part": OTHERS[name], "Points": _points(row)} for name, row in more.items()]
    if not table:
        return None
    note = (
        "Each part changes one thing. RL's decision is exactly 0 if both models draw the flagged token equally often, "
        "and RL's token is exactly 0 if both distributions are equal without it, at any top-p and greedily. p is "
        "corrected over all comparisons of this report (Holm)."
    )
    note += " The rows below the sum are no parts of it, and are corrected by themselves." if others else ""
    return Section("parts", "What a replacement adds to base, in five parts", frame(table), (note,))


def _points(row: Any) -> Any:
    d = row.difference
    return cell(Estimate(d.mean, d.low, d.high), 1, plus=True, beside=[f"p {row.holm_text}"])
