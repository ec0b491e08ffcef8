"""The summary of a training: its seeds side by side, what they gained over the base, and over another training.

Everything is paired by seed: the same seed means the same problems in the same order. Intervals are t intervals over
seeds; they say what another seed would do, not what other problems would. The gain over the base has one over problems
as well, paired by problem.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import DamagedError, UserError
from harness.files import write_file
from harness.markdown import interval, markdown_table
from harness.spec import parse
from harness.stats import (
    Comparison,
    Scores,
    difference_over_seeds,
    family,
    holm,
    pass_sampling_error,
    standard_error,
    t_interval,
)
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
        "reweighting_share": _share(facts.get("reweighting_seconds"), facts["seconds"]),
    }


def _share(part: float | None, whole: float) -> float | None:
    """Divide `part` by `whole`; return None where the backend does not measure it."""
    return None if part is None else part / whole if whole else 0.0


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
    if not set(other["seeds"]) & set(found["seeds"]):
        raise UserError(f"against={str(path)!r} has none of these seeds: {', '.join(found['seeds'])}")
    _check_scored(other, file, found["base"])
    return other


def _benchmarks(found: dict[str, Any], other: dict[str, Any] | None) -> dict[str, Any]:
    """Average Avg@k and Pass@k, or metrics of lm-eval's, over seeds; gains and differences are one family each."""
    benchmarks: dict[str, Any] = {task: {} for task in found["base"]}
    gains, differences, by_problem = [], [], []
    for task in benchmarks:
        for metric in (name for name in ("avg", "pass") if name in found["base"][task]):
            mine = _by_seed(found, task, metric)
            if not mine.units:
                continue
            base = found["base"][task][metric]
            mean, interval = mine.avg, t_interval(mine.avg, standard_error(mine.values), len(mine.units))
            benchmarks[task][metric] = {"base": base, "mean": mean, "interval": _interval(interval)}
            level = np.full(len(mine.units), base)
            gains.append((mine, Scores("base", mine.task, mine.units, level)))
            if metric == "avg" and (pair := _by_problem(found, task)):
                by_problem.append(pair)
            if other:
                theirs = _by_seed(other, task, metric)
                shared = [seed for seed in mine.units if seed in theirs.units]
                differences.append((_only(mine, shared), _only(theirs, shared)))
    for name, pairs in (("gain", gains), ("against", differences), ("over_problems", by_problem)):
        for row in family(pairs):
            task, metric = row.task.rsplit(" ", 1)
            benchmarks[task][metric][name] = _difference(row)
            if name == "gain":
                benchmarks[task][metric][name] |= _with_base_error(row, _base_error(found, task, metric))
    gains = [row["gain"] for metrics in benchmarks.values() for row in metrics.values() if "gain" in row]
    known = [gain for gain in gains if gain["p"] is not None]
    for gain, p in zip(known, holm([gain["p"] for gain in known]), strict=True):
        gain["holm_p"] = float(p)
    return benchmarks


def _with_base_error(row: Comparison[Scores], error: tuple[float, int] | None) -> dict[str, Any]:
    """Return the interval and p of a gain with base's sampling error in both; no p where that is not known."""
    if error is None:
        return {"p": None, "holm_p": None}
    d = difference_over_seeds(row.result.values, float(row.reference.values[0]), *error)
    p = None if np.isnan(d.p) else d.p
    return {"interval": _interval((d.low, d.high)), "of_base": error[0], "p": p, "holm_p": None}


def _base_error(found: dict[str, Any], task: str, metric: str) -> tuple[float, int] | None:
    """Return the sampling error of base's Avg@k or Pass@k with its degrees of freedom; None without its samples."""
    base = found["base"][task]
    if not base.get("right") or (samples := int(base["samples"])) < 2:
        return None
    right = np.array(list(base["right"].values()))
    k = 1 if metric == "avg" else samples // 2
    return pass_sampling_error(np.arange(samples) < right[:, None], k), right.size * (samples - 1)


def _by_seed(found: dict[str, Any], task: str, metric: str) -> Scores:
    """Return one metric of the validations of a training by seed; no seeds where there was none."""
    values = {seed: each["scores"][task][metric] for seed, each in found["seeds"].items() if each["scores"]}
    return Scores(found["label"], f"{task} {metric}", tuple(values), np.array(list(values.values())))


def _by_problem(found: dict[str, Any], task: str) -> tuple[Scores, Scores] | None:
    """Return scores by problem, the seeds beside each other, and base's; None where a validation did not keep them.

    They are shares of right samples, or what lm-eval made of them.
    """
    validations = [found["base"][task], *(each["scores"][task] for each in found["seeds"].values() if each["scores"])]
    right = [validation.get("right") or validation.get("values") for validation in validations]
    if not all(right) or any(each.keys() != right[0].keys() for each in right):
        return None
    problems = tuple(right[0])
    base, *trained = (
        np.array([each[problem] for problem in problems]) / (validation["samples"] if "right" in validation else 1)
        for each, validation in zip(right, validations, strict=True)
    )
    name = f"{task} avg"
    return Scores(found["label"], name, problems, np.stack(trained, axis=1)), Scores(
        "base", name, problems, base[:, None]
    )


