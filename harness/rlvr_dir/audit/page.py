"""Build the page of an audit: what was compared and on what, the pictures, then the table group by group.

write(report(audit), Path("audit"))          # report.html, report.md, tables/ and figures/ with CSV and LaTeX
"""

import re
from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any

import numpy as np

from rlvr_dir import stats
from rlvr_dir.audit.claim import Claim, Frame
from rlvr_dir.audit.interventions import AT, IN_RL, SHARES, correct, share_of_tokens
from rlvr_dir.audit.outcomes import MODELS, families_of, table
from rlvr_dir.audit.run import THIS, Audit
from rlvr_dir.audit.tokens import OWNERS
from rlvr_dir.config.pair import model_name
from rlvr_dir.report.draw import BASE, RL, beside, drawing, height_of, line, look, percent_axis, root_axis
from rlvr_dir.report.model import Cell, Chapter, Report, Section, Tile, cell, frame
from rlvr_dir.report.replacements import replacements_table
from rlvr_dir.report.tables import place
from rlvr_dir.results.settings import few_families_words
from rlvr_dir.stats import Estimate

TITLES = {
    "outcomes": "Outcomes: what each model gets right",
    "interventions": "Interventions: replacing tokens of one model with the other's",
    "tokens": "Tokens: how the two distributions differ on the models' own responses",
    "weights": "Weights: what training changed in the checkpoint",
    "texts": "Texts: how the two distributions differ on given texts",
}
MOST_DIGITS = 6  # digits of a number that would otherwise be printed as 0
BASES, RLS = "base's answers", "RL's answers"  # the panels of the figure of interventions
LINES: dict[str, dict[str, str]] = {  # the lines of each panel, by way of intervening
    BASES: {
        "replace delta_logp": "Δ log p, RL's token", "reject delta_logp": "Δ log p, reject",
        "veto delta_logp": "Δ log p, veto", "resample delta_logp": "Δ log p, base again",
        "replace js": "JS, RL's token", "replace entropy_base": "entropy, RL's token",
        "replace random": "chance, RL's token",
    },
    RLS: {f"resample {name} on rl": f"{words}, base's token" for name, words in zip(
        IN_RL, ("Δ log p", "JS", "chance"), strict=True)},
}  # fmt: skip
# How the line of each mode, and of each criterion in both panels, looks.
STYLES: dict[str, dict[str, Any]] = {
    "replace": {"linestyle": "-"}, "reject": {"linestyle": (0, (6, 2, 1, 2)), "markerfacecolor": "white"},
    "veto": {"linestyle": (0, (4, 2)), "marker": "v"}, "resample": {"linestyle": (0, (1, 2)), "marker": "D"},
}  # fmt: skip
COLOUR = {"delta_logp": 0, "js": 1, "entropy_base": 2, "random": 3}  # by criterion, in both panels
CURVE = 60  # points of the concentration curve


def report(audit: Audit, title: str = "rlvr-dir audit", details: Sequence[tuple[str, str]] = ()) -> Report:
    """Build the page of an audit. Figures show the audited pair; tables have a column for every pair."""
    pictures = {
        "points": accuracy_figure,
        "scores": pass_figure,
        "traces": concentration_figure,
        "weights": layer_figure,
    }
    steps = audit.analysis.context.get("steps")
    charts = [step_chart(claim, audit, steps) for claim in audit.claims if steps and claim.name in CHARTS]
    front = (*charts, *(draw(audit.frames[reads]) for reads, draw in pictures.items() if reads in audit.frames))
    missing, chapters = audit.analysis.context["missing"], list[Chapter]()
    for group in dict.fromkeys(claim.group for claim in audit.claims):
        why_not = {name: missing[name][group] for name in audit.columns if group in missing[name]}
        table = () if len(why_not) == len(audit.columns) else claim_tables(audit, group)
        if group == "tokens" and audit.replaced is not None and len(audit.replaced.frame):
            table = (replacements_table(audit.replaced, "replacements"), *table)
        paragraphs = tuple(f"Not measured for {name}: {why}" for name, why in why_not.items())
        chapters.append(Chapter(TITLES[group], paragraphs, table))
    headline, *opening = lines(audit)
    made = tuple((name, str(audit.analysis.context[name])) for name in ("date", "minutes"))
    return Report(
        title, headline, tuple(opening), front, tuple(chapters), details=(*details, *made), tiles=tuple(tiles(audit))
    )


