"""`rlvr-dir records ...` without its printing."""

import json

import pytest

from rlvr_dir.records import RecordStore
from rlvr_dir.records.commands import (
    export_record,
    gc_records,
    list_records,
    verify_records,
)
from rlvr_dir.records.record import JOURNAL
from rlvr_dir.results.from_records import show_record
from tests.commands import invoke, run
from tests.facts import ROBUST, refuses
from tests.records.made import PROBLEMS, TASK, config, fill, made, open_record, row

NAME = f"{config().hash()}/{TASK}"


def test_list_and_show(tmp_path):
    fill(tmp_path)
    with open_record(tmp_path) as record:
        record.grade(dict.fromkeys(PROBLEMS, "1"))
    with RecordStore(tmp_path).open(
        config(prompt="0" * 16), TASK, PROBLEMS, 3, metadata={"base": "B", "rl": "R"}
    ) as other:
        other.add(row(PROBLEMS[0], 0))
    rows = {row["record"]: row for row in list_records(tmp_path)}
    assert len(rows) == 2
    mine = rows.pop(NAME)
    assert (mine["held"], mine["asked"], mine["finished"], mine["graders"]) == (36, 36, True, [ROBUST])
    assert mine["decoding"] == "replace τ-0.3"
    [unfinished] = rows.values()
    assert (unfinished["held"], unfinished["asked"], unfinished["finished"], unfinished["pair"]) == (
        1,
        36,
        False,
        "B / R",
    )
    listed = invoke("records", "list", "--store", str(tmp_path)).stdout
    entries = [*RecordStore(tmp_path).read(*NAME.split("/"))]
    tokens, changed = (sum(getattr(one, f"n_{name}") for one in entries) for name in ("tokens", "changed"))
    [line] = [line for line in listed.splitlines() if line.startswith(NAME[:8])]
    assert f"finished  36         12        {100 * changed / tokens:.1f}%" in line
    assert line.endswith(f"graded: {ROBUST}")
    assert max(map(len, listed.splitlines())) <= 120
    shown = show_record(tmp_path, NAME[:6])
    assert set(shown["scores"][ROBUST]) >= {"avg@3", "avg@3_se", "avg@3_se_sampling", "pass@2", "problems"}
    with refuses("record", "zz"):
        show_record(tmp_path, "zz")
    with refuses("record", "2"):
        show_record(tmp_path, "")


def test_export(tmp_path):
    with open_record(tmp_path / "s") as record:
        record.add(row(PROBLEMS[0], 0))
    with refuses("finished"):
        export_record(tmp_path / "s", NAME, tmp_path / "out")
    fill(tmp_path / "s")
    with open_record(tmp_path / "s") as record:
        record.grade(dict.fromkeys(PROBLEMS, "1"))
    export_record(tmp_path / "s", NAME, tmp_path / "out")
    head, *lines = map(json.loads, (tmp_path / "out").read_text().splitlines())
    assert head == {"config": config().hash(), "task": TASK}
    assert [line["digest"] for line in lines] == [one.digest for one in record]
    assert lines[0]["token_ids"] == list(made(PROBLEMS[0], 0).token_ids)
    rows = [
        json.loads(line)
        for line in export_record(tmp_path / "s", NAME, tmp_path / "t", "texts").read_text().splitlines()
    ]
    assert len(rows) == 36
    assert rows[0]["verdicts"][ROBUST] in ("correct", "wrong")
    run("records", "export", NAME, "--store", tmp_path / "s", "--form", "summary", "--out", tmp_path / "u")
    assert json.loads((tmp_path / "u").read_text())["held"] == 36
    with refuses("form", "csv"):
        export_record(tmp_path / "s", NAME, tmp_path / "out", "csv")


