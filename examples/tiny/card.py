"""Write the model card of a tiny pair from the facts of its build and, if it was measured, its results."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rlvr_dir.files import write_file
from rlvr_dir.markdown import markdown_table

UNMEASURED = (
    "Not measured yet: `python -m examples.tiny measure --pair {path}` measures this pair and rewrites this section."
)


PLACEBOS = {
    "random": "DAPO with a reward of 1 or 0 by a coin",
    "length": "DAPO with a reward of 1 for long responses",
    "own_samples": "trained on its own samples at temperature 1",
    "noise": "normal noise on the weights, of the norm by which true RL changed each",
}


def write_card(out: Path) -> None:
    """Write `out/README.md` from `out/build.json` and, if it exists, `out/figures.json`."""
    facts, figures = json.loads((out / "build.json").read_text()), out / "figures.json"
    if (training := facts.get("training")) in PLACEBOS:
        facts["placebo"] = PLACEBOS[training]
    table = figures_text(json.loads(figures.read_text())) if figures.is_file() else UNMEASURED.format(path=out.name)
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True
    )  # plain text, so nothing is escaped
    write_file(out / "README.md", templates.get_template("card.md.j2").render(facts, figures=table))


def figures_text(figures: dict[str, Any]) -> str:
    """Return the table of the measured benchmarks, with what the intervals mean."""
    first = next(iter(figures["tasks"].values()))
    lines = [
        f"Avg@{first['samples']} in percent, temperature 1, top-p 0.7, seed {figures['seed']}, transformers, fp32. "
        f"In brackets the 95 % t\ninterval over the {first['problems']} problems of a benchmark; the difference is "
        "paired by problem.",
        "",
    ]
    head = ["benchmark", "base", "RL", "RL - base", "tokens base / RL"]
    rows = []
    for task, row in figures["tasks"].items():
        cells = [_cell(row[name]) for name in ("base", "rl", "difference")]
        rows.append([task, *cells, f"{row['base_tokens']:.1f} / {row['rl_tokens']:.1f}"])
    return "\n".join([*lines, markdown_table(head, rows)])


def _cell(numbers: list[float]) -> str:
    mean, low, high = numbers
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"
