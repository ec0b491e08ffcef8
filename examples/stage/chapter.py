"""Make the chapter about several kinds of pairs: what replacing gains in true pairs, and what it gains in placebos."""

from typing import Any

from examples.stage.kinds import FIRST, GAIN
from rlvr_dir.analysis.result import Analysis, Frame
from rlvr_dir.policy.gates import gates
from rlvr_dir.report.draw import drawing, line, look, percent_axis
from rlvr_dir.report.layouts import benchmark_title
from rlvr_dir.report.model import Chapter, Section, cell, frame
from rlvr_dir.report.responses import ALIKE
from rlvr_dir.report.rows import estimate, estimates
from rlvr_dir.results.settings import few_families_words
from rlvr_dir.stats import FEW, p_value
from rlvr_dir.text import visible

APART = (
    "Apart: the total variation of base and RL without base's token, a mean over those of base's own that the gate "
    f"flags; below {ALIKE:g} they write nearly the same: that RL's token adds nothing there says nothing of its "
    "worth elsewhere."
)
# For each step, the name of its table and what it measures.
TITLES = {
    "second draw": ("second-draw", "Base draws again at flagged tokens: resample − base."),
    "cut of base": ("cut-of-base", "The flagged token is removed before top-p cuts: (base, base) − resample."),
    "decision": ("decision", "RL decides which flagged tokens to drop: (RL, base) − (base, base)."),
    "token": ("token", "RL writes the token in place of a dropped one: (RL, RL) − (RL, base)."),
    "cut of RL": ("cut-of-rl", "The flagged token is removed after top-p cut: replace − (RL, RL)."),
    "rate": ("rate", "How often RL drops: a coin with RL's rate − (base, base)."),
    "choice": ("choice", "Which tokens RL drops: (RL, base) − a coin with RL's rate."),
    "token first": ("token-first", "RL writes where base decides: (base, RL) − (base, base)."),
    "decision last": ("decision-last", "RL decides where RL writes: (RL, RL) − (base, RL)."),
    "decision over gate": ("decision-over-gate", "RL decides instead of the gate: (RL, base) − (gate, base)."),
    "token where gate decides": ("token-of-gate", "RL writes where the gate decides: (gate, RL) − (gate, base)."),
    "decision and cut": (
        "decision-and-cut",
        "The decision and base's cut, which was not decoded apart: (RL, base) − resample.",
    ),
    "token and cut": ("token-and-cut", "RL's token and RL's cut, which was not decoded apart: replace − (RL, base)."),
    "over RL": ("over-rl", "Replacing compared with RL alone: replace − RL."),
    "interaction": ("interaction", "RL's token where RL decides less RL's token where base decides."),
}
CELLS = {
    "base": "", "resample": "base draws again, once", "base, base": "base decides, base writes",
    "gate, base": "the gate decides, base writes", "coin, base": "a coin decides as often as RL, base writes",
    "RL, base": "RL decides, base writes", "base, RL": "base decides, RL writes",
    "gate, RL": "the gate decides, RL writes", "RL, RL": "RL decides, RL writes", "replace": "RL draws, once", "rl": "",
}  # fmt: skip
NEAR = 0.05  # the share of flagged tokens
OVER = "Intervals are 95 %, over problems and pairs; p by Holm's method over a kind's column."
MIXED = (
    "Intervals are 95 %, over problems and pairs (of a kind with one pair, over problems alone); p by Holm's method "
    "over a kind's column."
)
ALONE = "Each kind has a single pair. Intervals are 95 %, over problems alone; p by Holm's method over a kind's column."


