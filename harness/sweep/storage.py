"""Where Optuna keeps the trials: a journal file by default, PostgreSQL for many machines, sqlite for one worker.

The journal's lock is `flock`, which ends with its process: with Optuna's own lock files, a worker killed while writing
keeps the others waiting for half a minute.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from harness.errors import DamagedError, UserError
from harness.records.lock import flocked

optuna.logging.set_verbosity(optuna.logging.WARNING)


class FileLock(JournalFileOpenLock):
    """Optuna's lock around a write to the journal."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._path, self._held = journal.with_name(journal.name + ".flock"), -1

    def acquire(self) -> bool:
        """Wait until no other process writes."""
        self._held = flocked(self._path)
        return True

    def release(self) -> None:
        """Let the next one write."""
        os.close(self._held)


def open_storage(storage: str, journal: Path) -> Any:
    """Open the storage that a sweep names; environment variables in it are filled in: it need not hold a password.

    Raises:
        UserError: the database cannot be reached, or its driver is not installed.
    """
    url = os.path.expandvars(storage)
    if url == "journal":
        return JournalStorage(JournalFileBackend(str(journal), lock_obj=FileLock(journal)))
    if url.startswith("$"):
        raise UserError(f"storage={storage!r}: that environment variable is not set")
    if url.startswith("postgresql://"):  # SQLAlchemy's default driver is the old one
        url = "postgresql+psycopg://" + url.removeprefix("postgresql://")
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except ImportError as error:
        raise UserError(
            f"storage: its driver is not installed ({error.name or 'psycopg'}); install rlvr-dir[postgres]"
        ) from None
    except Exception as error:  # SQLAlchemy's and each driver's own
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"storage cannot be opened ({type(error).__name__}: {reason})") from None


@contextmanager
def readable(where: object) -> Iterator[None]:
    """Say in a sentence that what Optuna reads inside the `with` is damaged; of a journal it raises whatever comes.

    Raises:
        DamagedError: naming the storage.
    """
    try:
        yield
    except UserError:
        raise
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        reason = " ".join(str(error).split())[:160]
        raise DamagedError(
            f"{where} is damaged, or was not written by Optuna ({type(error).__name__}: {reason}); move it away and "
            "run the sweep again: no rollout is lost, none is decoded twice"
        ) from None


def mend(journal: Path) -> None:
    """Cut off what a full disk or a power cut left of a last line; Optuna could not read a journal with more after it.

    Only for whoever holds the sweep's lock, before anyone writes.
    """
    if not journal.is_file():
        return
    data = journal.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(journal, whole)
