"""Make the chapters about tokens: the probabilities of both models, and where gates flag."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlvr_dir.analysis.result import Analysis, Frame
from rlvr_dir.report.draw import BASE, COLOURS, RL, bars, drawing, line, look, percent_axis, ranked_bars
from rlvr_dir.report.groups import pair_title
from rlvr_dir.report.model import Chapter, Section, cell, frame
from rlvr_dir.report.rows import drawn, estimate, estimates, limited, tasks_of

FACTS = {
    "delta_logp": "Δ log p", "entropy_base": "entropy of base", "entropy_rl": "entropy of RL", "kl": "KL, mean of both",
    "kl_rl_base": "KL(RL, base)", "kl_base_rl": "KL(base, RL)",
}  # fmt: skip
OWNERS = {"base": "base's responses", "rl": "RL's responses"}
COLOUR = {"base": BASE, "rl": RL}
SHOWN_TOKENS, SHOWN_WORDS = 20, 40
OVER = "Bars: 95 % intervals over problems."


def token_chapter(analysis: Analysis, slug: str = "") -> Chapter:
    """Show all statistics of the tokens of one pair."""
    generations = analysis.frame("generations").set_index("generation").to_dict("index")
    text = (
        f"Both models answered {tasks_of(analysis)} ({generations['base']['problems']} problems, {drawn(analysis)}), "
        f"and both scored every token: {generations['base']['tokens']:,} of base, "
        f"{generations['rl']['tokens']:,} of RL. Intervals are over problems."
    )
    histograms = analysis.frame("histograms")
    histograms["share"] = [count / max(1, generations[model]["tokens"]) for model, count in zip(histograms["generation"], histograms["tokens"], strict=True)]  # noqa: E501  # fmt: skip
    near = ", ".join(
        f"{100 * generations[model]['near_zero'] / max(1, generations[model]['tokens']):.1f} % of {OWNERS[model]}"
        for model in OWNERS
    )
    sections = (
        _delta_histogram(histograms[histograms["fact"] == "delta_logp"], near, f"histogram-delta{slug}"),
        _magnitudes(histograms[histograms["fact"] != "delta_logp"], f"histogram-magnitude{slug}"),
        _by_delta(analysis.frame("by_delta"), f"probability-by-delta{slug}"),
        _gradient(analysis.frame("gradient"), f"gradient{slug}"),
        _selected(analysis, f"selected{slug}"),
        _likelier(analysis, f"likelier{slug}"),
    )
    title = f"Token statistics, {pair_title(str(analysis.context['pair'].get('rl')))}"
    return Chapter(title, (text,), limited(analysis, sections))


def _steps(axes: Any, histograms: Frame, fact: str) -> None:
    """Draw both generations' histograms of a statistic as steps on a logarithmic axis."""
    of_fact = histograms[histograms["fact"] == fact]
    for model in OWNERS:
        of_model = of_fact[of_fact["generation"] == model]
        for start, end, share in zip(of_model["from"], of_model["to"], of_model["share"], strict=True):
            axes.stairs([share], [start, end], baseline=None, color=COLOUR[model], linewidth=1.2)
        axes.plot([], [], color=COLOUR[model], label=OWNERS[model])
    axes.set_yscale("log")
    percent_axis(axes.yaxis)
    axes.set_xlabel(f"{FACTS[fact]}, nats")


def _histogram(data: Frame) -> Frame:
    return data[["generation", "fact", "from", "to", "share"]].reset_index(drop=True)


def _delta_histogram(histograms: Frame, near: str, name: str) -> Section:
    """Draw delta log p of both generations, with the edges of its tails."""
    with drawing(name, 2.6) as canvas:
        _steps(canvas.one, histograms, "delta_logp")
        for edge in (-0.5, 0.5):
            canvas.one.axvline(edge, color="#808080", linewidth=0.8, linestyle=":")
        canvas.one.set_ylabel("share of tokens")
        canvas.one.legend()
    title = "Δ log p = log π_RL − log π_Base of every token, by who wrote it"
    note = f"Bins of 0.1 nats, logarithmic. |Δ| < 0.001: {near}. Dotted: where the audit's tails begin."
    alt = "Step histogram of Δ log p for base's and RL's responses."
    return Section(name, title, _histogram(histograms), (note,), canvas.svg, alt, "fig:teaser (b), fig:hist_logp_diffs")


