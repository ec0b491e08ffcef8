"""The table of what a replacement adds to base, in five parts that add up."""

from collections.abc import Sequence

from rlvr_dir.report.model import Section, cell, frame
from rlvr_dir.results.compare import PARTS, Comparison, five_parts
from rlvr_dir.stats import Estimate


def parts_table(rows: Sequence[Comparison]) -> Section | None:
    """Return the five parts of each replacement whose cells were all decoded; None if there is none."""
    whole_rows = five_parts(rows)
    if not whole_rows:
        return None
    table = []
    for parts in whole_rows:
        replaced, base = parts["cut of other"].result, parts["second draw"].reference
        label = f"{replaced.label}, {replaced.benchmark}"
        for name, words in PARTS.items():
            row = parts[name]
            d = row.difference
            points = cell(Estimate(d.mean, d.low, d.high), 1, plus=True, beside=[f"p {row.holm_text}"])
            table.append({"Replacement": label, "Part": words, "Points": points})
        whole = cell(replaced.avg - base.avg, 1, plus=True)
        table.append({"Replacement": label, "Part": "replace − base: the sum", "Points": whole})
    note = (
        "Each part changes one thing. RL's decision is exactly 0 if both models draw the flagged token equally often, "
        "and RL's token is exactly 0 if both distributions are equal without it, at any top-p and greedily. p is "
        "corrected over all comparisons of this report (Holm)."
    )
    return Section("parts", "What a replacement adds to base, in five parts", frame(table), (note,))
