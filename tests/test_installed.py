"""An installed rlvr-dir: what the wheel carries, and that it leaves other projects of its environment alone."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import hatchling.build
import pytest
import typer

ROOT = Path(__file__).parents[1]
MODULES = {"rlvr_dir_autoload.py", "rlvr_dir_autoload.pth", "rlvr_dir/__init__.py"}


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    """Two environments with nothing of ours but the wheel, once as it is and once editable; other packages are ours.

    A folder that a `.pth` file names is on the path, and its own `.pth` files do not count.
    """
    folder, before = tmp_path_factory.mktemp("environments"), Path.cwd()
    os.chdir(ROOT)
    try:
        built = {
            "wheel": hatchling.build.build_wheel(str(folder)),
            "editable": hatchling.build.build_editable(str(folder / "editable")),
        }
    finally:
        os.chdir(before)
    for kind, name in built.items():
        venv.create(folder / kind / "venv", symlinks=True)
        [site] = (folder / kind / "venv/lib").glob("python*/site-packages")
        zipfile.ZipFile(folder / ("" if kind == "wheel" else "editable") / name).extractall(site)
        (site / "others.pth").write_text(f"{Path(typer.__file__).parents[1]}\n")
    return {kind: (folder / kind / "venv/bin/python", site_of(folder / kind / "venv")) for kind in built}


def site_of(environment):
    [site] = (environment / "lib").glob("python*/site-packages")
    return site


PROGRESS = re.compile(r"decode[:,]|[a-z ]+ \d\d:\d\d$")  # how far it is, and what it has been at for a second or more


def run(python, *words, cwd, **environment):
    """What a program prints, in an environment of its own; on stderr nothing but progress."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RLVR_DIR", "PYTHON"))}
    done = subprocess.run(
        [python, *words], capture_output=True, text=True, cwd=cwd, check=False, env=clean | environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not [line for line in done.stderr.splitlines() if not PROGRESS.match(line)]
    return done.stdout.split()


COMMAND = "from rlvr_dir.cli import main; main()"


THEIRS = ("harness", "config", "tasks", "train")
EVALUATES = """import harness, config, tasks, train
import rlvr_dir
asked = rlvr_dir.EvalSpec(
    tasks="tiny_easy", limit=2, decodings="rl", sampling={"samples": 1, "max_tokens": 64},
    engine={"backend": "transformers"},
)
[result] = rlvr_dir.evaluate(asked)
print(harness.name, config.name, tasks.name, train.name, result.task)
"""


@pytest.fixture
def project(tmp_path):
    """Somebody's project with packages of its own that have names of our rooms and folders."""
    for name in THEIRS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"name = 'own-{name}'\n")
    (tmp_path / "main.py").write_text(EVALUATES)
    return tmp_path


@pytest.mark.parametrize("kind", ["wheel", "editable"])
@pytest.mark.parametrize("variables", [{}, {"RLVR_DIR_NO_AUTOLOAD": "1"}, {"PYTHONPATH": "."}])
def test_the_start_up_hook_and_the_command_work_beside_such_packages(environments, project, kind, variables):
    python, _ = environments[kind]
    hooked = "import sys; print(any(getattr(f, '__module__', '') == 'rlvr_dir_autoload' for f in sys.meta_path))"
    assert run(python, "-c", hooked, cwd=project, **variables) == [str("RLVR_DIR_NO_AUTOLOAD" not in variables)]
    assert run(python, "-c", COMMAND, "--version", cwd=project, **variables)[0] == "rlvr-dir"


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_a_project_with_such_packages_of_its_own_evaluates(environments, project, kind):
    python, _ = environments[kind]
    own = [f"own-{name}" for name in THEIRS]
    assert run(python, "main.py", cwd=project, OMP_NUM_THREADS="1") == [*own, "tiny_easy"]


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_a_second_checkout_whose_folder_comes_first_runs_its_own_code(environments, tmp_path, kind):
    python, _ = environments[kind]
    ignored = shutil.ignore_patterns("__pycache__", "*.safetensors")
    shutil.copytree(ROOT / "harness", tmp_path / "harness", ignore=ignored)
    shutil.copytree(ROOT / "tasks", tmp_path / "tasks")
    about = tmp_path / "harness/rlvr_dir/__init__.py"
    about.write_text(about.read_text() + '__version__ = "second"\n')
    first = {"PYTHONPATH": str(tmp_path / "harness")}
    assert run(python, "-c", COMMAND, "--version", cwd=ROOT / "docs", **first) == ["rlvr-dir", "second"]
    assert run(python, "-m", "rlvr_dir.cli", "--version", cwd=tmp_path / "harness") == ["rlvr-dir", "second"]
    code = "import lm_eval.models, rlvr_dir.lm_eval_model.args; print(rlvr_dir.__version__, rlvr_dir.__file__)"
    assert run(python, "-c", code, cwd=tmp_path / "harness", OMP_NUM_THREADS="1") == ["second", str(about)]


