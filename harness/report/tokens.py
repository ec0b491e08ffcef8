"""Token statistics as figures and tables, from the plain values that `rlvr-dir analyse tokens` writes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from harness.report.draw import BASE, COLOURS, RL, canvas, percent_axis, styled, svg
from harness.report.groups import pair_title
from harness.report.model import Cell, Column, Figure, Row, Section, Table
from harness.spec import Sampling, parse
from harness.text import visible

FACTS = {
    "delta_logp": "Δ log p", "entropy_base": "entropy of base", "entropy_rl": "entropy of RL", "kl": "KL, mean of both",
    "kl_rl_base": "KL(RL, base)", "kl_base_rl": "KL(base, RL)",
}  # fmt: skip
WHO = {"base": "base's responses", "rl": "RL's responses"}
COLOUR = {"base": BASE, "rl": RL}
SHOWN_TOKENS, SHOWN_WORDS = 20, 40


def token_section(data: Mapping[str, Any], number: int = 0) -> Section:
    """Show everything that is known of the tokens of one pair."""
    slug = f"-{number}" if number else ""
    pair = pair_title(str(data["pair"].get("rl")))
    parts = data.get("limited") or {}
    names = [f"{task} ({parts[task]})" if task in parts else str(task) for task in data["tasks"]]
    tasks = ", ".join(names)
    counted = data["generations"]
    text = (
        f"Both models answered {tasks} ({counted['base']['problems']} problems, {data['sampling']['samples']} samples, "
        f"{parse(Sampling, data['sampling']).words}), and both scored every token: "
        f"{counted['base']['tokens']:,} of base, {counted['rl']['tokens']:,} of RL. Intervals are over problems."
    )
    shown = (
        delta_histogram(data, f"histogram-delta{slug}"),
        magnitude_histograms(data, f"histogram-magnitude{slug}"),
        tails_table(data, f"tails{slug}"),
        by_delta(data, f"probability-by-delta{slug}"),
        gradient(data, f"gradient{slug}"),
        selected(data, f"selected{slug}"),
        likelier(data, f"likelier{slug}"),
    )
    if parts:  # a caption goes where the section's text does not
        shown = tuple(replace(part, caption=f"{part.caption} Only on {tasks}.") for part in shown)
    return Section(f"Tokens of the {pair}", (text,), shown)


def _shares(data: Mapping[str, Any], who: str, fact: str) -> tuple[np.ndarray, np.ndarray, Mapping[str, Any]]:
    """Return the edges, the shares of all tokens, and the histogram itself."""
    histogram = data["generations"][who]["histograms"][fact]
    counted = histogram["counted"]
    edges = np.linspace(histogram["low"], histogram["high"], len(counted["counts"]) + 1)
    return edges, np.asarray(counted["counts"]) / max(1, counted["tokens"]), counted


def _steps(axes: Any, data: Mapping[str, Any], fact: str) -> list[tuple[Any, ...]]:
    """Draw both generations' histograms as steps on a logarithmic axis; return the rows behind them."""
    rows, last, first = [], 0.0, 0.0
    for who in ("base", "rl"):
        edges, shares, _ = _shares(data, who, fact)
        axes.stairs(np.where(shares > 0, shares, np.nan), edges, color=COLOUR[who], label=WHO[who], linewidth=1.2)
        filled = np.flatnonzero(shares)
        if filled.size:
            first, last = min(first, edges[filled[0]]), max(last, edges[filled[-1] + 1])
            rows += [(who, fact, edges[i], edges[i + 1], shares[i]) for i in filled]
    axes.set_yscale("log")
    percent_axis(axes.yaxis)
    axes.set_xlim(first - 0.02 * (last - first), last + 0.02 * (last - first) + 1e-9)
    axes.set_xlabel(f"{FACTS[fact]}, nats")
    return rows


