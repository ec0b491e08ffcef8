"""Interruptions of the real kind: a second process, kill -9 at random moments, Ctrl-C, a full disk, a forked child."""

import errno
import itertools
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.records import journal as journal_module
from harness.records.journal import JOURNAL, contents
from tests.broken import die_at, files_at_most, in_child
from tests.records.made import PROBLEMS, TASK, config, fill, made, open_record, resume

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from tests.records.made import open_record, made, PROBLEMS
with open_record(sys.argv[1]) as record:
    record.add(made(PROBLEMS[0], 0))
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_and_the_owner_named_until_it_is_dead(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=rf"is being written by process {holder.pid} on .*two processes"):
            open_record(tmp_path)
    finally:
        holder.kill()
        holder.wait()
    with open_record(tmp_path) as record:  # nothing stale is left
        assert len(record.missing()) == 35
        with pytest.raises(UserError, match=f"process {os.getpid()} "):
            open_record(tmp_path)


@pytest.mark.parametrize("closes", [False, True])
def test_a_forked_child_neither_keeps_nor_loses_the_lock(tmp_path, closes):
    record = open_record(tmp_path)
    child = in_child(lambda: (closes and record.close(), time.sleep(30)))
    try:
        time.sleep(0.2)
        with pytest.raises(UserError, match=f"process {os.getpid()} .*two processes"):
            open_record(tmp_path)
        record.close()
        with open_record(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def run_slowly(folder, seed):
    """All of a run, in random order, at a pace that leaves room to be killed in."""
    rng = random.Random(seed)

    def generate(missing):
        rng.shuffle(missing)
        for key in missing:
            time.sleep(rng.random() * 0.002)
            yield made(*key, length=400)

    with open_record(folder, samples=8) as record:
        for _ in resume(record, generate):
            pass


def test_killed_at_a_hundred_random_moments_the_record_is_the_same(tmp_path):
    run_slowly(tmp_path / "whole", 0)
    whole = next((tmp_path / "whole").glob("*/*/record.jsonl")).read_bytes()
    rng = random.Random(7)
    kills = rounds = 0
    while kills < 100:
        rounds += 1
        folder = tmp_path / f"killed{rounds}"
        for attempt in range(1000):
            child = in_child(lambda folder=folder, attempt=attempt: run_slowly(folder, attempt))
            time.sleep(rng.random() * 0.06)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                assert status == 0
                break
            kills += 1
        assert next(folder.glob("*/*/record.jsonl")).read_bytes() == whole
    assert rounds < 50


def test_killed_at_every_single_step_the_record_is_whole_or_absent_and_ends_the_same(tmp_path):
    problems = PROBLEMS[:2]
    whole = (fill(tmp_path / "whole", 1, problems) / "record.jsonl").read_bytes()
    for step in itertools.count():
        folder = tmp_path / str(step)
        child = in_child(lambda folder=folder, step=step: (die_at(step), fill(folder, 1, problems)))
        _, status = os.waitpid(child, 0)
        for path in folder.glob("*/*/record.jsonl"):
            assert path.read_bytes() == whole
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = fill(folder, 1, problems)
        assert (again / "record.jsonl").read_bytes() == whole
        assert not list(again.glob(".*.new"))
        if not os.WIFSIGNALED(status):
            break
    assert step > 30


def test_ctrl_c_in_the_middle_of_a_write_leaves_whole_lines(tmp_path, monkeypatch):
    whole = (fill(tmp_path / "whole") / "record.jsonl").read_bytes()
    write = os.pwrite

    def interrupted(fd, data, at):
        write(fd, bytes(data)[: len(data) // 2], at)
        raise KeyboardInterrupt

    with open_record(tmp_path / "cut") as record:
        keys = record.missing()
        record.add(made(*keys[0]))
        with monkeypatch.context() as patch:
            patch.setattr(journal_module.os, "pwrite", interrupted)
            with pytest.raises(KeyboardInterrupt):
                record.add(made(*keys[1]))
        assert len(record.missing()) == 35
        record.add(made(*keys[2]))  # the same object goes on
    with open_record(tmp_path / "cut") as record:
        assert record.repairs == []
        assert len(record.missing()) == 34
    assert (fill(tmp_path / "cut") / "record.jsonl").read_bytes() == whole


def test_writes_that_the_system_cuts_short_are_completed(tmp_path, monkeypatch):
    whole = (fill(tmp_path / "whole") / JOURNAL).read_bytes()
    write = os.pwrite
    monkeypatch.setattr(journal_module.os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:100], at))
    assert (fill(tmp_path / "short") / JOURNAL).read_bytes() == whole


def test_a_full_disk_is_one_sentence_and_nothing_is_torn(tmp_path):
    whole = (fill(tmp_path / "whole") / "record.jsonl").read_bytes()
    with open_record(tmp_path / "full") as record:
        path = record.folder / JOURNAL
        with files_at_most(4000), pytest.raises(UserError, match=r"no space is left for it\); the \d+ rollouts before"):
            list(resume(record, lambda missing: (made(*key) for key in missing)))
        assert path.stat().st_size <= 4000
        on_disk = contents(path, config().hash(), TASK, whole=True)
        assert (on_disk.bad, on_disk.tail) == (0, 0)
        held = len(list(record.rollouts()))
        assert held == len(on_disk.entries) > 2
    with open_record(tmp_path / "full") as record:
        assert record.repairs == []
        assert len(record.missing()) == 36 - held
    assert (fill(tmp_path / "full") / "record.jsonl").read_bytes() == whole


def test_a_disk_that_fills_while_finishing_leaves_the_journal_and_no_half_record(tmp_path):
    whole = (fill(tmp_path / "whole") / "record.jsonl").read_bytes()
    with open_record(tmp_path / "full") as record:
        for key in record.missing():
            record.add(made(*key))
        with files_at_most(len(whole) - 10), pytest.raises(UserError, match="the journal is safe"):
            record.finish()
        assert sorted(path.name for path in record.folder.iterdir()) == [
            "about.json",
            "config.json",
            JOURNAL,
            "lock",
        ]
    assert (fill(tmp_path / "full") / "record.jsonl").read_bytes() == whole


def test_a_disk_that_is_full_from_the_start_is_one_sentence(tmp_path):
    with files_at_most(20), pytest.raises(UserError, match="no space is left"):
        open_record(tmp_path)
    with open_record(tmp_path):
        pass


def test_a_disk_that_fails_to_sync_is_one_sentence(tmp_path, monkeypatch):
    def fail(fd):
        raise OSError(errno.EIO, "Input/output error")

    with open_record(tmp_path) as record:
        key = record.missing()[0]
        with monkeypatch.context() as patch:
            patch.setattr(journal_module.os, "fsync", fail)
            with pytest.raises(UserError, match="Input/output error"):
                record.add(made(*key))
        assert key in record.missing()
