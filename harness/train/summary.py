"""The summary of a training: its seeds side by side, what they gained over the base, and over another training.

Everything is paired by seed, where the same seed means the same training problems in the same order, and by problem of
the validation. Intervals are over problems and seeds, as reports have them.
"""

from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import DamagedError, UserError
from harness.files import write_file
from harness.markdown import markdown_table
from harness.policy.reweighting import PLAIN
from harness.spec import parse
from harness.stats import RunScores, family, pass_at_k_per_problem, samples_of
from harness.stats.estimate import Estimate, p_value
from harness.train.folder import TrainingFolder, read_form, write_json
from harness.train.forms import SummaryFile
from harness.train.spec import TrainSpec, Validation, plain


def write_summary(folder: TrainingFolder, spec: TrainSpec, against: Path | None = None) -> dict[str, Any]:
    """Write `summary.json` and `summary.md` over the finished seeds; return what is in the former.

    Raises:
        UserError: `against` is no finished training, or one that cannot be compared.
    """
    seeds = {str(seed): facts for seed in spec.seeds if (facts := folder.seed(seed).facts())}
    found: dict[str, Any] = {
        "name": folder.path.resolve().name,
        "label": spec.dapo.label,
        "training": plain(spec),
        "base": folder.base_scores,
        "seeds": {seed: _of_seed(folder, int(seed), facts) for seed, facts in seeds.items()},
    }
    _check_scored(found, folder.path, found["base"])
    other = _other(against, found, folder) if against else None
    found["against"] = {"folder": str(against), "label": other["label"]} if other else None
    found["benchmarks"] = _benchmarks(found, other)
    write_json(folder.path / "summary.json", found)
    write_file(folder.path / "summary.md", (text(found) + "\n").encode())
    return found


def _check_scored(found: dict[str, Any], where: Path, tasks: Iterable[str]) -> None:
    """Refuse a summary that lacks a score of a benchmark.

    Raises:
        DamagedError: naming the file, the seed and the benchmark.
    """
    for seed, each in found["seeds"].items():
        for task in tasks if each["scores"] else ():
            if task not in each["scores"]:
                raise DamagedError(f"{where}: seed {seed} has no scores of {task}, which the base has")


def _of_seed(folder: TrainingFolder, seed: int, facts: dict[str, Any]) -> dict[str, Any]:
    steps = [record for record in folder.seed(seed).records() if "validation" not in record]
    if not steps:
        raise DamagedError(f"{folder.seed(seed).log} has no step, and seed {seed} is said to be finished")
    learned = [record for record in steps if record["weight"] is not None]
    weighing = facts.get("reweighting_seconds")  # None where the backend does not measure it

    def mean(values: list[float]) -> float | None:
        return float(np.mean(values)) if values else None

    return {
        "scores": facts["scores"],
        "accuracy": [facts["accuracy"][0], facts["accuracy"][-1]],
        "length": [facts["length"][0], facts["length"][-1]],
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
        "seconds": facts["seconds"],
        "reweighting_share": None if weighing is None else weighing / (facts["seconds"] or float("inf")),
    }


def _other(path: Path, found: dict[str, Any], folder: TrainingFolder) -> dict[str, Any]:
    file = path / "summary.json"
    if not file.is_file():
        raise UserError(f"against={str(path)!r} has no summary.json; accepted: the folder of a finished training")
    other = read_form(file, SummaryFile)
    theirs, mine = (parse(Validation, each["training"]["validation"]) for each in (other, found))
    if theirs.same != mine.same:
        raise UserError(f"against={str(path)!r} was validated in another way; its scores cannot be compared")
    if other["training"]["base"] != found["training"]["base"]:
        raise UserError(f"against={str(path)!r} started from {other['training']['base']!r}")
    here = folder.inputs
    for name, there in TrainingFolder(path).inputs.items():
        if there.judges and name in here and here[name].digest != there.digest:
            raise UserError(
                f"against={str(path)!r} was begun with other content of {there.file} ({name}: {there.digest}, here "
                f"{here[name].digest}); its scores cannot be compared"
            )
    _check_scored(other, file, found["base"])
    return other


def _benchmarks(found: dict[str, Any], other: dict[str, Any] | None) -> dict[str, Any]:
    """Average Avg@k and Pass@k over seeds; gains and differences are one family each."""
    label, base, mine = found["label"], found["base"], _scores(found)
    measured = [(task, name) for task, score in base.items() for name in ("avg", "pass") if mine and name in score]
    benchmarks: dict[str, Any] = {task: {} for task in base}
    for task, metric in measured:
        scores = run_scores(label, task, mine, metric)
        mean = Estimate(scores.avg, *scores.interval)
        benchmarks[task][metric] = {"base": base[task][metric], "mean": mean.value, "low": mean.low, "high": mean.high}
    compared: dict[str, tuple[str, dict[Hashable, Any]]] = {"gain": ("base", dict.fromkeys(mine, base))}
    if other:
        compared["against"] = other["label"], _scores(other)
    for name, (reference, others) in compared.items():
        pairs = [
            (run_scores(label, task, mine, metric), run_scores(reference, task, others, metric))
            for task, metric in measured
        ]
        for (task, metric), row in zip(measured, family(pairs), strict=True):
            benchmarks[task][metric][name] = {**row.facts(), "seeds": list(others)}
    return benchmarks


def _scores(found: dict[str, Any]) -> dict[Hashable, Any]:
    """Return the validations of a training by seed; none where there was none."""
    return {seed: each["scores"] for seed, each in found["seeds"].items() if each["scores"]}