@styled
def delta_histogram(data: Mapping[str, Any], name: str) -> Figure:
    """Draw delta log p of both generations, with the edges of the tails."""
    figure, axes = canvas(5.6, 2.9)
    rows = _steps(axes, data, "delta_logp")
    for edge in (-0.5, 0.5):
        axes.axvline(edge, color="#808080", linewidth=0.8, linestyle=":")
    axes.set_ylabel("share of tokens")
    axes.legend()
    zeros = {who: _shares(data, who, "delta_logp")[2] for who in ("base", "rl")}
    near = ", ".join(f"{100 * h['near_zero'] / max(1, h['tokens']):.1f} % of {WHO[who]}" for who, h in zeros.items())
    return Figure(
        name,
        f"Δ log p = log π_RL − log π_Base of every token, by who wrote it; bins of 0.1 nats, logarithmic. |Δ| < 0.001: "
        f"{near}. Dotted: the edges of the tails below.",
        "Step histogram of Δ log p for base's and RL's responses. The data are in the CSV file.",
        svg(figure, name), ("generation", "fact", "from", "to", "share"), tuple(rows),
        "fig:teaser (b), fig:hist_logp_diffs",
    )  # fmt: skip


@styled
def magnitude_histograms(data: Mapping[str, Any], name: str) -> Figure:
    """Draw entropies and divergences of both generations, and the mean of both divergences."""
    figure, grid = canvas(5.6, 6.4, 3, 2)
    rows = []
    *drawn, empty = grid.flat
    for axes, fact in zip(drawn, ("entropy_base", "entropy_rl", "kl_rl_base", "kl_base_rl", "kl"), strict=True):
        rows += _steps(axes, data, fact)
    empty.axis("off")
    empty.legend(*drawn[0].get_legend_handles_labels(), loc="center")
    for axes in grid[:, 0]:
        axes.set_ylabel("share of tokens")
    return Figure(
        name,
        "The magnitudes: entropies, divergences and their mean at every position, by who wrote the response.",
        "Five step histograms, of both entropies, both KL divergences and their mean, for base's and RL's responses.",
        svg(figure, name), ("generation", "fact", "from", "to", "share"), tuple(rows),
        "fig:teaser (b), fig:hist_unireason_magnitudes, fig:hist_dapo_magnitudes, fig:hist_orz_magnitudes",
    )  # fmt: skip


def tails_table(data: Mapping[str, Any], name: str) -> Table:
    """List tail masses and their ratio."""
    rows = []
    for tail in data["tails"]:
        sign = "<" if tail["side"] == "below" else ">"
        cells = [Cell(f"{FACTS.get(tail['fact'], tail['fact'])} {sign} {tail['edge']:g}")]
        cells += [percent(tail[who]) for who in ("base", "rl")]
        more = "base / RL" if tail["more"] == "base" else "RL / base"
        rows.append(Row((*cells, _times(tail["ratio"]), Cell(more))))
    columns = (
        Column("Tail", words=True), Column("Base's responses"), Column("RL's responses"), Column("Ratio"),
        Column("", words=True),
    )  # fmt: skip
    note = (
        "Shares of tokens; the ratio is of the greater to the smaller, half a token added to each. Brackets: 95 % "
        "intervals over problems."
    )
    return Table(name, "Tails: does the direction tell the two generations apart?", columns, tuple(rows), (note,))


def percent(one: Mapping[str, Any]) -> Cell:
    """Write a share and its interval in percent; a dash where nothing is known."""
    if one["value"] is None:
        return Cell("–")
    low, high = one["low"], one["high"]
    small = () if low is None else (f"[{100 * low:.2f}, {100 * high:.2f}]",)
    text = "< 0.01 %" if 0 < one["value"] < 0.00005 else f"{100 * one['value']:.2f} %"
    return Cell(text, 100 * one["value"], small)


def _times(one: Mapping[str, Any]) -> Cell:
    if one["value"] is None:
        return Cell("–")
    small = () if one["low"] is None else (f"[{_size(one['low'])}, {_size(one['high'])}]",)
    return Cell(_size(one["value"]), one["value"], small)


