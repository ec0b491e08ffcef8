"""What the labels of the paper's source are called."""

# What the labels of the paper's source are in words: its readers see numbers, which differ between its versions.
_CITED = {
    "fig:teaser": "teaser figure", "fig:replace": "figure of replacements", "fig:kl_ablation": "figure of KL variants",
    "fig:extrapolate": "figure of extrapolations", "fig:extra_minerva": "figure of extrapolations on Minerva",
    "fig:per_problem_acc": "figure of accuracies by problem", "fig:training_curve": "figure of training curves",
    "fig:replicate": "figure of repeated trainings", "fig:probs": "figure of token probabilities",
    "fig:hist_logp_diffs": "histograms of Δ log p", "fig:hist_dapo_magnitudes": "those of DAPO",
    "fig:hist_unireason_magnitudes": "histograms of UniReason's magnitudes", "fig:hist_orz_magnitudes": "those of ORZ",
    "fig:top_tokens": "figure of replaced tokens", "theorem:extra": "theorem on extrapolation",
    "fig:word_cloud": "word clouds", "tab:main": "main table", "tab:compare": "table of reweightings",
    "tab:rl_minerva": "table of trainings on Minerva", "tab:rl_extra": "table of extrapolations on RL",
    "tab:full_param_extra": "table of τ and γ", "tab:minerva_param_extra": "table of τ and γ on Minerva",
}  # fmt: skip


def cited(labels: str) -> str:
    """Return the labels of the paper's figures and tables in words: `teaser figure (c), figure of replacements`."""
    return ", ".join(" ".join([_CITED.get(name, name), *part]) for name, *part in map(str.split, labels.split(", ")))
