"""Print the answer of a finished command: the scores, the comparisons, and how to read them, in a terminal's width.

print(answer(results, decodings))  # the details are in `compare.markdown` and in the files
"""

from collections.abc import Sequence

import numpy as np

from rlvr_dir import stats
from rlvr_dir.config import Decoding
from rlvr_dir.config.decoding import ALONE
from rlvr_dir.markdown import interval
from rlvr_dir.results.compare import Comparison, compare
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.settings import Setting, settings_of
from rlvr_dir.results.show import percent

SIGNIFICANT = 0.05
ORDER = ("replace", "extrapolate", "reject", "veto", "resample")  # of decodings with the same gate
MOSTLY = 0.9  # a gate that flags this share of tokens selects nothing

# What neighbouring decodings mean, in the order in which a reader compares them: (what you see, what it means).
READING = (
    ("replace ≈ rl, few tokens changed", "changing the flagged tokens is enough to get the gain"),
    ("replace between base and rl", "the flagged tokens carry a part of the gain; a wider gate may carry more"),
    ("replace above rl", "base with the new tokens scores above RL alone; confirm it on other problems"),
    ("replace ≈ reject", "it does not matter which model writes the new token; dropping base's token is enough"),
    ("reject ≈ resample", "it does not matter whether RL or base decides which flagged tokens to drop"),
    (
        "reject above resample",
        "RL is a better judge than base of which flagged tokens to drop; a sharpened copy of base may be as good",
    ),
    ("veto ≈ reject", "the gate alone is enough; RL is needed only to compute it"),
    ("veto above reject", "dropping every flagged token is better than letting RL decide"),
    ("veto far below base", "the gate flags good tokens; do not read reject − veto as a benefit of RL"),
    ("a sharpened copy with RL's gain shows the same differences", "sharpening alone can explain the pattern"),
    ("nothing flagged", "the threshold is too strict; see docs/decoding.md#which-τ"),
)
ALIKE, OPEN, ABOVE, BELOW = "near 0", "open", "above 0", "below 0"
FEW = 0.1  # of the tokens, changed at most where a replacement is said to change few
# Which comparison, of which outcome, shows a row of `READING`: (decoding, what it is compared with, outcome) -> row.
SHOWN_BY = {
    ("replace", "rl", ALIKE): 0,
    ("replace", "rl", ABOVE): 2,
    ("replace", "reject", ALIKE): 3,
    ("reject", "resample", ALIKE): 4,
    ("reject", "resample", ABOVE): 5,
    ("reject", "veto", ALIKE): 6,
    ("veto", "reject", ALIKE): 6,
    ("reject", "veto", BELOW): 7,
    ("veto", "reject", ABOVE): 7,
    ("veto", "base", BELOW): 8,
}
SHARPENED = (
    "Compare with a sharpened copy of base before you attribute this to training: `rlvr-dir pair sharpen` "
    "(docs/decoding.md#compare-with-a-sharpened-copy)."
)


def in_order(settings: Sequence[Setting], decodings: Sequence[Decoding] = ()) -> list[Setting]:
    """Return settings with base first, then RL, then the others in the order of `decodings`, else gate by gate."""
    ranks: dict[Decoding, int] = {decoding: rank for rank, decoding in enumerate(decodings)}
    tasks = list(dict.fromkeys(setting.task for setting in settings))
    gates = list(dict.fromkeys(str(setting.decoding.gate) for setting in settings))

    def rank(setting: Setting) -> tuple[int, ...]:
        decoding = setting.decoding
        if decoding.mode in ALONE:
            return tasks.index(setting.task), -1, ALONE.index(decoding.mode), 0
        position = ranks.get(decoding, len(ranks))
        return tasks.index(setting.task), position, gates.index(str(decoding.gate)), ORDER.index(decoding.mode)

    return sorted(settings, key=rank)


def answer(results: Sequence[EvalResult], decodings: Sequence[Decoding] = ()) -> str:
    """Return the scores with their 95 % intervals, then the comparisons, as plain text.

    Args:
        results: Results of one evaluation, or of several that can be compared.
        decodings: The order in which the decodings were asked for.
    """
    settings = in_order(settings_of(results), decodings)
    blocks = [scores(settings)]
    if len({setting.label for setting in settings}) > 1 and (rows := compare(settings)):
        blocks.append(differences(rows))
    return "\n\n".join(blocks)


