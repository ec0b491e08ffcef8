"""Start or join Ray for the pool of engines: a running cluster, or a private one on the loopback interface."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rlvr_dir.errors import UserError

_OBJECT_STORE = 256 << 20  # bytes; rollouts only pass through it
# For a Ray that is started here: all servers bind to 127.0.0.1, and workers run at this process's priority. (Ray would
# use nice 15, which starves them on a shared machine.)
_PRIVATE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
_ATTEMPTS = 3  # Ray gives its own processes 30 seconds, which can be too few on a busy machine
_PATIENCE = 10.0  # seconds for a cluster to answer at its port
_SILENT = {"log_to_driver": False, "logging_level": "ERROR"}

_users = 0  # pools in this process that share one Ray
_folder: str | None = None  # the private one's folder
_joined = False  # whether Ray was started or joined here, so that it is left here


class Cluster:
    """Represent a Ray that was joined or started; `close` it. Pools in one process share it, and the last one leaves
    it.

    If the caller has already initialised Ray, it is used and not shut down.
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
        """Return the number of GPUs that are not reserved now."""
        return int(self.ray.available_resources().get("GPU", 0))

    @property
    def logs(self) -> str:
        """Return the folder where a private Ray stores the output of its processes; empty for a cluster."""
        return f"{_folder}/session_latest/logs" if _folder else ""

    def close(self, *, keep_logs: bool = False) -> None:
        """Leave Ray. The last user of a private one stops it and removes its files, unless `keep_logs`."""
        global _users, _folder, _joined
        _users -= 1
        if _users or not _joined:
            return
        folder, _folder, _joined = _folder, None, False
        self.ray.shutdown()
        if folder and not keep_logs:
            shutil.rmtree(folder, ignore_errors=True)


def quiet() -> None:
    """Turn off Ray's usage reports and its output among our lines. Call this before Ray is first imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # the pool reports a lost worker itself, once, on stderr


def _start(ray: Any, workers: int, attempts: int = _ATTEMPTS) -> str:
    """Start a private Ray on loopback, with space for `workers` on any number of cores; return its folder.

    Raises:
        UserError: Ray does not start.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    place = "/tmp" if os.path.isdir("/tmp") else None  # socket paths must be short
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
        if host and port.isdecimal():  # otherwise Ray would retry for many minutes
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
    """Start the body's processes with `_PRIVATE` in their environment. In this process Ray has read it into a
    constant."""
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
