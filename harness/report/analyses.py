"""The chapters of what `rlvr-dir analyse` found: each analysis' own tables, as figures and tables of a report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.analysis.result import Analysis, Frame
from harness.errors import DamagedError, UserError
from harness.report.credit import credit_chapter
from harness.report.draw import drawing, look, percent_axis
from harness.report.groups import pair_title
from harness.report.model import Chapter, Section, cell, frame
from harness.report.pairs import pairs_chapter
from harness.report.responses import gated_chapter, token_chapter
from harness.report.training import training_chapter, trajectory_chapter
from harness.text import visible


def analysis_chapters(places: Sequence[Path]) -> list[Chapter]:
    """Make a chapter for each analysis in some files, or in folders of them; other files of a folder are left alone.

    Raises:
        UserError: a place holds none.
        DamagedError: a file is not as `rlvr-dir analyse` wrote it.
    """
    chapters: list[Chapter] = []
    for place in places:
        files = [file for file in sorted(place.glob("*.json")) if file.stem.partition("-")[0] in CHAPTERS]
        found = [(file, Analysis.read(file)) for file in ([place] if place.is_file() else files)]
        if not found:
            raise UserError(f"analysis={str(place)!r} holds nothing that `rlvr-dir analyse` wrote")
        found.sort(key=lambda each: list(CHAPTERS).index(each[1].kind))
        for file, one in found:
            slug = f"-{len(chapters)}" if chapters else ""
            try:
                chapters.append(CHAPTERS[one.kind](one, slug))
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {str(error)[:100]}"
                raise DamagedError(f"{file} does not fit together ({reason})") from None
    return chapters


def theorem_chapter(found: Analysis, slug: str = "") -> Chapter:
    """Show the expected reward of a bandit by gamma, and what noise in the rewards does to it."""
    text = (
        "Theorem 1 says that some γ > 0 does no worse than γ = 0 for a tabular softmax policy trained by natural "
        "policy gradient with exact advantages. In fact the extrapolated policy is that of step (1 + γ)t: no γ does "
        "worse. Where the rewards were noisy the direction holds the noise as well: individual problems lose."
    )
    data, name = found.frame("trials"), f"theorem{slug}"
    with drawing(name, 6.4, 3.1, 1, 2) as made:
        left, right = made.axes[0]
        for i, (noise, mine) in enumerate(data.groupby("noise", sort=False)):
            gammas = list(mine["gamma"])
            how = look(i, markersize=3.5, linewidth=1.2)
            error = [1.96 * each for each in mine["standard_error"]]
            left.errorbar(gammas, mine["expected_reward"], yerr=error, elinewidth=0.6, label=f"noise {noise:g}", **how)
            right.plot(gammas, [100 * share for share in mine["share_losing"]], **how)
        for axes in (left, right):
            axes.set_xscale("symlog", linthresh=0.25)
            axes.set_xticks([0, 0.5, 2, 8, 32], ["0", "0.5", "2", "8", "32"])
            axes.minorticks_off()
            axes.set_xlabel("γ")
        left.set_ylabel("expected true reward")
        right.set_ylabel("bandits worse than at γ = 0, %")
        made.figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    title = (
        f"Expected true reward of {found.facts['bandits']} random bandits against γ, and the share of bandits that lose"
    )
    note = (
        "By the noise in the rewards they were trained on (standard deviation; true rewards are 0 or 1). Bars: 1.96 "
        "standard errors."
    )
    alt = "Two line charts against γ: the mean expected reward, and the share of bandits that lose, a line a noise."
    section = Section(name, title, data, (note,), made.svg, alt, "theorem:extra")
    return Chapter("Theorem 1 by numbers", (text,), (section,))


SPECTRA = ("drift", "rotation", "principal", "chance", "stable_rank")


def weight_chapter(found: Analysis, slug: str = "") -> Chapter:
    """Show how many weights changed, by how much and where."""
    data, facts = found.frame("tensors"), found.facts
    whole = _sums(data)
    said = [
        f"{whole['numbers']:,} weights in {len(data)} tensors of both checkpoints: {100 * whole['changed']:.2f} % are "
        f"another number in RL, {100 * whole['moved']:.2f} % by more than {facts['tolerance']:g}; the difference has "
        f"{100 * (whole['relative'] or 0):.3f} % of base's norm."
    ]
    for name, where in (
        ("only_base", "base alone has"),
        ("only_rl", "RL alone has"),
        ("other_shape", "of other shape"),
    ):
        if left := facts.get(name):
            listed = ", ".join(visible(str(each), 60) for each in left[:3])
            said.append(f"Left out, {where}: {listed}{', …' if len(left) > 3 else ''} ({len(left)} tensors).")
    kinds = frame(
        [
            {
                "Kind": str(kind),
                "Weights": one["numbers"],
                **{f"{what.capitalize()}": cell(one[what], suffix=" %") for what in ("changed", "moved")},
                "Norm, of base's": cell(one["relative"], 3, suffix=" %"),
                "Drift": cell(one["drift"], 4, unit=1),
                "Rotation": cell(one["rotation"], 3, unit=1),
                "In principal directions": cell(
                    one["principal"], 3, unit=1, beside=[f"[{one['chance']:.3f}]"] if one["chance"] is not None else []
                ),
                "Stable rank": cell(one["stable_rank"], 1, unit=1),
            }
            for kind, one in ((kind, _sums(mine)) for kind, mine in data.groupby("kind", sort=False))
        ]
    )
    note = (
        f"Moved: by more than {facts['tolerance']:g}. The last four are means over the matrices that changed, of the "
        f"{facts['rank']} leading left singular directions: relative change of their values, the part of RL's that "
        "base's do not span, the share of the difference's energy in base's (brackets: what a difference without "
        "direction has there), and "
        "‖D‖²F / ‖D‖²₂ of the difference D."
    )
    sections = [Section(f"weights{slug}", "What training changed, by kind of tensor.", kinds, (note,))]
    matrices = data[data["matrix"].astype(bool) & data["layer"].notna()]
    if len(matrices):
        sections.insert(0, _by_layer(matrices, f"weights-by-layer{slug}"))
    return Chapter(f"Weights of the {pair_title(str(facts['pair'].get('rl')))}", tuple(said), tuple(sections))


def _sums(tensors: Frame) -> dict[str, Any]:
    """Add up some tensors, as shares of their numbers; what singular values say is a mean over those that have them."""
    numbers = int(tensors["numbers"].sum())
    base, difference = (float((tensors[name] ** 2).sum()) ** 0.5 for name in ("norm", "difference"))
    found: dict[str, Any] = {name: int(tensors[name].sum()) / numbers for name in ("changed", "moved")}
    found |= {"numbers": numbers, "relative": difference / base if base else None}
    for name in SPECTRA:
        values = tensors[name].dropna() if name in tensors else ()
        found[name] = float(sum(values)) / len(values) if len(values) else None
    return found


def _by_layer(matrices: Frame, name: str) -> Section:
    """Draw, layer by layer, how many weights of each kind of matrix changed, and by how much."""
    rows = [
        {"kind": one.pop("kind"), "layer": one.pop("layer"), **_sums(frame([one]))}
        for one in matrices.to_dict("records")
    ]
    data = frame(rows).drop(columns=["chance", "stable_rank"]).rename(columns={"relative": "relative_norm"})
    with drawing(name, 5.6, 5.4, 2, 1, sharex=True) as made:
        above, below = made.axes[:, 0]
        for i, (kind, mine) in enumerate(data.groupby("kind", sort=False)):
            how = look(i, markersize=3, linewidth=1.0)
            above.plot(list(mine["layer"]), list(mine["changed"]), label=visible(str(kind), 40), **how)
            below.plot(list(mine["layer"]), list(mine["relative_norm"]), **how)
        above.set_ylabel("changed weights")
        below.set_ylabel("norm of the difference, of base's")
        below.set_xlabel("layer")
        for axes in (above, below):
            axes.set_ylim(bottom=0)
            percent_axis(axes.yaxis)
        below.xaxis.get_major_locator().set_params(integer=True)
        above.legend(loc="upper left", bbox_to_anchor=(1, 1))
    title = "Weights that are another number in RL, and the size of the difference, by layer and kind of matrix"
    return Section(name, title, data, (), made.svg, "Two line charts by layer, one line a kind of matrix.")


CHAPTERS: dict[str, Callable[[Analysis, str], Chapter]] = {
    "tokens": token_chapter,
    "gated": gated_chapter,
    "credit": credit_chapter,
    "weights": weight_chapter,
    "trajectory": trajectory_chapter,
    "theorem": theorem_chapter,
    "training": training_chapter,
    "pairs": pairs_chapter,
}
