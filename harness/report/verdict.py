"""One sentence, with its interval, that promises no more than the data do; and what stands behind it."""

from collections.abc import Sequence

from harness.analysis.contrasts import Contrast, Pooled, pooled


def verdict(rows: Sequence[Contrast]) -> tuple[str, tuple[str, ...]]:
    """The sentence, and further ones to be read after it."""
    said: list[str] = []
    trained = pooled([row for row in rows if row.kind == "trained"])
    controlled = [row for row in rows if row.kind == "against control"]
    on_base = [row for row in controlled if row.result.decoding.primary == "base"]
    on_rl = [row for row in controlled if row.result.decoding.primary == "rl"]
    for mine, where in ((on_base, ""), (on_rl, " on the RL model itself")):
        if (found := pooled(mine)) is not None:
            said.append(
                f"Extrapolating{where} changes accuracy by {_points(found)} against the same gate without it "
                f"(γ\u00a0=\u00a00; {_over(found)}): {_meaning(found)}."
            )
    plain = [row for row in rows if row.kind == "against rl" and row.result.decoding.mode == "replace"]
    plain = [row for row in plain if row.result.decoding.primary == "base"]
    if plain:
        top = max(plain, key=lambda row: row.difference.mean)
        d = top.difference
        picked = "; it was picked on these data" if len(plain) > 1 else ""
        said.append(
            f"{_best_of(len(plain))} {top.result.label} on {top.result.task}, replaces "
            f"{100 * top.result.replacement_ratio:.1f} % of the tokens and lies {100 * d.mean:+.1f} points from RL "
            f"[{100 * d.low:+.1f}, {100 * d.high:+.1f}], Holm p {p_value(top.holm_p)}{picked}."
        )
    if trained is not None:
        text = f"RL changed accuracy by {_points(trained)} ({_over(trained)}): {_meaning(trained)}."
        said.append(text)
    if not said:
        return "There is nothing to compare here: a verdict needs two ways of decoding the same problems.", ()
    return said[0], tuple(said[1:])


def _best_of(settings: int) -> str:
    return f"Of {settings} settings of replacement the best," if settings > 1 else "Replacement,"


def _points(one: Pooled) -> str:
    return f"{100 * one.mean:+.1f} points [{100 * one.low:+.1f}, {100 * one.high:+.1f}]"


def _over(one: Pooled) -> str:
    settings = f"mean over {one.settings} settings, " if one.settings > 1 else ""
    benchmarks = f"{one.benchmarks} benchmarks, " if one.benchmarks > 1 else ""
    return f"{settings}{benchmarks}95 %, paired by problem, p {p_value(one.p)}"


def _meaning(one: Pooled) -> str:
    """In words; what the interval and the sign-flip test do not both tell from zero is not told from zero."""
    if one.p < 0.05 and one.low > 0:
        return "a gain that these problems tell from zero"
    if one.p < 0.05 and one.high < 0:
        return "a loss that these problems tell from zero"
    return "not told apart from zero"


def p_value(p: float) -> str:
    """`< 0.001`, never 0.000."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
