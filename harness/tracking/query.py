"""Finished runs by config hash, and their results rebuilt: what has been evaluated once need not be again."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.errors import UserError
from harness.evals.result import EvalResult
from harness.tracking.artifacts import RESULT
from harness.tracking.store import Store, patience


def find_result(config_hash: str, store: Path | str) -> EvalResult | None:
    """The result of that hash in any experiment of a store, exact, from its artifact; None where there is none.

    A store that does not exist is not made. Where MLflow or the artifact cannot be read: a warning, and None.
    """
    try:
        place = Store.at(store)
        if not place.exists:
            return None
        with patience():
            client = place.client()
            run = find_run(client, config_hash, [e.experiment_id for e in experiments(client)])
            if run is None:
                return None
            with TemporaryDirectory() as folder:
                path = client.download_artifacts(run.info.run_id, RESULT, folder)
                result = EvalResult.from_json(Path(path).read_text(encoding="utf-8"))
        if result.config_hash != config_hash:
            raise ValueError(f"its {RESULT} has config hash {result.config_hash}")
        return result
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        warnings.warn(
            f"MLflow at {store} could not be asked for {config_hash} ({type(error).__name__}: {reason})", stacklevel=2
        )
        return None


def result_of_run(run_id: str, store: Path | str) -> EvalResult:
    """The exact result of a run, from its artifact.

    Raises:
        UserError: the store or the run is not there, or the run holds no result.
    """
    place = Store.at(store)
    if not place.exists:
        raise UserError(f"run:{run_id} is asked of {str(store)!r}, which holds no mlflow.db; accepted: --tracking URI")
    try:
        with patience(), TemporaryDirectory() as folder:
            path = place.client().download_artifacts(run_id, RESULT, folder)
            return EvalResult.from_json(Path(path).read_text(encoding="utf-8"))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"run:{run_id} of {str(store)!r} cannot be read ({type(error).__name__}: {reason})") from None


def find_run(client: Any, config_hash: str, experiment_ids: Sequence[str]) -> Any | None:
    """The latest FINISHED run of that config hash in some experiments."""
    if not experiment_ids:
        return None
    found = client.search_runs(
        list(experiment_ids),
        filter_string=f"tags.config_hash = '{config_hash}' and attributes.status = 'FINISHED'",
        max_results=1,
    )
    return found[0] if found else None


def experiments(client: Any) -> list[Any]:
    """All experiments that are not deleted."""
    return _all(lambda token: client.search_experiments(page_token=token))


def runs(client: Any, experiment_ids: Sequence[str], filter_string: str) -> list[Any]:
    """All runs that a filter finds."""
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