TILES = {  # the large numbers at the top, by the names of their claims
    "outcomes/avg/base": ("Base, correct", "base"), "outcomes/avg/rl": ("RL, correct", "rl"),
    "outcomes/gain": ("RL's gain", "mixed"),
    "interventions/reached/delta_logp": ("Base's tokens to change until it matches RL", "mixed"),
    "tokens/same_top/rl": ("Positions with the same most likely token", "mixed"),
    "weights/equal_bf16": ("Weights identical in bfloat16", "mixed"),
}  # fmt: skip


def tiles(audit: Audit) -> list[Tile]:
    """Return the large numbers of the audited pair that were measured."""
    cells = {claim.name: _number(claim, audit.estimates[claim.name, THIS]) for claim in audit.claims}
    return [
        Tile(title, cells[name].text, cells[name].small, kind)
        for name, (title, kind) in TILES.items()
        if name in cells and cells[name].value is not None
    ]


def lines(audit: Audit) -> list[str]:
    """Return the headline, then the main numbers, then what was compared and how to read the brackets."""
    context, pair, beside = audit.analysis.context, audit.pair, audit.columns[1:]
    name = model_name(pair.rl)
    sentences = [f"What RL changed in {'the tiny pair' if name == 'tiny pair' else name}", *summary(audit)]
    if audit.replaced is not None:
        sentences += audit.replaced.sentences()
    drawn = f" Both were evaluated on {context['questions']}, {context['samples']} samples each, {context['sampling']}."
    sentences.append(f"Base is {place(pair.base)}, RL is {place(pair.rl)}.{drawn if context['tasks'] else ''}")
    for name in context["same"]:
        sentences.append(f"Base and RL of {name} are the same model, so every number is that of no change.")
    sentences += context.get("notes", [])
    sentences += [f"Further columns: {'; '.join(beside)}."] if beside else []
    units = [f"the {count} families of {name}" for name, count in context["families"].items()]
    units += [f"the problems of {name}" for name in context["tasks"] if units and name not in context["families"]]
    sentences += few_families_words([name for name, count in context["families"].items() if count < stats.FEW])
    return [
        *sentences,
        f"Brackets are 95 % confidence intervals over {' and '.join(units) or 'problems'}. The page reports numbers "
        "only; it does not judge whether a claim holds.",
    ]


SUMMARY = (  # sentences with numbers, by the names of their claims; if a number is missing, the sentence is dropped
    "Base answers {outcomes/avg/base} correctly, RL {outcomes/avg/rl}. RL gains {outcomes/gain}; of these, "
    "{outcomes/gain/answers} come from more responses with an answer.",
    "Changing {interventions/reached/delta_logp} of base's tokens, those with the lowest Δ log p, is enough to "
    "match RL.",
    f"When RL resamples the {100 * AT:g} % of base's tokens with the lowest Δ log p, base recovers "
    "{interventions/replace/delta_logp} of the gain. Resampling as many random tokens recovers "
    "{interventions/replace/random}. Resampling the same tokens from base itself recovers "
    "{interventions/resample/delta_logp}.",
    "At these tokens, writing RL's token instead of another token of base's is worth {interventions/token/delta_logp}. "
    "Letting RL decide which of them to drop is worth {interventions/own_draw/delta_logp} over resampling from base.",
    "KL(base ‖ RL) on base's responses has a mean of {tokens/kl_base_rl/base}, a median of {tokens/kld_50/base}, a "
    "99.9 % quantile of {tokens/kld_99.9/base} and a maximum of {tokens/kld_100/base}.",
    "Both models have the same most likely token at {tokens/same_top/rl} of the positions in RL's responses. "
    "{tokens/js_half/rl} of the positions account for half of the total Jensen–Shannon divergence (JS).",
    "{weights/equal_bf16} of the weights are identical in bfloat16. The largest singular values of the matrices' "
    "changes ΔW account for {weights/first} of the squared Frobenius norm of all changes.",
)


