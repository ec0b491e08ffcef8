"""What a run says of its result: name, parameters, rounded metrics, tags and a description, for people to read."""

import math
import re
import shlex
from pathlib import Path
from typing import Any

from harness.evals.result import EvalResult
from harness.spec.pair import model_name
from harness.text import visible

DESCRIPTION = "mlflow.note.content"  # MLflow shows this tag, as Markdown, at the top of a run's page
COLOUR = "mlflow.runColor"  # of a run in MLflow's charts; by default one drawn from its id
_LONGEST_PARAM, _LONGEST_TAG = 6000, 8000  # characters, MLflow's limits


def run_name(result: EvalResult) -> str:
    """Name the run, the discriminating part first, for MLflow cuts names after some 20 characters: `τ-0.3 γ0.05 extra`.

    A partial result is marked before all else.
    """
    decoding = result.decoding
    words = [decoding.label()]
    if decoding.gated:
        words = [] if decoding.tau is None else [f"τ{decoding.tau:g}"]
        if decoding.mode == "extrapolate":
            words.append(f"γ{decoding.gamma:g}")
        if decoding.criterion == "delta_logp":
            words.append("extra" if decoding.mode == "extrapolate" else "replace")
        else:
            words.append(decoding.criterion)  # the mode can be told by γ
        if decoding.primary == "rl":
            words.append("on rl")
    if result.partial:
        words.insert(0, "part")
    if result.sampling.seed and "seed" not in result.lacks:
        words.append(f"seed {result.sampling.seed}")
    return " ".join(words)


def metrics_of(result: EvalResult) -> dict[str, float]:
    """Return MLflow's names and figures: `avg_at_32` (MLflow refuses `@`), in percent; lengths with one decimal.

    A metric without meaning is left out: an error bar from one problem, and what was replaced in the RL model alone
    (of the base model alone it is 0, where τ goes to −∞). What lm-eval computed of other tasks is kept in its units.
    """
    theirs = result.scores or {}
    values = {name: round(value, 6) for name, value in theirs.items()}
    for name, value in result.metrics().items():
        if not math.isfinite(value) or (
            result.decoding.mode in ("rl", "expo", "power") and name.startswith(("replacement", "changed"))
        ):
            continue
        values[name.replace("@", "_at_")] = round(value, 1) if name == "mean_tokens" else round(100 * value, 2)
    if result.seconds:
        values["tokens_per_second"] = round(float(result.n_tokens.sum()) / result.seconds, 1)
    return {re.sub(r"[^\w./ :-]", "_", name): value for name, value in values.items()}


def params_of(result: EvalResult) -> dict[str, str]:
    """Return what was run, as flat parameters; τ, γ and the criterion only where a criterion was asked."""
    decoding = result.decoding
    gate = {name: getattr(decoding, name) for name in ("primary", "criterion", "tau", "gamma")}
    values = {
        "task": result.task,
        "mode": decoding.mode,
        **(gate if decoding.gated else {}),
        **{f"{key}_model" if key in ("base", "rl") else key: value for key, value in _pair(result).items()},
        "temperature": result.sampling.temperature,
        **result.sampling.truncation.model_dump(),
        **{name: getattr(decoding, name) for name in ("power", "block", "moves") if decoding.mode == "power"},
        "max_tokens": result.sampling.max_tokens,
        "n_samples": result.sampling.samples,
        "seed": result.sampling.seed,
        "n_problems": len(result.problem_ids),
        "data": result.provenance.get("data"),
        "chat": result.provenance.get("chat"),
        "grader": result.provenance.get("grader"),
    }
    if isinstance(source := result.provenance.get("source"), dict):
        values |= {"imported": str(source.get("format") or "official")}
    values |= {"lacks": ", ".join(result.lacks) or None}
    told = {name: value for name, value in values.items() if value is not None and name not in result.lacks}
    return {name: visible(value, _LONGEST_PARAM) for name, value in told.items()}


def tags_of(result: EvalResult) -> dict[str, str]:
    """Return the tags that runs are found by, and the description."""
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