def _magnitudes(histograms: Frame, name: str) -> Section:
    """Draw entropies and divergences of both generations, and the mean of both divergences."""
    with drawing(name, 1.9, 5) as canvas:
        for axes, fact in zip(
            canvas.axes, ("entropy_base", "entropy_rl", "kl_rl_base", "kl_base_rl", "kl"), strict=True
        ):
            _steps(axes, histograms, fact)
            axes.set_ylabel("share of tokens")
        canvas.one.legend()
    title = "The magnitudes: entropies, divergences and their mean at every position, by who wrote the response"
    alt = "Five step histograms, of both entropies, both KL divergences and their mean, for base's and RL's responses."
    paper = "fig:teaser (b), fig:hist_unireason_magnitudes, fig:hist_dapo_magnitudes, fig:hist_orz_magnitudes"
    return Section(name, title, _histogram(histograms), (), canvas.svg, alt, paper)


def _by_delta(data: Frame, name: str) -> Section:
    """Draw the mean probability of a token under either model, by its delta log p."""
    labels = list(dict.fromkeys(data["delta_logp"]))
    filled = data[data["tokens"] > 0].reset_index(drop=True)
    with drawing(name, 2.5, 2, sharex=True) as canvas:
        for axes, owner in zip(canvas.axes, OWNERS, strict=True):
            of_model = filled[filled["generation"] == owner]
            for column, model in enumerate(OWNERS):
                at = [labels.index(label) + (column - 0.5) * 0.38 for label in of_model["delta_logp"]]
                label = "p of base" if model == "base" else "p of RL"
                bars(axes, at, estimates(of_model, f"p_{model}"), 0.36, color=COLOUR[model], label=label)
            axes.set_ylim(0, 1.05)
            axes.set_title(f"tokens of {OWNERS[owner]}")
            axes.set_ylabel("mean probability")
        canvas.axes[1].set_xticks(range(len(labels)), labels, rotation=45, ha="right", rotation_mode="anchor")
        canvas.axes[1].set_xlabel("Δ log p of the token, nats")
        canvas.one.legend(loc="lower right")
    title = "Mean probability of tokens by their Δ log p, under both models"
    alt = "Bar chart: mean probability under base and RL in bins of Δ log p, for either model's responses."
    return Section(name, title, filled, (f"Bins without tokens are empty. {OVER}",), canvas.svg, alt, "fig:probs (b)")


def _gradient(data: Frame, name: str) -> Section:
    """Show shares of tokens and of the gradient mass, 2(1 - pi), by probability."""
    with drawing(name, 2.4, 2) as canvas:
        for axes, model in zip(canvas.axes, OWNERS, strict=True):
            of_model = data[data["generation"] == model]
            at = np.arange(len(of_model))
            bars(axes, (at - 0.2).tolist(), estimates(of_model, "tokens"), 0.38, color=BASE, label="tokens")
            bars(axes, (at + 0.2).tolist(), estimates(of_model, "mass"), 0.38, color=COLOURS[0], label="gradient mass")
            edges = [*of_model["p_from"], *list(of_model["p_to"])[-1:]]
            axes.set_xticks(np.arange(len(edges)) - 0.5, [f"{edge:g}" for edge in edges])
            axes.set_xlabel(f"p of the token, {OWNERS[model]}")
            percent_axis(axes.yaxis)
            axes.set_ylabel("share")
        canvas.one.legend()
    title = "Share of tokens, and of the gradient mass 2|w|(1 − π) that Lemma 1 gives them, by the token's probability"
    note = (
        "The probability that the writing model gave it. The weight |w| is taken as 1 for every token: these are the "
        f"model's own responses, not those of a training step. {OVER}"
    )
    alt = "Bar chart: shares of tokens and of gradient mass in ten bins of probability."
    return Section(name, title, data, (note,), canvas.svg, alt, "fig:probs (a)")