def run_scores(
    label: str, task: str, seeds: Mapping[Hashable, Mapping[str, Mapping[str, Any]]], metric: str = "avg"
) -> RunScores:
    """Return one metric of the validations of a training on one benchmark, `seeds` being scores by benchmark of each.

    `avg`, `pass` or `tokens`. By problem where every validation kept that, of the same problems.
    """
    rows = {seed: scores[task] for seed, scores in seeds.items()}
    kept = [row.get("right") or {} for row in rows.values()]
    same = bool(kept) and bool(kept[0]) and all(each.keys() == kept[0].keys() for each in kept)
    runs = {seed: _by_problem(row, metric) for seed, row in rows.items()} if same and metric != "tokens" else {}
    values = np.array([row[metric] for row in rows.values()])
    return RunScores(label, task, tuple(rows), values, runs=runs)


def _by_problem(row: Mapping[str, Any], metric: str) -> np.ndarray:
    """Return what a validation says of each problem, by their names: (problems, samples) or (problems, 1)."""
    samples = int(row["samples"])
    right = samples_of([row["right"][problem] for problem in sorted(row["right"])], samples)
    return right if metric == "avg" else pass_at_k_per_problem(right, max(1, samples // 2))[:, None]


def taught_nothing(untaught: int, steps: int) -> str:
    """Say that steps of a training kept no group of responses, and what to look at."""
    whole = "; the model is the base" if untaught == steps else ""
    return (
        f"{untaught} of {steps} steps taught nothing: no group of responses to a problem was partly right, so none had "
        f"an advantage{whole}. Look at the answers of the data, at the prompt and at the length of responses"
    )


def untaught_seeds(found: Mapping[str, Any]) -> list[str]:
    """Return the seeds of a summary of which no step kept a group, so that the model is the base."""
    return [seed for seed, facts in found["seeds"].items() if facts["dropped"] and not facts["kept"]]


def text(found: dict[str, Any]) -> str:
    """Write the summary as Markdown, in percent."""
    training, seeds = found["training"], found["seeds"]
    lines = [
        f"# {found['name']}: {found['label']} from {training['base']}, {training['dapo']['steps']} steps",
        "",
        f"Seeds {', '.join(seeds)}. In brackets 95 % intervals over problems"
        + (" (of one training: another seed may differ by more)." if len(seeds) == 1 else " and seeds."),
        "",
    ]
    vs = found["against"]
    if found["benchmarks"]:
        head = ["benchmark", "metric", "base", "trained", "trained - base", "p (Holm)"]
        head += [f"- {vs['label']}", "p (Holm)"] if vs else []
        rows = []
        for task, metrics in found["benchmarks"].items():
            samples, problems = (int(found["base"][task][name]) for name in ("samples", "problems"))
            of = found["base"][task].get("limited") or f"{problems} problems"
            for metric, row in metrics.items():
                k = samples if metric == "avg" else max(1, samples // 2)
                cells = [f"{task} ({of})", f"{metric.capitalize()}@{k}"]
                cells += [Estimate(row["base"]).text(1), _estimate(row).text(1)]
                for name in ("gain", *(["against"] if vs else [])):
                    p = row[name]["holm_p"]
                    cells += [_estimate(row[name]).text(1, sign=True), "" if p is None else p_value(p)]
                rows.append(cells)
        lines += [markdown_table(head, rows, left=2), ""]
        lines += [
            "Differences are paired by problem, and by seed where both have the same; Holm's correction over each "
            "column of p.",
            "",
        ]
        if vs:
            compared = (row["against"]["seeds"] for each in found["benchmarks"].values() for row in each.values())
            both = next(compared, list(seeds))
            of = f"; it has seeds {', '.join(both)}, and all of both count" if set(both) != set(seeds) else ""
            lines += [f"{vs['label']} is in {vs['folder']}{of}.", ""]
        if (asked := str(training["checkpoint"])).startswith("best("):
            lines += [f"Each seed's checkpoint was chosen by these very scores, {asked}: they are too high there.", ""]
    head = ["seed", "accuracy", "tokens", "entropy", "clipped", "weight", "gradient mass at π < 0.3", "groups", "s"]
    rows = []
    for seed, each in seeds.items():
        cells = [seed, *(" → ".join(_number(v, form) for v in each[name]) for name, form in _FIRST_LAST)]
        mass, tokens = each["gradient_share_below_0.3"], each["token_share_below_0.3"]
        cells += [_number(each["clip_fraction"], ".2%"), _number(each["weight"], ".3f")]
        cells += [f"{_number(mass, '.0%')} ({_number(tokens, '.0%')} of tokens)"]
        rows.append([*cells, f"{each['kept']} kept, {each['dropped']} dropped", f"{each['seconds']:.0f}"])
    lines += [markdown_table(head, rows)]
    for seed in untaught_seeds(found):
        lines += ["", f"**Seed {seed}: {taught_nothing(steps := training['dapo']['steps'], steps)}.**"]
    shares = [each["reweighting_share"] for each in seeds.values() if each["reweighting_share"] is not None]
    thrown = training["backend"] == "verl" and training["dapo"]["dynamic_sampling"]
    which = " that were learned from" if thrown else ""  # verl counts no others; mixed groups are half right
    lines += ["", f"Accuracy, tokens and entropy: of the rollouts of the first and of the last step{which}."]
    if training["dapo"]["method"] != PLAIN and shares:
        lines.append(f"Reweighting took {100 * max(shares):.2f} % of the time of the steps at most.")
    return "\n".join(lines)


_FIRST_LAST = (("accuracy", ".3f"), ("length", ".1f"), ("entropy", ".3f"))


def _estimate(row: Mapping[str, Any]) -> Estimate:
    return Estimate(row["mean"], row["low"], row["high"])


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
