"""One finished result as one MLflow run; where MLflow cannot be written to, a warning, and the evaluation goes on."""

import math
import time
import warnings
from pathlib import Path
from typing import Any

from harness.evals.result import EvalResult
from harness.tracking.store import experiment_id, open_store


def log_result(result: EvalResult, store: Path | str, experiment: str) -> str | None:
    """Logs a result into the store at folder `store`; the run's id, or None (with a warning) where that failed.

    Parameters and metrics are plain and rounded, for people to read; the exact numbers are in the artifact
    `result.json`, from which everything can be rebuilt.
    """
    try:
        return _log(result, store, experiment)
    except Exception as error:
        warnings.warn(f"the result was not logged to MLflow at {store}: {type(error).__name__}: {error}", stacklevel=2)
        return None


def metrics_of(result: EvalResult) -> dict[str, float]:
    """MLflow's names and figures: `avg_at_32` (MLflow refuses `@`), in percent with two decimals, lengths with one.

    A metric without meaning (an error bar from one problem) is left out.
    """
    values: dict[str, float] = {}
    for name, value in result.metrics().items():
        if not math.isfinite(value):
            continue
        values[name.replace("@", "_at_")] = round(value, 1) if name == "mean_tokens" else round(100 * value, 2)
    if result.seconds:
        values["tokens_per_second"] = round(float(result.n_tokens.sum()) / result.seconds, 1)
    return values


def params_of(result: EvalResult) -> dict[str, Any]:
    """What was run, as flat parameters."""
    pair = result.provenance.get("engine", {}).get("pair") or {}
    pair = pair if isinstance(pair, dict) else {"pair": pair}
    return {
        "task": result.task,
        **result.decoding.model_dump(mode="json", exclude_none=True),
        **{f"{key}_model" if key in ("base", "rl") else key: value for key, value in pair.items() if value is not None},
        "temperature": result.sampling.temperature,
        "top_p": result.sampling.top_p,
        "max_tokens": result.sampling.max_tokens,
        "n_samples": result.sampling.samples,
        "seed": result.sampling.seed,
        "n_problems": len(result.problem_ids),
        "data": result.provenance.get("data", ""),
        "grader": result.provenance.get("grader", ""),
    }


def _log(result: EvalResult, store: Path | str, experiment: str) -> str:
    from mlflow.entities import Metric, Param, RunTag

    client = open_store(store)
    now = int(time.time() * 1000)
    run = client.create_run(
        experiment_id(client, store, experiment),
        run_name=result.decoding.label().replace("extrapolate", "extra"),
        start_time=now - int(1000 * result.seconds),
    )
    run_id = run.info.run_id
    try:
        client.log_batch(
            run_id,
            metrics=[Metric(name, value, now, 0) for name, value in metrics_of(result).items()],
            params=[Param(name, str(value)[:6000]) for name, value in params_of(result).items()],
            tags=[RunTag("kind", "eval"), RunTag("decoding_hash", result.decoding.hash())],
        )
        client.log_text(run_id, result.to_json(), "result.json")
    except BaseException:
        client.set_terminated(run_id, "FAILED")
        raise
    client.set_terminated(run_id, "FINISHED")
    return run_id
