"""docs/paper-map.md: every file, name, sweep and command that it promises is there."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import typer

from harness.cli import app
from harness.cli.sweep import read
from harness.sweep import sweeps_dir

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "paper-map.md").read_text()
SPANS = re.findall(r"`([^`]+)`(?: \(((?:`\w+`(?:, )?)+)\))?", TEXT)
COMMANDS = sorted({span for span, _ in SPANS if span.split()[0] in ("rlvr-dir", "report", "analyse")})
FILES = [(span, re.findall(r"\w+", names)) for span, names in SPANS if re.fullmatch(r"[\w/]+\.(py|yaml)", span)]
SWEEPS = {path.stem for path in sweeps_dir().glob("*.yaml")}
LABEL = re.compile(r"(eqn|alg|lemma|theorem|tab|fig):\w+")


def places(name):
    """Where a file may lie: it is named from the root, from harness/, or as a neighbour of Algorithm 1."""
    return [path for path in (ROOT / name, ROOT / "harness" / name, ROOT / "harness/policy" / name) if path.is_file()]


@pytest.mark.parametrize(("name", "defined"), FILES, ids=lambda value: value if isinstance(value, str) else "")
def test_files_are_there_and_define_what_they_are_named_for(name, defined):
    [path] = places(name)
    if defined:
        there = {each.name for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef)}
        assert [each for each in defined if each not in there and f'"{each}"' not in path.read_text()] == []


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_take_what_is_written(words):
    """Every command, option and sweep of a line is known; nothing is run."""
    arguments = [word for word in shlex.split(words.replace("PAIR", "--pair tiny")) if word not in ("rlvr-dir", "…")]
    command = typer.main.get_command(app)
    while hasattr(command, "list_commands"):
        command = command.get_command(command.context_class(command), arguments.pop(0))
    if arguments and arguments[-1].startswith("--") and arguments[-1] != "--paper":
        arguments.append("PLACE")  # the page names the option alone
    context = command.make_context(command.name, list(arguments), resilient_parsing=True)
    parsed, rest, _ = command.make_parser(context).parse_args(list(arguments))
    assert not rest or command.name == "report", f"{words}: {rest} is left over"
    assert parsed or command.name in ("report", "tokens", "theorem", "curves")
    if words.startswith("rlvr-dir sweep run"):
        assert read(arguments[0], []).name == arguments[0]
    for name in re.findall(r"runs/sweeps/(\w+)", words):
        assert name in SWEEPS


def test_every_table_and_figure_has_a_row():
    """Those that the paper's sections name; a label without a row would be a promise nobody keeps."""
    rows = [row for row in TEXT.splitlines() if row.startswith("|")]
    labels = {match[0] for row in rows for match in LABEL.finditer(row.split("|")[1])}
    tables = {"main", "compare", "rl_minerva", "rl_extra", "param_extra", "full_param_extra", "minerva_param_extra"}
    assert {label.partition(":")[2] for label in labels if label.startswith("tab:")} == tables
    assert sum(label.startswith("fig:") for label in labels) == 15