def scores(settings: Sequence[Setting]) -> str:
    """Return one line a setting: accuracy with its interval over problems, flagged and changed tokens."""
    gated = any(setting.decoding.gated for setting in settings)
    head = ["", f"correct (Avg@{settings[0].samples})", "95 % interval", *(["flagged", "changed"] if gated else [])]
    rows = []
    for task in dict.fromkeys(setting.task for setting in settings):
        of_task = [setting for setting in settings if setting.task == task]
        rows.append([of_task[0].benchmark, "", ""])
        for setting in of_task:
            other = f" (Avg@{setting.samples})" if setting.samples != settings[0].samples else ""
            ratios = [setting.replacement_ratio, setting.changed_ratio] if setting.decoding.gated else []
            tokens = [percent(share) + " of tokens" * (i == 0) for i, share in enumerate(ratios)]
            rows.append([f"  {setting.label}{other}", percent(setting.avg), interval(*setting.interval), *tokens])
    return _columns([head, *rows])


def differences(rows: Sequence[Comparison]) -> str:
    """Return one line per comparison: the difference in points, its interval, and whether it is significant.

    The p value is corrected over all comparisons shown (Holm).
    """
    several = len({row.task for row in rows}) > 1
    cells = []
    for row in rows:
        d = row.difference
        has_p = row.holm_p == row.holm_p
        verdict = ("significant" if row.holm_p < SIGNIFICANT else "not significant") if has_p else ""
        if row.nothing_differs:
            verdict = f"equal on all {d.n} problems"
        name = f"{row.result.label} − {row.reference.label}" + (f" on {row.task}" if several else "")
        points = f"{100 * d.mean:+.1f} points"
        p = f"p {row.holm_text}" if has_p and not row.nothing_differs else ""
        cells.append([name, points, interval(d.low, d.high, sign=True), p, verdict])
    corrected = f"p is corrected for these {len(rows)} comparisons (Holm); the 95 % intervals are not."
    return "\n".join([_columns(cells), *([corrected] if len(rows) > 1 else []), *filter(None, [detectable(rows)])])


def detectable(rows: Sequence[Comparison]) -> str:
    """Describe how small an effect these problems can detect; empty if that is not known."""
    least = []
    for row in rows:
        if row.difference.n > 1 and min(row.result.samples, row.reference.samples) > 1:
            spread = stats.paired_spread(row.result.values, row.reference.values)
            if spread.between + spread.within > 0:
                samples = min(row.result.samples, row.reference.samples)
                least.append(stats.detectable_gain(spread, row.difference.n, samples))
    if not least:
        return ""
    n = rows[0].difference.n
    return (
        f"With these {n} problems, an effect has to be about {100 * float(np.median(least)):.0f} points to be found "
        "significant with a chance of 80 % (median over these comparisons)."
    )


def reading(results: Sequence[EvalResult]) -> str:
    """Return what these results show of `READING`, a line for each comparison that shows a row; empty if none does.

    Two decodings count as alike if the 95 % interval of their difference contains 0 and lies within a quarter of RL's
    gain on either side. A wider interval leaves the question open. If RL's gain over base is not above 0, there is
    nothing to explain. A gate that flags most tokens, and a replacement that changes many, explain nothing either.
    """
    settings = [setting for setting in settings_of(results) if not _idle(setting)]
    rows = compare(settings) if len(settings) > 1 else []
    pairs = [(row.result, row.reference, row.difference) for row in rows]
    for base in (setting for setting in settings if setting.decoding.mode == "base"):
        vetoes = [each for each in settings if each.decoding.mode == "veto" and each.task == base.task]
        pairs += [(veto, base, veto.minus(base)) for veto in vetoes]
    gains = [d for one, other, d in pairs if (one.decoding.mode, other.decoding.mode) == ("rl", "base")]
    if gains and all(_outcome(gain, np.inf) != ABOVE for gain in gains):
        return (
            "RL does not score significantly above base here, so there is no gain for the other decodings to explain."
        )
    within = min((gain.mean for gain in gains), default=0.0) / 4
    lines = []
    for one, other, difference in pairs:
        modes, outcome = (one.decoding.mode, other.decoding.mode), _outcome(difference, within)
        where = f"{interval(difference.low, difference.high, sign=True)} points"
        if outcome == OPEN and (*modes, ALIKE) in SHOWN_BY:
            lines.append(f"  {one.label} − {other.label}, {where}: too few problems to tell the two apart.")
            continue
        shown = SHOWN_BY.get((*modes, outcome))
        if shown is None or (shown == 0 and one.changed_ratio > FEW):
            continue
        sign = "≈" if outcome == ALIKE else outcome.removesuffix(" 0")
        lines.append(f"  {one.label} {sign} {other.label}, {where}: {READING[shown][1]}.")
    if not lines:
        return ""
    return "\n".join(["How to read it (more in docs/decoding.md#how-to-read-it):", *lines, SHARPENED])


