"""The parts of a sweep that need no engine: who is alive, which GPUs, a torn journal, the command line."""

import json
import subprocess
import sys

import pytest

from harness.cli.sweep import read
from harness.errors import UserError
from harness.sweep.fleet import gpus
from harness.sweep.folder import SweepFolder
from harness.sweep.owner import Owner, gone
from harness.sweep.run import status
from harness.sweep.storage import mend
from harness.sweep.trials import Trials
from tests.sweep.made import sweep
from tests.test_cli import run


def test_an_owner_is_gone_when_its_process_has_ended_however_it_ended(tmp_path):
    code = f"from harness.sweep.owner import Owner; from pathlib import Path; o = Owner(Path({str(tmp_path)!r}))"
    code += "; import json; print(json.dumps(o.facts), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        owner = json.loads(process.stdout.readline())
        assert owner["pid"] == process.pid
        assert not gone(owner, tmp_path)
        assert not gone({**owner, "host": "elsewhere", "pid": 1}, tmp_path), "the file counts, from any host"
        process.kill()
        process.wait()
        assert gone(owner, tmp_path)


def test_an_owner_that_released_its_claims_or_never_had_a_lock_is_gone(tmp_path):
    mine = Owner(tmp_path)
    assert not gone(mine.facts, tmp_path)
    mine.release()
    assert gone(mine.facts, tmp_path)
    assert gone(None, tmp_path)
    assert gone({"host": "elsewhere", "pid": 7, "start": "1"}, tmp_path), "as earlier code wrote it"


def test_a_trial_whose_owner_has_ended_is_retired_and_its_point_tried_again(tmp_path):
    folder = SweepFolder.of(sweep(), tmp_path)
    folder.make()
    point = {"pair": "tiny", "decode.tau": -0.3, "decode.gamma": 0.0}
    first, second = Trials(sweep(), folder), Trials(sweep(), folder)
    first.ensure([point])
    assert first.ask().point == point
    assert second.retire() == [], "its owner is alive"
    first.release()
    assert second.retire() == [point]
    assert second.ensure([point]) == 1
    again = second.ask()
    assert (again.trial.user_attrs["attempt"], again.trial.user_attrs["retry_of"]) == (2, 0)


def test_what_was_interrupted_is_no_failure_and_what_was_done_since_is_none_either(tmp_path):
    spec = sweep()
    folder = SweepFolder.of(spec, tmp_path)
    folder.make()
    points = [{"pair": "tiny", "decode.tau": tau, "decode.gamma": 0.0} for tau in (-0.3, -0.2, -0.1)]
    trials = Trials(spec, folder)
    trials.ensure(points)
    asked = [trials.ask() for _ in points]
    with pytest.raises(KeyboardInterrupt), trials.failing(asked[:2], counted=False):
        raise KeyboardInterrupt
    with pytest.raises(RuntimeError), trials.failing(asked[2:], counted=False):
        raise RuntimeError("no")
    told = status(folder, spec)
    assert "points; 2 interrupted, 1 failed; references: 0 complete" in told
    assert told.count("failed: ") == 1
    assert "failed: trial 2: RuntimeError: no" in told
    assert "KeyboardInterrupt" not in told
    trials.ensure(points)
    for _ in points:
        trials.finish(trials.ask(), [], {"avg_at_2": 0.5})
    assert "points; 3 complete; references: 0 complete" in status(folder, spec)
    assert "failed" not in status(folder, spec)


