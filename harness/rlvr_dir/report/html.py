"""Render a report as one HTML file that needs no network and no other file, is autoescaped, and has a dark mode."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import Any

from rlvr_dir.report.model import Column, Report
from rlvr_dir.text import visible


def render(report: Report) -> str:
    """Return the whole page."""
    script = asset("report.js")
    hashes = f"{content_hash(script)} {content_hash(asset('viewer.js'))}"  # the viewers contain their own
    return environment().get_template("report.html.j2").render(report=report, script=script, script_hashes=hashes)


def environment() -> Any:
    """Set up Jinja with autoescape on and undefined names as errors; other pages of this package use it, too.

    The filter `visible` shows invisible characters; `groups` joins columns under their common title.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    jinja = Environment(
        loader=PackageLoader("rlvr_dir.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters["visible"] = visible
    jinja.filters["groups"] = groups
    jinja.filters["cited"] = cited
    jinja.tests["safe_link"] = safe_link
    return jinja


def groups(columns: list[Column]) -> list[tuple[str, int]]:
    """Return (title, width) of each run of columns with the same title."""
    return [(title, len(list(members))) for title, members in groupby(columns, key=lambda column: column.group)]


def safe_link(address: str) -> bool:
    """Return whether following an address runs nothing: a place on this page, a path, http(s)."""
    if visible(address) != address:
        return False
    if address.startswith(("#", "http://", "https://")):
        return True
    return bool(address) and ":" not in address.partition("/")[0] and not address.startswith(("//", "\\"))


def asset(name: str) -> str:
    """Return a file of the templates' folder."""
    return (files("rlvr_dir.report") / "templates" / name).read_text(encoding="utf-8")


def content_hash(text: str) -> str:
    """Return the hash of a script or a style for a content security policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


# The labels of the paper's source in words, because its numbers differ between its versions.
_CITED = {
    "fig:teaser": "teaser figure", "fig:replace": "figure of replacements", "fig:kl_ablation": "figure of KL variants",
    "fig:extrapolate": "figure of extrapolations", "fig:extra_minerva": "figure of extrapolations on Minerva",
    "fig:per_problem_acc": "figure of accuracies by problem", "fig:training_curve": "figure of training curves",
    "fig:replicate": "figure of repeated trainings", "fig:probs": "figure of token probabilities",
    "fig:hist_logp_diffs": "histograms of Δ log p", "fig:hist_dapo_magnitudes": "those of DAPO",
    "fig:hist_unireason_magnitudes": "histograms of UniReason's magnitudes", "fig:hist_orz_magnitudes": "those of ORZ",
    "fig:top_tokens": "figure of replaced tokens",
    "fig:word_cloud": "word clouds", "tab:main": "main table", "tab:compare": "table of reweightings",
    "tab:rl_minerva": "table of trainings on Minerva", "tab:rl_extra": "table of extrapolations on RL",
    "tab:full_param_extra": "table of τ and γ", "tab:minerva_param_extra": "table of τ and γ on Minerva",
}  # fmt: skip


def cited(labels: str) -> str:
    """Return the labels of the paper's figures and tables in words: `teaser figure (c), figure of replacements`."""
    return ", ".join(" ".join([_CITED.get(name, name), *part]) for name, *part in map(str.split, labels.split(", ")))