def summary(audit: Audit) -> list[str]:
    """Return the sentences of `SUMMARY` for the audited pair.

    A sentence is dropped if one of its numbers is missing.
    """
    cells = {claim.name: _number(claim, audit.estimates[claim.name, THIS]) for claim in audit.claims}
    texts = {name: " ".join((one.text, *one.small)) for name, one in cells.items() if one.value is not None}
    fields = {sentence: re.findall(r"{([^}]+)}", sentence) for sentence in SUMMARY}
    return [
        re.sub(r"{([^}]+)}", lambda found: texts[found[1]], sentence)
        for sentence, names in fields.items()
        if all(name in texts for name in names)
    ]


def claim_tables(audit: Audit, group: str) -> tuple[Section, ...]:
    """Return the tables of a group: the rows with a published number first, then the others.

    Each has one row per claim, one column per pair, and how the claim is measured.
    """
    published: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for claim in (claim for claim in audit.claims if claim.group == group):
        measured = [name for name in audit.columns if (claim.name, name) in audit.estimates]
        numbers = {name: _number(claim, audit.estimates[claim.name, name]) for name in measured}
        link = f"https://arxiv.org/abs/{claim.sources[0].arxiv}" if claim.sources else ""
        sentence, how = claim.words(audit.analysis.context["samples"])
        if claim.sources:
            source = Cell(claim.published, link=link)
            published.append({"Measured": sentence, **numbers, "Published": source, "How": how})
        else:
            others.append({"Measured": sentence, **numbers, "How": how})
    note = "Published: the source, its models and its number; “no number” means that the paper states none."
    sections = [Section(group, "Beside published numbers", frame(published), (note,))] if published else []
    sections += [Section(f"{group}-further" if published else group, "Further rows", frame(others))] if others else []
    return tuple(sections)


def _number(claim: Claim, estimate: Estimate) -> Cell:
    """Return a table cell with the number. If it was not reached, the cell states its lower bound."""
    if estimate.value is None and estimate.low is not None and estimate.high is not None:
        ends = claim.unit * estimate.low, claim.unit * estimate.high
        return Cell("not reached", None, ends, (f"more than {ends[0]:.{claim.digits}f}{claim.suffix}",))
    digits, size = claim.digits, abs(claim.unit * (estimate.value or 0.0))
    if 0 < size < 0.5 * 10**-digits:  # it would be printed as 0, outside its interval
        digits = min(MOST_DIGITS, -floor(log10(size)))
    return cell(estimate, digits, unit=claim.unit, suffix=claim.suffix, plus=claim.signed)


# The figures


CHARTS = (  # rows that are drawn against the training step
    "outcomes/avg/rl", "tokens/kl_rl_base/rl", "tokens/same_top/rl", "outcomes/tokens/rl", "weights/change/all",
)  # fmt: skip


