"""`rlvr-dir …`: thin commands, a module a group; each command imports what it needs when it runs."""

import os
import re
import sys
import warnings
from io import TextIOWrapper

import typer

from harness.cli import (
    analyse,
    bench,
    data,
    evaluate,
    exchange,
    pair,
    records,
    report,
    serve,
    sweep,
    tiny,
    track,
    train,
    view,
)
from harness.cli.base import PLAIN, echo
from harness.errors import UserError
from harness.files import REFUSALS
from harness.progress import showing
from harness.text import visible

HELP = """What did RLVR change in this model, token by token, and can that change be used?

Decodes with a base model and its RL-trained successor at once, replaces or extrapolates tokens where
log pi_RL - log pi_Base says so, and scores the result. With no model named, the embedded tiny pair is used.
"""

_HOME = re.compile(r"(^|=)~/")  # a shell makes a home of it at the beginning of a word only: not in --out=~/runs

app = typer.Typer(help=HELP, add_completion=False, pretty_exceptions_enable=False, **PLAIN)
app.command("eval")(evaluate.evaluate_command)
app.command("compare")(evaluate.compare_command)
app.command("table")(evaluate.table_command)
app.command("demo")(evaluate.demo)
app.command("report")(report.report)
app.command("export")(exchange.export_command)
app.command("train")(train.train_command)
app.command("data")(data.data_command)
app.command("view")(view.view)
app.command("ui")(track.ui)
app.command("serve")(serve.serve_command)
app.add_typer(analyse.app, name="analyse")
app.add_typer(pair.app, name="pair")
app.add_typer(tiny.app, name="tiny")
app.add_typer(bench.app, name="bench")
app.add_typer(records.app, name="records")
app.add_typer(sweep.app, name="sweep")
app.add_typer(track.app, name="track")


def main() -> None:
    """Run a command; a user's mistake, or a file system's refusal, is one line on standard error and exit status 2."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    warnings.simplefilter("ignore", FutureWarning)  # libraries telling each other
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"warning: {visible(message, None)}\n"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no character is worth the answer that it is part of
    try:
        with showing():
            app([_HOME.sub(rf"\g<1>{os.path.expanduser('~')}/", word) for word in sys.argv[1:]])
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
