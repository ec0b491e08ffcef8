"""Whether MLflow's pages understand the view that we save for them; its form is MLflow's own and may change.

The pages that `rlvr-dir ui` starts are files of the installed MLflow: a key that is nowhere in their scripts is one
that an upgrade has done away with. A server's pages are those of its version, which it tells.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from urllib.request import urlopen

from harness.tracking.store import TrackingStore

SEEN = "3.17"  # the version whose pages the view was made for, and tested in a browser
_SECONDS = 5.0  # that a server is given to tell its version
# What the address and the tag of a saved view need, beside the keys of the view itself.
ADDRESS = ("viewStateShareKey", "compareRunsMode", "mlflow.sharedViewState")


def understood(place: TrackingStore, keys: Iterable[str]) -> bool:
    """Tell whether the pages of a store know all these keys of a view; False too where nobody can tell."""
    installed = _installed()
    if place.database is None and _minor(_told(place.uri)) != _minor(installed):
        return _minor(_told(place.uri)) == SEEN
    scripts = _scripts()
    return _known(scripts, (*keys, *ADDRESS)) if scripts else _minor(installed) == SEEN


@cache
def _known(scripts: Path, keys: tuple[str, ...]) -> bool:
    return unknown_keys(scripts, keys) == []


def unknown_keys(scripts: Path, keys: Iterable[str]) -> list[str]:
    """Return the keys that no script of a folder has."""
    left = {key: key.encode() for key in dict.fromkeys(keys)}
    for file in sorted(scripts.glob("*.js")):
        if not left:
            break
        text = file.read_bytes()
        left = {key: code for key, code in left.items() if code not in text}
    return list(left)


def _scripts() -> Path | None:
    """Return the folder of the installed pages' scripts; None where MLflow came without pages."""
    import mlflow

    folder = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"
    return folder if any(folder.glob("*.js")) else None


def _installed() -> str:
    import mlflow

    return mlflow.__version__


@cache
def _told(uri: str) -> str:
    """Return the version that a server tells; empty where it tells none."""
    try:
        with urlopen(f"{uri}/version", timeout=_SECONDS) as answer:
            return answer.read(100).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        return ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
