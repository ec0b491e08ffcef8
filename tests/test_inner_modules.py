"""Imports of other programs' inner modules, which nobody promises: one table, each resolved without being imported."""

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import transformers

ROOT = Path(__file__).parents[1]
INSTALLED = Path(transformers.__file__).parents[1]
# By package: the distribution that has it, where it is not the same. verl is in an environment of its own.
PROGRAMS = {"vllm": "vllm", "trl": "trl", "mlflow": "mlflow", "lm_eval": "lm-eval", "transformers": "transformers",
            "optuna": "optuna", "math_verify": "math-verify", "verl": "verl"}  # fmt: skip


def inner_imports():
    """`module: names` of all code of the product, with the files that import them."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and "." in node.module:
                for name in node.names if node.module.partition(".")[0] in PROGRAMS else ():
                    found.setdefault((node.module, name.name), set()).add(
                        path.relative_to(ROOT / "harness").as_posix().removeprefix("rlvr_dir/")
                    )
    return found


IMPORTS = inner_imports()


class Sources:
    """The Python files of an installed package, or of a wheel, by their names."""

    def __init__(self, place):
        self._wheel = zipfile.ZipFile(place) if place.suffix == ".whl" else None
        self._names, self._place = set(self._wheel.namelist()) if self._wheel else set(), place

    def read(self, name):
        if self._wheel:
            return self._wheel.read(name).decode() if name in self._names else None
        return (self._place / name).read_text() if (self._place / name).is_file() else None

    def module(self, module):
        """The text of a module, and whether it is a package."""
        stem = module.replace(".", "/")
        text = self.read(f"{stem}.py")
        return (text, False) if text is not None else (self.read(f"{stem}/__init__.py"), True)

    def defines(self, module, name, seen=frozenset()):
        """Whether a module has a name: defined, imported, promised by a lazy package, or a module below it."""
        text, package = self.module(module)
        if text is None or module in seen:
            return False
        if package and self.module(f"{module}.{name}")[0] is not None:
            return True
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
                return True
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
                return True
            if isinstance(node, ast.Constant) and node.value == name and package:
                return True
            if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == name for each in node.names):
                return True
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                above = ".".join(module.split(".")[: len(module.split(".")) - node.level + package])
                inner = ".".join(filter(None, [above if node.level else "", node.module]))
                if self.defines(inner, name, seen | {module}):
                    return True
        return False


# Where a release has moved a module, and our code knows both places.
MOVED = {"vllm.entrypoints.launchers.cli_args": "vllm.entrypoints.common.cli_args"}
MOVED |= {new: old for old, new in MOVED.items()}


def missing(sources, program):
    """The imports of a program that some sources do not have, at neither place of what has moved."""
    return [
        f"{module}: {name}"
        for module, name in sorted(IMPORTS)
        if module.partition(".")[0] == program
        and not any(sources.defines(place, name) for place in {module, MOVED.get(module, module)})
    ]


def test_all_stand_in_one_table():
    """docs/decisions.md has a row for each: module, names, files."""
    text = (ROOT / "docs/decisions.md").read_text()
    section = text.partition("## Other programs' inner modules")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    listed = {(module, name): files for module, names, files in rows for name in re.findall(r"`(\w+)`", names)}
    assert sorted(listed) == sorted(IMPORTS)
    assert [key for key, files in listed.items() if not {*re.findall(r"`([^`]+)`", files)} >= IMPORTS[key]] == []


@pytest.mark.parametrize("program", sorted(set(PROGRAMS) - {"verl"}))
def test_the_installed_version_has_them(program):
    if not (INSTALLED / program).is_dir():
        pytest.skip(f"{program} is not installed")
    assert missing(Sources(INSTALLED), program) == []


@pytest.mark.whole(reason="verl's environment")
def test_verl_has_them():
    places = list((ROOT / ".venv-verl/lib").glob("python*/site-packages/verl"))
    if not places:
        pytest.skip("there is no verl: `make verl-env` makes its environment")
    assert missing(Sources(places[0].parent), "verl") == []


@pytest.mark.whole(reason="it downloads the newest wheels, 400 MB")
@pytest.mark.parametrize("program", sorted(set(PROGRAMS) - {"verl"}))
def test_the_newest_wheel_has_them(program, tmp_path):
    """Nothing is installed."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    done = subprocess.run([*command, "-d", tmp_path, PROGRAMS[program]], capture_output=True, text=True, check=False)
    if done.returncode and re.search("No matching distribution|connection|Connection|timed out", done.stderr):
        pytest.skip("the package index cannot be asked")
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert missing(Sources(wheel), program) == []
