"""Examples in docstrings give what they say, and the names in docstrings exist."""

import ast
import doctest
import re
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = [
    file.relative_to(ROOT) for file in sorted(ROOT.glob("harness/rlvr_dir/**/*.py")) if ">>> " in file.read_text()
]


@pytest.mark.parametrize("file", EXAMPLES, ids=str)
def test_examples(file):
    module = import_module(".".join(file.relative_to("harness").with_suffix("").parts))
    assert not doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed


FILES = sorted((ROOT / "harness/rlvr_dir").rglob("*.py"))


def parameters(function):
    """All names of a function's parameters."""
    of = function.args
    every = (*of.posonlyargs, *of.args, *of.kwonlyargs, *filter(None, (of.vararg, of.kwarg)))
    return {one.arg for one in every}


def names_in(tree):
    """All identifiers of a module, and the words in its texts but docstrings."""
    owners = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, owners)]
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.findall(r"\w+", node.value)
        for field in ("id", "attr", "arg", "name"):
            if isinstance(name := getattr(node, field, None), str):
                yield from name.split(".")


def test_names_in_docstrings_exist():
    """A parameter was renamed and its docstring not: eight docstrings named parameters that no function had."""
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}
    known = set(chain.from_iterable(map(names_in, trees.values()))) | {"value_low", "value_high"}  # made of `value`
    known |= {"kv_cache_dtype", "red", "simple_evaluate", "log_table"}  # of other programs
    wrong = []
    for file, tree in trees.items():
        functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        for function in functions:
            text, own = ast.get_docstring(function) or "", parameters(function)
            args = re.search(r"Args:\n((?: +.*\n?)+)", text)
            listed = re.findall(r"^    ([\w, *]+):", args[1], re.MULTILINE) if args else []
            missing = {name.strip(" *") for names in listed for name in names.split(",")} - own
            missing |= {name for name in re.findall(r"(?<!`)`([a-z_]+)`(?!`)", text) if name not in own | known}
            wrong += [f"{file.name}:{function.lineno} {function.name}: {name}" for name in sorted(missing)]
    assert wrong == []