def _selected(analysis: Analysis, name: str) -> Section:
    """Rank the tokens that RL writes instead of base's, with all criteria flagging equally many tokens."""
    data = analysis.frame("selected")
    chosen = data.drop_duplicates("criterion").to_dict("records")
    placed = data[data["kind"] == "placed"]
    lists = [placed[placed["criterion"] == criterion["criterion"]][:SHOWN_TOKENS] for criterion in chosen]
    places = [max(3, len(tokens)) for tokens in lists]
    height = 0.6 + 0.2 * sum(places) / len(places)
    with drawing(name, height, len(chosen), gridspec_kw={"height_ratios": places}) as canvas:
        for axes, criterion, tokens, height in zip(canvas.axes, chosen, lists, places, strict=True):
            ranked_bars(axes, list(zip(tokens["token"], tokens["count"], strict=True)), COLOURS[0], height)
            sign = "<" if criterion["criterion"] == "delta_logp" else ">"
            axes.set_title(f"{FACTS.get(criterion['criterion'], criterion['criterion'])} {sign} {criterion['tau']:.3g}")
        canvas.axes[-1].set_xlabel("expected count")
    whole = max(1, analysis.context["positions"])
    share = ", ".join(
        f"{FACTS[criterion['criterion']]} {100 * criterion['positions'] / whole:.2f} %" for criterion in chosen
    )
    title = "What RL puts in place of base's token where each criterion fires, at a matched ratio of base's own tokens"
    note = (
        f"Fires at {share}; the top {SHOWN_TOKENS} of 50, expected counts over RL's nucleus, unchanged tokens left "
        "out. ␣ is a space. The CSV also has the tokens that were picked."
    )
    data = data[["criterion", "kind", "rank", "token", "count"]]
    return Section(name, title, data, (note,), canvas.svg, "Ranked bar lists of substituted tokens.", "fig:top_tokens")


def _likelier(analysis: Analysis, name: str) -> Section:
    """Rank the tokens whose log-probability RL increased most, like the words of the paper's word clouds."""
    columns = ["rank", "token", "count", "delta_logp", "p_base", "p_rl"]
    data = analysis.frame("likelier")[columns] if analysis.tables["likelier"] else frame([], columns)
    words = list(zip(data["token"], data["delta_logp"], strict=True))[:SHOWN_WORDS]
    places = max(1, len(words))
    with drawing(name, 0.6 + 0.2 * places) as canvas:
        ranked_bars(canvas.one, words, COLOURS[2], places)
        canvas.one.set_xlabel("mean Δ log p, nats")
    title = "Tokens whose probability RL increased most, by mean Δ log p over RL's own responses"
    least = analysis.context["least"]
    note = f"Occurring {least:,} times or more: the first {len(words)} of {len(data)}. ␣ is a space."
    alt = f"Ranked bar list of {len(words)} tokens by mean Δ log p."
    return Section(name, title, data, (note,), canvas.svg, alt, "fig:word_cloud")


def gated_chapter(analysis: Analysis, slug: str = "") -> Chapter:
    """Show where the gates of one pair flag tokens, and what follows."""
    decodings = analysis.frame("decodings")
    text = (
        f"Gated decodings of {tasks_of(analysis)} ({decodings['problems'][0]} problems, {drawn(analysis)}). Intervals "
        "are over problems."
    )
    sections = (
        _positions(analysis.frame("positions"), f"gate-positions{slug}"),
        _afterwards(analysis.frame("after"), f"gate-after{slug}"),
        _gates(decodings, f"gates{slug}"),
    )
    title = f"Where gates flag tokens, {pair_title(str(analysis.context['pair'].get('rl')))}"
    return Chapter(title, (text,), limited(analysis, sections))


