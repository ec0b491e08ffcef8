"""The first page: what the paper says beside what is found here, with a verdict a row, and what was picked.

An author's own reading (`rlvr-dir report --findings FILE`) has the same form and stands above it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from harness.evals.compare import Comparison, comparison_kind
from harness.evals.settings import cut_unlike
from harness.report.figures import extrapolates
from harness.report.model import Cell, Section, cell, frame
from harness.report.shapes import anchor, benchmark_title
from harness.spec import Spec, parse, read_yaml
from harness.stats import Estimate, Pooled, p_value, pooled

Verdict = Literal["confirmed", "inconclusive", "contradicted", "not tested"]
DIRECTION = "delta_logp"
MAGNITUDES = ("entropy_base", "entropy_rl", "kl", "kl_rl_base", "kl_base_rl")  # the paper's other criteria
KEPT = 0.5  # of RL's gain: the usual margin of a trial that shows one treatment to be no worse than another
CLAIMS = (
    "RL makes the base model better.",
    "Replacing a few of base's tokens, chosen by Δ log p, reaches RL.",
    "Δ log p needs fewer tokens than entropy or divergence.",
    "Extrapolating beyond RL (γ > 0) adds to replacing alone.",
    "Extrapolating adds on the RL model itself, too.",
    "Weighing unlikely tokens more makes a better training than DAPO.",
)
NOTE = (
    "Verdicts follow 95 % intervals over problems (trainings: and seeds), paired by problem; each claim is judged for "
    "itself, not corrected for their number. A mean over all settings of a kind is not picked. Shares are of changed "
    "tokens: the least, of the settings that were run, that reaches RL: its score is not significantly below RL's and "
    "keeps, significantly, more than half of RL's gain. Another criterion needs more where it is still significantly "
    "below RL with more changed tokens. Inconclusive: these problems and settings do not tell."
)


class Finding(Spec, frozen=True):
    """One claim of the paper beside what these results say of it."""

    called: ClassVar[str] = "finding"

    claim: str = Field(min_length=1, description="What the paper says.")
    found: str = Field(default="", description="What is found here, with its interval.")
    verdict: Verdict = Field(description="In a word.")


class Findings(Spec, frozen=True):
    """The file that `rlvr-dir report --findings` reads."""

    called: ClassVar[str] = "findings"

    findings: tuple[Finding, ...] = Field(min_length=1, description="A row each.")
    notes: tuple[str, ...] = Field(default=(), description="Said beneath the table.")


def read_findings(path: Path) -> Section:
    """Return the section that a file of findings makes; raises UserError where it holds something else."""
    found = parse(Findings, read_yaml(path))
    return claims_table(found.findings, "What else the paper says, as these results were read.", found.notes)


def claims_table(findings: Sequence[Finding], title: str, notes: Sequence[str] = (), name: str = "claims") -> Section:
    """Set claims beside what is found, with the verdict."""
    rows = [{"The paper says": one.claim, "Found here": one.found or "–", "Verdict": one.verdict} for one in findings]
    return Section(name, title, frame(rows), tuple(notes))


def judged(one: Any) -> Verdict:
    """Return the verdict of a difference that is claimed to be above zero: by its p, which its interval agrees with."""
    if one.p < 0.05:
        return "confirmed" if one.mean > 0 else "contradicted"
    return "inconclusive"


def points(one: Any) -> str:
    """Write a difference in points, with its interval."""
    text = Estimate(one.mean, one.low, one.high).text(1, sign=True)
    number, _, between = text.partition(" ")
    return f"{number} points {between}".rstrip()


def claims(rows: Sequence[Comparison]) -> list[Finding]:
    """Judge what the comparisons of one group tell of the paper's claims, in the order of `CLAIMS`.

    Only what goes beyond RL (gamma above 0) is called extrapolation, and drawing every token so is another question
    than doing it behind a gate: the two are not averaged.
    """
    trained = [row for row in rows if comparison_kind(row) == "trained"]
    plain = [row for row in rows if comparison_kind(row) == "against rl" and row.result.decoding.mode == "replace"]
    plain = [row for row in plain if row.result.decoding.primary == "base" and not row.result.decoding.everywhere]
    beyond = [row for row in rows if extrapolates(row)]
    gated = [row for row in beyond if not row.result.decoding.everywhere]
    found = [_mean(trained, CLAIMS[0], "RL changed accuracy by {} (95 %, paired by problem{})")]
    found += _tokens_needed(plain, trained)
    for primary, claim in (("base", CLAIMS[3]), ("rl", CLAIMS[4])):
        mine = [row for row in gated if row.result.decoding.primary == primary]
        found.append(
            _mean(mine, claim, "Extrapolating changes accuracy by {} against the same gate without it (γ = 0{})")
        )
    if ungated := [row for row in beyond if row.result.decoding.everywhere]:
        claim = "(A control.) Extrapolating every token, without a gate, is better than RL."
        found.append(_mean(ungated, claim, "It changes accuracy by {} against RL itself (γ = 0{})"))
    return found


def _mean(rows: Sequence[Comparison], claim: str, words: str) -> Finding:
    if (found := pooled(rows)) is None:
        return Finding(claim=claim, verdict="not tested")
    if found.low != found.low:  # one problem has no interval
        words = words.replace("95 %, ", "")
    return Finding(
        claim=claim,
        found=words.format(points(found), "".join(f", {each}" for each in _over(found, rows))),
        verdict=judged(found),
    )


def _over(one: Pooled, rows: Sequence[Comparison]) -> list[str]:
    """Say of how many settings and benchmarks something is the mean, and how many are significant by themselves."""
    counts = set(one.settings.values())

    def many(count: int) -> str:
        return f"{count} setting{'s' * (count > 1)}"

    words = [f"mean over {many(count)}" for count in counts if count > 1]
    if len(counts) > 1:
        words = ["mean over " + " and ".join(f"{many(count)} on {task}" for task, count in one.settings.items())]
    words += [f"{len(one.settings)} benchmarks"] if len(one.settings) > 1 else []
    if sum(one.settings.values()) > len(one.settings):
        words.append(f"{sum(row.holm_p < 0.05 for row in rows)} of the {len(rows)} by itself with a Holm p below 0.05")
    return words


def _tokens_needed(plain: Sequence[Comparison], trained: Sequence[Comparison]) -> tuple[Finding, Finding]:
    """Judge how few tokens Δ log p has to change to come up to RL, and whether others need more.

    A setting comes up to RL where its score is not significantly below RL's, and surely keeps more than `KEPT` of what
    RL gained. Where RL scores no more than base there is nothing to come up to.
    """
    said: tuple[list[str], list[str]] = [], []
    verdicts: tuple[list[Verdict], list[Verdict]] = [], []
    for learned in (row for row in trained if row.difference.mean > 0):
        gain, by = learned.difference.mean, dict[str, list[Comparison]]()
        for row in plain:
            if row.task == learned.task:
                by.setdefault(row.result.decoding.criterion, []).append(row)
        if not (mine := by.get(DIRECTION)):
            continue
        task, one = benchmark_title(learned.result.benchmark), _least(mine, gain)
        scores = f"{task} (RL {100 * learned.result.avg:.1f}, base {100 * learned.reference.avg:.1f})"
        kept = "" if one is None else f", which keeps {_kept(one, gain)} of the gain"
        said[0].append(f"{scores}: {_share(one)} changed{kept}" if one else f"{scores}: not reached")
        below = all(row.difference.high < 0 for row in mine)
        verdicts[0].append("confirmed" if one else "contradicted" if below else "inconclusive")
        if others := [by[name] for name in MAGNITUDES if name in by]:
            more = [_needs_more(one, rows) for rows in others]
            fewer = any(_needs_more(_least(rows, gain), mine) for rows in others)
            verdicts[1].append("contradicted" if fewer else "confirmed" if all(more) else "inconclusive")
            every = [f"{rows[0].result.decoding.caption} {_share(_least(rows, gain))}" for rows in (mine, *others)]
            said[1].append(f"{task}: {'; '.join(every)}")
    first, second = (
        Finding(claim=claim, found=f"{'. '.join(words)}.", verdict=_all(each))
        if words
        else Finding(claim=claim, verdict="not tested")
        for claim, words, each in zip(CLAIMS[1:3], said, verdicts, strict=True)
    )
    return first, second


def _least(rows: Sequence[Comparison], gain: float) -> Comparison | None:
    """Return the setting that comes up to RL with the least share of changed tokens; None where none does."""
    enough = [row for row in rows if row.difference.high >= 0 and row.difference.low > (KEPT - 1) * gain]
    return min(enough, key=lambda row: row.result.changed_ratio, default=None)


def _needs_more(one: Comparison | None, rows: Sequence[Comparison]) -> bool:
    """Tell whether a criterion is still significantly below RL where it changes more tokens than `one`, which comes up.

    That a wider grid happens to come up later says nothing.
    """
    below = [row.result.share("n_changed") for row in rows if row.difference.high < 0]
    most = None if one is None else one.result.share("n_changed").high
    return most is not None and any(share.low is not None and share.low > most for share in below)


def _kept(row: Comparison, gain: float) -> str:
    """Write which share of RL's gain a setting keeps, the gain itself taken as it was found."""
    d = row.difference
    return Estimate(1 + d.mean / gain, 1 + d.low / gain, 1 + d.high / gain).text(0) + " %"