def _size(value: float) -> str:
    """Write a ratio with as many digits as it is worth: `1.13`, `12`, `1,080`."""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _bars(axes: Any, at: np.ndarray, values: Sequence[Mapping[str, Any]], width: float, **how: Any) -> None:
    """Draw bars of estimates with their intervals; what is not known has no bar."""
    heights = [one["value"] or 0.0 for one in values]
    axes.bar(at, heights, width, **how)
    for x, one in zip(at, values, strict=True):
        if one["low"] is not None:
            axes.plot([x, x], [one["low"], one["high"]], color="#808080", linewidth=0.9)


@styled
def by_delta(data: Mapping[str, Any], name: str) -> Figure:
    """Draw the mean probability that either model gives a token, by its delta log p."""
    figure, grid = canvas(5.6, 4.6, 2, 1, sharex=True)
    edges = data["by_delta"]["edges"]
    labels = [f"< {edges[0]:g}", *(f"{a:g} to {b:g}" for a, b in pairwise(edges)), f"> {edges[-1]:g}"]  # fmt: skip
    rows = []
    for axes, who in zip(grid, ("base", "rl"), strict=True):
        bins = data["by_delta"][who]
        at = np.arange(len(bins))
        filled = [i for i, one in enumerate(bins) if one["tokens"]]
        for column, model in enumerate(("base", "rl")):
            values = [bins[i][f"p_{model}"] for i in filled]
            where = at[filled] + (column - 0.5) * 0.38
            _bars(axes, where, values, 0.36, color=COLOUR[model], label="p of base" if model == "base" else "p of RL")
        axes.set_ylim(0, 1.05)
        axes.set_title(f"tokens of {WHO[who]}")
        axes.set_ylabel("mean probability")
        rows += [
            (who, labels[i], bins[i]["tokens"], *(bins[i][p][key] for p in ("p_base", "p_rl") for key in ("value", "low", "high")))  # noqa: E501
            for i in filled
        ]  # fmt: skip
    grid[1].set_xticks(np.arange(len(labels)), labels, rotation=45, ha="right", rotation_mode="anchor")
    grid[1].set_xlabel("Δ log p of the token, nats")
    grid[0].legend(loc="lower right")
    return Figure(
        name,
        "Mean probability of tokens by their Δ log p, under both models; bins without tokens are empty. Bars: 95 % "
        "intervals over problems.",
        "Bar chart: mean probability under base and RL in eleven bins of Δ log p, for either model's responses.",
        svg(figure, name),
        ("generation", "delta_logp", "tokens", "p_base", "low", "high", "p_rl", "low", "high"), tuple(rows),
        "fig:probs (b)",
    )  # fmt: skip


@styled
def gradient(data: Mapping[str, Any], name: str) -> Figure:
    """Show who owns the gradient: shares of tokens and of 2(1 - pi) by probability."""
    figure, grid = canvas(5.6, 2.9, 1, 2, sharey=True)
    edges = data["gradient"]["edges"]
    rows = []
    for axes, who in zip(grid, ("base", "rl"), strict=True):
        bins = data["gradient"][who]
        at = np.arange(len(bins))
        _bars(axes, at - 0.2, [one["tokens"] for one in bins], 0.38, color=COLOURS[6], label="tokens")
        _bars(axes, at + 0.2, [one["mass"] for one in bins], 0.38, color=COLOURS[0], label="gradient mass")
        axes.set_xticks(np.arange(len(edges)) - 0.5, [f"{edge:g}" for edge in edges], fontsize=7)
        axes.set_xlabel(f"p of the token, {WHO[who]}")
        percent_axis(axes.yaxis)
        rows += [
            (
                who,
                edges[i],
                edges[i + 1],
                *(one[k][key] for k in ("tokens", "mass") for key in ("value", "low", "high")),
            )
            for i, one in enumerate(bins)
        ]
    grid[0].set_ylabel("share")
    grid[0].legend()
    return Figure(
        name,
        "Share of tokens, and of the gradient mass 2|w|(1 − π) that Lemma 1 gives them, by the probability that the "
        "writing model gave the token. The weight |w| is taken as 1 for every token: these are the model's own "
        "responses, not those of a training step. Bars: 95 % intervals over problems.",
        "Bar chart: shares of tokens and of gradient mass in ten bins of probability, for base's and RL's responses.",
        svg(figure, name),
        ("generation", "p_from", "p_to", "tokens", "low", "high", "mass", "low", "high"), tuple(rows), "fig:probs (a)",
    )  # fmt: skip


