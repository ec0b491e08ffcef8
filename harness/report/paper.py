"""The paper's own figures as scores, for its tables to be drawn from and ours to be held against."""

from functools import cache
from pathlib import Path
from typing import Any

from harness.report.shapes import Grid, MethodRow, OnRl, Score

TASKS = ("aime24", "aime25", "amc")
# The names of the paper's methods, by those of its data.
METHOD_NAMES = {"base": "Base", "dapo": "DAPO", "ppl": "PPL", "dominate": "Dominate", "low_prob": "Ours"}
# The same by how `rlvr-dir train` labels a training of the paper's settings, where the reader gave no name.
LABELS = {"DAPO": "DAPO", "ppl α0.01": "PPL", "dominate α0.1": "Dominate"}
OURS = {"Qwen2.5-Math-7B": "low_prob α0.2", "Qwen3-8B-Base": "low_prob α0.1"}
MODELS = {"qwen2.5-math-7b": "Qwen2.5-Math-7B", "qwen3-8b-base": "Qwen3-8B-Base"}
PAIRS = {"dapo": "DAPO", "orz": "ORZ", "unireason": "UniReason"}


def paper_file() -> Path:
    """Return the file of the paper's numbers: `reports/paper.yaml` of a checkout, or the installed package's copy."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "reports" / "paper.yaml"
    return checkout if checkout.is_file() else package / "_data" / "reports" / "paper.yaml"


@cache
def paper() -> dict[str, Any]:
    """Read all of the paper's numbers."""
    import yaml

    return yaml.safe_load(paper_file().read_text())


def methods(table: str) -> list[MethodRow]:
    """Return the rows of `main`, `reweighting` or `minerva`."""
    data = paper()[table]
    if table == "reweighting":
        data = {"qwen2.5-math-7b": data}
    found = []
    for model, rows in data.items():
        for name, row in rows.items():
            by_task = {"minerva": row} if table == "minerva" else {task: row[task] for task in TASKS}
            scores = {task: Score(avg, k=16, passed=passed, samples=32) for task, (avg, passed) in by_task.items()}
            found.append(MethodRow(MODELS[model], METHOD_NAMES[name], scores))
    return found


def grids(task: str) -> dict[str, Grid]:
    """Return the tau x gamma grids on `aime24` or `minerva`, by the paper's name of the pair."""
    samples = 32 if task == "aime24" else paper()["protocol"]["minerva_extrapolation_samples"]
    found = {}
    for name, data in paper()[f"grid_{task}"].items():
        scores = {
            (tau, gamma): Score(value, samples=samples)
            for row, gamma in (("replace", 0.0), ("gamma_0.05", 0.05), ("gamma_0.1", 0.1))
            for tau, value in zip(data["tau"], data[row], strict=True)
        }
        rl = Score(data["rl"], samples=samples) if "rl" in data else None
        found[name] = Grid(PAIRS[name], task, dict(zip(data["tau"], data["ratio"], strict=True)), scores, rl)
    return found


def on_rl() -> OnRl:
    """Return extrapolation on the RL model itself; the paper has no gamma = 0 control of it."""
    rl, *rows = paper()["extrapolate_on_rl"]
    return OnRl(
        "DAPO",
        "aime24",
        Score(rl["avg_at_32"], samples=32),
        {row["tau"]: row["ratio"] for row in rows},
        {(row["tau"], 0.1): Score(row["avg_at_32"], samples=32) for row in rows},
    )


def method_of(name: str, model: str) -> str:
    """Return the paper's name of a method, by the reader's or by the label of its training; else the name itself."""
    return "Ours" if name == OURS.get(model) else LABELS.get(name, name)
