"""Define the command line `rlvr-dir …`: thin commands, one module per group, which import what they need when they
run."""

import os
import re
import sys
import warnings
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from rlvr_dir import __version__
from rlvr_dir.cli.base import PLAIN, CommandGroup, echo, group
from rlvr_dir.errors import UserError
from rlvr_dir.files import REFUSALS
from rlvr_dir.progress import showing
from rlvr_dir.text import visible

HELP = """What did RLVR change in this model, token by token, and can that change be used?

Decodes with a base model and its RL-trained successor at once. Where log π_RL − log π_base is below a threshold, it
replaces base's token, or extrapolates past RL. With no model named, the embedded tiny pair is used.
"""
# Each command, or group of commands, and its module, which is imported when it is called.
USE = {
    "eval": "evaluate:evaluate_command",
    "audit": "audit:audit_command",
    "score": "score:score_command",
    "sweep": "sweep:app",
    "train": "train:train_command",
    "serve": "serve:serve_command",
    "demo": "evaluate:demo",
}
RESULTS = {
    "compare": "evaluate:compare_command",
    "report": "report:report",
    "view": "view:view",
    "table": "evaluate:table_command",
    "analyse": "analyse:app",
    "ui": "track:ui",
}
UPKEEP = {
    "pair": "pair:app",
    "records": "records:app",
    "track": "track:app",
    "data": "data:data_command",
    "keys": "keys:keys_command",
    "bench": "bench:app",
}
COMMANDS = {**USE, **RESULTS, **UPKEEP}

_HOME = re.compile(r"(^|=)~/")  # a shell expands ~ only at the beginning of a word, not in --out=~/runs


class _Commands(CommandGroup):
    """Import the commands one by one."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in three groups."""
        room = formatter.width - 6 - max(map(len, COMMANDS))
        for title, names in {"Use": USE, "Results": RESULTS, "Upkeep": UPKEEP}.items():
            with formatter.section(title):
                by_name = {name: self.get_command(ctx, name) for name in names}
                formatter.write_dl([(name, command.get_short_help_str(room)) for name, command in by_name.items()])

    def list_commands(self, ctx: Any) -> list[str]:
        """Return their names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Make a command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        function = getattr(import_module(f"rlvr_dir.cli.{module}"), name)
        if isinstance(function, typer.Typer):
            command: Any = typer.main.get_group(function)
        else:
            alone = group("")
            alone.command(cmd_name)(function)
            command = typer.main.get_command(alone)
        command.name = cmd_name
        return command


app = typer.Typer(cls=_Commands, help=HELP, add_completion=False, pretty_exceptions_enable=False, **PLAIN)


def _say_version(requested: bool) -> None:
    if requested:
        typer.echo(f"rlvr-dir {__version__}")
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def main(commands: typer.Typer = app) -> None:
    """Run a command. A user's mistake or a failed file access is one line on standard error, with exit status 2."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    warnings.simplefilter("ignore", FutureWarning)  # addressed to developers of libraries
    printed = set[str]()

    def line(message: Warning | str, *_args: Any, **_kwargs: Any) -> str:
        """Return a warning as a line, and a repeated one as nothing: several decodings may share a doubtful gate."""
        text = f"warning: {visible(message, None)}\n"
        repeated = text in printed
        printed.add(text)
        return "" if repeated else text

    warnings.formatwarning = line
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no character is worth the answer that it is part of
    try:
        with showing():
            commands([_HOME.sub(rf"\g<1>{os.path.expanduser('~')}/", word) for word in sys.argv[1:]])
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.errno not in REFUSALS or error.filename is None:
            raise
        echo(f"error: {os.fsdecode(error.filename)} cannot be used: {error.strerror}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
