"""A training through verl is followed, ended and gone on with, whatever happens to it; a stand-in replaces verl."""

import json
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from rlvr_dir.errors import UserError
from rlvr_dir.grading import code_digest
from rlvr_dir.train import TrainingSource, TrainSpec, load_train
from rlvr_dir.train.folder import SeedFolder
from rlvr_dir.train.run import TrainerError
from rlvr_dir.train.run import run_training as train
from rlvr_dir.train.verl.run import last_step, saved_steps
from tests.broken import alive
from tests.facts import refuses

ROWS = [{"prompt": [{"role": "user", "content": f"{n} + 1?"}], "answer": str(n + 1)} for n in range(4)]
SOURCE = TrainingSource("base/model", lambda seed: ROWS)
STEPS = 5
VERSIONS = {"verl": "0.9.1.post2", **{name: version(name) for name in ("rlvr-dir", "math-verify")}}


@pytest.fixture
def standin(tmp_path):
    """The stand-in's program; `plan` beside it says what the next training does."""
    file = tmp_path / "standin" / "python"
    file.parent.mkdir()
    file.write_text(f"#!{sys.executable}\n" + Path(__file__).with_name("standin.py").read_text())
    file.chmod(0o755)
    answer(file)
    return file


def answer(standin, grader=None, **versions):
    """Have the stand-in say what is installed there."""
    standin.with_name("answer.json").write_text(json.dumps([VERSIONS | versions, grader or code_digest()]))


def plan(standin, **what):
    (standin.parent / "plan.json").write_text(json.dumps(what))


def spec(standin, **changes) -> TrainSpec:
    verl = {"python": str(standin), "gpus_per_node": 1, **changes.pop("verl", {})}
    dapo = {"steps": STEPS, "prompts": 4, "samples": 2, "minibatches": 2, **changes.pop("dapo", {})}
    return load_train(
        {"backend": "verl", "base": "base/model", "data": "problems.jsonl", "checkpoint_every": 2, "verl": verl,
         "dapo": dapo, **changes}
    )  # fmt: skip


def steps(folder: SeedFolder) -> list[int]:
    return [record["step"] for record in folder.records() if "validation" not in record]


def wait_for(condition, seconds=300):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def test_a_training_from_arguments_to_summary(standin, tmp_path):
    out, told, done = tmp_path / "x", [], []
    asked = spec(standin, seeds=[3, 4], dapo={"method": "low_prob"})
    options = {"say": lambda text: None, "on_record": lambda seed, record: told.append((seed, record["step"]))}
    summary = train(asked, out, SOURCE, **options, on_seed=lambda seed, folder: done.append((seed, folder.path.name)))
    folder = SeedFolder(out / "seed-3")
    first, *lines = folder.records()
    assert first == {"step": 0, "validation": {}, "verl": {"val-core/held/acc/mean@8": 0.25}}
    assert steps(folder) == [1, 2, 3, 4, 5]
    assert lines[0]["accuracy"] == 0.1
    assert lines[0]["groups"] == {"kept": 4, "dropped": 3}
    assert lines[0]["weight"] == lines[0]["verl"]["actor/advantage_weight"] == 1.1
    assert told == [(seed, step) for seed in (3, 4) for step in range(STEPS + 1)]
    assert done == [(3, "seed-3"), (4, "seed-4")]
    assert json.loads((folder.rl / "config.json").read_text()) == {"step": STEPS}
    assert json.loads(folder.pair.read_text()) == {"base": "base/model", "rl": "rl"}
    assert folder.outcome()["versions"]["verl"] == VERSIONS["verl"]
    arguments = (folder.path / "verl/overrides.txt").read_text().splitlines()
    variables = "+ray_kwargs.ray_init.runtime_env.env_vars"  # of every process: our plugin, and where verl logs
    assert f"{variables}.VERL_USE_EXTERNAL_MODULES='rlvr_dir.train.verl.plugin,rlvr_dir.train.verl.hook'" in arguments
    assert f"{variables}.VERL_FILE_LOGGER_PATH={folder.path}/verl/log-1.jsonl" in arguments
    assert summary.seeds["4"].dropped == 3 * STEPS
    assert "of the last step that were learned from." in (out / "summary.md").read_text()
    assert "rollouts that were learned from by step: 0.10, 0.20," in (folder.rl / "README.md").read_text()
    again = []
    train(asked, out, SOURCE, say=again.append)
    assert again == ["seed 3 is done", "seed 4 is done"]


