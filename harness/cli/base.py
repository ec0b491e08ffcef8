"""What every command module shares: how a group of commands is made."""

from typing import Any

import typer

# No rich help: importing it would take half of the time in which `--help` answers.
PLAIN: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}


def group(text: str) -> typer.Typer:
    """Make a group of commands with this help."""
    return typer.Typer(help=text, **PLAIN)