@styled
def selected(data: Mapping[str, Any], name: str) -> Figure:
    """Rank the tokens that come in place of base's where each criterion fires, all of them firing equally often."""
    chosen = data["selected"]["criteria"]
    figure, grid = canvas(6.4, 0.8 + 0.19 * SHOWN_TOKENS, 1, len(chosen))
    rows = []
    for axes, one in zip(grid, chosen, strict=True):
        _list(axes, [(t["token"], t["count"]) for t in one["placed"][:SHOWN_TOKENS]], COLOURS[0], SHOWN_TOKENS)
        label = FACTS.get(one["criterion"], one["criterion"])
        axes.set_title(f"{label} {'<' if one['criterion'] == 'delta_logp' else '>'} {one['tau']:.3g}")
        for kind in ("picked", "placed"):
            rows += [(one["criterion"], kind, rank, t["token"], t["count"]) for rank, t in enumerate(one[kind], 1)]
    grid[0].set_xlabel("expected count")
    whole = max(1, data["selected"]["positions"])
    share = ", ".join(f"{FACTS[one['criterion']]} {100 * one['positions'] / whole:.2f} %" for one in chosen)
    names = ", ".join(FACTS[one["criterion"]] for one in chosen)
    return Figure(
        name,
        f"What RL puts in place of base's token where each criterion fires, at a matched ratio of base's own tokens "
        f"({share}); the top {SHOWN_TOKENS} of 50, expected counts over RL's nucleus, unchanged tokens left out. ␣ is "
        "a space. The CSV also has the tokens that were picked.",
        f"Ranked bar lists of substituted tokens, one for each of {names}.",
        svg(figure, name), ("criterion", "kind", "rank", "token", "count"), tuple(rows), "fig:top_tokens",
    )  # fmt: skip


@styled
def likelier(data: Mapping[str, Any], name: str) -> Figure:
    """Rank the tokens whose log-probability RL raised most: the words of the paper's clouds, in an order."""
    words, least = data["likelier"], data.get("least", 5)  # analyses of before 2026-11-22 do not say it
    shown = words[:SHOWN_WORDS]
    half = max(1, (len(shown) + 1) // 2)
    figure, grid = canvas(5.6, 0.7 + 0.19 * half, 1, 2, sharex=True)
    for axes, part in zip(grid, (shown[:half], shown[half:]), strict=True):
        _list(axes, [(one["token"], one["delta_logp"]) for one in part], COLOURS[2], half)
        axes.set_xlabel("mean Δ log p, nats")
    return Figure(
        name,
        f"Tokens that RL made likeliest, by mean Δ log p over RL's own responses (met {least:,} times or more): the "
        f"first {len(shown)} of {len(words)}. ␣ is a space.",
        f"Ranked bar list of {len(shown)} tokens by mean Δ log p. The data are in the CSV file.",
        svg(figure, name), ("rank", "token", "count", "delta_logp", "p_base", "p_rl"),
        tuple((i, w["token"], w["count"], w["delta_logp"], w["p_base"], w["p_rl"]) for i, w in enumerate(words, 1)),
        "fig:word_cloud",
    )  # fmt: skip


def _list(axes: Any, rows: Sequence[tuple[str, float]], colour: str, places: int) -> None:
    """Draw horizontal bars from the top down, in so many places, each named by its token."""
    axes.barh(range(len(rows)), [value for _, value in rows], color=colour, height=0.7)
    axes.set_yticks(range(len(rows)), [visible(token, 24) for token, _ in rows], fontsize=8, family="monospace")
    axes.set_ylim(places - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
