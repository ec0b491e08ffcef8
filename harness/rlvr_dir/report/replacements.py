"""Make the chapter of a report that names the changed tokens: which token was written instead of which."""

from collections.abc import Sequence
from typing import Any

from rlvr_dir.report.model import Chapter, Section, cell, frame
from rlvr_dir.results.replacements import Replacements, quoted

MOST_ROWS = 20  # rows of a table
AROUND = 30  # characters of an example's text on either side


def replacements_chapter(several: Sequence[Replacements]) -> Chapter | None:
    """Return a chapter with a table for each result; None if there is none."""
    if not several:
        return None
    text = (
        "A gate flags tokens that base proposes (RL, if RL is the primary). A flagged token changed if another token "
        "was written: the proposed token was dropped. Δ log p is log π_RL − log π_base. A negative value means that RL "
        "made the token less likely, a positive one that RL made it more likely."
    )
    sections = tuple(replacements_table(replaced, f"replacements-{number}") for number, replaced in enumerate(several))
    return Chapter("Which tokens changed", (text,), sections)


def replacements_table(replaced: Replacements, name: str) -> Section:
    """Return the table of the most frequent replacements."""
    rows = [
        {
            "Dropped": quoted(row["proposed_text"], row["proposed"]),
            "Written": quoted(row["written_text"], row["written"]),
            "Times": row["times"],
            "Of all changed": cell(row["share"], 1, suffix=" %"),
            "Problems": row["problems"],
            "Δ log p\nof the dropped": cell(row["delta_logp"], 2, unit=1, plus=True),
            "Δ log p\nof the written": cell(row["delta_logp_written"], 2, unit=1, plus=True),
            **({} if replaced.right is None else {"Responses right": cell(row["right"], 1, suffix=" %")}),
            "First example": _example(row),
        }
        for row in replaced.frame[:MOST_ROWS].to_dict("records")
    ]
    first, *notes = replaced.sentences()
    notes.append(
        f"The {len(rows)} most frequent of {len(replaced.frame):,} different replacements. Δ log p in nats, means."
    )
    if replaced.right is not None:
        notes.append(
            "Responses right: of the responses that have this replacement. Of all responses "
            f"{100 * replaced.right:.1f} % are right."
        )
    if replaced.expected:
        notes.append(
            "These are base's own responses, in which nothing was replaced. Instead of a written token the table has "
            "RL's most likely token there, if it is another one."
        )
    return Section(name, first.removesuffix("."), frame(rows), tuple(notes), sortable=True)


def _example(row: dict[str, Any]) -> str:
    """Return the text around a replacement, with the dropped and the written token in brackets; its position without a
    text."""
    if row["before"] is None:
        return f"{row['problem']}, sample {row['sample']}, token {row['position']}"
    before, after = row["before"], row["after"]
    before = before if len(before) <= AROUND else f"…{before[-AROUND:]}"
    after = after if len(after) <= AROUND else f"{after[:AROUND]}…"
    return f"{before}[{row['proposed_text']} → {row['written_text']}]{after}"