def _outcome(difference: stats.PairedDifference, within: float) -> str:
    """Return on which side of 0 an interval is, or whether it is 0 to `within`; empty if there is no interval."""
    if not difference.low <= difference.high:  # NaN
        return ""
    if difference.low > 0 or difference.high < 0:
        return ABOVE if difference.low > 0 else BELOW
    return ALIKE if max(-difference.low, difference.high) <= within else OPEN


def doubts(results: Sequence[EvalResult]) -> list[str]:
    """Return a sentence for each problem that makes these results meaningless, or nearly so.

    No response may be correct, base and RL may be swapped, a gate may have flagged no token or nearly all, or results
    may have different numbers of samples.
    """
    settings = settings_of(results)
    return [*_nothing_right(settings), *_swapped(settings), *_idle_gates(settings), *_unequal_samples(settings)]


def _nothing_right(settings: Sequence[Setting]) -> list[str]:
    best: dict[str, float] = {}
    for setting in settings:
        best[setting.benchmark] = max(setting.avg, best.get(setting.benchmark, 0.0))
    return [
        f"No response to {benchmark} is correct in any decoding, so nothing can be compared. Look at some responses "
        "(`rlvr-dir view`): does the prompt ask for the answer in the grader's format, and is max_tokens large enough?"
        for benchmark, avg in best.items()
        if avg == 0
    ]


def _swapped(settings: Sequence[Setting]) -> list[str]:
    sentences = []
    for row in compare(settings) if len(settings) > 1 else ():
        trained = (row.result.decoding.mode, row.reference.decoding.mode) == ("rl", "base")
        if trained and row.difference.high < 0:
            sentences.append(
                f"RL scores {-100 * row.difference.mean:.0f} points below base on {row.result.benchmark}, and the 95 % "
                "interval excludes 0. Are the two checkpoints swapped?"
            )
    return sentences


def _idle(setting: Setting) -> bool:
    """Return whether a gate flagged no token or nearly all, so that its decoding shows nothing."""
    gate = setting.decoding.gate
    return gate is not None and (not (flagged := setting.pooled("n_replaced")) or flagged >= MOSTLY)


def _idle_gates(settings: Sequence[Setting]) -> list[str]:
    """Return a sentence for the gates of a benchmark that flagged nothing, one for those that flagged nearly all."""
    none, nearly_all = dict[tuple[str, str], list[str]](), dict[tuple[str, str], list[str]]()
    for setting in settings:
        gate, flagged = setting.decoding.gate, setting.pooled("n_replaced")
        if gate is None:
            continue
        if flagged == 0:
            none.setdefault((setting.benchmark, setting.decoding.primary), []).append(setting.label)
        elif flagged >= MOSTLY and gate.name not in ("always", "random"):
            nearly_all.setdefault((setting.benchmark, percent(flagged)), []).append(setting.label)
    return [
        f"On {benchmark}, the gate flagged no token ({', '.join(labels)}), so these responses are {primary}'s own. "
        "Choose a threshold by the share of tokens it flags (docs/decoding.md#which-τ)."
        for (benchmark, primary), labels in none.items()
    ] + [
        f"On {benchmark}, the gate flagged {share} of the tokens ({', '.join(labels)}), so it selects nothing. Has the "
        "threshold the right sign? See docs/decoding.md#which-τ."
        for (benchmark, share), labels in nearly_all.items()
    ]


def _unequal_samples(settings: Sequence[Setting]) -> list[str]:
    sentences = []
    for task in dict.fromkeys(setting.task for setting in settings):
        counts = {setting.label: setting.samples for setting in settings if setting.task == task}
        if len(set(counts.values())) > 1:
            words = ", ".join(f"{label} {n}" for label, n in counts.items())
            sentences.append(
                f"The results on {task} have different numbers of samples per problem ({words}), so their differences "
                "mix both. Give all of them the same --samples."
            )
    return sentences


def _columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns; the first column is aligned left."""
    width = max(map(len, rows))
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    widths = [max(len(row[i]) for row in padded) for i in range(width)]
    lines = ["  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
             for row in padded]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)
