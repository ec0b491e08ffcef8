"""`rlvr-dir` in this process: what a command says, or the sentence with which it refuses."""

from typer.testing import CliRunner

from rlvr_dir.cli import app
from rlvr_dir.errors import UserError


def invoke(*words, **options):
    """Whatever becomes of a command."""
    return CliRunner().invoke(app, list(map(str, words)), **options)


def run(*words):
    """A command that does what it is asked: its exit code, output, stdout and stderr."""
    done = invoke(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def refused(*words):
    """The sentence of a command that refuses."""
    done = invoke(*words)
    assert isinstance(done.exception, UserError), done.output
    return str(done.exception)
