"""Every file that is written is the old one or the new one, and none goes elsewhere than where it was meant to."""

import itertools
import os
import re
import signal
from pathlib import Path

import pytest

from rlvr_dir.errors import UserError
from rlvr_dir.files import LONGEST_NAME, check_output, check_writable, folder_name, write_file
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.run import run_sweep
from rlvr_dir.train.spec import load_train
from rlvr_dir.train.training import run as train
from tests.broken import die_at, files_at_most, in_child, read_only, tiny_disk
from tests.facts import refuses
from tests.sweep.made import sweep

HOUSE = Path(__file__).parents[1] / "harness" / "rlvr_dir"


def test_text_is_utf_8_whatever_is_in_it(tmp_path):
    write_file(tmp_path / "a.json", '"naïve 数 \udcff"')
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '"naïve 数 \\udcff"'
    write_file(tmp_path / "b", iter([b"one", b"", b"two"]))
    assert (tmp_path / "b").read_bytes() == b"onetwo"
    assert len(list(tmp_path.iterdir())) == 2


def test_no_link_is_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    place = tmp_path / "out"
    place.symlink_to(victim)
    write_file(place, "theirs")
    assert (victim.read_text(), place.read_text(), place.is_symlink()) == ("mine", "theirs", False)


def test_a_name_of_the_longest_kind_is_written_and_a_longer_one_is_one_sentence(tmp_path):
    write_file(tmp_path / ("x" * 255), "1")
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]
    with refuses("written"):
        write_file(tmp_path / ("x" * 300), "1")
    with refuses("task", "300", LONGEST_NAME) as refused:
        folder_name("task", "t" * 300)
    assert len(str(refused.value)) < 120


def test_a_full_disk_leaves_the_old_file_and_no_stub(tmp_path):
    place = tmp_path / "result.json"
    write_file(place, "old")
    with (
        files_at_most(1000),
        pytest.raises(UserError, match="no space is left for it"),
    ):
        write_file(place, "n" * 5000)
    with tiny_disk(tmp_path / "disk") as disk:
        if disk is not None:
            write_file(disk / "a", "x" * 20_000)
            with pytest.raises(UserError, match="no space is left for it"):
                write_file(disk / "a", "y" * 60_000)
            assert [(path.name, path.read_text()) for path in disk.iterdir()] == [("a", "x" * 20_000)]
            (disk / "b").write_bytes(bytes(40_000))
            with pytest.raises(UserError, match=r"no space is left for it.*nothing was begun"):
                check_writable(disk / "runs")
    (tmp_path / "disk").rmdir()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("result.json", "old")]


def test_killed_at_every_single_step_it_is_the_old_file_or_the_new_one(tmp_path):
    seen = set()
    for step in itertools.count():
        folder = tmp_path / str(step)
        folder.mkdir()
        (folder / "a").write_text("old")
        new = (piece for piece in (b"ne" * 500, b"w" * 500))
        child = in_child(lambda step=step, new=new, folder=folder: (die_at(step), write_file(folder / "a", new)))
        _, status = os.waitpid(child, 0)
        seen.add((folder / "a").read_text())
        write_file(folder / "a", "again")  # nothing that was left is in the way
        if not os.WIFSIGNALED(status):
            assert status == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert step >= 6
    assert seen == {"old", "ne" * 500 + "w" * 500}


def test_a_folder_that_takes_nothing_is_said_before_anything_begins(tmp_path):
    with (
        read_only(tmp_path / "ro") as folder,
        refuses(folder),
    ):
        check_writable(folder / "runs")
    with files_at_most(1000), refuses(tmp_path / "new"):
        check_writable(tmp_path / "new")
    check_writable(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
    with refuses("out", tmp_path / "new"):
        check_output(tmp_path / "new")
    check_output(tmp_path / "pages" / "view.html")
    assert list((tmp_path / "pages").iterdir()) == []


# Where something else than `write_file` may write: into folders of its own that are gone afterwards, and logs.
ELSEWHERE = {
    "checkpoints/expo.py", "decode/vllm_pair/start.py", "tracking/log.py", "train/folder.py",
    "train/verl/run.py",
}  # fmt: skip


WRITES = re.compile(r"""\.write_(text|bytes)\(|json\.dump\(|open\([^)]*["'][wax]b?\+?["']""")


def test_nothing_is_written_but_by_write_file():
    found = {path.relative_to(HOUSE).as_posix() for path in HOUSE.rglob("*.py") if WRITES.search(path.read_text())}
    assert {where for where in found if not where.startswith("bench/")} == ELSEWHERE


@pytest.mark.parametrize("kind", ["decode", "train"])
def test_a_sweep_and_a_training_say_that_their_folder_takes_nothing_before_they_begin(tmp_path, kind):
    """Neither a folder that is read only nor a full disk is found out by losing what was computed."""
    said = []
    with read_only(tmp_path / "ro") as folder, refuses(folder):
        run_sweep(sweep(kind=kind), Places.under(folder / "runs", track=False), say=said.append)
    with files_at_most(1000), refuses(tmp_path):
        run_sweep(sweep(kind=kind), Places.under(tmp_path / "runs", track=False), say=said.append)
    spec = load_train({"dapo": {"steps": 1}, "seeds": [0]})
    with files_at_most(1000), refuses(tmp_path):
        train(spec, tmp_path / "trained", say=said.append)
    assert said == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