@pytest.mark.parametrize(("checkpoint", "step"), [("best(held)", 2), (4, 4)])
def test_the_trained_model_is_the_best_of_the_checkpoints_by_verls_own_validations(standin, tmp_path, checkpoint, step):
    """Steps 2, 4 and 5 have checkpoints; step 3 scores best and has none, and 2 is as good as 4."""
    held = tmp_path / "held.jsonl"
    held.write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    plan(standin, right=[1, 6, 8, 6, 5])
    asked = spec(
        standin,
        checkpoint=checkpoint,
        validation={"every": 1, "sampling": {"samples": 8}},
        verl={"val_data": str(held)},
    )
    train(asked, tmp_path / "x", SOURCE, say=lambda text: None)
    folder = SeedFolder(tmp_path / "x/seed-0")
    assert json.loads((folder.rl / "config.json").read_text()) == {"step": step}
    assert json.loads(folder.choice.read_text()) == {"checkpoint": checkpoint, "step": step}
    scores = {r["step"]: r["validation"]["held"] for r in folder.records() if r.get("validation")}
    assert {at: score["right"] for at, score in scores.items()} == {
        at: {"0": right} for at, right in enumerate([1, 6, 8, 6, 5], 1)
    }
    assert scores[2]["avg"] == 0.75
    with refuses("checkpoint", "3"):
        spec(standin, checkpoint=3)


def test_a_validation_is_drawn_once_where_a_training_goes_on(standin, tmp_path):
    """verl validates before its first step, also of a run that goes on: a second draw of a point that is there."""
    held = tmp_path / "held.jsonl"
    held.write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    plan(standin, right=[1, 6, 8, 6, 5], crash_at=4)
    asked = spec(
        standin, checkpoint_every=1, validation={"every": 1, "sampling": {"samples": 8}}, verl={"val_data": str(held)}
    )
    with pytest.raises(TrainerError):
        train(asked, tmp_path / "x", SOURCE, say=lambda text: None)
    train(asked, tmp_path / "x", SOURCE, say=lambda text: None)
    records = SeedFolder(tmp_path / "x/seed-0").records()
    assert [record["step"] for record in records if "validation" in record] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("plans", "words"),
    [
        (
            {"crash_at": 4},
            r"^seed 0: verl ended with status 1; .*; see ",
        ),
        ({"stop_at": 4}, "verl ended without an error, and its last checkpoint is of step 2 of 5; see "),
    ],
    ids=["crash", "early end"],
)
def test_a_failure_is_one_sentence_and_the_same_call_goes_on(standin, tmp_path, plans, words):
    plan(standin, **plans)
    output = tmp_path / "x/seed-0/verl/output-1.txt"
    with pytest.raises(TrainerError, match=words) as refusal:
        train(spec(standin), tmp_path / "x", SOURCE, say=lambda text: None)
    assert str(refusal.value).endswith(f"see {output}")
    text = output.read_text()
    assert ("CUDA out of memory at step 4" in text) == ("crash_at" in plans)
    said = []
    train(spec(standin), tmp_path / "x", SOURCE, say=said.append)
    assert said == ["seed 0: resuming after step 2", "seed 0: merging the checkpoint of step 5"]
    folder = SeedFolder(tmp_path / "x/seed-0")
    assert [record["step"] for record in folder.records()] == [0, 1, 2, 3, 4, 5]


def test_what_a_listener_raises_ends_the_trainer(standin, tmp_path):
    class Pruned(Exception):
        pass

    file = standin.with_name("pid")

    def prune(seed, record):
        if record["step"] == 2:
            wait_for(file.exists)
            raise Pruned

    plan(standin, hang_at=3)
    with pytest.raises(Pruned):
        train(spec(standin), tmp_path / "x", SOURCE, say=lambda text: None, on_record=prune)
    assert not alive(int(file.read_text()))
    train(spec(standin), tmp_path / "x", SOURCE, say=lambda text: None)
    assert (tmp_path / "x/summary.md").is_file()


