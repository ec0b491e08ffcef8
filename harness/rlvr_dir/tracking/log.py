"""Log a finished result as one MLflow run, log results that MLflow missed, and read a run's result.

If MLflow cannot be written to, there is a warning, and the evaluation continues.
"""

import json
import subprocess
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rlvr_dir.errors import UserError
from rlvr_dir.results.result import FLAGS, EvalResult, TaskResult, lm_eval_refusal, read_any_result
from rlvr_dir.text import visible
from rlvr_dir.tracking.describe import metrics_of, params_of, run_name, tags_of
from rlvr_dir.tracking.store import TrackingStore, every, patience, reason

RESULT, TABLE = "result.json", "per_problem.json"


def log_result(result: TaskResult, store: Path | str, experiment: str | None = None) -> str | None:
    """Log a result that was just made. Return the run's id, or None (with a warning) if that failed.

    `store` is a folder with a sqlite store, which is created if necessary, or a tracking URI. If a finished run of the
    experiment (default `rlvr-dir-<task>`) has the same config hash, the result is not logged again, and that run's id
    is returned. Parameters and metrics are plain and rounded, for people to read. The exact numbers are in the artifact
    `result.json`, from which everything can be rebuilt.
    """
    try:
        with patience():
            return write_run(result, TrackingStore.at(store), experiment, git=git_sha())
    except Exception as error:
        warnings.warn(
            f"the result was not logged to MLflow at {store} ({reason(error, store)}); nothing else is lost, and "
            "`rlvr-dir track sync` logs it later",
            stacklevel=2,
        )
        return None


def write_run(
    result: TaskResult,
    store: TrackingStore,
    experiment: str | None = None,
    *,
    ended: float | None = None,
    git: str | None = None,
) -> str:
    """Write the run of a result unless the experiment has it, and return its id. `ended` is in seconds since 1970.

    Raises:
        Exception: Any error of MLflow, the disk or the network. The run is then FAILED, if that can be written.
    """
    client, end = store.client(), int(1000 * (ended or time.time()))
    with TemporaryDirectory() as files, store.locked():
        experiment_id = store.experiment_id(client, experiment or f"rlvr-dir-{result.task}")
        if run := find_run(client, result.config_hash, [experiment_id]):
            return run.info.run_id
        begun = f"tags.config_hash = '{result.config_hash}' and attributes.status = 'RUNNING'"
        for killed in client.search_runs(
            [experiment_id], begun
        ):  # a folder is locked; on a server the writer ends it again
            client.set_terminated(killed.info.run_id, "KILLED")
        for name, text in ((RESULT, result.to_json()), (TABLE, json.dumps(_table(result), ensure_ascii=False))):
            # a lone surrogate becomes JSON's escape
            (Path(files) / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        tags = {**tags_of(result), "mlflow.source.name": "rlvr-dir"}
        tags["mlflow.loggedArtifacts"] = json.dumps([{"path": TABLE, "type": "table"}])  # like `log_table`
        tags |= {"git_sha": git, "mlflow.source.git.commit": git} if git else {}
        kind, start = tags.pop("kind"), end - int(1000 * result.seconds)
        run_id = client.create_run(experiment_id, run_name=run_name(result), start_time=start, tags=tags).info.run_id
        try:
            _fill(client, run_id, result, files, end)
            client.set_tag(run_id, "kind", kind)  # last, so that no view shows the unfinished run of a killed process
        except BaseException:
            with suppress(Exception):
                client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id, "FINISHED", end_time=end)
    return run_id


