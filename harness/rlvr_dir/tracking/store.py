"""The MLflow store: an explicit sqlite file, migrated once under a lock, or a server; a client that gives up soon."""

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
# MLflow's own are seven retries of two minutes each; an evaluation waits for nobody.
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",  # seconds
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def resolve_store(folder: Path | str, uri: str | None = None) -> Path | str:
    """Return where runs are: `uri` if given, else the variable RLVR_DIR_TRACKING_URI, else a sqlite file in `folder`.

    Raises:
        UserError: a URI that is neither a server's nor sqlite's, or "off".
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
    """Return where new runs are logged, as `resolve_store` does; None where that is declined: by `track`, or by "off".

    Raises:
        UserError: a URI that is neither a server's nor sqlite's.
    """
    declined = not track or OFF in (uri, None if uri else os.environ.get(VARIABLE))
    return None if declined else resolve_store(folder, uri)


@dataclass(frozen=True)
class TrackingStore:
    """One place for runs. `database` is its sqlite file, beside which are the lock and `mlartifacts`; None is a server.

    Never MLflow's default, which follows the working directory.
    """

    uri: str
    database: Path | None

    @classmethod
    def at(cls, where: Path | str) -> "TrackingStore":
        """Name the store of a folder (`<folder>/mlflow.db`), a `sqlite:///FILE` or an `http(s)://` server; make none.

        Raises:
            UserError: another kind of URI.
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
        """Whether there can be runs in it: a server has to be asked."""
        return self.database is None or self.database.is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process at a time use a sqlite file; servers look after themselves.

        Raises:
            TimeoutError: another process held it for a minute.
        """
        if self.database is None:
            yield
            return
        self.database.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.database.with_suffix(".lock"), _LOCK_SECONDS):
            yield

    def client(self) -> Any:
        """Return an `MlflowClient` that has met the store; make a missing sqlite file.

        The first contact with a new file runs all its migrations, and several processes doing so at once crash: hence
        the lock. A server that does not answer raises within seconds.
        """
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        with self.locked():
            from mlflow.tracking import MlflowClient

            for name in ("mlflow.store.db.utils", "alembic"):  # a page of migration steps for each new file
                logging.getLogger(name).setLevel(logging.WARNING)
            client = MlflowClient(tracking_uri=self.uri)
            client.search_experiments(max_results=1)
            self._follow()
            if self.database is not None and _quoted(self.database) != str(self.database):
                with suppress(OSError):  # MLflow makes an empty folder of the name as it is in the URI, too
                    os.removedirs(Path(_quoted(self.database)).parent)
        return client

    @property
    def artifacts(self) -> Path | None:
        """Return where artifacts lie: beside the sqlite file, wherever it was moved or copied to; None of a server."""
        return None if self.database is None else self.database.parent / _ARTIFACTS

    def _follow(self) -> None:
        """Have a sqlite file that was moved or copied name its own artifacts: MLflow keeps their absolute place.

        A run whose artifacts did not come along keeps the place that it has; what was never beside a store is left.
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
                    continue  # it was beside no store of this name: somebody's own place
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
        """Return the id of the experiment of that name, made where it is missing; a sqlite store must be `locked`."""
        place = self.artifacts and self.artifacts.as_uri()
        if client.get_experiment_by_name(name) is None:
            with suppress(Exception):  # on a server another process may have been quicker
                return client.create_experiment(name, artifact_location=place)
        return client.get_experiment_by_name(name).experiment_id


def _quoted(path: Path) -> str:
    """Return a path as it stands in a URI: what follows a `?` would be options there, and `%20` a space."""
    return str(path).replace("%", "%25").replace("?", "%3F")


def ui_command(store: Path | str) -> str:
    """Return the command that shows a store's pages."""
    option = "tracking" if "://" in str(store) else "store"
    return f"rlvr-dir ui --{option} {shlex.quote(without_passwords(str(store)))}"


def every(search: Callable[..., Any], *wanted: Any) -> list[Any]:
    """Return all that a search of MLflow's client finds, page by page."""
    items: list[Any] = []
    token = None
    while token or not items:
        page = search(*wanted, page_token=token)
        items, token = [*items, *page], page.token
        if not token:
            break
    return items


def reason(error: Exception, store: Path | str) -> str:
    """Describe in a line what an exception of MLflow's says of a store, in our words where its own help nobody."""
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
    """Make MLflow retry a server once instead of for minutes, and draw no bars; what the user sets stays."""
    ours = {name: value for name, value in _PATIENCE.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
