"""Summarise a training: its seeds side by side, and the differences from the base and from another training.

Everything is paired by seed (the same seed means the same training problems in the same order) and by problem of the
validation. Intervals are over problems and seeds, as in reports.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_dir.config import parse
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.files import write_file
from rlvr_dir.markdown import markdown_table
from rlvr_dir.policy.reweighting import PLAIN
from rlvr_dir.stats import RunScores, TrainingScores, common_families, corrected, pass_at_k_per_problem, samples_of
from rlvr_dir.stats.estimate import Estimate, p_value
from rlvr_dir.train.folder import TrainingFolder, write_json
from rlvr_dir.train.schemas import MetricSummary, OtherTraining, ScoreFile, SummaryFile
from rlvr_dir.train.spec import TrainSpec, Validation, plain


def write_summary(folder: TrainingFolder, spec: TrainSpec, against: Path | None = None) -> SummaryFile:
    """Write `summary.json` and `summary.md` over the finished seeds. Return the content of the former.

    Raises:
        UserError: `against` is not a finished training, or cannot be compared with this one.
    """
    finished = {seed: outcome for seed in spec.seeds if (outcome := folder.seed(seed).outcome())}
    summary = SummaryFile.from_plain(
        {
            "name": folder.path.resolve().name,
            "label": spec.dapo.label,
            "training": plain(spec),
            "base": folder.base_scores,
            "seeds": {str(seed): _of_seed(folder, seed, outcome) for seed, outcome in finished.items()},
        },
        folder.path,
    )
    _check_scored(summary, folder.path, summary.base)
    other = _other(against, summary, folder) if against else None
    compared = OtherTraining(folder=str(against), label=other.label) if other else None
    summary = summary.model_copy(update={"against": compared, "benchmarks": _benchmarks(summary, other)})
    write_json(folder.path / "summary.json", summary.model_dump(by_alias=True, exclude_unset=True))
    write_file(folder.path / "summary.md", f"# {text(summary)}\n".encode())
    return summary


def _check_scored(summary: SummaryFile, where: Path, tasks: Iterable[str]) -> None:
    """Check that a summary has the scores of each benchmark.

    Raises:
        DamagedError: A score is missing; the error names the file, the seed and the benchmark.
    """
    for seed, summarised in summary.seeds.items():
        for task in tasks if summarised.scores else ():
            if task not in summarised.scores:
                raise DamagedError(f"{where}: seed {seed} has no scores of {task}, which the base has")


def _of_seed(folder: TrainingFolder, seed: int, outcome: dict[str, Any]) -> dict[str, Any]:
    steps = [record for record in folder.seed(seed).records() if "validation" not in record]
    if not steps:
        raise DamagedError(f"{folder.seed(seed).log} has no step, although seed {seed} is marked as finished")
    learned = [record for record in steps if record["weight"] is not None]
    weighing = outcome.get("reweighting_seconds")  # # None if the backend does not measure it

    def mean(values: list[float]) -> float | None:
        return float(np.mean(values)) if values else None

    return {
        "scores": outcome["scores"],
        "accuracy": [outcome["accuracy"][0], outcome["accuracy"][-1]],
        "length": [outcome["length"][0], outcome["length"][-1]],
        "entropy": [steps[0]["entropy"], steps[-1]["entropy"]],
        "clip_fraction": mean([value for record in learned if (value := record["clip_fraction"]) is not None]),
        "weight": mean([record["weight"] for record in learned]),
        "gradient_share_below_0.3": mean(
            [sum(record["gradient_share"][:3]) for record in learned if "gradient_share" in record]
        ),
        "token_share_below_0.3": mean(
            [sum(record["token_share"][:3]) for record in learned if "token_share" in record]
        ),
        "kept": sum(record["groups"]["kept"] for record in steps),
        "dropped": sum(record["groups"]["dropped"] for record in steps),
        "seconds": outcome["seconds"],
        "reweighting_share": None if weighing is None else weighing / (outcome["seconds"] or float("inf")),
    }


def check_against(path: Path, validation: Validation) -> SummaryFile:
    """Return the summary of a finished training with which a training with this validation can be compared.

    Raises:
        UserError: It is not finished, or was validated in another way.
    """
    file = path / "summary.json"
    if not file.is_file():
        raise UserError(
            "has no summary.json", argument="against", value=str(path), accepted="the folder of a finished training"
        )
    other = SummaryFile.from_file(file)
    if parse(Validation, other.training.get("validation", {})).same != validation.same:
        raise UserError(
            "was validated in another way, so its scores cannot be compared", argument="against", value=str(path)
        )
    return other


def _other(path: Path, summary: SummaryFile, folder: TrainingFolder) -> SummaryFile:
    file = path / "summary.json"
    other = check_against(path, parse(Validation, summary.training.get("validation", {})))
    if (base := other.training.get("base")) != summary.training["base"]:
        raise UserError(
            f"was trained from {base!r}",
            argument="against",
            value=str(path),
            accepted=f"a training from {summary.training['base']!r}",
        )
    inputs = folder.inputs
    for name, read in TrainingFolder(path).inputs.items():
        if read.judges and name in inputs and inputs[name].digest != read.digest:
            raise UserError(
                f"was begun with other content of {read.file} ({name}: {read.digest}, here {inputs[name].digest}), so "
                "its scores cannot be compared",
                argument="against",
                value=str(path),
            )
    _check_scored(other, file, summary.base)
    return other


def _benchmarks(summary: SummaryFile, other: SummaryFile | None) -> dict[str, dict[str, MetricSummary]]:
    """Average Avg@k and Pass@k over seeds. Gains and differences are one family of comparisons each."""
    seeds, others = _scores(summary), _scores(other) if other else {}
    trained = {metric: validation_scores(summary.label, seeds, metric, summary.base) for metric in METRICS}
    reference = {metric: validation_scores(other.label, others, metric) for metric in METRICS} if other else {}
    order = [(task, metric) for task in summary.base for metric in METRICS if seeds]
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for task, metric in order:
        runs, base = trained[metric].runs[task], trained[metric].base[task]
        mean = Estimate(runs.avg, *runs.interval)
        rows[task, metric] = {"base": base.avg, "mean": mean.value, "low": mean.low, "high": mean.high}
    families = {"gain": [trained[metric].only([task]).beside_base() for task, metric in order]}
    if other:
        families["against"] = [trained[metric].only([task]).beside(reference[metric]) for task, metric in order]
    for name, pairs in families.items():
        for key, row in zip(order, corrected(pair for (pair,) in pairs), strict=True):
            rows[key][name] = {**row.to_dict(), "seeds": list(others if name == "against" else seeds)}
    return {task: {metric: MetricSummary(**rows[task, metric]) for metric in METRICS if seeds} for task in summary.base}


def _scores(summary: SummaryFile) -> dict[Hashable, Mapping[str, ScoreFile]]:
    """Return the validations of a training by seed; empty if there were none."""
    return {seed: row.scores for seed, row in summary.seeds.items() if row.scores}


METRICS = {"avg": "avg", "pass": "pass_k"}  # # a validation's metrics, and their names in files


def validation_scores(
    label: str,
    seeds: Mapping[Hashable, Mapping[str, Any]],
    metric: str = "avg",
    base: Mapping[str, ScoreFile] | None = None,
) -> TrainingScores[RunScores]:
    """Return one metric of a training's validations. `seeds` are the `ScoreFile`s of each seed by benchmark."""
    tasks = base if base else next(iter(seeds.values()), {})
    trained = {task: _run_scores(label, task, {seed: seeds[seed][task] for seed in seeds}, metric) for task in tasks}
    untrained = {
        task: _run_scores("base", task, dict.fromkeys(seeds, score), metric) for task, score in (base or {}).items()
    }
    return TrainingScores(trained, untrained)


