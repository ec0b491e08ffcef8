"""The checklist for machines where the engine has not run yet: steps of their own, failures as findings."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from benchmarks import checklist, checks
from benchmarks.steps import STEPS
from rlvr_dir.config import Pair
from rlvr_dir.decode.plan import rule_of
from rlvr_dir.policy.gates import gates
from rlvr_dir.policy.rule import Rule

ROOT = Path(__file__).parents[2]
PAIR = Pair(base="x", rl="x")  # of checks that look at none
NOT_THERE = ("lm_eval", "mlflow", "optuna", "datasets", "math_verify", "trl", "ray", "matplotlib", "accelerate")
HIDE = f"""
import importlib.machinery, sys
class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, *rest):
        return None if name.split(".")[0] in {NOT_THERE!r} else super().find_spec(name, *rest)
sys.meta_path[:] = [Finder if each is importlib.machinery.PathFinder else each for each in sys.meta_path]
"""


@pytest.fixture
def bare(tmp_path):
    """An environment in which nothing can be imported that a borrowed machine may lack."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(HIDE)
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path / "hidden"), str(ROOT)])}


@pytest.mark.whole(reason="20 s of Triton's interpreter")
def test_a_step_runs_in_a_process_of_its_own_with_little_installed(tmp_path, bare):
    look = f"from importlib.util import find_spec; print(*filter(find_spec, {NOT_THERE!r}))"
    done = subprocess.run([sys.executable, "-c", look], env={**os.environ, **bare}, capture_output=True, check=True)
    assert done.stdout == b"\n"
    found = checklist.apart("decision", PAIR, {"rows": [4]}, bare, 300, tmp_path / "log")
    assert found.get("output") is None
    assert found["ok"] is True
    assert found["rows"] == 32


@pytest.mark.vllm
def test_a_step_that_fails_is_a_finding_with_the_end_of_its_output(tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    nowhere = str(tmp_path / "nothing")
    found = checklist.apart("shuffle", Pair(base=nowhere, rl=nowhere), {"least": 1.0}, {}, 300, tmp_path / "log")
    assert found["ok"] is False
    assert "nothing' does not exist" in found["error"]


def test_a_step_that_overruns_is_killed_with_all_it_started(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    found = checklist.apart("decision", PAIR, {}, environment, 3, tmp_path / "log")
    assert found["ok"] is False
    assert found["error"] == "killed after 3 s"
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int((tmp_path / "pid").read_text())).wait(60)


def test_the_file_says_after_each_step_how_far_the_run_is(tmp_path, monkeypatch):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    out, seen = tmp_path / "found.json", []
    found = checklist.run_checklist(
        steps="decision,law", limit_s=0.2, out=out,
        say=lambda text: seen.append({k: v["error"] for k, v in json.loads(out.read_text())["steps"].items()}),
    )  # fmt: skip
    running, killed = "the checklist was ended during this step", "killed after 0.2 s"
    assert seen == [
        {"decision": running}, {"decision": killed},
        {"decision": killed, "law": running}, {"decision": killed, "law": killed},
    ]  # fmt: skip
    assert json.loads(out.read_text()) == found


def test_vllm_knows_what_steps_set(monkeypatch):
    """A step that this machine skips, `waits`, would else be the first to find out on a GPU."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from dataclasses import fields

    from vllm import envs
    from vllm.config.observability import ObservabilityConfig
    from vllm.engine.arg_utils import EngineArgs

    for name, step in STEPS.items():
        assert {*step.settings.get("vllm_args", {})} <= {each.name for each in fields(EngineArgs)}, name
        for variable, value in step.environment.items():
            assert variable.startswith("RLVR_DIR_") or variable in envs.environment_variables, name
            monkeypatch.setenv(variable, value)
            assert variable.startswith("RLVR_DIR_") or getattr(envs, variable) is not None
    assert envs.VLLM_GPU_SYNC_CHECK == "error"
    mode = STEPS["waits"].settings["vllm_args"]["jit_monitor_mode"]
    assert ObservabilityConfig(jit_monitor_mode=mode).jit_monitor_mode == "error"


def test_every_gate_and_every_part_of_a_rule_is_met_by_the_gates_step():
    requests = checks.every_rule()
    rows = [rule_of(each.decoding, each.sampling, each.trace) for each in requests]
    assert {row.gate.name for row in rows if row.gate} == set(gates())
    for name in Rule.__slots__:
        assert len({getattr(row, name) for row in rows}) > 1, name
    assert {name for way in checks.SAMPLINGS for name in way} == {"top_p", "temperature"}
    assert {each.trace for each in requests} == {None, 5}
    assert sum(step.check == "gates" for step in STEPS.values()) >= 3


def test_a_step_that_is_not_known_is_skipped_and_the_others_run(tmp_path, monkeypatch):
    """An older list of steps on a rented machine does not cost the call; the exit status still says it."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    said = []
    found = checklist.run_checklist(steps="decison,decision", limit_s=0.2, out=tmp_path / "found.json", say=said.append)
    assert found["steps"]["decison"] == {"ok": False, "skipped": "there is no such step"}
    assert found["steps"]["decision"]["error"] == "killed after 0.2 s"
    assert json.loads((tmp_path / "found.json").read_text())["steps"] == found["steps"]
    assert said[0].startswith("decison: skipped, ")
    assert "'decision'" in said[0]
    monkeypatch.setattr(sys, "argv", ["checklist", "--steps", "none-such", "--out", str(tmp_path / "other.json")])
    with pytest.raises(SystemExit) as ended:
        checklist.main()
    assert ended.value.code == 1
