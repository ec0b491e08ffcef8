"""Ray as the pool of engines uses it: a running cluster, or a private one that lives on the loopback interface."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rlvr_dir.errors import UserError

_OBJECT_STORE = 256 << 20  # bytes; rollouts pass through it, none stays
# For a Ray that is started here: Ray's own switch that has every server bind to 127.0.0.1, and workers that run at this
# process's priority (Ray would make them 15 nicer, which starves them on a machine that others use).
_PRIVATE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
_ATTEMPTS = 3  # Ray gives its own processes 30 seconds, which can be too few on a busy machine
_PATIENCE = 10.0  # seconds for a cluster to answer at its port
_SILENT = {"log_to_driver": False, "logging_level": "ERROR"}

_users = 0  # pools in this process that share one Ray
_folder: str | None = None  # of the private one
_joined = False  # whether Ray was started or joined here, so that it is left here


class Cluster:
    """Ray, joined or started; `close` it. Pools in one process share it, and the last one leaves it.

    A Ray that the caller has initialised already is used as it is, and stays.
    """

    def __init__(self, address: str | None, workers: int) -> None:
        """Join the cluster at `address` (`HOST:PORT`, or `auto` for this machine's); None starts a private one.

        Raises:
            UserError: Ray is not installed or does not start, or no cluster answers at the address.
        """
        global _users, _folder, _joined
        if find_spec("ray") is None:
            raise UserError(
                "needs Ray, which is not installed",
                argument="workers",
                value=workers,
                hint="Install the extra [ray], or use workers=1",
            )
        quiet()
        import ray

        self.ray: Any = ray
        if not ray.is_initialized():
            if address is None:
                _folder = _start(ray, workers)
            else:
                _join(ray, address)
            _joined = True
        _users += 1
        self.private = _folder is not None
        resources = ray.cluster_resources()
        self.cpus, self.gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))

    @property
    def free_gpus(self) -> int:
        """GPUs that nobody has reserved at this moment."""
        return int(self.ray.available_resources().get("GPU", 0))

    @property
    def logs(self) -> str:
        """Where a private Ray writes what its processes print; empty for a cluster."""
        return f"{_folder}/session_latest/logs" if _folder else ""

    def close(self, *, keep_logs: bool = False) -> None:
        """Leave Ray; the last of a private one stops it and, unless `keep_logs`, removes its files."""
        global _users, _folder, _joined
        _users -= 1
        if _users or not _joined:
            return
        folder, _folder, _joined = _folder, None, False
        self.ray.shutdown()
        if folder and not keep_logs:
            shutil.rmtree(folder, ignore_errors=True)


def quiet() -> None:
    """Have Ray tell nothing home and print nothing among our own lines; to be called before Ray is first imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # a lost worker is told by the pool, once, on stderr


def _start(ray: Any, workers: int, attempts: int = _ATTEMPTS) -> str:
    """Start a private Ray on loopback, with room for `workers` on however few cores; return its folder.

    Raises:
        UserError: Ray does not come up.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    place = "/tmp" if os.path.isdir("/tmp") else None  # the names of sockets must be short
    folder = tempfile.mkdtemp(prefix="rlvr-ray-", dir=place)
    try:
        with _private(ray):
            ray.init(
                address="local",
                num_cpus=max(workers, cores),
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE,
                _temp_dir=folder,
                **_SILENT,
            )
        return folder
    except BaseException as error:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if attempts > 1:
        return _start(ray, workers, attempts - 1)
    raise UserError(
        f"needs Ray, which does not start on this machine ({reason})",
        argument="workers",
        value=workers,
        accepted="workers=1, or ray_address=HOST:PORT of a running cluster",
    )


def _join(ray: Any, address: str) -> None:
    try:
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host and port.isdecimal():  # Ray itself would try for many minutes
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
        ray.init(address=address, **_SILENT)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f": no Ray cluster can be joined there ({reason})",
            argument="ray_address",
            value=address,
            accepted="HOST:PORT of a running `ray start --head`, or auto for the cluster on this machine",
        ) from None


@contextmanager
def _private(ray: Any) -> Iterator[None]:
    """Start what comes within with `_PRIVATE` in its environment; this process's Ray has read it into a constant."""
    constants, before = ray._private.ray_constants, {name: os.environ.get(name) for name in _PRIVATE}
    was, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    os.environ |= _PRIVATE
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = was
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
