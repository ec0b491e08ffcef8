"""The MLflow store: an explicit sqlite file, migrated once under a lock, artifacts in a folder beside it."""

import fcntl
import logging
from pathlib import Path
from typing import Any


def open_store(folder: Path | str) -> Any:
    """A client on `<folder>/mlflow.db`, which is created where it is missing.

    Never MLflow's default, which follows the working directory. The first contact with a new file runs all its
    migrations, and several processes doing so at once crash: hence the file lock.
    """
    folder = Path(folder).expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "mlflow.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        from mlflow.tracking import MlflowClient

        for name in ("mlflow.store.db.utils", "alembic"):  # a page of migration steps for each new file
            logging.getLogger(name).setLevel(logging.WARNING)
        client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
        client.search_experiments(max_results=1)
    return client


def experiment_id(client: Any, folder: Path | str, name: str) -> str:
    """The experiment of that name, created where it is missing, its artifacts in `<folder>/mlartifacts`."""
    folder = Path(folder).expanduser().resolve()
    with open(folder / "mlflow.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        return client.create_experiment(name, artifact_location=(folder / "mlartifacts").as_uri())
