"""Records that the code before `journal.bin` wrote stay readable, comparable and resumable, and keep their hashes."""

import json
import shutil
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

from harness.evals.places import read_results
from harness.evals.result import EvalResult
from harness.records import RecordStore, lines
from harness.records.commands import export_record, list_records, verify_records
from tests.records.made import made, resume

OLD = Path(__file__).parent / "format_1"
STORES = [OLD / "records", OLD / "sweep" / "records"]
EVALUATED, TRACED = "3888940404a93a97", "ad545b9a11ffc4d2"
TASK = "tiny_easy"


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(OLD / "records", tmp_path / "records")
    return RecordStore(tmp_path / "records")


def rows(path):
    """The rows of a file of format 1, header left out."""
    return [json.loads(line)["row"] for line in path.read_text().splitlines()][1:]


@pytest.mark.parametrize("store", STORES, ids=["eval", "sweep"])
def test_they_are_read_as_they_are_and_their_hashes_have_not_changed(store, tmp_path):
    records = RecordStore(store)
    assert len(records.names()) == len(list(store.iterdir()))
    for record_hash, task in records.names():
        snapshot = records.read(record_hash, task, whole=True)
        assert snapshot.config.hash() == record_hash  # None where it does not fit its folder
        assert snapshot.finished
        old = {(row["problem"], row["sample"]): row for row in rows(snapshot.folder / "journal.jsonl")}
        assert snapshot.held
        assert set(snapshot.held) == set(old)
        for rollout, entry in zip(snapshot.rollouts(), snapshot.entries(), strict=True):
            row = old[rollout.key]
            assert (rollout.text, list(rollout.token_ids)) == (row["text"], row["token_ids"])
            assert rollout.delta_logp.tobytes() == b64decode(row["delta_logp"])
            assert (rollout.n_tokens, rollout.n_replaced) == (entry.n_tokens, entry.n_replaced)
            assert (entry.n_tokens, entry.n_replaced, entry.n_changed) == (
                row["n_tokens"], row["n_replaced"], row["n_changed"],
            )  # fmt: skip
        out = export_record(store, record_hash, tmp_path / "out")
        assert out.read_bytes() == (snapshot.folder / "record.jsonl").read_bytes()
    assert all(row["finished"] for row in list_records(store))
    assert not any(verify_records(store).values())


def test_their_traces_are_read():
    snapshot = RecordStore(STORES[0]).read(TRACED, TASK)
    for row in rows(snapshot.folder / "journal.jsonl"):
        rollout = snapshot.rollout((row["problem"], row["sample"]))
        assert rollout.trace.shape == (row["n_tokens"], row["trace_columns"])
        assert rollout.trace.astype("<f4").tobytes() == b64decode(row["trace"])


def test_results_of_them_are_those_that_were_written_then():
    written = [EvalResult.from_json(path.read_text()) for path in (OLD / "sweep/sweeps/old_sweep/results").iterdir()]
    read = {result.decoding: result for result in read_results([STORES[1]])}
    assert len(written) == len(read) == 4
    for old in written:
        new = read[old.decoding]
        assert new.problem_ids == old.problem_ids
        for name in ("correct", "n_tokens", "n_replaced", "n_changed", "truncated", "no_box"):
            assert np.array_equal(getattr(new, name), getattr(old, name)), name


def test_one_goes_on_in_its_own_file_and_loses_nothing(copy):
    before = copy.read(EVALUATED, TASK)
    journal = before.folder / "journal.jsonl"
    data, old = journal.read_bytes(), (before.folder / "record.jsonl").read_bytes()
    problems = {entry.problem: entry.prompt for entry in before.entries()}
    with copy.open(before.config, TASK, problems, 3) as record:
        assert record.repairs == []
        assert record.missing() == [(problem, 2) for problem in problems]
        assert len(list(resume(record, lambda missing: (made(*key) for key in missing)))) == 9
    assert journal.read_bytes().startswith(data)
    assert not (before.folder / "journal.bin").exists()
    after = copy.read(EVALUATED, TASK, whole=True)
    assert after.finished
    assert len(after.held) == 9
    for mine, theirs in zip((r for r in after.rollouts() if r.sample < 2), before.rollouts(), strict=True):
        assert mine.exact_row() == theirs.exact_row()
        assert mine.delta_logp.tobytes() == theirs.delta_logp.tobytes()
    told = {(row["problem"], row["sample"]): row["digest"] for row in rows(before.folder / "record.jsonl")}
    for line in old.splitlines(keepends=True)[1:]:
        row = lines.decode(line)
        assert told[row["problem"], row["sample"]] == json.loads(line)["sha"]


def test_a_finished_one_becomes_the_record_that_todays_code_would_have_written(copy, tmp_path):
    before = copy.read(EVALUATED, TASK)
    problems = [*dict.fromkeys(problem for problem, _ in before.held)]
    with copy.open(before.config, TASK, problems, 2) as record:
        record.finish()
    with RecordStore(tmp_path / "new").open(before.config, TASK, problems, 2) as new:
        for rollout in before.rollouts():
            new.add(rollout)
        new.finish()
    assert (before.folder / "record.jsonl").read_bytes() == (new.folder / "record.jsonl").read_bytes()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-100], lambda data: data.replace(b'"sample":1', b'"sample":3', 1)]
)
def test_a_damaged_one_loses_only_what_was_damaged(copy, damage):
    before = copy.read(EVALUATED, TASK)
    journal, problems = before.folder / "journal.jsonl", [*dict.fromkeys(problem for problem, _ in before.held)]
    journal.write_bytes(damage(journal.read_bytes()))
    with pytest.warns(UserWarning, match="set aside|torn last entry"):
        record = copy.open(before.config, TASK, problems, 2)
    [lost] = record.missing()
    record.add(made(*lost))
    assert not record.missing()
    record.close()
    assert len(copy.read(EVALUATED, TASK, whole=True).held) == 6


def test_a_trace_is_added_to_an_old_rollout(copy):
    before = copy.read(EVALUATED, TASK)
    rollout = next(before.rollouts())
    table = np.ones((rollout.n_tokens, 9), dtype=np.float32)
    with copy.open(before.config, TASK, [rollout.problem], 1, trace_columns=9) as record:
        assert record.missing() == [rollout.key]
        fields = {name: getattr(rollout, name) for name in rollout.__slots__}
        record.add(type(rollout)(**{**fields, "trace": table}))
    assert (copy.read(EVALUATED, TASK).rollout(rollout.key).trace == table).all()
