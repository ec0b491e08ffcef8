"""Show the paper's own numbers in its tables, and compare our results with them.

A pair or a base is identified by its name only: the one given to a place (`dapo-32b=PLACE`), or its hub id.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import Any

import numpy as np

from rlvr_dir import stats
from rlvr_dir.config import Sampling
from rlvr_dir.config.pair import preset
from rlvr_dir.config.published import PUBLISHED
from rlvr_dir.errors import unknown
from rlvr_dir.files import shipped
from rlvr_dir.policy.reweighting import reweightings
from rlvr_dir.report.layouts import Method, Score, anchor, benchmark_title, grid, methods_table
from rlvr_dir.report.model import Cell, Chapter, Section, cell, frame
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.trainings import called, of_training, run_of
from rlvr_dir.stats import Estimate

TASKS = ("aime24", "aime25", "amc")
# The paper's names of its methods, by those in its data.
METHOD_NAMES = {"base": "Base", "dapo": "DAPO", **{name: way.paper for name, way in reweightings().items()}}
MODELS = {"qwen2.5-math-7b": "Qwen2.5-Math-7B", "qwen3-8b-base": "Qwen3-8B-Base"}
PAIRS = {"dapo": "DAPO", "orz": "ORZ", "unireason": "UniReason"}
PAPER = Sampling()  # the paper's sampling is our default


@dataclass(frozen=True, slots=True)
class PaperGrid:
    """Hold the scores of one pair on one benchmark by (tau, gamma), in percent, and replaced tokens by tau; `rl` beside
    it."""

    samples: int
    rl: float | None
    ratios: dict[float, float]
    scores: dict[tuple[float, float], float]


@cache
def numbers() -> dict[str, Any]:
    """Read the paper's numbers from `reports/paper.yaml` of a checkout, or from the installed package's copy."""
    import yaml

    return yaml.safe_load(shipped("reports/paper.yaml").read_text())


def methods(table: str) -> list[Method]:
    """Return the rows of `main`, `reweighting` or `minerva`; their average is that of the printed scores."""
    data, methods_found = numbers()[table], []
    for model, rows in ({"qwen2.5-math-7b": data} if table == "reweighting" else data).items():
        for name, row in rows.items():
            by_task = {"minerva": row} if table == "minerva" else {task: row[task] for task in TASKS}
            errors = {task: _error(row[0], task, 32) for task, row in by_task.items()}
            scores = {task: _printed(row[0], row[1], errors[task]) for task, row in by_task.items()}
            means = [round(sum(round(100 * row[i]) for row in by_task.values()) / len(by_task)) / 100 for i in (0, 1)]
            error = sum(error**2 for error in errors.values()) ** 0.5 / len(errors)
            average = _printed(means[0], means[1], error) if len(scores) > 1 else None
            methods_found.append(Method(MODELS[model], METHOD_NAMES[name], scores, average))
    return methods_found


def _printed(avg: float, passed: float, error: float) -> Score:
    return Score(Estimate(avg / 100), 32, 16, passed / 100, (f"±{error:.1f}",))


def _error(percent: float, task: str, samples: int) -> float:
    """Return at most 1.96 standard errors of sampling, in points; problems of equal accuracy have the largest."""
    p, problems = percent / 100, numbers()["protocol"]["problems"][task]
    return 196 * (p * (1 - p) / (problems * samples)) ** 0.5


def grids(task: str) -> dict[str, PaperGrid]:
    """Return the tau x gamma grids on `aime24` or `minerva`, by the paper's name of the pair."""
    samples, printed = 32 if task == "aime24" else numbers()["protocol"]["minerva_extrapolation_samples"], {}
    for name, data in numbers()[f"grid_{task}"].items():
        scores = {
            (tau, gamma): value
            for row, gamma in (("replace", 0.0), ("gamma_0.05", 0.05), ("gamma_0.1", 0.1))
            for tau, value in zip(data["tau"], data[row], strict=True)
        }
        printed[name] = PaperGrid(samples, data.get("rl"), dict(zip(data["tau"], data["ratio"], strict=True)), scores)
    return printed


def on_rl() -> PaperGrid:
    """Return extrapolation on the RL model itself, for which the paper has no gamma = 0 control."""
    rl, *rows = numbers()["extrapolate_on_rl"]
    ratios = {row["tau"]: row["ratio"] for row in rows}
    return PaperGrid(32, rl["avg_at_32"], ratios, {(row["tau"], 0.1): row["avg_at_32"] for row in rows})