def pairs_chapter(found: Analysis, slug: str = "") -> Chapter:
    """Show the gain of each criterion by kind of pairs, and the significant differences."""
    context = found.context
    counts = ", ".join(f"{count} {visible(kind, 40)}" for kind, count in context["pairs"].items())
    title, samples = benchmark_title(context["task"]), context["samples"]
    text = f"{title}, {context['problems']} problems, {samples} samples; pairs: {counts}."
    if context["families"]:
        text += f" The problems are of {context['families']} families, over which intervals are."
        text += "".join(
            f" {words}" for words in few_families_words([f"{context['families']}"] * (context["families"] < FEW))
        )
    if found.tables["placebos"]:
        text += " Pairs of the other kinds have the same bases, and the last tables compare them with the first kind."
    fewest, most = min(context["pairs"].values()), max(context["pairs"].values())
    intervals = OVER if fewest > 1 else MIXED if most > 1 else ALONE
    first = visible(str(context["first"]), 40)
    over = f"{intervals} Tokens: the share that is flagged in {first} pairs, or changed (met by straight lines)."
    passing = f"Pass@{context['samples']}"
    sections = [
        _kinds(found.frame("kinds"), f"kinds{slug}", "Base and RL, by kind of pairs.", intervals),
        _kinds(found.frame("kinds_pass"), f"kinds-pass{slug}", f"{passing} of base and RL.", intervals),
        _gains(found.frame("rules"), list(context["pairs"]), f"kinds-gain{slug}"),
        _rows(found.frame("rules"), f"kinds-rules{slug}", "gain", "What each criterion gains over base.", over),
        _rows(
            found.frame("rules_pass"),
            f"kinds-rules-pass{slug}",
            "gain",
            f"What each criterion gains in {passing}.",
            over,
        ),
    ]
    if found.tables["against"]:
        title = (
            "The gain of Δ log p less that of another criterion: where as many flagged tokens were wanted, and at "
            "equal shares of changed ones."
        )
        sections.append(_rows(found.frame("against"), f"kinds-against{slug}", "difference", title, over))
    if found.tables.get("divergences"):
        title = "The gain of a divergence less that of an entropy, where as many flagged tokens were wanted."
        sections.append(_rows(found.frame("divergences"), f"kinds-divergences{slug}", "difference", title, over))
    data = found.frame("controls")
    for step, (name, title) in TITLES.items():
        if len(data) and (data["step"] == step).any():
            of_step = data[data["step"] == step].drop(columns="step")
            known = step == "token" and bool(of_step["apart"].notna().any())
            note = f"{over} {APART}" if known else over
            sections.append(_rows(of_step, f"kinds-{name}{slug}", "difference", title, note))
    if found.tables["cells"]:
        sections.append(_cells(found.frame("cells"), list(context["pairs"]), f"kinds-cells{slug}"))
    if found.tables["placebos"]:
        first, data = visible(str(context["first"]), 40), found.frame("placebos")
        for step in dict.fromkeys(data["step"]):
            what = "The gain" if step == GAIN else f"*{step}*"
            slug_of = "" if step == GAIN else f"-{TITLES[step][0]}"
            title = f"{what} in {first} pairs less that in pairs of another kind with the same bases."
            of_step = data[data["step"] == step].drop(columns="step")
            sections.append(_rows(of_step, f"kinds-placebos{slug_of}{slug}", "difference", title, over))
    return Chapter("Kinds of pairs", (text,), tuple(sections))


def _share(value: Any) -> Any:
    return cell(None if value is None or value != value else float(value), 2, suffix=" %")


def _name(criterion: str) -> str:
    known = gates().get(criterion)
    return known.label if known else criterion


def _difference(row: dict[str, Any], name: str) -> Any:
    apart = row.get("apart")
    beside = [f"p {p_value(row['holm_p'])}", *([] if apart is None or apart != apart else [f"apart {apart:.3f}"])]
    return cell(estimate(row, name), 1, plus=True, beside=beside)


def _kinds(data: Frame, name: str, title: str, note: str) -> Section:
    rows = [
        {
            "Pairs": visible(str(row["kind"]), 40),
            "Number": row["pairs"],
            "Base": cell(estimate(row, "base")),
            "RL": cell(estimate(row, "rl")),
            "RL − base": _difference(row, "gain"),
        }
        for row in data.to_dict("records")
    ]
    return Section(name, title, frame(rows), (note,))


