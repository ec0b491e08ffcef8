"""Open the MLflow store: an explicit sqlite file, migrated once under a lock, or a server; with a client that fails
fast."""

import logging
import os
import re
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from rlvr_dir.errors import UserError
from rlvr_dir.records.lock import locked
from rlvr_dir.text import without_passwords

_ARTIFACTS = "mlartifacts"
VARIABLE, OFF = "RLVR_DIR_TRACKING_URI", "off"
_SQLITE, _SERVERS = "sqlite:///", ("http://", "https://")
_OTHERS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|(databricks|databricks-uc|uc)$")  # what MLflow takes, and is no folder
_SCHEMA = re.compile(r"out-of-date database schema \(found version (\w+)")
_LOCK_SECONDS = 60.0
# MLflow's own setting is seven retries of two minutes each, which an evaluation should not wait for.
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",  # seconds
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def resolve_store(folder: Path | str, uri: str | None = None) -> Path | str:
    """Return where runs are: `uri` if given, else the variable RLVR_DIR_TRACKING_URI, else a sqlite file in `folder`.

    Raises:
        UserError: The URI is neither a server's nor sqlite's, or is "off".
    """
    if uri == OFF:
        raise UserError(
            "names no store; accepted here: a folder, http://HOST:PORT or sqlite:///FILE",
            argument="tracking",
            value=OFF,
        )
    variable = os.environ.get(VARIABLE)
    chosen = uri or (variable if variable != OFF else None) or folder
    TrackingStore.at(chosen)
    return chosen


def tracking_place(folder: Path | str, uri: str | None = None, *, track: bool = True) -> Path | str | None:
    """Return where new runs are logged, as `resolve_store` does; None if turned off by `track`, or by "off".

    Raises:
        UserError: The URI is neither a server's nor sqlite's.
    """
    declined = not track or OFF in (uri, None if uri else os.environ.get(VARIABLE))
    return None if declined else resolve_store(folder, uri)


