"""Describe a result in its MLflow run: name, parameters, rounded metrics, tags and a description."""

import math
import re
import shlex
from pathlib import Path

from rlvr_dir.config.pair import model_name
from rlvr_dir.results.result import EvalResult, LmEvalResult, TaskResult
from rlvr_dir.stats import count_families
from rlvr_dir.stats.metrics import METRICS
from rlvr_dir.text import visible

DESCRIPTION = "mlflow.note.content"  # MLflow shows this tag, as Markdown, at the top of a run's page
COLOUR = "mlflow.runColor"  # a run's colour in MLflow's charts; by default derived from its id
UNITS = {metric.name: metric.unit for metric in METRICS}
_LONGEST_PARAM, _LONGEST_TAG = 6000, 8000  # characters, MLflow's limits
_COLOURS = {
    "base": "#8c8c8c",
    "rl": "#d55e00",
    "resample": "#cc79a7",
    "veto": "#8b5a2b",
    "reject": "#009e73",
}  # as in reports


def run_name(result: TaskResult) -> str:
    """Return the run's name: its decoding as on all pages, after a mark for a partial result."""
    words = ["part" if result.partial else "", result.decoding.label()]
    words.append(f"seed {result.sampling.seed}" if result.sampling.seed else "")
    return " ".join(filter(None, words))


def metrics_of(result: TaskResult) -> dict[str, float]:
    """Return MLflow's names and values: `avg_at_32` (MLflow does not allow `@`), in percent; lengths with one decimal.

    Metrics without meaning are left out: an error bar from one problem, and the share of flagged tokens of RL alone.
    (That of base alone is 0, the limit for τ to −∞.) Neither changes a token, so that both have a place next to
    decodings that do. lm-eval's scores on other tasks are in its units.
    """
    scores = result.scores if isinstance(result, LmEvalResult) else {}
    values = {name: round(value, 6) for name, value in scores.items()}
    meaningless = ("replacement",) if result.decoding.mode == "rl" else ()
    for name, value in result.metrics().items():
        if math.isfinite(value) and not name.startswith(meaningless):
            unit = UNITS.get(name, 100.0)
            values[name.replace("@", "_at_")] = round(unit * value, 2 if unit == 100 else 1)
    if result.seconds:
        values["tokens_per_second"] = round(float(result.n_tokens.sum()) / result.seconds, 1)
    return {re.sub(r"[^\w./ :-]", "_", name): value for name, value in values.items()}


def params_of(result: TaskResult) -> dict[str, str]:
    """Return the settings as flat parameters; τ, γ and the criterion only if there is a criterion."""
    decoding = result.decoding
    gate = {name: getattr(decoding, name) for name in ("primary", "criterion", "tau", "gamma")}
    pair = result.engine.get("pair") or {}
    values = {
        "task": result.task,
        "mode": decoding.mode,
        **(gate if decoding.gated else {}),
        **{f"{key}_model" if key in ("base", "rl") else key: value for key, value in pair.items()},
        "temperature": result.sampling.temperature,
        "top_p": result.sampling.top_p,
        "max_tokens": result.sampling.max_tokens,
        "n_samples": result.sampling.samples,
        "seed": result.sampling.seed,
        "n_problems": len(result.problem_ids),
        "data": result.provenance.get("data"),
        "chat": result.provenance.get("chat"),
        "grader": result.provenance.get("grader"),
    }
    return {name: visible(value, _LONGEST_PARAM) for name, value in values.items() if value is not None}


def tags_of(result: TaskResult) -> dict[str, str]:
    """Return the tags to find runs by, and the description."""
    provenance = result.provenance
    versions = provenance.get("versions") or {}
    tags = {
        "kind": "eval",
        "model_pair": pair_title(result),
        "config_hash": result.config_hash,
        "rlvr_dir_version": versions.get("rlvr-dir"),
        "partial": result.partial,
        "problems": result.limited,
        COLOUR: colour(result),
        DESCRIPTION: description(result),
    }
    return {name: visible(value, _LONGEST_TAG, "\n") for name, value in tags.items() if value}


def pair_title(result: TaskResult) -> str:
    """Return `Qwen2.5-32B → DAPO-Qwen-32B`; for two folders side by side also their place: `tiny/weights: base → rl`.

    A third model, which the change is applied to, comes last. The text is empty if the pair is unknown.
    """
    models = result.models
    base, rl = (Path(models.pop(role, "")) for role in ("base", "rl"))
    on = "".join(f", on {model_name(name)}" for name in models.values())
    if base.name and base.is_absolute() and base.parent == rl.parent:
        return f"{'/'.join(base.parent.parts[-2:])}: {base.name} → {rl.name}{on}"
    return f"{model_name(str(base))} → {model_name(str(rl))}{on}" if base.name and rl.name else ""


def colour(result: TaskResult) -> str:
    """Return a colour for each mode, as `#rrggbb`.

    Replacement is blue, darker at lower thresholds, and extrapolation green, darker at larger γ.
    """
    decoding = result.decoding
    if decoding.mode in _COLOURS:
        return _COLOURS[decoding.mode]
    beyond = decoding.mode == "extrapolate"
    share = min(decoding.gamma / 0.2 if beyond else abs(decoding.tau or 0.0) / 0.5, 1.0)
    ends = ((86, 0), (200, 90), (150, 60)) if beyond else ((120, 0), (190, 90), (240, 160))
    return "#" + "".join(f"{round(light + share * (dark - light)):02x}" for light, dark in ends)


def description(result: TaskResult) -> str:
    """Return a Markdown description of the decoding, its score with the error bar, and the command that repeats it."""
    n, provenance, metrics, s = result.samples, result.provenance, result.metrics(), result.sampling
    problems = len(result.problem_ids)
    scores = ", ".join(f"**{name} {value:.4g}**" for name, value in result.scores_hashed.items())
    if isinstance(result, EvalResult):
        errors = [f"{100 * e:.2f}" if math.isfinite(e) else "?" for e in (result.standard_error, result.sampling_error)]
        units = f"{count_families(result.families)} families" if result.families else f"{problems} problems"
        scores = (
            f"**Avg@{n} {100 * result.avg:.2f} ± {errors[0]} %** (s.e. over {units}; ± {errors[1]} from "
            f"sampling alone), Pass@{max(1, n // 2)} {100 * result.pass_at(max(1, n // 2)):.2f} %"
        )
    if result.decoding.gated and "replacement_ratio" in metrics:
        scores += f", {100 * metrics['replacement_ratio']:.2f} % of tokens replaced"
        scores += f", {100 * metrics['changed_ratio']:.2f} % changed"
    drawn = f"temperature {s.temperature:g}, {s.nucleus}, at most {s.max_tokens:,} tokens, seed {s.seed}"
    models = pair_title(result) or "an unnamed pair"
    argv = [*map(str, provenance.get("argv") or ())]
    command = visible(shlex.join([Path(argv[0]).name, *argv[1:]]), None) if argv else ""
    lines = [
        f"{scores}.",
        f"`{result.decoding.label()}` of {models} on {result.task}: {problems} problems × {n} samples, {drawn}.",
        f"A part only: {result.partial}." if result.partial else "",
        f"Only problems {provenance['part']}." if provenance.get("part") else "",
        f"Only {result.limited}, for a quick look and not for a score." if result.limited else "",
        f"To repeat it:\n\n    {command}" if command else "",
    ]
    return "\n\n".join(filter(None, lines))
