"""`rlvr-dir ui` and `rlvr-dir track …`: MLflow's pages of a store, and catching up with what it missed."""

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.base import echo, group
from harness.errors import UserError

app = group("Keep MLflow in step with the results on the disk.")

Tracking = Annotated[
    str | None,
    typer.Option(
        "--tracking", help="http://HOST:PORT, sqlite:///FILE, or off; default RLVR_DIR_TRACKING_URI, else a folder."
    ),
]


@app.command("sync")
def sync_command(
    folder: Annotated[Path, typer.Argument(help="Folder of result files that eval or demo wrote.")] = Path("runs"),
    tracking: Tracking = None,
    experiment: Annotated[str | None, typer.Option(help="Default: rlvr-dir-TASK.")] = None,
) -> None:
    """Log the results that have no run yet.

    Doing it again does nothing more. For example, after MLflow was down:

    \b
        rlvr-dir track sync runs/demo --experiment rlvr-dir-demo
    """
    from harness.tracking import resolve_store, sync

    echo(sync(folder, resolve_store(folder, tracking), experiment), lines=True)


def ui(
    store: Annotated[Path, typer.Option(help="Folder that holds mlflow.db.")] = Path("runs"),
    port: Annotated[int, typer.Option()] = 5000,
    tracking: Tracking = None,
) -> None:
    """Open the MLflow pages of a store, with links to comparisons.

    Of a server, which has its pages already, the links alone are printed.
    """
    from harness.tracking import resolve_store
    from harness.tracking.store import TrackingStore

    chosen = resolve_store(store, tracking)
    place = TrackingStore.at(chosen)
    if not place.exists:
        raise UserError(
            f"store={str(chosen)!r} holds no mlflow.db; accepted: a folder that eval or demo has written to"
        )
    if place.database is not None and not _free(port):
        raise UserError(f"port={port} of 127.0.0.1 is taken; accepted: a free one, such as --port {_any_port()}")
    _print_links(chosen, port)
    if place.database is None:
        return
    echo(f"Starting http://127.0.0.1:{port} (in some 20 s); Ctrl-C ends it.")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", place.uri, "--workers", "1"]
    command += ["--artifacts-destination", str(place.database.parent / "mlartifacts")]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", **os.environ}
    sys.stdout.flush()
    os.execve(sys.executable, [*command, "--host", "127.0.0.1", "--port", str(port)], quiet)  # signals reach MLflow


def _print_links(store: Path | str, port: int) -> None:
    """Print a link for each task of each experiment; without them the pages still open."""
    from harness.tracking.views import all_links

    try:
        for title, links in all_links(store, port):
            for line in (title, f"  charts  {links.charts}", f"  table   {links.table}", f"  filter  {links.plain}"):
                echo(line)
    except Exception as error:
        echo(f"warning: no links to comparisons ({type(error).__name__}: {error})", err=True)


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