def step_chart(claim: Claim, audit: Audit, steps: Mapping[str, int]) -> Section:
    """Draw a row against the training step of the columns in `steps`. Other columns are horizontal lines."""
    numbers = {
        column: Estimate(*(end and claim.unit * end for end in (one.value, one.low, one.high)))
        for (name, column), one in audit.estimates.items()
        if name == claim.name and one.value is not None
    }
    at, title = sorted((step, column) for column, step in steps.items() if column in numbers), claim.words(None)[0]
    with drawing(f"audit-steps-{claim.name}", 2.6) as canvas:
        line(canvas.one, [step for step, _ in at], [numbers[column] for _, column in at], "steps", **look(0))
        for i, column in enumerate(column for column in numbers if column not in steps):
            style = {"color": look(i + 1)["color"], "linestyle": ":", "linewidth": 1}
            canvas.one.axhline(numbers[column].value, label=column, **style)
        canvas.one.set_xlabel("step")
        canvas.one.set_ylabel(claim.suffix.strip())
        canvas.one.legend()
    rows = [
        {"column": column, "step": steps.get(column), "value": one.value, "low": one.low, "high": one.high}
        for column, one in numbers.items()
    ]
    note = "Bars are 95 % intervals over problems; steps share their noise. Level lines are further columns."
    alt = f"Line chart: {title} against the step of the training."
    return Section(f"steps-{claim.name.replace('/', '-')}", title, frame(rows), (note,), canvas.svg, alt)


def accuracy_figure(points: Frame) -> Section:
    """Draw accuracy against the share of changed tokens: base with RL's tokens, and RL with base's tokens."""
    rows: list[dict[str, Any]] = []
    families = families_of(points)
    levels = {name: _score(correct(points, model), families) for model, name in MODELS.items()}
    with drawing("audit-accuracy", height_of(len(LINES[BASES]) + 2), 2) as canvas:
        for axes, (panel, ways) in zip(canvas.axes, LINES.items(), strict=True):
            for way, label in ways.items():
                mode, _, criterion = way.partition(" ")
                at = [share_of_tokens(points, way, share) for share in SHARES]
                flagged = [share_of_tokens(points, way, share, "replaced") for share in SHARES]
                scores = [_score(correct(points, way, share), families) for share in SHARES]
                style = look(COLOUR[criterion.partition(" ")[0]]) | STYLES[mode]
                order = np.argsort(at)
                line(axes, [100 * at[i] for i in order], [scores[i] for i in order], label, **style)
                rows += [
                    {"answers": panel, "way": way, "wanted_percent": 100 * share, "flagged_percent": 100 * flagged[i],
                     "changed_percent": 100 * at[i], **_ends(scores[i])}
                    for i, share in enumerate(SHARES)
                ]  # fmt: skip
            for (name, level), colour in zip(levels.items(), (BASE, RL), strict=True):
                axes.axhline(level.value, color=colour, linewidth=1, linestyle=":", label=name)
            root_axis(axes)
            axes.set_title(panel)
            axes.set_ylabel("right, %")
            axes.set_xlabel("changed tokens, %")
            beside(axes)
    rows += [
        {"answers": name, "way": "alone", "changed_percent": 0.0, **_ends(level)} for name, level in levels.items()
    ]
    shares = ", ".join(f"{100 * share:g}" for share in SHARES)
    note = (
        f"Thresholds flag {shares} % of the tokens of base's and RL's own answers. Reject: RL decides, base writes; "
        "veto: every flagged token goes, base writes. Level lines: base and RL alone. Bars are 95 % intervals; the "
        "axis is scaled by square roots."
    )
    alt = "Two line charts: right answers against changed tokens, in base's and in RL's answers, a line a way."
    return Section("accuracy", "Right answers against changed tokens", frame(rows), (note,), canvas.svg, alt)