def test_every_worker_has_gpus_of_its_own(monkeypatch):
    spec = sweep(workers={"count": 2, "gpus_each": 2})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpus(spec, i) for i in (0, 1)] == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert gpus(spec, 1) == {"CUDA_VISIBLE_DEVICES": "6,7"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES names 3"):
        gpus(spec, 1)
    assert gpus(sweep(), 0) == {}


def test_a_torn_journal_is_mended_and_goes_on(tmp_path):
    folder = SweepFolder.of(sweep(), tmp_path)
    folder.make()
    trials = Trials(sweep(), folder)
    assert trials.ensure([{"pair": "tiny", "decode.tau": -0.3, "decode.gamma": 0.0}] * 2) == 1
    with folder.journal.open("ab") as file:
        file.write(b'{"op_code":4,"worker')
    mend(folder.journal)
    again = Trials(sweep(), folder)
    assert again.ensure([{"pair": "tiny", "decode.tau": -0.3, "decode.gamma": 0.0}]) == 0
    assert again.ask().point["decode.tau"] == -0.3
    assert again.ask() is None
    for line in folder.journal.read_text().splitlines():
        json.loads(line)


def test_a_point_that_fails_too_often_is_given_up(tmp_path):
    spec = sweep(retries=1)
    folder = SweepFolder.of(spec, tmp_path)
    folder.make()
    trials = Trials(spec, folder)
    point = {"pair": "tiny", "decode.tau": -0.3, "decode.gamma": 0.0}
    trials.ensure([point])
    for attempt in (1, 2):
        asked = trials.ask()
        assert asked.trial.user_attrs["attempt"] == attempt
        trials.fail(asked, "RuntimeError: no", counted=True)
        trials.ensure(trials.lost())
    assert trials.ask() is None
    assert trials.lost() == [point]
    assert Trials(spec, folder).ensure([point]) == 1  # the command again is another chance


def test_a_search_that_has_proposed_all_there_is_comes_to_an_end(tmp_path):
    few = {"method": "tpe", "parameters": {"decode.tau": {"values": [-0.3, -0.1]}}}
    spec = sweep(run_cap=10, **few)
    folder = SweepFolder.of(spec, tmp_path)
    folder.make()
    trials, found = Trials(spec, folder), []
    while (asked := trials.ask()) is not None:
        found.append(asked.point["decode.tau"])
        trials.finish(asked, [], {"avg_at_2": 0.5})
    assert sorted(found) == [-0.3, -0.1]
    assert trials.left() == Trials(spec, folder).left() == 0, "every worker sees it"
    assert Trials(sweep(run_cap=12, **few), folder, extend=True).left() == 10


def test_a_file_or_a_shipped_name_with_changes(tmp_path):
    spec = read("tiny_tau_gamma", ["sampling.samples=4", "metric=avg_at_4", "parameters.decode.tau.values=[-0.3]"])
    assert (spec.sampling.samples, spec.parameters["decode.tau"].values) == (4, (-0.3,))
    with pytest.raises(UserError, match=r"is no file, and none that ships: .*tiny_criteria"):
        read("nope", [])
    with pytest.raises(UserError, match="did you mean 'samples'"):
        read("tiny_tau_gamma", ["sampling.sample=4"])
    with pytest.raises(UserError, match="accepted: KEY=VALUE"):
        read("tiny_tau_gamma", ["sampling"])
    (tmp_path / "x.yaml").write_text("a: [")
    with pytest.raises(UserError, match="is not YAML"):
        read(str(tmp_path / "x.yaml"), [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nope"], "is no file, and none that ships"),
        (["run", "tiny_criteria", "--set", "method=grdi"], "did you mean 'grid'?"),
        (["resume", "nope"], "has not been begun"),
        (["confirm", "nope"], "has not been begun"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_status_2(arguments, words, tmp_path):
    done = run("sweep", *arguments, "--out", str(tmp_path))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_runs_a_sweep_and_looks_at_it(tmp_path):
    out = ["--out", str(tmp_path)]
    small = [
        "sampling.samples=2",
        "metric=avg_at_2",
        "limit=2",
        "engine.backend=transformers",
        "sampling.max_tokens=24",
    ]
    changes = [word for change in small for word in ("--set", change)]
    done = run("sweep", "run", "tiny_on_rl", "--no-track", *changes, *out)
    assert done.returncode == 0, done.stderr
    assert "best of 3 on these problems" in done.stdout
    assert "9 ways of decoding" in done.stderr  # base, rl, expo, three points, and the control of each
    assert "9/9" in done.stderr
    done = run("sweep", "status", "tiny_on_rl", *out)
    assert "3 complete" in done.stdout
