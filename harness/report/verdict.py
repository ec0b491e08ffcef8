"""One sentence, with its interval, that promises no more than the data do; and what stands behind it."""

from collections.abc import Sequence

from harness.evals.compare import Comparison, comparison_kind
from harness.evals.settings import cut_unlike
from harness.markdown import interval
from harness.stats import Pooled, pooled


def verdict(rows: Sequence[Comparison]) -> tuple[str, tuple[str, ...]]:
    """Return the verdict's sentence, and further ones to be read after it; of the comparisons of one group.

    Only what goes beyond RL (gamma above 0) is called extrapolation, and drawing every token so is another question
    than doing it behind a gate: the two are not averaged.
    """
    said: list[str] = []
    trained = [row for row in rows if comparison_kind(row) == "trained"]
    if (found := pooled(trained)) is not None:
        benchmarks = f", mean over {len(trained)} benchmarks" if len(trained) > 1 else ""
        p = f", Holm p {p_value(trained[0].holm_p)}" if len(trained) == 1 else ""
        said.append(f"RL changed accuracy by {_points(found)} (95 %, paired by problem{benchmarks}{p}).")
    plain = [row for row in rows if comparison_kind(row) == "against rl" and row.result.decoding.mode == "replace"]
    plain = [row for row in plain if row.result.decoding.primary == "base"]
    said += _tokens_needed(plain, trained)
    if plain:
        top = max(plain, key=lambda row: row.difference.mean)
        d, settings = top.difference, len({row.result.decoding.label() for row in plain})
        shown = f"{interval(d.low, d.high, sign=True)}, ".lstrip(", ")
        picked = "; it was picked on these data, for which its interval is not corrected" if len(plain) > 1 else ""
        said.append(
            f"{_best_of(settings)} {top.result.label} on {top.result.benchmark}, replaces "
            f"{100 * top.result.replacement_ratio:.1f} % of the tokens, changes {100 * top.result.changed_ratio:.1f} % "
            f"and lies {100 * d.mean:+.1f} points from RL {shown}Holm p {p_value(top.holm_p)}{picked}."
        )
    beyond = [row for row in rows if extrapolates(row)]
    gated = [row for row in beyond if not row.result.decoding.everywhere]
    for primary, where in (("base", ""), ("rl", " on the RL model itself")):
        mine = [row for row in gated if row.result.decoding.primary == primary]
        if (found := pooled(mine)) is not None:
            said.append(
                f"Extrapolating{where} changes accuracy by {_points(found)} against the same gate without it "
                f"(γ\u00a0=\u00a00; {_over(found, mine)}): {_meaning(found)}."
            )
    ungated = [row for row in beyond if row.result.decoding.everywhere]
    if (found := pooled(ungated)) is not None:
        said.append(
            f"Extrapolating every token, without a gate, changes accuracy by {_points(found)} against RL itself "
            f"(γ\u00a0=\u00a00; {_over(found, ungated)}): {_meaning(found)}."
        )
    if not said:
        return "There is nothing to compare here: a verdict needs two ways of decoding the same problems.", ()
    limited = dict.fromkeys(
        f"{row.result.task}: {row.result.first.limited}" for row in rows if row.result.first.limited
    )
    if limited:
        said.append(f"Only some of the problems were asked ({', '.join(limited)}).")
    said += cut_unlike([(row.result, row.reference) for row in rows])
    return said[0], tuple(said[1:])


def _tokens_needed(plain: Sequence[Comparison], trained: Sequence[Comparison]) -> list[str]:
    """Say, a sentence a benchmark, how many tokens each criterion had to change to come up to RL.

    Of the settings that were run: the least share of changed tokens whose score is not significantly below RL's. Where
    RL scores no more than base there is nothing to reach, and of one or two criteria little to compare.
    """
    said = []
    learned = {row.task: row for row in trained if row.difference.mean > 0}
    for task in dict.fromkeys(row.task for row in plain):
        by: dict[str, list[Comparison]] = {}
        for row in plain:
            if row.task == task and not row.result.decoding.everywhere:
                by.setdefault(row.result.decoding.caption, []).append(row)
        if len(by) < 3 or task not in learned:
            continue
        rl, base = learned[task].result, learned[task].reference
        reached: list[tuple[float, str]] = []
        missed = []
        for gate, rows in by.items():
            enough = [row.result for row in rows if row.difference.high >= 0]
            if enough:
                one = min(enough, key=lambda each: each.changed_ratio)
                share = one.share("n_changed")
                ends = "" if share.low is None or share.high is None else f" {interval(share.low, share.high)}"
                words = f"{gate} {100 * share.value:.1f} %{ends}"
                reached.append((share.value, f"{words} (of {100 * one.replacement_ratio:.1f} % replaced)"))
            else:
                most = max((row.result for row in rows), key=lambda each: each.avg)
                words = f"{gate} {100 * most.avg:.1f} at {100 * most.changed_ratio:.1f} % changed"
                missed.append((-most.avg, words))
        ranked = "; ".join(words for _, words in sorted(reached)) or "no criterion that was run"
        text = (
            f"Tokens that had to change for a score not significantly below RL's on {rl.benchmark} "
            f"({100 * rl.avg:.1f}; base {100 * base.avg:.1f}), of the settings that were run: {ranked}."
        )
        if missed:
            text += f" Not reached, best: {'; '.join(words for _, words in sorted(missed))}."
        said.append(text)
    return said


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


def _over(one: Pooled, rows: Sequence[Comparison]) -> str:
    """Say of how many settings and benchmarks something is the mean, and how it was tested.

    What a search prunes looked bad by chance or truth: a mean over the rest is too high, which is said.
    """
    counts, pruned = set(one.settings.values()), _pruned(rows)
    surviving = "surviving " if pruned else ""
    if len(counts) > 1:
        on = " and ".join(f"{count} {surviving}settings on {task}" for task, count in one.settings.items())
        words = [f"mean over {on}"]
    else:
        words = [f"mean over {count} {surviving}settings" for count in counts if count > 1 or pruned]
    words += [f"{len(one.settings)} benchmarks"] if len(one.settings) > 1 else []
    words += [f"{pruned} others were pruned by a search, which favours the mean"] if pruned else []
    words += ["95 %", "paired by problem", f"p {p_value(one.p)}, not corrected"]
    if len(rows) > 1:
        words.append(f"{sum(row.holm_p < 0.05 for row in rows)} of the {len(rows)} by itself with a Holm p below 0.05")
    return ", ".join(words)


def _meaning(one: Pooled) -> str:
    """Put it in words: p is below 0.05 where the interval excludes 0, and nowhere else."""
    if one.p < 0.05:
        return "a significant gain" if one.mean > 0 else "a significant loss"
    return "inconclusive"


def p_value(p: float) -> str:
    """Write a p value with three decimals; a smaller one as `< 0.001`, never 0.000; nothing where it is NaN."""
    if p != p:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