def paper_chapter() -> Chapter:
    """Make one chapter of all tables of the paper."""
    text = (
        "As printed; marks follow the printed values, and a bold number is not a win. The paper gives no intervals: ± "
        "is the most that sampling alone can do, 1.96·√(p(1 − p)/(problems × samples)), of independent samples. Other "
        "problems would differ by more, and the best of a grid is picked on it: its means are below each."
    )
    sections = []
    for name, caption, label in (
        ("main", "DAPO and its reweighting", "tab:main"),
        ("reweighting", "kinds of reweighting", "tab:compare"),
        ("minerva", "trained models on Minerva", "tab:rl_minerva"),
    ):
        second = name != "main"
        section = methods_table(f"paper-{name}", f"The paper: {caption}.", methods(name), second=second, paper=label)
        sections.append(section)
    every = [("paper-on-rl", "extrapolating on the RL model, DAPO-32B, AIME24", on_rl(), True, "tab:rl_extra")]
    for task, label in (("aime24", "tab:full_param_extra"), ("minerva", "tab:minerva_param_extra")):
        for name, printed in grids(task).items():
            title = f"threshold and strength of {PAIRS[name]} on {benchmark_title(task)}"
            every.append((f"paper-grid-{task}-{name}", title, printed, task == "aime24", label))
    for name, title, printed, second, label in every:
        alone = name == "paper-on-rl"
        task = "minerva" if "minerva" in name else "aime24"
        errors = {key: f"±{_error(value, task, printed.samples):.1f}" for key, value in printed.scores.items()}
        cells = {key: cell(value, unit=1, beside=[errors[key]]) for key, value in printed.scores.items()}
        notes = [f"RL: {printed.rl:.2f}."] if printed.rl and not alone else []
        gammas = sorted({gamma for _, gamma in cells})
        notes += [] if alone else [_means(printed, gammas)]
        beside = cell(printed.rl, unit=1) if alone else None
        ratios = {"replaced": {tau: share / 100 for tau, share in printed.ratios.items()}}
        sections.append(
            grid(name, f"The paper: {title}.", cells, ratios, rl=beside, second=second, notes=notes, paper=label)
        )
    return Chapter("The paper's tables", (text,), tuple(sections))


def _means(grid: PaperGrid, gammas: Iterable[float]) -> str:
    """Describe each strength's mean score over the thresholds, because the best of a grid is selected on it."""
    sentences = []
    for gamma in gammas:
        row = [value for (_, strength), value in grid.scores.items() if strength == gamma]
        sentences.append(f"γ = {gamma:g} {np.mean(row):.2f}")
    return f"Mean over the thresholds: {'; '.join(sentences)}."


# Which of our results correspond to the paper's
# ------------------------------------------------------------------------


def repository(checkpoint: str) -> str:
    """Return the hub id of a checkpoint, also inside the hub's cache; otherwise the place itself.

    >>> repository("/cache/models--org--Name/snapshots/0a1b"), repository("/models/Name")
    ('org/Name', '/models/Name')
    """
    cached = [part for part in PurePath(checkpoint).parts if part.startswith("models--")]
    return "/".join(cached[-1].split("--", 2)[1:]) if cached else checkpoint


def pair_called(rl: str, name: str = "") -> str | None:
    """Return the paper's name of a pair by the name it was given (`dapo-32b`, a repository's), or else by RL's hub
    id."""
    checkpoint = training.rl if (training := preset(name.lower())) else name
    for pair, models in numbers()["pairs"].items():
        hub = models["rl"]
        if checkpoint.lower() in (hub.lower(), hub.rpartition("/")[2].lower()) or repository(rl) == hub:
            return pair
    return None


def model_called(base: str, name: str | None = None) -> str | None:
    """Return the paper's name for the base of trainings: by the given name, or else by its hub id.

    Raises:
        UserError: The paper has no model of that name.
    """
    hubs = {model: next(hub for hub in PUBLISHED if hub.endswith(f"/{model}")) for model in MODELS.values()}
    for model, hub in hubs.items():
        if (name or "").lower() in (model.lower(), hub.lower()) or (name is None and repository(base) == hub):
            return model
    if name is not None:
        raise unknown("paper_base", name, MODELS)
    return None


def against_paper(results: Sequence[EvalResult], base: str | None = None) -> Chapter | None:
    """Compare results with every number that the paper prints for the same pair, benchmark and setting.

    Args:
        base: The paper's name for the base of all results, whatever its place.

    Raises:
        UserError: The paper has no such base.
    """
    rows: dict[tuple[str, float, str], dict[str, Any]] = {}
    otherwise: dict[str, None] = {}
    for result in results:
        if result.partial or result.limited:
            continue
        for caption, printed, ours, half in _printed_beside(result, base):
            if (words := _drawn_otherwise(result)) is not None:
                otherwise[words] = None
            else:
                rows[caption, printed, result.config_hash] = _row(caption, printed, ours, half, result)
    notes = [
        f"Results that are drawn otherwise ({'; '.join(otherwise)}) do not stand beside the paper's, which are drawn "
        f"at {PAPER.words}."
    ]
    note = (
        "The problems are the same, so the error is that of sampling alone: 1.96 standard errors of the difference, "
        "and half of the paper's last digit. The paper prints no error of its own: it is ours, at its number of "
        "samples. “Replaced” is the mean over "
        "responses of the replaced share of each, as the authors count it: the least noisy of these numbers. "
        "Pass@k has no verdict: its sampling error is not known well enough near 0."
    )
    table = Section("beside-the-paper", "The paper's numbers and ours.", frame(list(rows.values())), (note,))
    if not rows and not otherwise:
        return None
    return Chapter("Beside the paper", tuple(notes) if otherwise else (), (table,) if rows else ())


