"""The house: data flows one way, and a room imports only rooms before it (the table below)."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1] / "harness" / "rlvr_dir"
# What a room may use of our own: rooms before it only, and of these the ones named here.
ROOMS = {
    "grading": set(),
    "policy": set(),
    "stats": set(),
    "config": {"policy", "stats"},
    "tiny": {"config"},
    "records": {"grading", "policy", "config"},
    "checkpoints": {"config", "tiny"},
    "decode": {"policy", "config", "checkpoints"},
    "problems": {"grading", "stats", "config", "tiny", "records", "decode"},
    "bench": {"config", "decode"},
    "results": {"grading", "policy", "stats", "config", "tiny", "records", "problems"},
    "tracking": {"stats", "config", "records", "results"},
    "evals": {"grading", "policy", "config", "tiny", "records", "checkpoints", "decode", "problems", "results"},
    "train": {
        "grading",
        "policy",
        "stats",
        "config",
        "tiny",
        "records",
        "checkpoints",
        "decode",
        "problems",
        "results",
        "evals",
    },
    "lm_eval_model": {"config", "tiny", "records", "checkpoints", "decode", "problems", "results", "tracking", "evals"},
    "analysis": {"policy", "stats", "config", "records", "checkpoints", "decode", "results", "evals"},
    "report": {"policy", "stats", "config", "records", "decode", "results", "train", "analysis"},
    "serve": {"policy", "config", "tiny", "checkpoints", "decode", "report"},
    "sweep": {
        "grading",
        "policy",
        "stats",
        "config",
        "tiny",
        "records",
        "checkpoints",
        "decode",
        "problems",
        "results",
        "tracking",
        "evals",
        "train",
        "report",
    },
    "audit": {
        "policy",
        "stats",
        "config",
        "tiny",
        "records",
        "checkpoints",
        "decode",
        "problems",
        "results",
        "tracking",
        "evals",
        "analysis",
        "report",
        "sweep",
    },
}
# No rooms: digests of contents; the exception that all may raise; how files are written, text is shown and our programs
# are run; whether the hub answers; the table that all print; what is being done, and for how long; what an engine's
# processes do first, before anything heavy is imported.
ANYWHERE = {"digest", "errors", "files", "hub", "markdown", "program", "progress", "progress_display", "text", "watch"}
WORKSHOP = {"benchmarks", "examples", "tests"}  # which may use the product, and it none of them
FORBIDDEN_THIRD_PARTY = {
    "config": {"torch", "vllm", "transformers"},
    "grading": {"lm_eval", "torch"},
    "stats": {"torch", "lm_eval"},
    "problems": {"mlflow"},
    "results": {"mlflow", "torch"},
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


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_before_it(room):
    before = set(list(ROOMS)[: list(ROOMS).index(room)])
    assert ROOMS[room] <= before, f"rlvr_dir.{room} may use what comes after it in the table"
    for path in (HOUSE / room).rglob("*.py"):
        for name in imports(path):
            top, *rest = name.split(".")
            if top == "rlvr_dir" and rest and rest[0] not in {room, *ANYWHERE}:
                assert rest[0] in ROOMS[room], f"{path.relative_to(HOUSE)} imports rlvr_dir.{rest[0]}"
            assert top not in WORKSHOP, f"{path.relative_to(HOUSE)} imports {top}"
            assert top not in FORBIDDEN_THIRD_PARTY.get(room, ()), f"{path.relative_to(HOUSE)} imports {top}"


def test_every_room_is_in_the_table():
    found = {path.name for path in HOUSE.iterdir() if (path / "__init__.py").is_file()}
    assert found - set(ROOMS) == {"cli"}, "the command line may use every room, and none uses it"
    assert {path.stem for path in HOUSE.glob("*.py")} == {"__init__", *ANYWHERE}


def test_tests_stand_in_rooms_of_the_same_names():
    tested = {path.name for path in Path(__file__).parent.iterdir() if (path / "__init__.py").is_file()}
    assert tested - {"examples"} <= set(ROOMS) | {"cli"}


MODULES = {
    ".".join(("rlvr_dir", *path.relative_to(HOUSE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in HOUSE.rglob("*.py")
}


def uses(module):
    """Which of our modules a module imports: at its top, within functions, or for its types alone."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            inner = [f"{node.module}.{each.name}" for each in node.names]
            yield from (name if name in MODULES else node.module for name in inner)


def test_no_imports_go_in_a_circle():
    graph = {name: set(uses(name)) - {name} for name in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("rlvr_dir", {"torch", "typer", "pydantic", "pandas"}),
        ("rlvr_dir_autoload", {"rlvr_dir", "torch", "lm_eval", "vllm", "pydantic", "numpy"}),
        ("rlvr_dir.watch", {"torch", "lm_eval", "vllm", "pydantic", "numpy"}),
        ("rlvr_dir.config", {"torch", "vllm", "transformers", "mlflow", "lm_eval"}),
        ("rlvr_dir.cli", {"torch", "vllm", "transformers", "mlflow", "lm_eval", "trl", "scipy", "pandas"}),
        ("rlvr_dir.tiny", {"torch", "transformers"}),
    ],
)
def test_start_up_stays_light(module, heavy):
    code = f"import sys, {module}; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_module_says_what_it_is_for():
    for path in HOUSE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path.relative_to(HOUSE)} has no first line"