@dataclass(frozen=True)
class TrackingStore:
    """Represent one store of runs. `database` is its sqlite file, beside which are the lock and `mlartifacts`; None: a
    server.

    It is never MLflow's default, which depends on the working directory.
    """

    uri: str
    database: Path | None

    @classmethod
    def at(cls, where: Path | str) -> "TrackingStore":
        """Name the store of a folder (`<folder>/mlflow.db`), a `sqlite:///FILE` or an `http(s)://` server. Create
        nothing.

        Raises:
            UserError: The URI is of another kind.
        """
        text = str(where)
        if isinstance(where, str) and text.startswith(_SERVERS):
            return cls(text.rstrip("/"), None)
        is_uri = isinstance(where, str) and text.startswith(_SQLITE)
        if isinstance(where, str) and not is_uri and _OTHERS.match(text):
            raise UserError(
                argument="tracking",
                value=text,
                accepted="a folder (./NAME where it looks like an address), http://HOST:PORT or sqlite:///FILE",
            )
        file = Path(unquote(text.removeprefix(_SQLITE))) if is_uri else Path(where) / "mlflow.db"
        file = file.expanduser().resolve()
        return cls(f"{_SQLITE}{_quoted(file)}", file)

    @property
    def exists(self) -> bool:
        """Return whether there can be runs in it. For a server this is always true."""
        return self.database is None or self.database.is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process at a time use a sqlite file. Servers handle this themselves.

        Raises:
            TimeoutError: Another process has locked it for a minute.
        """
        if self.database is None:
            yield
            return
        self.database.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.database.with_suffix(".lock"), _LOCK_SECONDS):
            yield

    def client(self) -> Any:
        """Return an `MlflowClient` that has connected to the store. A missing sqlite file is created.

        The first connection to a new file runs all its migrations, and several processes doing so at once crash, so
        there is a lock. A server that does not answer raises an error within seconds.
        """
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        with self.locked():
            from mlflow.tracking import MlflowClient

            for name in ("mlflow.store.db.utils", "alembic"):  # they print a page of migration steps for each new file
                logging.getLogger(name).setLevel(logging.WARNING)
            client = MlflowClient(tracking_uri=self.uri)
            client.search_experiments(max_results=1)
            self._follow()
            if self.database is not None and _quoted(self.database) != str(self.database):
                with suppress(OSError):  # MLflow also creates an empty folder with the name as in the URI
                    os.removedirs(Path(_quoted(self.database)).parent)
        return client

    @property
    def artifacts(self) -> Path | None:
        """Return where artifacts are: beside the sqlite file, even after it was moved or copied; None for a server."""
        return None if self.database is None else self.database.parent / _ARTIFACTS

    def _follow(self) -> None:
        """Update the artifacts' place in a sqlite file that was moved or copied, because MLflow stores it as an
        absolute path.

        A run whose artifacts were not copied keeps its place, and so does one that was never beside a store.
        """
        if self.database is None or self.artifacts is None:
            return
        ours = self.artifacts.as_uri()
        with closing(sqlite3.connect(self.database)) as database, database:
            for (place,) in database.execute("SELECT DISTINCT artifact_location FROM experiments").fetchall():
                if place == ours or not str(place).endswith(f"/{_ARTIFACTS}"):
                    continue
                old = Path(unquote(str(place).removeprefix("file://")))
                if old.is_dir() and not (old.parent / self.database.name).is_file():
                    continue  # it was not beside a store of this name, so the user chose the place
                database.execute(
                    "UPDATE experiments SET artifact_location = ? WHERE artifact_location = ?", (ours, place)
                )
                runs = "SELECT run_uuid, artifact_uri FROM runs WHERE substr(artifact_uri, 1, ?) = ?"
                for run, uri in database.execute(runs, (len(place) + 1, f"{place}/")).fetchall():
                    behind = uri.removeprefix(f"{place}/")
                    if (self.artifacts / behind).is_dir():
                        database.execute(
                            "UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", (f"{ours}/{behind}", run)
                        )

    def experiment_id(self, client: Any, name: str) -> str:
        """Return the id of the experiment with this name, which is created if necessary; a sqlite store must be
        `locked`."""
        place = self.artifacts and self.artifacts.as_uri()
        if client.get_experiment_by_name(name) is None:
            with suppress(Exception):  # on a server another process may have created it
                return client.create_experiment(name, artifact_location=place)
        return client.get_experiment_by_name(name).experiment_id


def _quoted(path: Path) -> str:
    """Return a path as part of a URI, in which the rest after a `?` would be options, and `%20` a space."""
    return str(path).replace("%", "%25").replace("?", "%3F")


def ui_command(store: Path | str) -> str:
    """Return the command that shows a store's pages."""
    option = "tracking" if "://" in str(store) else "store"
    return f"rlvr-dir ui --{option} {shlex.quote(without_passwords(str(store)))}"


def every(search: Callable[..., Any], *wanted: Any) -> list[Any]:
    """Return everything that a search of MLflow's client finds, page by page."""
    items: list[Any] = []
    token = None
    while token or not items:
        page = search(*wanted, page_token=token)
        items, token = [*items, *page], page.token
        if not token:
            break
    return items


def reason(error: Exception, store: Path | str) -> str:
    """Describe an exception of MLflow for a store in a line, in our words if MLflow's own are not helpful."""
    text = without_passwords(" ".join(str(error).split()))
    if schema := _SCHEMA.search(text):
        import mlflow

        steps = Path(mlflow.__file__ or "").parent / "store" / "db_migrations" / "versions"
        if not [*steps.glob(f"{schema[1]}_*.py")]:
            return (
                f"it was written by a newer MLflow than {mlflow.__version__}; install that one, or name another store"
            )
        uri = without_passwords(TrackingStore.at(store).uri)
        return f"it is of an older MLflow; keep a copy, then run: mlflow db upgrade {shlex.quote(uri)}"
    if "must be in the 'active' state" in text:
        return "its experiment was deleted: restore it with `mlflow experiments restore`, or name another one"
    if "database is locked" in text or isinstance(error, TimeoutError):
        return "another process holds its database; wait for it, or end it"
    return f"{type(error).__name__}: {text[:200]}"


@contextmanager
def patience() -> Iterator[None]:
    """Make MLflow retry a server once instead of for minutes, and draw no bars. The user's settings are kept."""
    ours = {name: value for name, value in _PATIENCE.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