def test_verify_names_damage_and_changes_nothing(tmp_path):
    folder = fill(tmp_path)
    assert verify_records(tmp_path) == {NAME: []}
    journal = (folder / JOURNAL).read_bytes()
    damaged = journal.replace(b'"sample":1', b'"sample":2', 2) + b"torn"
    (folder / JOURNAL).write_bytes(damaged)
    text = " | ".join(verify_records(tmp_path, NAME)[NAME])
    for words in ("2 damaged entries", "torn last entry of 4 bytes"):
        assert words in text
    assert (folder / JOURNAL).read_bytes() == damaged
    (folder / JOURNAL).write_bytes(journal.replace(b'"tau":-0.3', b'"tau":-0.4', 1))
    assert "has no first entry, which says what it is" in verify_records(tmp_path, NAME)[NAME][0]
    [listed] = list_records(tmp_path)
    assert (listed["decoding"], listed["held"], len(listed["damage"])) == ("unknown", 36, 2)


def test_gc_takes_what_nothing_needs_and_only_when_told(tmp_path):
    folder = fill(tmp_path)
    (folder / "journal.corrupt-1.bin").write_text("x" * 10)
    (folder / ".journal.bin.new").write_text("x")
    with RecordStore(tmp_path).open(config(prompt="0" * 16), TASK, PROBLEMS, 3) as busy:
        assert [row["reason"] for row in gc_records(tmp_path)] == ["damaged, set aside", "half-written"]
    empty = busy.folder
    rows = gc_records(tmp_path, delete=True)
    assert sorted(row["reason"] for row in rows) == ["damaged, set aside", "half-written", "no rollouts"]
    assert not empty.parent.exists()
    assert verify_records(tmp_path) == {NAME: []}
    gc_records(tmp_path, drop=[NAME], delete=True)
    assert list_records(tmp_path) == []


def test_gc_drops_the_one_record_that_is_named_and_says_so_first(tmp_path):
    folder = fill(tmp_path)
    with RecordStore(tmp_path).open(config(prompt="0" * 16), TASK, PROBLEMS, 3) as other:
        other.add(row(PROBLEMS[0], 0))
        with refuses("written"):
            gc_records(tmp_path, drop=[other.folder.parent.name])
    (folder / "lock").unlink()  # a store that somebody copied has none
    there = {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}
    for drop, sentence in (
        ("", "drop"),
        (f"/{TASK}", "drop /tiny_easy"),
        ("feed", "record feed"),
    ):
        with refuses(*sentence.split()):
            gc_records(tmp_path, drop=[drop], delete=True)
    done = invoke("records", "gc", "--drop", NAME[:6], "--store", str(tmp_path))
    assert done.output.startswith(f"would delete: {folder} (named, ")
    assert {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")} == there
    done = invoke("records", "gc", "--drop", NAME[:6], "--delete", "--store", str(tmp_path))
    first, second = done.output.splitlines()
    assert (first.partition(": ")[0], second.partition(": ")[0]) == ("will delete", "deleted")
    assert [row["record"] for row in list_records(tmp_path)] == [f"{other.folder.parent.name}/{TASK}"]


def test_a_lock_that_is_a_link_is_not_written_through(tmp_path):
    folder = fill(tmp_path / "store")
    (tmp_path / "mine").write_text("mine")
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(tmp_path / "mine")
    with refuses("written"):
        open_record(tmp_path / "store")
    assert gc_records(tmp_path / "store", delete=True) == []
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("command", ["list", "verify", "grade", "results", "gc"])
def test_a_store_that_is_not_there_is_no_good_store(command, tmp_path, monkeypatch):
    """A mistyped folder was verified without a word, and grade spoke of a record that nobody had named."""
    monkeypatch.chdir(tmp_path)
    done = invoke("records", command, "--store", "nope")
    assert done.stdout == ""
    assert "no records in 'nope', which does not exist" in (done.stderr or str(done.exception))
    assert done.exit_code != 0
    done = invoke("records", command, "--store", ".")
    assert "no records in '.'" in (done.stderr or str(done.exception))
    assert (done.exit_code == 0) == (command in ("list", "gc", "verify"))