def concentration_figure(traces: Frame) -> Section:
    """Draw which share of the total JS divergence lies on which share of positions, for both models' responses."""
    rows: list[dict[str, Any]] = []
    with drawing("audit-concentration", 2.6) as canvas:
        for owner, name in OWNERS.items():
            js = np.sort(traces.js[traces.decoding == owner].to_numpy(float))[::-1]
            if not js.sum():
                continue
            held = np.cumsum(js) / js.sum()
            places = np.unique(np.geomspace(1, js.size, CURVE).astype(int))
            canvas.one.plot(
                100 * places / js.size, 100 * held[places - 1], label=name, color={"rl": RL, "base": BASE}[owner]
            )
            rows += [
                {"answers": name, "positions_percent": 100 * at / js.size, "js_percent": 100 * held[at - 1]}
                for at in places.tolist()
            ]
        canvas.one.set_xscale("log")
        canvas.one.xaxis.set_major_formatter("{x:g}")
        canvas.one.set_xlabel("positions, those with the most JS first, %")
        canvas.one.set_ylabel("of all JS, %")
        if rows:
            canvas.one.legend(loc="lower right")
    alt = "Line chart: share of all Jensen-Shannon divergence against the share of positions that hold it."
    names = ["answers", "positions_percent", "js_percent"]
    return Section("concentration", "How few positions hold the divergence", frame(rows, names), (), canvas.svg, alt)


def pass_figure(scores: Frame) -> Section:
    """Draw Pass@k of base and RL for every k."""
    rows: list[dict[str, Any]] = []
    families = families_of(scores)
    with drawing("audit-pass", 2.6) as canvas:
        for model, name in MODELS.items():
            right = table(scores, "correct", model)
            ks = list(range(1, right.shape[1] + 1))
            passed = [right, *(stats.pass_at_k_per_problem(right, k)[:, None] for k in ks[1:])]
            passed = [_score(values, families) for values in passed]
            line(canvas.one, ks, passed, name, **look(0, color={"base": BASE, "rl": RL}[model]))
            rows += [{"model": name, "k": k, **_ends(estimate)} for k, estimate in zip(ks, passed, strict=True)]
        canvas.one.set_xscale("log", base=2)
        canvas.one.set_xticks([1, *stats.pass_ks(scores["sample"].nunique())])
        canvas.one.xaxis.set_major_formatter("{x:g}")
        canvas.one.set_xlabel("k")
        canvas.one.set_ylabel("Pass@k, %")
        canvas.one.legend(loc="lower right")
    note = "Unbiased for each k. Bars are 95 % intervals."
    alt = "Line chart: Pass@k of base and of RL against k."
    return Section("pass", "Problems solved in k samples", frame(rows), (note,), canvas.svg, alt)


def layer_figure(weights: Frame) -> Section:
    """Draw the relative size of the change by layer, with one line per kind of matrix."""
    inside = weights[weights.layer.notna() & weights.change.notna()]
    sums = inside.groupby(["kind", "layer"])[["change", "size"]].sum().reset_index()
    sums["relative_change"] = np.sqrt(sums.change / sums["size"].where(sums["size"] > 0))
    with drawing("audit-layers", 2.6) as canvas:
        for i, (kind, of_kind) in enumerate(sums.groupby("kind")):
            canvas.one.plot(of_kind.layer, of_kind.relative_change, label=kind, markersize=4, **look(i))
        percent_axis(canvas.one.yaxis)
        canvas.one.set_ylim(bottom=0)
        canvas.one.xaxis.get_major_locator().set_params(integer=True)
        canvas.one.set_xlabel("layer")
        canvas.one.set_ylabel("‖ΔW‖ / ‖W‖")
        canvas.one.legend()
    data = sums[["kind", "layer", "relative_change"]]
    alt = "Line chart: the size of the change over that of the weights by layer, a line a kind of matrix."
    return Section("layers", "How far each layer's weights moved", data, (), canvas.svg, alt)


def _score(values: np.ndarray, families: stats.Labels | None) -> Estimate:
    """Return the mean in percent. `values` is (problems, samples), or (problems, 1) for one number per problem."""
    low, high = stats.score_interval(values, families=families)
    return Estimate(100 * values.mean(), 100 * low, 100 * high)


def _ends(estimate: Estimate) -> dict[str, float | None]:
    return {"percent": estimate.value, "low": estimate.low, "high": estimate.high}
