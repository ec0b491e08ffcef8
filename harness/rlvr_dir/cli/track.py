"""Define `rlvr-dir ui` and `rlvr-dir track …`: MLflow's pages of a store, and logging of results that it missed."""

import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from rlvr_dir.cli.base import echo, group
from rlvr_dir.errors import UserError

app = group("Log results on disk to MLflow.")

Tracking = Annotated[
    str | None,
    typer.Option(
        "--tracking",
        help="http://HOST:PORT, sqlite:///FILE, or off. Default: RLVR_DIR_TRACKING_URI, or else a sqlite "
        "file beside the results.",
    ),
]


@app.command("sync")
def sync_command(
    folder: Annotated[Path, typer.Argument(help="Folder of result files that eval or demo wrote.")] = Path("runs"),
    tracking: Tracking = None,
    experiment: Annotated[str | None, typer.Option(help="MLflow experiment. Default: rlvr-dir-TASK.")] = None,
) -> None:
    """Log the results that have no run yet.

    Running it again is harmless. For example, after MLflow was unavailable:

    \b
        rlvr-dir track sync runs/demo --experiment rlvr-dir-demo
    """
    from rlvr_dir.tracking import resolve_store, sync

    echo(sync(folder, resolve_store(folder, tracking), experiment), lines=True)


def ui(
    store: Annotated[Path, typer.Option("--store", "--runs", help="Folder with mlflow.db.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=1, max=65535)] = 5000,
    tracking: Tracking = None,
) -> None:
    """Open the MLflow pages of a store, with links to comparisons.

    For a server, which has its own pages, only the links are printed.
    """
    from rlvr_dir.tracking import resolve_store
    from rlvr_dir.tracking.store import TrackingStore

    chosen = resolve_store(store, tracking)
    place = TrackingStore.at(chosen)
    if not place.exists:
        raise UserError(
            "has no mlflow.db",
            argument="store",
            value=str(chosen),
            accepted="a folder that eval or demo has written to",
        )
    if place.database is not None and not _free(port):
        raise UserError(
            "of 127.0.0.1 is taken", argument="port", value=port, accepted=f"a free one, such as --port {_any_port()}"
        )
    lines = _links(chosen, port)
    if place.database is None:
        echo("\n".join(lines), lines=True)
        return
    echo(f"Starting MLflow at http://127.0.0.1:{port} (takes about 20 s) …")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", place.uri, "--workers", "1"]
    command += ["--artifacts-destination", str(place.database.parent / "mlartifacts")]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", **os.environ}
    sys.stdout.flush()
    if not os.fork():
        _say_when_ready(os.getppid(), port, lines)
    os.execve(sys.executable, [*command, "--host", "127.0.0.1", "--port", str(port)], quiet)  # signals reach MLflow


def _say_when_ready(server: int, port: int, lines: list[str]) -> NoReturn:
    """Print the links once the server, this process's parent, answers, and end."""
    while os.getppid() == server:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            echo("\n".join([*lines, f"Ready: http://127.0.0.1:{port}; Ctrl-C ends it."]), lines=True)
            break
        time.sleep(0.2)
    os._exit(0)


def _links(store: Path | str, port: int) -> list[str]:
    """Return a link for each task of each experiment; without them the pages can still be opened."""
    from rlvr_dir.tracking.views import all_links

    lines: list[str] = []
    try:
        for title, links in all_links(store, port):
            lines += [title, f"  table   {links.table}", f"  chart   {links.charts}", f"  filter  {links.plain}"]
    except Exception as error:
        echo(f"warning: no links to comparisons ({type(error).__name__}: {error})", err=True)
    return lines


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
