"""One sentence, with its interval, that promises no more than the data do; and what stands behind it."""

from collections.abc import Sequence

from harness.evals.compare import Comparison, comparison_kind
from harness.markdown import interval
from harness.stats import Pooled, pooled


def verdict(rows: Sequence[Comparison]) -> tuple[str, tuple[str, ...]]:
    """Return the verdict's sentence, and further ones to be read after it; of the comparisons of one group.

    Only what goes beyond RL (gamma above 0) is called extrapolation, and drawing every token so is another question
    than doing it behind a gate: the two are not averaged.
    """
    said: list[str] = []
    beyond = [row for row in rows if extrapolates(row)]
    gated = [row for row in beyond if row.result.decoding.criterion != "always"]
    for primary, where in (("base", ""), ("rl", " on the RL model itself")):
        mine = [row for row in gated if row.result.decoding.primary == primary]
        if (found := pooled(mine)) is not None:
            said.append(
                f"Extrapolating{where} changes accuracy by {_points(found)} against the same gate without it "
                f"(γ\u00a0=\u00a00; {_over(found, _pruned(mine))}): {_meaning(found)}."
            )
    ungated = [row for row in beyond if row.result.decoding.criterion == "always"]
    if (found := pooled(ungated)) is not None:
        said.append(
            f"Extrapolating every token, without a gate, changes accuracy by {_points(found)} against RL's law "
            f"(γ\u00a0=\u00a00; {_over(found, _pruned(ungated))}): {_meaning(found)}."
        )
    plain = [row for row in rows if comparison_kind(row) == "against rl" and row.result.decoding.mode == "replace"]
    plain = [row for row in plain if row.result.decoding.primary == "base"]
    if plain:
        top = max(plain, key=lambda row: row.difference.mean)
        d, settings = top.difference, len({row.result.decoding.label() for row in plain})
        shown = f"{interval(d.low, d.high, sign=True)}, ".lstrip(", ")
        picked = "; it was picked on these data, for which its interval is not corrected" if len(plain) > 1 else ""
        said.append(
            f"{_best_of(settings)} {top.result.label} on {top.result.benchmark}, replaces "
            f"{100 * top.result.replacement_ratio:.1f} % of the tokens and lies {100 * d.mean:+.1f} points from RL "
            f"{shown}Holm p {p_value(top.holm_p)}{picked}."
        )
    trained = [row for row in rows if comparison_kind(row) == "trained"]
    if (found := pooled(trained)) is not None:
        said.append(f"RL changed accuracy by {_points(found)} ({_over(found)}): {_meaning(found)}.")
    if not said:
        return "There is nothing to compare here: a verdict needs two ways of decoding the same problems.", ()
    limited = dict.fromkeys(
        f"{row.result.task}: {row.result.first.limited}" for row in rows if row.result.first.limited
    )
    if limited:
        said.append(f"Only some of the problems were asked ({', '.join(limited)}): for a look, not for a score.")
    return said[0], tuple(said[1:])


def extrapolates(row: Comparison) -> bool:
    """Tell whether a comparison is of a decoding beyond RL with the same one at gamma = 0; below 0 lies base."""
    return comparison_kind(row) == "against control" and row.result.decoding.gamma > 0


def _pruned(rows: Sequence[Comparison]) -> int:
    """Count the settings that were pruned by the searches that these results come from."""
    searches: dict[str, int] = {}
    for row in rows:
        searches |= row.result.first.provenance.get("pruned") or {}
    return sum(searches.values())


def _best_of(settings: int) -> str:
    return f"Of {settings} settings of replacement the best," if settings > 1 else "Replacement,"


def _points(one: Pooled) -> str:
    return f"{100 * one.mean:+.1f} points {interval(one.low, one.high, sign=True)}".rstrip()


def _over(one: Pooled, pruned: int = 0) -> str:
    """Say of how many settings and benchmarks something is the mean, and how it was tested.

    What a search prunes looked bad by chance or truth: a mean over the rest is too high, which is said.
    """
    counts = set(one.settings.values())
    surviving = "surviving " if pruned else ""
    if len(counts) > 1:
        on = " and ".join(f"{count} {surviving}settings on {task}" for task, count in one.settings.items())
        words = [f"mean over {on}"]
    else:
        words = [f"mean over {count} {surviving}settings" for count in counts if count > 1 or pruned]
    words += [f"{len(one.settings)} benchmarks"] if len(one.settings) > 1 else []
    words += [f"{pruned} others were pruned by a search, which favours the mean"] if pruned else []
    return ", ".join([*words, "95 %", "paired by problem", f"p {p_value(one.p)}"])


def _meaning(one: Pooled) -> str:
    """Put it in words; what the interval and the sign-flip test do not both tell from zero is not told from zero."""
    if one.p < 0.05 and one.low > 0:
        return "a gain that these problems tell from zero"
    if one.p < 0.05 and one.high < 0:
        return "a loss that these problems tell from zero"
    return "not told apart from zero"


def p_value(p: float) -> str:
    """Write a p value with three decimals; a smaller one as `< 0.001`, never 0.000; nothing where it is NaN."""
    if p != p:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
