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
CLAIMS = (
    "RL makes the base model better.",
    "Replacing a few of base's tokens, chosen by Δ log p, reaches RL.",
    "Δ log p needs fewer tokens than entropy or divergence.",
    "Extrapolating beyond RL (γ > 0) adds to replacing alone.",
    "Extrapolating adds on the RL model itself, too.",
    "Weighing unlikely tokens more makes a better training than DAPO.",
)
NOTE = (
    "Verdicts follow 95 % intervals over problems (trainings: and seeds), paired by problem. A mean over all settings "
    "of a kind is not picked. Shares are of changed tokens: the least, of the settings that were run, for a score not "
    "significantly below RL's. “Reaches RL”: a setting keeps, significantly, more than half of what RL gained. "
    "Inconclusive: these problems do not tell."
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
    return claims_table(found.findings, "The paper's claims, and what these results say of them.", found.notes)


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
    return Finding(
        claim=claim,
        found=words.format(points(found), "".join(f", {each}" for each in _over(found, rows))),
        verdict=judged(found),
    )


def _over(one: Pooled, rows: Sequence[Comparison]) -> list[str]:
    """Say of how many settings and benchmarks something is the mean, and how many are significant by themselves.

    What a search prunes looked bad by chance or truth: a mean over the rest is too high, which is said.
    """
    searches: dict[str, int] = {}
    for row in rows:
        searches |= row.result.first.provenance.get("pruned") or {}
    pruned, counts = sum(searches.values()), set(one.settings.values())
    what = "surviving settings" if pruned else "settings"
    words = [f"mean over {count} {what}" for count in counts if count > 1 or pruned]
    if len(counts) > 1:
        words = ["mean over " + " and ".join(f"{count} {what} on {task}" for task, count in one.settings.items())]
    words += [f"{len(one.settings)} benchmarks"] if len(one.settings) > 1 else []
    words += [f"{pruned} others were pruned by a search, which favours the mean"] if pruned else []
    if sum(one.settings.values()) > len(one.settings):
        words.append(f"{sum(row.holm_p < 0.05 for row in rows)} of the {len(rows)} by itself with a Holm p below 0.05")
    return words


def _tokens_needed(plain: Sequence[Comparison], trained: Sequence[Comparison]) -> tuple[Finding, Finding]:
    """Judge how few tokens Δ log p has to change to come up to RL, and whether others need more.

    Of the settings that were run: the least share of changed tokens whose score is not significantly below RL's. Where
    RL scores no more than base there is nothing to reach.
    """
    said: tuple[list[str], list[str]] = [], []
    verdicts: tuple[list[Verdict], list[Verdict]] = [], []
    for learned in (row for row in trained if row.difference.mean > 0):
        by: dict[str, list[Comparison]] = {}
        for row in plain:
            if row.task == learned.task:
                by.setdefault(row.result.decoding.criterion, []).append(row)
        reached: dict[str, Estimate] = {}
        for criterion, rows in by.items():
            if enough := [row.result for row in rows if row.difference.high >= 0]:
                one = min(enough, key=lambda each: each.changed_ratio)
                reached[criterion] = one.share("n_changed")
        names = {row.result.decoding.criterion: row.result.decoding.caption for row in plain}
        task = benchmark_title(learned.result.benchmark)
        scores = f"{task} (RL {100 * learned.result.avg:.1f}, base {100 * learned.reference.avg:.1f})"
        if DIRECTION in by:
            half = -learned.difference.mean / 2
            surely = any(row.difference.low > half for row in by[DIRECTION])
            verdicts[0].append(
                "contradicted" if DIRECTION not in reached else "confirmed" if surely else "inconclusive"
            )
            said[0].append(f"{scores}: {_share(reached.get(DIRECTION))} changed")
        others = [name for name in MAGNITUDES if name in by]
        if DIRECTION in by and others:
            verdicts[1].append(_fewer(reached.get(DIRECTION), [reached.get(name) for name in others]))
            every = [f"{names[name]} {_share(reached.get(name))}" for name in (DIRECTION, *others)]
            said[1].append(f"{task}: {'; '.join(every)}")
    first, second = (
        Finding(claim=claim, found=f"{'. '.join(words)}.", verdict=_all(each))
        if words
        else Finding(claim=claim, verdict="not tested")
        for claim, words, each in zip(CLAIMS[1:3], said, verdicts, strict=True)
    )
    return first, second


def _share(one: Estimate | None) -> str:
    return "not reached" if one is None else f"{one.number(1)} % {one.interval(1)}".rstrip()


def _fewer(mine: Estimate | None, others: Sequence[Estimate | None]) -> Verdict:
    """Compare the least shares of changed tokens, None where RL was not reached, by their intervals."""
    known = [one for one in others if one is not None]
    if mine is None:
        return "contradicted" if known else "inconclusive"
    if any(one.high is not None and mine.low is not None and one.high < mine.low for one in known):
        return "contradicted"
    return "confirmed" if all(one.low is not None and one.low > (mine.high or 1.0) for one in known) else "inconclusive"


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