def _row(metric: str, printed: float, ours: Estimate, half: float, result: EvalResult) -> dict[str, Any]:
    """Return a row of both numbers, and whether they differ by more than sampling and rounding explain (`high`)."""
    value, error = 100 * (ours.value or 0.0), ours.high
    allowed = None if error is None else 196 * error + half
    return {
        "What": metric,
        "Paper": cell(printed, 2 if half < 0.05 else 1, unit=1),
        "Ours": cell(value, unit=1, link=anchor(result)),
        "Difference": cell(value - printed, unit=1, plus=True),
        "Sampling error of both": Cell("–") if allowed is None else Cell(f"±{allowed:.2f}", allowed),
        "Within?": "–" if allowed is None else "yes" if abs(value - printed) <= allowed else "no",
    }


def _drawn_otherwise(result: EvalResult) -> str | None:
    """Describe how a result was sampled, if the paper sampled differently."""
    sampling, words = result.sampling, []
    if sampling.temperature != PAPER.temperature:
        words.append("greedy" if sampling.greedy else f"T = {sampling.temperature:g}")
    if sampling.top_p != PAPER.top_p and not sampling.greedy:
        words.append(sampling.nucleus)
    return ", ".join(words) or None


def _printed_beside(result: EvalResult, base: str | None) -> list[tuple[str, float, Estimate, float]]:
    """List what the paper prints for a result: in words, its number, ours, and half a digit.

    The upper end of ours is the sampling error of both: theirs is ours at their number of samples.
    """
    d, task, rows = result.decoding, benchmark_title(result.task), []
    short = result.sampling.max_tokens
    cut = f", at most {short:,} tokens" if short < PAPER.max_tokens else ""

    def of_both(error: float, samples: int) -> float:
        return error * (1 + result.samples / samples) ** 0.5

    def scored(method: str, samples: int, avg: float, passed: float | None = None) -> None:
        ours = Estimate(result.avg, None, of_both(result.sampling_error, samples))
        rows.append((f"{method}{cut}, Avg@{result.samples}", avg, ours, 0.005))
        if passed is not None and result.samples >= 16:
            rows.append((f"{method}{cut}, Pass@16", passed, Estimate(result.pass_at(16)), 0.005))

    pair, key = pair_called(result.pair[1], result.name), (float(d.tau or 0), d.gamma)
    if pair is not None and result.task in ("aime24", "minerva"):
        caption, every = f"{task}, {d.label()}", grids(result.task)[pair]
        printed = on_rl() if d.primary == "rl" and pair == "dapo" and result.task == "aime24" else every
        if d.mode == "rl" and every.rl:
            scored(caption, every.samples, every.rl)
        elif (
            d.gated
            and d.criterion == "delta_logp"
            and key in printed.scores
            and (d.primary == "rl") == (printed != every)
        ):
            scored(caption, printed.samples, printed.scores[key])
            if bool(d.gamma) == (d.primary == "rl"):  # printed once per threshold
                ratios = result.n_replaced / np.maximum(1, result.n_tokens)
                error = of_both(stats.sampling_error(ratios), printed.samples)
                ours = Estimate(float(ratios.mean()), None, error)
                rows.append((f"{caption}, replaced", printed.ratios[key[0]], ours, 0.05))
    model = model_called(result.pair[0], base)
    name = called(result) if d.mode == "rl" else "Base"
    if model is not None and d.mode in ("base", "rl") and name:
        paper_name = _paper_name(name, model)
        for method in (method for table in ("main", "reweighting", "minerva") for method in methods(table)):
            if result.task in method.scores and (method.model, method.name.lower()) == (model, paper_name.lower()):
                score = method.scores[result.task]
                seed = f", seed {run_of(result)}" if of_training(result) and d.mode == "rl" else ""
                caption = f"{task}, {model}, {method.name}{seed}"
                scored(caption, score.samples, _percent(score.avg.value), _percent(score.passed))
    return rows


def _paper_name(name: str, model: str) -> str:
    """Return the paper's name of an unnamed training, if its label has the paper's own alpha."""
    ways = reweightings().values()
    return {way(way.alphas.get(model.lower(), way.alpha)).label: way.paper for way in ways}.get(name, name)


def _percent(share: float | None) -> float:
    return round(100 * (share or 0.0), 2)
