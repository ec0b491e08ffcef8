"""One finished result as one MLflow run; where MLflow cannot be written to, a warning, and the evaluation goes on."""

import json
import subprocess
import time
import warnings
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.evals.result import EvalResult
from harness.tracking.artifacts import TABLE, write_artifacts
from harness.tracking.describe import metrics_of, params_of, run_name, tags_of
from harness.tracking.query import find_run
from harness.tracking.store import TrackingStore, patience


def log_result(result: EvalResult, store: Path | str, experiment: str | None = None) -> str | None:
    """Log a result that has just been made; return the run's id, or None (with a warning) where that failed.

    `store` is a folder with a sqlite store in it, made where it is missing, or a tracking URI. A result whose config
    hash a finished run of the experiment (default `rlvr-dir-<task>`) has already is not logged again: that run's id is
    given. Parameters and metrics are plain and rounded, for people to read; the exact numbers are in the artifact
    `result.json`, from which everything can be rebuilt.
    """
    try:
        with patience():
            return write_run(result, TrackingStore.at(store), experiment, git=git_sha())
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        warnings.warn(
            f"the result was not logged to MLflow at {store} ({type(error).__name__}: {reason}); "
            "nothing else is lost, and `rlvr-dir track sync` logs it later",
            stacklevel=2,
        )
        return None


def write_run(
    result: EvalResult,
    store: TrackingStore,
    experiment: str | None = None,
    *,
    ended: float | None = None,
    git: str | None = None,
) -> str:
    """Write the run of a result unless the experiment has it; return its id.

    `ended` is in seconds since 1970, None is now.

    Raises:
        Exception: whatever MLflow, the disk or the network raises; the run is then FAILED, where that can be written.
    """
    client = store.client()
    name = experiment or f"rlvr-dir-{result.task}"
    known = client.get_experiment_by_name(name)
    if known is not None and (found := find_run(client, result.config_hash, [known.experiment_id])):
        return found.info.run_id
    with TemporaryDirectory() as files:
        write_artifacts(result, Path(files))
        with store.locked():
            experiment_id = store.experiment_id(client, name)
            if found := find_run(client, result.config_hash, [experiment_id]):  # another process was quicker
                return found.info.run_id
            end = int(1000 * (time.time() if ended is None else ended))
            kind, tags = _tags(result, git)
            start = end - int(1000 * result.seconds)
            run = client.create_run(experiment_id, run_name=run_name(result), start_time=start, tags=tags)
            run_id = run.info.run_id
            try:
                _fill(client, run_id, result, files, end)
                client.set_tag(run_id, "kind", kind)  # last: no view shows what a killed process has left
            except BaseException:
                with suppress(Exception):
                    client.set_terminated(run_id, "FAILED")
                raise
            client.set_terminated(run_id, "FINISHED", end_time=end)
    return run_id


def _tags(result: EvalResult, git: str | None) -> tuple[str, dict[str, str]]:
    """Return the tag `kind` of a run, and all others."""
    tags = {**tags_of(result), "mlflow.source.name": "rlvr-dir"}
    tags["mlflow.loggedArtifacts"] = json.dumps([{"path": TABLE, "type": "table"}])  # as `log_table` would say
    if git:
        tags |= {"git_sha": git, "mlflow.source.git.commit": git}
    return tags.pop("kind"), tags


def _fill(client: Any, run_id: str, result: EvalResult, files: str, now: int) -> None:
    """Log all about a result in three calls. The dataset has our digest of the questions, not one of MLflow's."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in metrics_of(result).items()],
        params=[Param(name, value) for name, value in params_of(result).items()],
    )
    if digest := result.provenance.get("data"):
        dataset = Dataset(
            name=result.task,
            digest=str(digest),
            source_type="code",
            source=json.dumps({"tags": {"mlflow.source.name": f"benchmark {result.task}"}}),
            profile=json.dumps({"num_rows": len(result.problem_ids)}),
        )
        client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "eval")])])
    client.log_artifacts(run_id, files)


def git_sha() -> str | None:
    """Return the commit of the checkout that this code runs from; None where it is installed otherwise."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