def pair_title(result: EvalResult) -> str:
    """Write `Qwen2.5-32B → DAPO-Qwen-32B`; of two directories side by side also where: `tiny/weights: base → rl`.

    A third model, which the change is carried over to, stands behind it.
    """
    pair = _pair(result)
    base, rl = (Path(str(pair.get(key, ""))) for key in ("base", "rl"))
    if not base.name or not rl.name:
        return str(pair.get("pair", ""))
    on = "".join(f", on {model_name(name)}" for role, name in result.models.items() if role not in ("base", "rl"))
    if base.is_absolute() and base.parent == rl.parent:
        return f"{'/'.join(base.parent.parts[-2:])}: {base.name} → {rl.name}{on}"
    return f"{model_name(str(base))} → {model_name(str(rl))}{on}"


def colour(result: EvalResult) -> str:
    """Give each method a colour, as `#rrggbb`.

    Grey is base, black RL, blue replacement, orange (γ = 0) to dark red extrapolation, violet that of weights, and
    green power sampling.
    """
    decoding = result.decoding
    if decoding.mode != "extrapolate":
        return {"base": "#8c8c8c", "rl": "#000000", "replace": "#1f77b4", "expo": "#8a5cc2", "power": "#2ca02c"}[
            decoding.mode
        ]
    share = min(decoding.gamma / 0.2, 1.0)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in ((255, 120), (165, 0), (0, 30)))


def description(result: EvalResult) -> str:
    """Write in Markdown what was decoded, what came out with its error bar, and the command that does it again."""
    n, provenance, metrics = result.samples, result.provenance, result.metrics()
    words = [_scores(result)]
    if result.decoding.gated and "replacement_ratio" in metrics:
        words.append(f", {100 * metrics['replacement_ratio']:.2f} % of tokens replaced")
        words.append(f", {100 * metrics['changed_ratio']:.2f} % changed")
    lines = [
        "".join(words) + ".",
        f"`{result.decoding.label()}` of {pair_title(result) or 'an unnamed pair'} on {result.task}: "
        f"{len(result.problem_ids)} problems × {n} samples{_drawn(result)}.",
    ]
    if isinstance(source := provenance.get("source"), dict):
        said = f"; not told: {', '.join(result.lacks)}" if result.lacks else ""
        lines.append(f"Imported from files of {visible(source.get('format') or 'the authors', None)}{said}.")
    if result.partial:
        lines.append(f"Only a part: {result.partial}.")
    if part := provenance.get("part"):
        lines.append(f"Only problems {part}.")
    if part := result.limited:
        lines.append(f"Only {part}: for a look, not for a score.")
    if argv := provenance.get("argv"):
        command = visible(shlex.join([Path(str(argv[0])).name, *map(str, argv[1:])]), None)
        lines.append(f"To do it again:\n\n    {command}")
    return "\n\n".join(lines)


def _drawn(result: EvalResult) -> str:
    """Write how it was drawn, as far as that is told."""
    s = result.sampling
    words = {
        "temperature": f"temperature {s.temperature:g}",
        "top_p": s.truncation.words,
        "max_tokens": f"at most {s.max_tokens:,} tokens",
        "seed": f"seed {s.seed}",
    }
    return "".join(f", {each}" for name, each in words.items() if name not in result.lacks)


def _scores(result: EvalResult) -> str:
    """Return the headline: Avg@n with its error bars, or what lm-eval computed."""
    if not result.shares:  # the scores are lm-eval's own
        return ", ".join(f"**{name} {(result.scores or {})[name]:.4g}**" for name in result.metric_names)
    n = result.samples
    half = max(1, n // 2)
    return (
        f"**Avg@{n} {100 * result.avg:.2f} ± {_error(result.standard_error)} %** (s.e. over "
        f"{len(result.problem_ids)} problems; ± {_error(result.sampling_error)} from sampling alone), "
        f"Pass@{half} {100 * result.pass_at(half):.2f} %"
    )


def _error(value: float) -> str:
    return f"{100 * value:.2f}" if math.isfinite(value) else "?"


def _pair(result: EvalResult) -> dict[str, Any]:
    engine = result.provenance.get("engine")
    pair = engine.get("pair") if isinstance(engine, dict) else None
    if pair is None:
        return {}
    return (
        {key: value for key, value in pair.items() if value is not None} if isinstance(pair, dict) else {"pair": pair}
    )
