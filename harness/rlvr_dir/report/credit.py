"""Make the chapter of tokens that were changed one at a time: does the verdict change, and for which of them?"""

from collections.abc import Mapping
from typing import Any

from rlvr_dir.analysis.result import Analysis, Frame
from rlvr_dir.report.draw import drawing, line, look, percent_axis
from rlvr_dir.report.groups import pair_title
from rlvr_dir.report.model import Cell, Chapter, Section, cell, frame
from rlvr_dir.report.rows import drawn, estimate, estimates, limited, tasks_of
from rlvr_dir.stats import Estimate

OVER = "Brackets: 95 % intervals over problems."


def credit_chapter(analysis: Analysis, slug: str = "") -> Chapter:
    """Show the effect of single tokens, by decoding, by depth and by the sign of delta log p."""
    context = analysis.context
    event = "a token that the rule's gate flags was drawn again from the rule's target"
    if context["undo"]:
        event = "a token that the rule had changed was set back to the proposed one"
    text = (
        f"In responses to {tasks_of(analysis)} ({drawn(analysis)}) {event}, that one alone, and the rest was replayed "
        f"under the same noise: up to {context['tokens']} tokens of each problem and rule. The effect is the verdict "
        "with the rule's token minus the verdict with the proposed one; a token matters if the verdict changes at all. "
        "A positive effect alone says nothing of RL: a gate also finds slips that any other token would mend."
    )
    these = "changed" if context["undo"] else "flagged"
    sections = [
        _effects(analysis, f"credit{slug}", these),
        _depth(analysis.frame("strata"), f"credit-depth{slug}", these),
    ]
    if analysis.tables["signs"]:
        sections.append(_signs(analysis.frame("signs"), f"credit-signs{slug}", these))
    if analysis.tables["check"]:
        sections.append(_check(analysis.frame("check"), f"credit-check{slug}"))
    title = f"Does this token matter? {pair_title(str(context['pair'].get('rl')))}"
    return Chapter(title, (text,), limited(analysis, sections))


def _cell(row: Mapping[str, Any] | None, name: str, *, plus: bool = True) -> Cell:
    """Return an estimate of a row as a cell, if there is one."""
    return cell(estimate(row, name) if row else Estimate(None), 1, plus=plus)


def _effects(analysis: Analysis, name: str, these: str) -> Section:
    """List the effects of changing these tokens, with those of tokens that are not flagged, and of vetoes."""
    by = {(row["label"], row["kind"], row["over"], row["verdict"]): row for row in analysis.tables["effects"]}
    minus = {(row["label"], row["minus"], row["over"]): row for row in analysis.tables["differences"]}
    rows = []
    for label in dict.fromkeys(row["label"] for row in analysis.tables["effects"]):
        flagged, changed = by[label, "flagged", "all", "any"], by[label, "flagged", "changed", "any"]
        other = by.get((label, "own", "all", "any"))
        rows.append(
            {
                "Rule": label,
                f"{these.capitalize()} tokens": flagged["tokens"],
                "really changed": flagged["changed"],
                "Effect": _cell(flagged, "effect"),
                "of changed ones": _cell(changed, "effect"),
                "after wrong": _cell(by[label, "flagged", "all", "wrong"], "effect"),
                "after right": _cell(by[label, "flagged", "all", "right"], "effect"),
                "Matter": _cell(flagged, "matter", plus=False),
                "not flagged": _cell(by.get((label, "matched", "all", "any")), "matter", plus=False),
                "Effect minus a match's": _cell(minus.get((label, "matched", "all")), "effect"),
                "Effect of the proposer's other token": _cell(other, "effect"),
                "minus that": _cell(minus.get((label, "own", "all")), "effect"),
                "of changed ones, minus that": _cell(minus.get((label, "own", "changed")), "effect"),
            }
        )
    note = (
        "Points of the verdict. A match is a token of the same problem, verdict, depth and strata that the gate does "
        "not flag. The proposer's other token is drawn there by the model that proposed, without the token; "
        "of tokens that the rule changed, the effect minus that is what the target's token adds. After wrong and "
        f"after right responses effects can only go one way: hold them against each other, not against zero. {OVER}"
    )
    return Section(name, "The verdict, when one token is another", frame(rows), (note,))


def _depth(strata: Frame, name: str, these: str) -> Section:
    """Draw the share of these tokens that matter, and their mean effect, by depth."""
    data = strata[(strata["by"] == "tenth") & (strata["kind"] == "flagged")].reset_index(drop=True)
    with drawing(name, 2.4, 2) as canvas:
        panels = (("effect", "mean effect, points", ""), ("matter", "tokens that matter", " %"))
        for axes, (column, title, unit) in zip(canvas.axes, panels, strict=True):
            for i, (label, of_label) in enumerate(data.groupby("label", sort=False)):
                at = [10 * (tenth + 0.5) for tenth in of_label["from"]]
                line(axes, at, estimates(of_label, column), str(label), **look(i))
            axes.set_xlabel("% of the response")
            axes.set_ylabel(title)
            percent_axis(axes.yaxis, unit)
        canvas.figure.legend(*canvas.one.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    title = f"The effect of a {these} token, and the share of them that matter, by the part of the response before it"
    alt = "Two line charts by depth in the response, one line a rule: mean effect, and share of tokens that matter."
    return Section(name, title, data, ("Bars: 95 % intervals over problems.",), canvas.svg, alt)


def _signs(data: Frame, name: str, these: str) -> Section:
    """Compare the tokens that RL made less likely with those that it made more likely by the same amount."""
    rows = [
        {
            "Rule": row["label"],
            "|Δ log p| from": f"{row['from']:g}",
            "Tokens, Δ < 0": row["tokens_below"],
            "changed": row["changed_below"],
            "Effect, Δ < 0": _cell(row, "effect_below"),
            "Tokens, Δ > 0": row["tokens_above"],
            "changed ": row["changed_above"],
            "Effect, Δ > 0": _cell(row, "effect_above"),
            "Difference": _cell(row, "effect"),
        }
        for row in data.to_dict("records")
    ]
    every = ", over all of them, changed or not" if these == "flagged" else ""
    note = f"{these.capitalize()} tokens in one stratum of |Δ log p|{every}. {OVER}"
    return Section(name, "What the sign of Δ log p adds to its size", frame(rows), (note,))


def _check(data: Frame, name: str) -> Section:
    """Compare common noise with fresh noise."""
    rows = [
        {
            "Rule": row["label"],
            "Changed tokens": row["tokens"],
            "Same noise": _cell(row, "paired"),
            "Fresh noise": _cell(row, "unpaired"),
            "Difference": _cell(row, "difference"),
            "Variance, same noise": cell(row.get("variance_paired"), 3, unit=1),
            "fresh noise": cell(row.get("variance_unpaired"), 3, unit=1),
        }
        for row in data.to_dict("records")
    ]
    note = f"Both estimate one mean: a significant difference would be a mistake. {OVER}"
    return Section(name, "Mean effect of changed tokens by the same and by fresh noise", frame(rows), (note,))