def _share(row: Comparison | None) -> str:
    if row is None:
        return "not reached"
    one = row.result.share("n_changed")
    return f"{one.number(1)} % {one.interval(1)}".rstrip()


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    """Put the verdicts of several benchmarks together: what they share, else nothing is concluded."""
    return verdicts[0] if len(set(verdicts)) == 1 else "inconclusive"


def picked(rows: Sequence[Comparison]) -> Section | None:
    """List the best replacement and the best extrapolation of each benchmark, with what they are worth against RL."""
    found = []
    against = [row for row in rows if comparison_kind(row) == "against rl" and row.result.decoding.gated]
    for task in dict.fromkeys(row.task for row in against):
        for mode in ("replace", "extrapolate"):
            mine = [row for row in against if (row.task, row.result.decoding.mode) == (task, mode)]
            if len(mine) < 2:
                continue
            top = max(mine, key=lambda row: row.difference.mean)
            one, d = top.result, top.difference
            found.append(
                {
                    "Benchmark": benchmark_title(one.benchmark),
                    "Best of": f"{len(mine)} of {'replacement' if mode == 'replace' else 'extrapolation'}",
                    "Decoding": Cell(one.label, link=anchor(one.first)),
                    "Score": cell(Estimate(one.avg, *one.interval)),
                    "minus RL": cell(
                        Estimate(d.mean, d.low, d.high), 1, plus=True, beside=[f"p {p_value(top.holm_p)}"]
                    ),
                    "Replaced": cell(one.share("n_replaced"), 1, suffix=" %"),
                    "Changed": cell(one.share("n_changed"), 1, suffix=" %"),
                }
            )
    note = "Picked on these very problems, for which no interval is corrected: expect less on others. p: Holm's."
    return Section("picked", "What was picked on these data.", frame(found), (note,)) if found else None


def unlike(rows: Sequence[Comparison]) -> list[str]:
    """Say what makes the comparisons less than they seem: parts of benchmarks, responses that the context ended."""
    parts = dict.fromkeys(f"{r.result.task}: {r.result.first.limited}" for r in rows if r.result.first.limited)
    said = [f"Only some of the problems were asked ({', '.join(parts)})."] if parts else []
    return said + cut_unlike([(row.result, row.reference) for row in rows])