def _fill(client: Any, run_id: str, result: TaskResult, files: str, now: int) -> None:
    """Log everything about a result in three calls. The dataset has our digest of the questions, not one of
    MLflow's."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in metrics_of(result).items()],
        params=[Param(name, value) for name, value in params_of(result).items()],
    )
    if digest := result.provenance.get("data"):
        source = json.dumps({"tags": {"mlflow.source.name": f"benchmark {result.task}"}})
        profile = json.dumps({"num_rows": len(result.problem_ids)})
        dataset = Dataset(result.task, str(digest), "code", source, profile=profile)
        client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "eval")])])
    client.log_artifacts(run_id, files)


def _table(result: TaskResult) -> dict[str, Any]:
    """Return one row per problem, in the form of MLflow's `log_table`, without model output, because a browser shows
    it."""
    scores: dict[str, np.ndarray] = {}
    if isinstance(result, EvalResult):
        accuracies = np.round(100 * result.correct.mean(axis=1), 2)
        scores = {f"avg_at_{result.samples}": accuracies, "correct": result.correct.sum(axis=1)}
    total = np.maximum(1, result.n_tokens.sum(axis=1))
    tokens = {
        "mean_tokens": np.round(result.n_tokens.mean(axis=1), 1),
        "replacement_ratio": np.round(100 * result.n_replaced.sum(axis=1) / total, 2),
        "changed_ratio": np.round(100 * result.n_changed.sum(axis=1) / total, 2),
    }
    flags = {name: table for name, table in result.tables().items() if name in FLAGS}
    counts = {name: table.sum(axis=1) for name, table in flags.items()}
    columns = {**scores, **tokens, **counts}
    rows = zip(result.problem_ids, *(column.tolist() for column in columns.values()), strict=True)
    return {"columns": ["problem", *columns], "data": [list(row) for row in rows]}


def git_sha() -> str | None:
    """Return the commit of the checkout that this code runs from; None for other installations."""
    root = Path(__file__).parents[3]
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=5) if (root / ".git").exists() else None
        return (done.stdout.strip() or None) if done and not done.returncode else None
    return None


def find_run(client: Any, config_hash: str, experiment_ids: list[str]) -> Any | None:
    """Return the latest FINISHED run with this config hash in some experiments; None if there is none."""
    wanted = f"tags.config_hash = '{config_hash}' and attributes.status = 'FINISHED'"
    return next(iter(client.search_runs(experiment_ids, wanted, max_results=1) if experiment_ids else ()), None)


def result_of_run(run_id: str, store: Path | str) -> EvalResult:
    """Return the exact result of a run, from its artifact.

    Raises:
        UserError: The store or the run does not exist, or the run contains no result.
    """
    place = TrackingStore.at(store)
    if not place.exists:
        raise UserError(f"run:{run_id} is not in {str(store)!r}, which has no mlflow.db", accepted="--tracking URI")
    try:
        with patience(), TemporaryDirectory() as folder:
            result = read_any_result(Path(place.client().download_artifacts(run_id, RESULT, folder)))
    except Exception as error:
        raise UserError(f"run:{run_id} of {str(store)!r} cannot be read ({reason(error, store)})") from None
    if not isinstance(result, EvalResult):
        raise lm_eval_refusal(result.task, "compared")
    return result


@dataclass(frozen=True)
class SyncReport:
    """Count what `sync` did: files logged, files whose results had a run, and files that are not results."""

    logged: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"logged: {visible(name)}" for name in self.logged]
        lines += [f"not a result, skipped: {visible(name)}" for name in self.skipped]
        counts = (
            f"{len(self.logged)} logged, {len(self.present)} already there, {len(self.skipped)} files are not results"
        )
        return "\n".join([*lines, counts])


def sync(folder: Path | str, store: Path | str, experiment: str | None = None) -> SyncReport:
    """Log each result file `<folder>/*.json` whose config hash no finished run of the store has.

    Running it again does nothing more.

    Raises:
        UserError: The folder does not exist, or MLflow cannot be written to; earlier runs are kept.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(
            "does not exist", argument="folder", value=str(folder), accepted="a folder that eval or demo has written to"
        )
    place, report = TrackingStore.at(store), SyncReport()
    results: list[tuple[str, float, TaskResult]] = []
    for path in sorted(folder.glob("*.json")):
        try:
            results.append((path.name, path.stat().st_mtime, read_any_result(path)))
        except UserError:
            report.skipped.append(path.name)
    try:
        with patience():
            client = place.client() if results else None
            for name, ended, result in results:
                ids = [experiment.experiment_id for experiment in every(client.search_experiments)] if client else []
                is_logged = find_run(client, result.config_hash, ids) is not None
                if not is_logged:
                    write_run(result, place, experiment, ended=ended)
                (report.present if is_logged else report.logged).append(name)
    except Exception as error:
        raise UserError(
            (
                f"cannot be written to ({reason(error, store)}); {len(report.logged)} results were logged "
                "before, run again for the rest"
            ),
            argument="tracking",
            value=str(store),
        ) from error
    return report