def _positions(data: Frame, name: str) -> Section:
    """Draw the share of tokens that each gate flags, by position in the response."""
    tokens = data[data["by"] == "by_token"]
    begins = sorted(set(tokens["from"]))
    with drawing(name, 2.7, 2) as canvas:
        above, below = canvas.axes
        for i, (label, of_label) in enumerate(data.groupby("label", sort=False)):
            by = dict(list(of_label.groupby("by", sort=False)))
            line(
                above,
                list(map(begins.index, by["by_token"]["from"])),
                estimates(by["by_token"], "share"),
                label,
                **look(i),
            )
            tenths = [10 * (start + 0.5) for start in by["by_tenth"]["from"]]
            line(below, tenths, estimates(by["by_tenth"], "share"), label, **look(i))
        above.set_xticks(range(len(begins)), [f"{begin:,}" for begin in begins], rotation=45)
        above.set_xlabel("from this token of the response on")
        below.set_xlabel("% of the response")
        for axes in (above, below):
            axes.set_ylabel("flagged tokens")
            axes.set_ylim(bottom=0)
            percent_axis(axes.yaxis)
        above.legend()
    title = "Where gates flag tokens: by the token's number, and by the share of the response that lies before it"
    alt = "Line charts: share of flagged tokens by position in the response, one line per decoding."
    return Section(name, title, data, (OVER,), canvas.svg, alt)


def _afterwards(data: Frame, name: str) -> Section:
    """Draw the probability of the tokens after a changed one, under both models."""
    with drawing(name, 2.5, 2, sharex=True) as canvas:
        for axes, model, colour in zip(canvas.axes, ("base", "RL"), (BASE, RL), strict=True):
            for i, (label, of_label) in enumerate(data[data["under"] == model].groupby("label", sort=False)):
                line(axes, list(of_label["after"]), estimates(of_label, "p"), str(label), **look(i))
                if (usual := of_label["p_of_all_kept"].iloc[0]) is not None:
                    axes.axhline(usual, color=COLOURS[i % len(COLOURS)], linewidth=0.8, linestyle=":")
            axes.set_title(f"under {model}", color=colour)
            axes.set_ylabel("mean probability")
        canvas.axes[1].set_xlabel("tokens after a changed one")
        canvas.axes[1].legend()
    title = "What follows a changed token: the mean probability of later tokens, by their distance, under either model"
    note = f"Of those that were kept as they were proposed. Dotted: of all kept tokens. {OVER}"
    alt = "Line charts: mean probability of the tokens after a changed one, under base and under RL."
    return Section(name, title, data, (note,), canvas.svg, alt)


ALIKE = 0.05  # mean total variation below which two models write alike at most positions (a few may make a difference)


def are_alike(row: Mapping[str, Any]) -> bool:
    """Return whether base and RL mostly write the same other tokens where a gate flags."""
    return row["other"] is not None and row["other"] < ALIKE


def _gates(decodings: Frame, name: str) -> Section:
    """List how much each gate flags, at what entropy, and in what runs."""
    rows = []
    for row in decodings.to_dict("records"):
        runs = [count for column, count in row.items() if column.startswith("runs_")]
        rows.append(
            {
                "Decoding": row["label"],
                "Redrawn": cell(estimate(row, "share"), suffix=" %"),
                "Changed, of these": cell(estimate(row, "changed"), suffix=" %"),
                "Other tokens differ": cell(estimate(row, "other"), 3, unit=1),
                "Entropy of base, flagged": cell(estimate(row, "entropy_base_redrawn"), unit=1),
                "kept": cell(estimate(row, "entropy_base_kept"), unit=1),
                "Runs of one": cell(runs[0] / sum(runs) if sum(runs) else None, 1, suffix=" %"),
                "by chance": cell(1 - (row["share"] or 0.0), 1, suffix=" %"),
            }
        )
    alike = [
        row["Decoding"] for row, decoding in zip(rows, decodings.to_dict("records"), strict=True) if are_alike(decoding)
    ]
    note = (
        "Other tokens differ: the total variation (0 to 1) of base and RL, each without the flagged token, mean over "
        "these positions"
        + (
            f"; below {ALIKE:g}, for {', '.join(alike)}, both write nearly the same: that RL's token adds nothing "
            "there says nothing of what it is worth elsewhere. "
            if alike
            else ". "
        )
        + "Entropies in nats, of base at the position, means. A run is a sequence of adjacent flagged tokens; "
        "by chance: if as many were flagged independently. Brackets: 95 % intervals over problems."
    )
    return Section(name, "Gates: how much they redraw, at what entropy, in what runs.", frame(rows), (note,))
