"""The house: data flows one way, and a room imports only rooms before it (the table below)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1] / "harness"
ROOMS = (
    "policy",
    "spec",
    "decode",
    "grading",
    "stats",
    "records",
    "evals",
    "analysis",
    "tracking",
    "tiny",
    "train",
    "sweep",
    "report",
    "bench",
)
ANYWHERE = {"errors", "watch"}  # no rooms: the exception that all may raise; what an engine's processes do first
# What a room may use of our own; everything not named here is forbidden.
ALLOWED = {
    "policy": set(),
    "spec": set(),
    "decode": {"policy", "spec"},
    "grading": {"spec"},
    "stats": set(),
    "records": {"spec", "grading", "stats"},
    "evals": {"spec", "decode", "grading", "stats", "records", "tiny"},
    "analysis": {"spec", "policy", "decode", "stats", "records", "evals", "tiny"},
    "tracking": {"spec", "stats", "records", "evals", "analysis"},
    "train": {"policy", "spec", "grading", "stats", "records"},
    "tiny": {"spec", "decode", "grading", "stats", "train"},
    "bench": {"spec", "policy", "decode", "grading", "records", "evals", "tiny", "train", "report"},
    "report": {"spec", "decode", "stats", "records", "evals", "analysis"},
    "sweep": {"spec", "decode", "stats", "records", "evals", "tracking", "tiny", "train", "training"},
}
FORBIDDEN_THIRD_PARTY = {
    "spec": {"torch", "vllm", "transformers"},
    "grading": {"lm_eval", "torch"},
    "stats": {"torch", "lm_eval"},
    "evals": {"mlflow"},
    "analysis": {"mlflow", "matplotlib"},
    "report": {"mlflow", "torch"},
    "policy": {"transformers", "vllm", "numpy"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            yield node.module


@pytest.mark.parametrize("room", [room for room in ROOMS if (HOUSE / room).is_dir()])
def test_a_room_imports_only_rooms_before_it(room):
    for path in (HOUSE / room).rglob("*.py"):
        for name in imports(path):
            top, *rest = name.split(".")
            if top == "harness" and rest and rest[0] not in {room, *ANYWHERE}:
                assert rest[0] in ALLOWED[room], f"{path.relative_to(HOUSE)} imports harness.{rest[0]}"
            assert top not in FORBIDDEN_THIRD_PARTY.get(room, ()), f"{path.relative_to(HOUSE)} imports {top}"


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("harness", {"torch", "typer", "pydantic"}),
        ("harness._autoload", {"torch", "lm_eval", "vllm", "pydantic", "numpy"}),
        ("harness.watch", {"torch", "lm_eval", "vllm", "pydantic", "numpy"}),
        ("harness.spec", {"torch", "vllm", "transformers", "mlflow", "lm_eval"}),
        ("harness.cli", {"torch", "vllm", "transformers", "mlflow", "lm_eval", "trl", "scipy", "pandas"}),
        ("harness.tiny", {"torch", "transformers"}),
    ],
)
def test_start_up_stays_light(module, heavy):
    code = f"import sys, {module}; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_module_says_what_it_is_for():
    for path in HOUSE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path.relative_to(HOUSE)} has no first line"