def test_the_wheel_and_the_source_package_carry_all_modules(environments, tmp_path, monkeypatch):
    _, site = environments["wheel"]
    carried = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert carried >= MODULES | {
        "rlvr_dir/_data/tasks/_math.yaml",
        "rlvr_dir/_data/sweeps/tiny_tau_gamma.yaml",
    }
    assert not [path for path in carried if path.startswith(("tests/", "benchmarks/", "tasks/", "sweeps/"))]
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / hatchling.build.build_sdist(str(tmp_path))) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert packed >= {f"harness/{name}" for name in MODULES} | {"tasks/_math.yaml", "tests/test_installed.py"}


def test_importing_the_public_module_loads_nothing_heavy_and_all_its_names_are_there(environments, tmp_path):
    python, _ = environments["wheel"]
    code = (
        "import sys; before = set(sys.modules); import rlvr_dir\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))\n"
        "assert all(getattr(rlvr_dir, name) for name in rlvr_dir.__all__)"
    )
    assert run(python, "-c", code, cwd=tmp_path, OMP_NUM_THREADS="1") == ["rlvr_dir"]


def install(folder, lock, *programs, **environment):
    """What `make` runs, with nothing on the path but some programs; also what a uv that is among them was asked for."""
    (folder / "bin").mkdir()
    (folder / "bin/uv").write_text(f'#!/bin/sh\necho "$@" > {folder}/uv\nexit 3\n')
    (folder / "bin/uv").chmod(0o755)
    for name in ("bash", "sh", "grep", "cat", "python3.11"):
        (folder / "bin" / name).symlink_to(sys.executable if name == "python3.11" else shutil.which(name))
    for name in {"python3.11", "uv"} - {*programs}:
        (folder / "bin" / name).unlink()
    (folder / "lock").write_text(lock)
    variables = {"PATH": str(folder / "bin"), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, **environment}
    command = [ROOT / "requirements/install.sh", folder / "new", folder / "lock"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=variables, check=False)
    return done, (folder / "uv").read_text().split() if (folder / "uv").exists() else None


def test_the_torch_that_pip_does_not_find_is_asked_of_uv(tmp_path):
    done, asked = install(tmp_path, "numpy==2.3.5\ntorch==2.13.0+cpu\n", "python3.11", "uv")
    python = str(tmp_path / "new/bin/python")
    assert asked == [
        *("pip", "install", "--quiet", "--python", python, "--no-deps"), "--torch-backend", "cpu", "torch==2.13.0+cpu"
    ]  # fmt: skip
    assert done.returncode == 3
    assert not (tmp_path / "new/.installed").exists()


def test_where_there_is_no_python_311_uv_brings_one(tmp_path):
    done, asked = install(tmp_path, "", "uv")
    assert asked == ["venv", "--quiet", "--seed", "--allow-existing", "--python", "3.11", str(tmp_path / "new")]
    assert done.returncode == 3


def test_what_cannot_be_installed_is_said_in_one_sentence(tmp_path):
    for name, variables, said in (
        ("no uv", {}, "make: python3.11 is not installed, and uv, which would help, cannot be installed; accepted: "),
        ("no such python", {"PYTHON": "python3.10"}, "make: PYTHON=python3.10 is not installed; accepted: "),
    ):
        (tmp_path / name).mkdir()
        done, asked = install(tmp_path / name, "", **variables)
        assert (done.returncode, asked) == (2, None)
        assert done.stderr.splitlines()[-1].startswith(said)
