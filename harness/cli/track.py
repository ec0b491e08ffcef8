"""`rlvr-dir ui`: the MLflow pages of a store."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import UserError


def ui(
    store: Annotated[Path, typer.Option(help="Folder that holds mlflow.db.")] = Path("runs"),
    port: Annotated[int, typer.Option()] = 5000,
) -> None:
    """Open the MLflow pages of a store (127.0.0.1)."""
    import subprocess

    database = store.resolve() / "mlflow.db"
    if not database.is_file():
        raise UserError(f"store={str(store)!r} holds no mlflow.db; accepted: a folder that eval or demo has written to")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", f"sqlite:///{database}"]
    typer.echo(f"http://127.0.0.1:{port} — Ctrl-C ends it")
    raise typer.Exit(subprocess.call([*command, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]))
