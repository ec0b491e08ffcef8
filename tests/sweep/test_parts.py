"""The parts of a sweep that need no engine: who is alive, which GPUs, a torn journal, the command line."""

import json
import os
import subprocess
import sys

import pytest

from harness.cli.sweep import read
from harness.errors import UserError
from harness.sweep.fleet import gpus
from harness.sweep.folder import Folder
from harness.sweep.owner import dead, me
from harness.sweep.storage import mend
from harness.sweep.study import Book
from tests.sweep.made import sweep
from tests.test_cli import run


def test_an_owner_is_dead_when_its_process_is_gone_or_another_has_its_number(tmp_path):
    assert not dead(me(), tmp_path)
    assert dead({**me(), "start": "1"}, tmp_path)
    assert dead(None, tmp_path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert dead({**me(), "pid": gone.pid}, tmp_path)


def test_an_owner_on_another_host_is_dead_when_it_has_been_silent(tmp_path):
    elsewhere = {"host": "elsewhere", "pid": 7, "start": "1"}
    assert dead(elsewhere, tmp_path)
    (tmp_path / "elsewhere-7").touch()
    assert not dead(elsewhere, tmp_path)
    os.utime(tmp_path / "elsewhere-7", (0, 0))
    assert dead(elsewhere, tmp_path)


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
    folder = Folder.of(sweep(), tmp_path)
    folder.make()
    book = Book(sweep(), folder)
    assert book.ensure([{"pair": "tiny", "decode.tau": -0.3, "decode.gamma": 0.0}] * 2) == 1
    with folder.journal.open("ab") as file:
        file.write(b'{"op_code":4,"worker')
    mend(folder.journal)
    again = Book(sweep(), folder)
    assert again.ensure([{"pair": "tiny", "decode.tau": -0.3, "decode.gamma": 0.0}]) == 0
    assert again.ask().point["decode.tau"] == -0.3
    assert again.ask() is None
    for line in folder.journal.read_text().splitlines():
        json.loads(line)


def test_a_point_that_fails_too_often_is_given_up(tmp_path):
    spec = sweep(retries=1)
    folder = Folder.of(spec, tmp_path)
    folder.make()
    book = Book(spec, folder)
    point = {"pair": "tiny", "decode.tau": -0.3, "decode.gamma": 0.0}
    book.ensure([point])
    for attempt in (1, 2):
        asked = book.ask()
        assert asked.trial.user_attrs["attempt"] == attempt
        book.give_up(asked, "RuntimeError: no", counted=True)
        book.ensure(book.lost())
    assert book.ask() is None
    assert book.lost() == [point]
    assert Book(spec, folder).ensure([point]) == 1  # the command again is another chance


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