COMMAND = [
    sys.executable, "-m", "rlvr_dir.cli", "train", "--backend", "verl", "--steps", "5", "--no-track",
    "--base", "base/model",
    "--set", "dapo.prompts=4", "--set", "dapo.samples=2", "--set", "dapo.minibatches=2", "--set", "checkpoint_every=2",
    "--set", "verl.gpus_per_node=1",
]  # fmt: skip


def command(standin, out):
    data = standin.with_name("problems.jsonl")
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return [*COMMAND, "--data", str(data), "--set", f"verl.python={standin}", "--out", str(out)]


@pytest.mark.whole(reason="commands that are killed, in processes of their own")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_trainer_ends_however_the_command_ends(standin, tmp_path, number):
    plan(standin, hang_at=4)
    out, file = tmp_path / "x", standin.with_name("pid")
    with subprocess.Popen(command(standin, out), stderr=subprocess.PIPE, text=True) as ours:
        try:
            wait_for(lambda: file.exists() or ours.poll() is not None)
            assert ours.poll() is None, ours.stderr.read()
            pid = int(file.read_text())
            assert alive(pid)
            wait_for(lambda: steps(SeedFolder(out / "seed-0")) == [1, 2, 3])
            ours.send_signal(number)
            ours.communicate()
        finally:
            ours.kill()
    assert ours.returncode == {signal.SIGINT: 130}.get(number, -number)
    wait_for(lambda: not alive(pid))
    done = subprocess.run(command(standin, out), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "after step 2" in done.stderr
    assert steps(SeedFolder(out / "seed-0")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        ({"verl": "0.5.0"}, r"has verl 0.5.0.*>=0.9.1,<0.10"),
        ({"verl": "0.9.0"}, r"has verl 0.9.0.*>=0.9.1,<0.10"),
        ({"verl": "0.10.0"}, r"has verl 0.10.0.*>=0.9.1,<0.10"),
        ({"rlvr-dir": "0.0.1"}, rf"has rlvr-dir 0.0.1.*{VERSIONS['rlvr-dir']}"),
        ({"math-verify": "1"}, rf"has math-verify 1.*{VERSIONS['math-verify']}"),
        ({"grader": "0"}, "grades with .*code of rlvr-dir"),
    ],
)
def test_an_environment_of_other_versions_is_refused_before_anything_starts(standin, tmp_path, installed, words):
    answer(standin, **installed)
    with pytest.raises(UserError, match=r"^verl\.python=\S+ " + words):
        train(spec(standin), tmp_path / "x", SOURCE)
    assert not (tmp_path / "x").exists()


def test_no_environment_and_refused_arguments_are_one_sentence_before_anything_starts(standin, tmp_path):
    with refuses("verl.python", "/no/such"):
        train(spec(standin, verl={"python": "/no/such"}), tmp_path / "x", SOURCE)
    with refuses("verl.python", "/bin/false"):
        train(spec(standin, verl={"python": "/bin/false"}), tmp_path / "x", SOURCE)
    with refuses("verl.python"):
        train(spec(standin, verl={"python": sys.executable}), tmp_path / "x", SOURCE)
    standin.with_name("refusal").write_text("WARNING:root:no GPU\nCould not override 'data.x'.\nTo append use +data.x")
    with refuses("data.x", "+data.x"):
        train(spec(standin), tmp_path / "x", SOURCE)
    assert not (tmp_path / "x").exists()


def test_data_that_verl_cannot_take_is_named(standin, tmp_path):
    with refuses("dapo.prompts", "4", "3"):
        train(spec(standin), tmp_path / "x", TrainingSource("b", lambda seed: ROWS[:3]))
    with refuses("0", "problems.jsonl"):
        train(
            spec(standin), tmp_path / "x", TrainingSource("b", lambda seed: [{**row, "prompt": "1?"} for row in ROWS])
        )


def test_checkpoints_are_those_that_verl_has_finished(tmp_path):
    assert (last_step(tmp_path), saved_steps(tmp_path)) == (0, [])
    for step, part in ((2, "data"), (4, "actor"), (6, "actor"), (8, "actor")):  # of 2 verl deleted the actor
        (tmp_path / f"global_step_{step}" / part).mkdir(parents=True)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("6")  # 8 was being written
    assert (last_step(tmp_path), saved_steps(tmp_path)) == (6, [4, 6])
