"""The command line as a person meets it: help that lists what there is; mistakes are one line and exit status 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RLVR_DIR = Path(sys.executable).with_name("rlvr-dir")


def run(*arguments, **environment):
    return subprocess.run(
        [RLVR_DIR, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **environment},
    )


def test_help_names_every_command():
    done = run("--help")
    assert done.returncode == 0
    for command in ("eval", "demo", "ui", "tiny", "bench"):
        assert f" {command} " in done.stdout
    assert "Δ" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eval", "--tasks", "aime99"], "task='aime99' is not known; accepted: "),
        (["eval", "--tasks", "tiny_easy", "--mode", "nope"], "mode='nope' is refused"),
        (["eval", "--tasks", "tiny_easy", "--mode", "replace"], "tau is missing"),
        (["eval", "--tasks", "tiny_easy", "--pair", "dapo"], "pair='dapo' is not known"),
        (["eval", "--tasks", "tiny_easy", "--base", "x"], "is only half a pair"),
        (["eval", "--tasks", "tiny_easy", "--top-p", "0"], "top_p=0.0 is refused"),
        (["ui", "--store", "/nonexistent"], "store='/nonexistent' holds no mlflow.db"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_status_2(arguments, words):
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == done.stderr.splitlines()[-1:]


def test_missing_data_is_said_before_any_model_loads():
    done = run("eval", "--tasks", "aime24", "--pair", "dapo-32b", RLVR_DIR_DATA="/nonexistent", HF_HUB_OFFLINE="1")
    assert done.returncode == 2
    assert "RLVR_DIR_DATA" in done.stderr
    assert "Traceback" not in done.stderr


def test_eval_end_to_end_on_the_reference_engine(tmp_path):
    done = run(
        "eval", "--tasks", "tiny_easy", "--mode", "replace", "--tau", "-0.3", "--samples", "2", "--limit", "3",
        "--backend", "transformers", "--max-tokens", "60", "--out", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "replace τ-0.3" in done.stdout
    assert "tiny pair" in done.stderr
    [result] = tmp_path.glob("tiny_easy-*.json")
    from harness.evals import EvalResult

    read = EvalResult.from_json(result.read_text())
    assert read.correct.shape == (3, 2)
    assert read.decoding.tau == -0.3
    assert (tmp_path / "mlflow.db").is_file()
