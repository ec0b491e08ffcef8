"""Runs of a store: found by config hash, listed, and their exact results read back for `run:ID`."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.errors import UserError
from harness.evals.result import EvalResult, read_result
from harness.tracking.artifacts import RESULT
from harness.tracking.store import TrackingStore, patience


def result_of_run(run_id: str, store: Path | str) -> EvalResult:
    """Return the exact result of a run, from its artifact.

    Raises:
        UserError: the store or the run is not there, or the run holds no result.
    """
    place = TrackingStore.at(store)
    if not place.exists:
        raise UserError(f"run:{run_id} is asked of {str(store)!r}, which holds no mlflow.db; accepted: --tracking URI")
    try:
        with patience(), TemporaryDirectory() as folder:
            path = place.client().download_artifacts(run_id, RESULT, folder)
            return read_result(Path(path))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"run:{run_id} of {str(store)!r} cannot be read ({type(error).__name__}: {reason})") from None


def find_run(client: Any, config_hash: str, experiment_ids: Sequence[str]) -> Any | None:
    """Return the latest FINISHED run of that config hash in some experiments; None where there is none."""
    if not experiment_ids:
        return None
    found = client.search_runs(
        list(experiment_ids),
        filter_string=f"tags.config_hash = '{config_hash}' and attributes.status = 'FINISHED'",
        max_results=1,
    )
    return found[0] if found else None


def experiments(client: Any) -> list[Any]:
    """Return all experiments that are not deleted."""
    return _all(lambda token: client.search_experiments(page_token=token))


def runs(client: Any, experiment_ids: Sequence[str], filter_string: str) -> list[Any]:
    """Return all runs that a filter finds."""
    if not experiment_ids:
        return []
    return _all(lambda token: client.search_runs(list(experiment_ids), filter_string, page_token=token))


def _all(page: Any) -> list[Any]:
    found: list[Any] = []
    token = None
    while True:
        some = page(token)
        found += some
        token = some.token
        if not token:
            return found