def _run_scores(label: str, task: str, validations: Mapping[Hashable, Any], metric: str) -> RunScores:
    """Return a metric of a benchmark, by problem if every validation has values of the same problems."""
    scores = {seed: parse(ScoreFile, score) for seed, score in validations.items()}
    problems = {frozenset(score.right or ()) for score in scores.values()}
    by_problem = len(problems) == 1 and problems != {frozenset()}
    runs = {seed: _by_problem(score, metric) for seed, score in scores.items()} if by_problem else {}
    values = np.array([getattr(score, METRICS[metric]) for score in scores.values()])
    labelled = [sorted(score.families.items()) for score in scores.values() if score.families and by_problem]
    families = common_families(tuple(label for _, label in labels) for labels in labelled)
    return RunScores(label, task, tuple(scores), values, families=families, runs=runs)


def _by_problem(score: ScoreFile, metric: str) -> np.ndarray:
    """Return a validation's values by the problems' names: (problems, samples) or (problems, 1)."""
    right = samples_of([count for _, count in sorted((score.right or {}).items())], score.samples)
    return right if metric == "avg" else pass_at_k_per_problem(right, max(1, score.samples // 2))[:, None]


def taught_nothing(untaught: int, steps: int) -> str:
    """Return the sentence that steps of a training kept no group of responses, and what to check."""
    whole = "; the model is the base" if untaught == steps else ""
    return (
        f"{untaught} of {steps} steps taught nothing: for every problem, all responses were correct or all were wrong, "
        f"so no response had an advantage{whole}. Check the answers in the data, the prompt and the maximum length"
    )


def text(summary: SummaryFile) -> str:
    """Return the summary as plain text with tables, in percent. `summary.md` contains it under a heading."""
    training, seeds, other = summary.training, summary.seeds, summary.against
    lines = [
        f"{summary.name}: {summary.label} from {training['base']}, {training['dapo']['steps']} steps",
        "",
        f"Seeds {', '.join(seeds)}. In brackets 95 % intervals over problems"
        + (": of this one model, another seed may differ by more." if len(seeds) == 1 else " and seeds."),
        "",
    ]
    if summary.benchmarks:
        head = ["benchmark", "metric", "base", "trained", "trained - base", "p (Holm)"]
        head += [f"- {other.label}", "p (Holm)"] if other else []
        lines += [markdown_table(head, list(_metric_rows(summary)), left=2), ""]
        lines += [
            "Differences are paired by problem, and by seed where both have the same; Holm's correction over each "
            "column of p.",
            "",
        ]
        if other:
            metrics = [row for metrics in summary.benchmarks.values() for row in metrics.values()]
            both = metrics[0].against["seeds"] if metrics and metrics[0].against else [*seeds]
            of = f"; it has seeds {', '.join(both)}, and all of both count" if set(both) != set(seeds) else ""
            lines += [f"{other.label} is in {other.folder}{of}.", ""]
        if (chosen := str(training["checkpoint"])).startswith("best("):
            lines += [f"Each seed's checkpoint was chosen by these very scores, {chosen}: they are too high there.", ""]
    head = ["seed", "accuracy", "tokens", "entropy", "clipped", "weight", "gradient mass at π < 0.3", "groups", "s"]
    rows = []
    for seed, of_seed in seeds.items():
        firsts_and_lasts = ((of_seed.accuracy, ".3f"), (of_seed.length, ".1f"), (of_seed.entropy, ".3f"))
        cells = [seed, *(" → ".join(_number(value, form) for value in pair) for pair, form in firsts_and_lasts)]
        cells += [_number(of_seed.clip_fraction, ".2%"), _number(of_seed.weight, ".3f")]
        cells += [f"{_number(of_seed.gradient_share, '.0%')} ({_number(of_seed.token_share, '.0%')} of tokens)"]
        rows.append([*cells, f"{of_seed.kept} kept, {of_seed.dropped} dropped", f"{of_seed.seconds:.0f}"])
    lines += [markdown_table(head, rows)]
    for seed in summary.untaught:
        lines += ["", f"Seed {seed}: {taught_nothing(steps := training['dapo']['steps'], steps)}."]
    token_shares = [row.reweighting_share for row in seeds.values() if row.reweighting_share is not None]
    thrown = training["backend"] == "verl" and training["dapo"]["dynamic_sampling"]
    which = " that were learned from" if thrown else ""  # # verl counts no others; mixed groups are half right
    lines += ["", f"Accuracy, tokens and entropy: of the rollouts of the first and of the last step{which}."]
    if training["dapo"]["method"] != PLAIN and token_shares:
        lines.append(f"Reweighting took {100 * max(token_shares):.2f} % of the time of the steps at most.")
    return "\n".join(lines)


def _metric_rows(summary: SummaryFile) -> Iterator[list[str]]:
    for task, metrics in summary.benchmarks.items():
        base = summary.base[task]
        problems = base.limited or f"{base.problems} problems"
        for metric, row in metrics.items():
            k = base.samples if metric == "avg" else max(1, base.samples // 2)
            cells = [f"{task} ({problems})", f"{metric.capitalize()}@{k}", Estimate(row.base).text(1)]
            cells += [Estimate(row.mean, row.low, row.high).text(1)]
            for compared in (row.gain, row.against):
                if compared is not None:
                    difference, p = Estimate(compared["mean"], compared["low"], compared["high"]), compared["holm_p"]
                    cells += [difference.text(1, sign=True), "" if p is None else p_value(p)]
            yield cells


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
