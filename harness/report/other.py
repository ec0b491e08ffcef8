"""The sections of other analyses: Theorem 1 by numbers, and training curves."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.report.draw import COLOURS, MARKS, canvas, percent_axis, styled, svg
from harness.report.model import Figure, Section
from harness.report.text import visible


def theorem_section(data: Mapping[str, Any], number: int = 0) -> Section:
    """Show the expected reward of a bandit by gamma, and what noise in the rewards does to it."""
    text = (
        "Theorem 1 says that some γ > 0 does no worse than γ = 0 for a tabular softmax policy trained by natural "
        "policy gradient with exact advantages. In fact the extrapolated policy is that of step (1 + γ)t: no γ does "
        "worse. Where the rewards were noisy the direction holds the noise as well: individual problems lose."
    )
    return Section("Theorem 1 by numbers", (text,), (_theorem(data, f"theorem{f'-{number}' if number else ''}"),))


@styled
def _theorem(data: Mapping[str, Any], name: str) -> Figure:
    figure, (left, right) = canvas(6.4, 3.1, 1, 2)
    gammas, rows = data["gammas"], []
    for i, trial in enumerate(data["trials"]):
        mean, error = np.asarray(trial["mean"]), np.asarray(trial["error"])
        how = {"color": COLOURS[i], "marker": MARKS[i], "markersize": 3.5, "linewidth": 1.2}
        left.errorbar(gammas, mean, yerr=1.96 * error, elinewidth=0.6, label=f"noise {trial['noise']:g}", **how)
        right.plot(gammas, 100 * np.asarray(trial["losing"]), **how)
        rows += [
            (trial["noise"], g, m, e, share)
            for g, m, e, share in zip(gammas, mean.tolist(), error.tolist(), trial["losing"], strict=True)
        ]
    for axes in (left, right):
        axes.set_xscale("symlog", linthresh=0.25)
        axes.set_xticks([0, 0.5, 2, 8, 32], ["0", "0.5", "2", "8", "32"])
        axes.minorticks_off()
        axes.set_xlabel("γ")
    left.set_ylabel("expected true reward")
    right.set_ylabel("bandits worse than at γ = 0, %")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=len(data["trials"]))
    return Figure(
        name,
        f"Expected true reward of {data['bandits']} random bandits against γ, by the noise in the rewards they were "
        "trained on (standard deviation; true rewards are 0 or 1), and the share of bandits that lose. Bars: 1.96 "
        "standard errors.",
        "Two line charts against γ: the mean expected reward, and the share of bandits that lose, one line a level of "
        "noise. The data are in the CSV file.",
        svg(figure, name), ("noise", "gamma", "expected_reward", "standard_error", "share_losing"), tuple(rows),
        "theorem:extra",
    )  # fmt: skip


def training_section(data: Mapping[str, Any], number: int = 0) -> Section:
    """Draw accuracy, entropy and length over training; several runs of a method as thin lines and their mean."""
    slug = f"-{number}" if number else ""
    drawn = [_curves(data, f"training{slug}")]
    drawn += [_mass(data["gradient"], f"training-gradient{slug}")] if data.get("gradient") else []
    return Section("Training", (), tuple(drawn))


@styled
def _curves(data: Mapping[str, Any], name: str) -> Figure:
    titles = {"accuracy": "accuracy", "entropy": "entropy, nats", "length": "response length, tokens"}
    known = [what for what in titles if what in data["curves"]]
    figure, grid = canvas(6.4, 2.7, 1, len(known), squeeze=False)
    rows: list[tuple[Any, ...]] = []
    methods = list(dict.fromkeys(method for what in known for method in data["curves"][what]))
    for axes, what in zip(grid[0], known, strict=True):
        for method, runs in data["curves"][what].items():
            colour = COLOURS[methods.index(method) % len(COLOURS)]
            for i, run in enumerate(runs, 1):
                x, y = zip(*run, strict=True)
                alone = len(runs) == 1
                label = visible(method, 30) if alone else None
                axes.plot(x, y, color=colour, linewidth=1.3 if alone else 0.6, alpha=1 if alone else 0.6, label=label)
                rows += [(what, method, i, step, value) for step, value in run]
            if len(runs) > 1:
                shared = sorted(set.intersection(*({step for step, _ in run} for run in runs)))
                mean = [float(np.mean([dict(map(tuple, run))[step] for run in runs])) for step in shared]
                axes.plot(
                    shared, mean, color=colour, linewidth=1.6, label=visible(f"{method}, mean of {len(runs)}", 40)
                )
        axes.set_xlabel("step")
        axes.set_ylabel(titles[what])
    grid[0][0].legend()
    return Figure(
        name,
        f"Training curves: {', '.join(known)}. Thin lines are runs, thick ones the mean of a method's runs.",
        f"Line charts of {', '.join(known)} over training steps for {len(methods)} methods.",
        svg(figure, name), ("curve", "method", "run", "step", "value"), tuple(rows),
        "fig:training_curve, fig:replicate",
    )  # fmt: skip


@styled
def _mass(data: Mapping[str, Any], name: str) -> Figure:
    """Draw who owns the gradient of the training itself, by probability."""
    figure, grid = canvas(1.2 + 2.4 * len(data), 2.7, 1, len(data), squeeze=False, sharey=True)
    rows: list[tuple[Any, ...]] = []
    for axes, (method, one) in zip(grid[0], data.items(), strict=True):
        bins = len(one["token_share"])
        at = np.arange(bins)
        axes.bar(at - 0.2, one["token_share"], 0.38, color=COLOURS[6], label="tokens")
        axes.bar(at + 0.2, one["gradient_share"], 0.38, color=COLOURS[0], label="gradient mass")
        axes.set_xticks(np.arange(bins + 1) - 0.5, [f"{i / bins:g}" for i in range(bins + 1)], fontsize=7)
        axes.set_title(visible(method, 30))
        axes.set_xlabel("p of the token")
        percent_axis(axes.yaxis)
        both = zip(one["token_share"], one["gradient_share"], strict=True)
        rows += [(method, i / bins, (i + 1) / bins, tokens, mass) for i, (tokens, mass) in enumerate(both)]
    grid[0][0].set_ylabel("share")
    grid[0][0].legend()
    return Figure(
        name,
        "Share of tokens and of gradient mass 2|r A|(1 − π) during training, by probability; mean over the steps of "
        "each method's first run.",
        f"Bar charts of token and gradient shares by probability for {len(data)} methods.",
        svg(figure, name), ("method", "p_from", "p_to", "token_share", "gradient_share"), tuple(rows), "fig:probs (a)",
    )  # fmt: skip
