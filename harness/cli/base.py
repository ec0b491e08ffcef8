"""Share what every command module needs: how a group of commands is made, and how a line is printed."""

import json
from typing import Any

import typer

from harness.text import visible

# No rich help: importing it would take half of the time in which `--help` answers.
PLAIN: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}


def group(text: str) -> typer.Typer:
    """Make a group of commands with this help."""
    return typer.Typer(help=text, **PLAIN)


def echo(text: object, *, err: bool = False, lines: bool = False) -> None:
    """Print a line, in which names may be anybody's; with `lines` the line breaks in it are ours and stay."""
    typer.echo(visible(text, None, "\n" if lines else ""), err=err)


def echo_json(data: object) -> None:
    """Print JSON; what cannot be seen is escaped as JSON does it."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    typer.echo("".join(c if visible(c, keep="\n") == c else json.dumps(c)[1:-1] for c in text))