def _only(scores: Scores, seeds: Sequence[Hashable]) -> Scores:
    at = [scores.units.index(seed) for seed in seeds]
    return replace(scores, units=tuple(seeds), values=scores.values[at])


def _difference(row: Comparison[Scores]) -> dict[str, Any]:
    d = row.difference
    found = {"mean": d.mean, "interval": _interval((d.low, d.high)), "p": d.p, "holm_p": row.holm_p, "n": d.n}
    return {**found, "seeds": list(row.result.units)} if row.result.values.ndim == 1 else found


def _interval(ends: tuple[float, float]) -> list[float] | None:
    return None if np.isnan(ends[0]) else list(ends)


def text(found: dict[str, Any]) -> str:
    """Write the summary as Markdown, in percent; metrics of lm-eval's in their own units."""
    training, seeds = found["training"], found["seeds"]
    lines = [
        f"# {found['name']}: {found['label']} from {training['base']}, {training['dapo']['steps']} steps",
        "",
        f"Seeds {', '.join(seeds)}. In brackets 95 % t intervals over the {len(seeds)} seeds "
        + ("(none for a single one)." if len(seeds) == 1 else "(p: all sign patterns of the paired differences)."),
        "",
    ]
    vs = found["against"]
    if found["benchmarks"]:
        over_problems = any(
            "over_problems" in row for metrics in found["benchmarks"].values() for row in metrics.values()
        )
        head = ["benchmark", "metric", "base", "trained", "trained - base"]
        head += ["over problems", "p (Holm)"] if over_problems else []
        head += [f"- {vs['label']}", "p", "p (Holm)"] if vs else []
        rows = []
        for task, metrics in found["benchmarks"].items():
            samples, problems = (int(found["base"][task][name]) for name in ("samples", "problems"))
            of, named = found["base"][task].get("limited") or f"{problems} problems", found["base"][task].get("metric")
            unit = _OWN if named else _PERCENT
            for metric, row in metrics.items():
                k = samples if metric == "avg" else max(1, samples // 2)
                cells = [f"{task.removesuffix(f' {named}')} ({of})", named or f"{metric.capitalize()}@{k}"]
                cells += [unit.cell(row["base"], None), unit.cell(row["mean"], row["interval"])]
                cells += [unit.cell(row["gain"]["mean"], row["gain"]["interval"], "+")]
                if over_problems:
                    one = row.get("over_problems") or {}
                    cells += [unit.between(one.get("interval"), sign=True), _p_value(one.get("holm_p"))]
                if vs:
                    cells += [unit.cell(row["against"]["mean"], row["against"]["interval"], "+")]
                    cells += [f"{row['against']['p']:.2f}", f"{row['against']['holm_p']:.2f}"]
                rows.append(cells)
        lines += [markdown_table(head, rows, left=2), ""]
        if any("of_base" in metrics.get("avg", {}).get("gain", {}) for metrics in found["benchmarks"].values()):
            lines += ["Base was sampled once: its sampling error is in the intervals of trained - base.", ""]
        if over_problems:
            lines += [
                "Over problems: the 95 % interval of trained - base, paired by problem, all seeds together.",
                "",
            ]
        if vs:
            lines += [f"Paired by seed with {vs['label']} in {vs['folder']}; Holm's correction over the table.", ""]
    head = ["seed", "accuracy", "tokens", "entropy", "clipped", "weight", "gradient mass at π < 0.3", "groups", "s"]
    rows = []
    for seed, each in seeds.items():
        cells = [seed, *(" → ".join(_number(v, form) for v in each[name]) for name, form in _FIRST_LAST)]
        mass, tokens = each["gradient_share_below_0.3"], each["token_share_below_0.3"]
        cells += [_number(each["clip_fraction"], ".2%"), _number(each["weight"], ".3f")]
        cells += [f"{_number(mass, '.0%')} ({_number(tokens, '.0%')} of tokens)"]
        rows.append([*cells, f"{each['kept']} kept, {each['dropped']} dropped", f"{each['seconds']:.0f}"])
    lines += [markdown_table(head, rows)]
    shares = [each["reweighting_share"] for each in seeds.values() if each["reweighting_share"] is not None]
    lines += ["", "Accuracy, tokens and entropy: of the rollouts of the first and of the last step."]
    if training["dapo"]["method"] != "none" and shares:
        lines.append(f"Reweighting took {100 * max(shares):.2f} % of the time of the steps at most.")
    return "\n".join(lines)


_FIRST_LAST = (("accuracy", ".3f"), ("length", ".1f"), ("entropy", ".3f"))


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _p_value(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


@dataclass(frozen=True, slots=True)
class _Unit:
    """Writes scores times `factor`, with so many digits."""

    factor: float
    digits: int

    def cell(self, mean: float, ends: list[float] | None, sign: str = "") -> str:
        return f"{format(self.factor * mean, f'{sign}.{self.digits}f')} {self.between(ends)}".rstrip()

    def between(self, ends: list[float] | None, *, sign: bool = False) -> str:
        return interval(ends[0], ends[1], self.digits, sign=sign, unit=self.factor) if ends else ""


_PERCENT, _OWN = _Unit(100.0, 1), _Unit(1.0, 4)