def _gains(data: Frame, kinds: list[str], name: str) -> Section:
    """Draw the gain over base against the share of changed tokens: a panel per kind, a line per criterion."""
    criteria = list(dict.fromkeys(data["criterion"]))
    legend = 0.18 * ((len(criteria) + 1) // 2) if len(kinds) == 1 else 0.0  # inches that a single panel would not have
    with drawing(name, 1.9 + legend, len(kinds), sharex=True, sharey=True) as made:
        for axes, kind in zip(made.axes, kinds, strict=True):
            mine = data[data["kind"] == kind]
            for i, criterion in enumerate(criteria):
                points = mine[mine["criterion"] == criterion]
                how = look(i, markersize=3.5, linewidth=1.1)
                line(axes, [100 * at for at in points["changed"]], estimates(points, "gain"), _name(criterion), **how)
            axes.axhline(0, color="#808080", linewidth=0.8)
            axes.set_title(visible(kind, 40))
            axes.set_ylabel("gain over base, points")
            percent_axis(axes.yaxis, unit="")
        made.axes[-1].set_xlabel("changed tokens, %")
        made.figure.legend(*made.one.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    title = "What replacing gains over base, against the share of changed tokens, by kind of pairs"
    note = "Means over pairs. Bars are 95 % intervals over problems, and over pairs if a kind has several."
    alt = f"Line charts, one for each of {len(kinds)} kinds of pairs: the gain in accuracy against changed tokens."
    return Section(name, title, data, (note,), made.svg, alt)


def _cells(data: Frame, kinds: list[str], name: str) -> Section:
    """Draw who decides and who writes: a panel per kind, a line per pair, at the gate that flags closest to 5 %.

    The gate is by delta log p, or by the first criterion if that was not decoded.
    """
    first = FIRST if (data["criterion"] == FIRST).any() else data["criterion"].iloc[0]
    of_first = data[data["criterion"] == first]
    at = of_first["point"].loc[(of_first["flagged"] - NEAR).abs().idxmin()]
    drawn = of_first[of_first["point"] == at]
    cells = [key for key in CELLS if drawn[key].notna().all()]
    share = 100 * drawn.loc[drawn["kind"] == kinds[0], "flagged"].mean()
    with drawing(name, 0.22 * len(cells) + 0.8, len(kinds), sharex=True) as made:
        for axes, kind in zip(made.axes, kinds, strict=True):
            pairs = 100 * drawn.loc[drawn["kind"] == kind, cells].to_numpy(float)  # (pairs, cells)
            for accuracies in pairs:
                axes.plot(accuracies, range(len(cells)), color="#808080", marker="o", markersize=3, linewidth=0.6)
            axes.plot(pairs.mean(axis=0), range(len(cells)), "|", color=look(0)["color"], markersize=12)
            axes.set_yticks(range(len(cells)), ["RL" if key == "rl" else key for key in cells])
            axes.invert_yaxis()
            axes.set_title(visible(kind, 40))
        made.axes[-1].set_xlabel("right, %")
    title = f"Who decides, and who writes: {_name(first)} where it flags {share:.1f} %"
    meanings = "; ".join(f"*{key}*: {CELLS[key]}" for key in cells if CELLS[key])
    note = f"At a flagged token, {meanings}. Each line is a pair, and the bars are means."
    alt = f"{len(cells)} rows of right answers, from base to RL, a line a pair, by who decides and who writes."
    return Section(name, title, data, (note,), made.svg, alt)


def _rows(data: Frame, name: str, value: str, title: str, note: str) -> Section:
    """Compare kinds of pairs: a row per criterion and point, or share of changed tokens; a column per kind."""
    rows: dict[Any, dict[str, Any]] = {}
    for row in data.to_dict("records"):
        at = row.get("at") or "flagged"
        key = row["criterion"], row.get("minus"), at, row["changed"] if at == "changed" else row["point"]
        minus = {"minus": _name(str(row["minus"]))} if "minus" in row else {}
        about = {"Criterion": _name(str(row["criterion"])), **minus, "Equal": at, "Tokens": _share(row[at])}
        if "first" in row:
            about["Tokens of Δ log p"] = _share(row["first"])
        rows.setdefault(key, about)[visible(str(row["kind"]), 40)] = _difference(row, value)
    return Section(name, title, frame(list(rows.values())), (note,))
