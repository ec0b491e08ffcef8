"""Make the command line of a measurement from its function: an option per parameter, JSON on standard output."""

import argparse
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

from rlvr_dir.errors import UserError


def run(
    measure: Callable[..., dict[str, Any]],
    show: Callable[[dict[str, Any]], str] | None = None,
    without: tuple[str, ...] = (),
) -> None:
    """Run the measurement with the command line's options, and print the result with `show`, or as JSON with `--json`.

    A tuple is written with commas; parameters in `without` keep their defaults.
    """
    about = inspect.getdoc(measure) or ""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="JSON, where it would be a table")
    for name, parameter in inspect.signature(measure).parameters.items():
        if name not in ("say", *without):
            parser.add_argument(f"--{name.replace('_', '-')}", **_how(parameter.default))
    asked = vars(parser.parse_args())
    as_json = asked.pop("json")
    try:
        found = measure(**asked, say=lambda text: print(text, file=sys.stderr))
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    print(show(found) if show and not as_json else json.dumps(found, indent=1))


def _how(default: Any) -> dict[str, Any]:
    """Return how an option with this default is read."""
    if isinstance(default, bool):
        return {"action": "store_true"}
    if isinstance(default, tuple):
        return {"type": lambda text: tuple(map(type(default[0]), text.split(","))), "default": default}
    return {"type": str if default is None else type(default), "default": default}
