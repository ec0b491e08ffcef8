"""Interruptions of the real kind: a second process, kill -9 at random moments, Ctrl-C, a full disk, a forked child."""

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from rlvr_dir.records import Record
from rlvr_dir.records import record as module
from rlvr_dir.records.record import JOURNAL
from tests.broken import die_at, files_at_most, in_child
from tests.facts import ROBUST, refuses
from tests.records.made import PROBLEMS, fill, made_replay, open_record, read, row

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from tests.records.made import open_record, row, PROBLEMS
with open_record(sys.argv[1]) as record:
    record.add(row(PROBLEMS[0], 0))
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_and_the_owner_named_until_it_is_dead(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with refuses(holder.pid):
            open_record(tmp_path)
    finally:
        holder.kill()
        holder.wait()
    with open_record(tmp_path) as record:  # nothing stale is left
        assert len(record.missing()) == 35
        with refuses(os.getpid()):
            open_record(tmp_path)


@pytest.mark.parametrize("closes", [False, True])
def test_a_forked_child_neither_keeps_nor_loses_the_lock(tmp_path, closes):
    record = open_record(tmp_path)
    ready, begun = os.pipe()
    child = in_child(lambda: (closes and record.close(), os.write(begun, b"."), time.sleep(30)))
    try:
        assert os.read(ready, 1) == b"."  # until the child has run, its copy of the lock is open
        with refuses(os.getpid()):
            open_record(tmp_path)
        record.close()
        with open_record(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(begun)


def test_killed_at_every_single_step_it_loses_nothing_that_was_acknowledged_and_ends_the_same(tmp_path):
    """Each key is written into a file of its own once `add` has come back."""
    problems, gold = PROBLEMS[:2], dict.fromkeys(PROBLEMS, "1")

    def work(folder):
        with open_record(folder, 1, problems) as record:
            for key in record.missing():
                record.add(row(*key))
                with (folder / "said").open("a") as said:
                    said.write(f"{key}\n")
            record.finish()
            for key in record.response_keys:
                replay = made_replay(record.rows[key])
                if replay.key not in record.replays:
                    record.keep_replay(replay)
            return record.grade(gold), [*record.replays.values()]

    verdicts, whole = work(tmp_path / "whole"), read(tmp_path / "whole").digest()
    for step in itertools.count():
        folder = tmp_path / str(step)
        child = in_child(lambda folder=folder, step=step: (die_at(step), work(folder)))
        _, status = os.waitpid(child, 0)
        if next(folder.glob(f"*/*/{JOURNAL}"), None):
            record = read(folder)
            assert not record.finished or record.digest() == whole
            if (folder / "said").exists():
                assert set((folder / "said").read_text().splitlines()) <= {str(key) for key in record.response_keys}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert work(folder) == verdicts
        assert read(folder, whole=True).digest() == whole
        said = (folder / "said").read_text().splitlines()
        assert len(set(said)) == len(said) <= 2  # none was decoded twice
        assert not list(folder.glob("*/*/.*.new"))
        if not os.WIFSIGNALED(status):
            break
    assert step > 20


def test_ctrl_c_in_the_middle_of_a_write_leaves_whole_entries(tmp_path, monkeypatch):
    write = os.pwrite

    def interrupted(fd, data, at):
        write(fd, bytes(data)[: len(data) // 2], at)
        raise KeyboardInterrupt

    with open_record(tmp_path / "cut") as record:
        keys = record.missing()
        record.add(row(*keys[0]))
        with monkeypatch.context() as patch:
            patch.setattr(module.os, "pwrite", interrupted)
            with pytest.raises(KeyboardInterrupt):
                record.add(row(*keys[1]))
        assert len(record.missing()) == 35
        record.add(row(*keys[2]))  # the same object goes on
    with open_record(tmp_path / "cut") as record:
        assert record.repairs == []
        assert len(record.missing()) == 34


def test_writes_that_the_system_cuts_short_are_completed(tmp_path, monkeypatch):
    whole = Record(fill(tmp_path / "whole")).read().digest()
    write = os.pwrite
    monkeypatch.setattr(module.os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:100], at))
    record = Record(fill(tmp_path / "short")).read(whole=True)
    assert (record.digest(), record.damage) == (whole, [])


def test_a_disk_that_fills_while_finishing_or_grading_loses_no_rollout(tmp_path):
    with open_record(tmp_path) as record:
        record.add(*(row(*key) for key in record.missing()))
        size = record.path.stat().st_size
        with files_at_most(size + 10), refuses(record.path):
            record.finish()
        with files_at_most(size + 10), refuses(record.path):
            record.grade(dict.fromkeys(PROBLEMS, "1"))
        assert (read(tmp_path, whole=True).damage, read(tmp_path).finished, len(read(tmp_path).response_keys)) == (
            [],
            False,
            36,
        )
        record.finish()
        assert len(record.grade(dict.fromkeys(PROBLEMS, "1"))) == 36
    assert (read(tmp_path).finished, read(tmp_path).judges) == (True, [ROBUST])


def test_a_disk_that_fails_to_sync_is_one_sentence(tmp_path, monkeypatch):
    def fail(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module, "SYNC", 0)
    with open_record(tmp_path) as record:
        key = record.missing()[0]
        with monkeypatch.context() as patch:
            patch.setattr(module.os, "fsync", fail)
            with refuses("Input/output"):
                record.add(row(*key))
        assert key in record.missing()


def test_responses_that_come_together_are_forced_to_the_disk_together(tmp_path, monkeypatch):
    synced, fsync = [], module.os.fsync
    monkeypatch.setattr(module.os, "fsync", lambda fd: (synced.append(fd), fsync(fd)))
    monkeypatch.setattr(module, "SYNC", 3600)
    with open_record(tmp_path) as record:
        record._synced = module.time.monotonic()
        before = len(synced)
        for key in record.missing():
            record.add(row(*key))
        assert len(synced) == before
        assert len(read(tmp_path, whole=True).response_keys) == 36, "another process sees them all the same"
        record.finish()
        assert len(synced) == before + 1
