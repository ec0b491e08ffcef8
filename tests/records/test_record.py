"""A record kept in one piece: what goes in comes out, damage is found, named and redone, the end is always the same."""

import json
import os
import random
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from harness.errors import UserError
from harness.records import RecordStore, StoredRollout, fingerprint, lines
from harness.records.journal import JOURNAL
from harness.records.record import in_order
from harness.records.rollout import DELTA_ERROR
from harness.spec import Decoding, Sampling
from tests.records.made import PROBLEMS, TASK, config, fill, made, open_record, resume


@pytest.fixture
def whole(tmp_path):
    """The bytes of an uninterrupted run's record."""
    return (fill(tmp_path / "whole") / "record.jsonl").read_bytes()


def test_a_rollout_comes_back_to_the_bit(tmp_path):
    with open_record(tmp_path) as record:
        for key in record.missing():
            record.add(made(*key))
    with open_record(tmp_path) as record:
        assert not record.missing()
        for rollout in record.rollouts():
            theirs = made(*rollout.key)
            for name in ("token_ids", "prompt_token_ids", "text", "finish_reason"):
                assert getattr(rollout, name) == getattr(theirs, name)
            for name in ("replaced", "changed"):
                assert np.array_equal(getattr(rollout, name), getattr(theirs, name))
            assert np.abs(rollout.delta_logp - theirs.delta_logp).max() <= DELTA_ERROR * np.abs(theirs.delta_logp).max()
            assert rollout.n_replaced == theirs.replaced.sum()


def test_forwards_that_were_counted_come_back_and_rows_of_others_are_as_they_were(tmp_path):
    keys = [(problem, sample) for problem in PROBLEMS[:2] for sample in range(3)]
    with open_record(tmp_path, problems=PROBLEMS[:2]) as record:
        for key in keys:
            rollout = made(*key)
            rollout.n_forwards = 40 + key[1] if key[1] else None
            record.add(rollout)
        record.finish()
        folder = record.folder
    with open_record(tmp_path, problems=PROBLEMS[:2]) as record:
        assert [each.n_forwards for each in record.rollouts()] == [None, 41, 42] * 2
        held = [record.held(*key) for key in keys]
        assert [each.counts().get("n_forwards") for each in held] == [None, 41, 42] * 2
    rows = [json.loads(line)["row"] for line in (folder / "record.jsonl").read_text().splitlines()[1:]]
    assert [("n_forwards" in row) == (row["sample"] > 0) for row in rows] == [True] * 6


def test_record_is_the_same_in_any_order_of_arrival_and_with_any_history_of_limits(tmp_path, whole):
    for seed in range(5):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        for problems, samples in ((PROBLEMS[:4], 1), (PROBLEMS[:9], 2), (PROBLEMS, 3)):
            with open_record(folder, samples, problems) as record:
                missing = record.missing()
                rng.shuffle(missing)
                for key in missing:
                    record.add(made(*key))
                path = record.finish()
        assert path.read_bytes() == whole


def test_the_last_bits_of_delta_logp_are_kept_but_not_compared(tmp_path, whole):
    """Another batch changes them: the journal keeps what was measured, the record has only what never varies."""
    with open_record(tmp_path / "noisy") as record:
        for key in record.missing():
            rollout = made(*key)
            rollout.delta_logp = rollout.delta_logp * np.float32(1 + 1e-6)
            record.add(rollout)
        assert record.finish().read_bytes() == whole
        kept = record.get(*key).delta_logp
        assert np.array_equal(kept, rollout.delta_logp.astype(np.float16).astype(np.float32))


def test_fewer_samples_are_served_from_more_and_nothing_is_decoded(tmp_path):
    fill(tmp_path, samples=3)
    with open_record(tmp_path, samples=2) as record:
        assert len(list(resume(record, lambda missing: pytest.fail("decodes")))) == 2 * len(PROBLEMS)


def test_a_problem_order_counts_numbers_as_numbers():
    names = ["a/10", "a/2", "a/x", "a/01", "a/1"]
    assert [key[0] for key in in_order((name, 0) for name in names)] == ["a/01", "a/1", "a/2", "a/10", "a/x"]


def test_a_torn_last_line_is_repaired_at_every_byte(tmp_path, whole):
    folder = tmp_path / "torn"
    with open_record(folder) as record:
        for key in record.missing():
            record.add(made(*key))
        path = record.folder / JOURNAL
    data = path.read_bytes()
    last = data.rfind(b'\n{"sha":"') + 1
    assert len(data) - last > 400
    for cut in range(last, len(data) + 1):
        path.write_bytes(data[:cut])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with open_record(folder) as record:
                assert len(record.missing()) == (cut < len(data))
                assert len(record.repairs) == len(said) == (last < cut < len(data))
                list(resume(record, lambda missing: (made(*key) for key in missing)))
        assert path.read_bytes() == data
        assert (path.parent / "record.jsonl").read_bytes() == whole


def test_a_file_torn_anywhere_is_repaired(tmp_path, whole):
    path = fill(tmp_path / "torn") / JOURNAL
    data = path.read_bytes()
    for cut in [*random.Random(0).sample(range(len(data)), 40), 0, 1, 10]:
        path.write_bytes(data[:cut])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fill(tmp_path / "torn")
        assert path.read_bytes() == data
        assert (path.parent / "record.jsonl").read_bytes() == whole


def test_any_flipped_bit_is_found_set_aside_and_redone(tmp_path, whole):
    path = fill(tmp_path / "flip") / JOURNAL
    data = path.read_bytes()
    rng = random.Random(1)
    for turn in range(40):
        at = rng.randrange(len(data))
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.warns(UserWarning, match="set aside|torn last entry"):
            record = open_record(tmp_path / "flip")
        missing = record.missing()
        list(resume(record, lambda missing: (made(*key) for key in missing)))
        record.close()
        assert len(missing) <= 2, turn  # a flipped newline joins two lines
        assert (path.parent / "record.jsonl").read_bytes() == whole
    aside = sorted(path.parent.glob("journal.corrupt-*"))
    assert len(aside) >= 38  # not where the last newline was hit
    assert all(len(each.read_bytes()) == len(data) for each in aside)


def test_zeros_after_a_power_cut_and_rubbish_are_repaired(tmp_path, whole):
    path = fill(tmp_path / "x") / JOURNAL
    data = path.read_bytes()
    for bad in (
        data + b"\0" * 4096,
        b"\0" * len(data),
        b"{}\n" * 50,
        os.urandom(5000),
        data.replace(b"config", b"cnofig"),
    ):
        path.write_bytes(bad)
        with pytest.warns(UserWarning, match="set aside|torn last entry"):
            fill(tmp_path / "x")
        assert (path.parent / "record.jsonl").read_bytes() == whole


def test_a_journal_of_another_record_is_never_mixed_in(tmp_path, whole):
    ours = fill(tmp_path / "ours") / JOURNAL
    with RecordStore(tmp_path / "b").open(config(sampling=Sampling(seed=1)), TASK, PROBLEMS, 3) as other:
        for problem, sample in other.missing():
            other.add(made(problem, sample, length=3))
        ours.write_bytes((other.folder / JOURNAL).read_bytes())
    with pytest.warns(UserWarning, match="belongs to another record"):
        fill(tmp_path / "ours")
    assert (ours.parent / "record.jsonl").read_bytes() == whole


def test_damaged_config_and_record_files_are_made_again(tmp_path, whole):
    folder = fill(tmp_path)
    right = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(right.replace(b"0.7", b"0.8"))
    (folder / "record.jsonl").write_bytes(whole[:-5])
    with pytest.warns(UserWarning, match=r"config\.json"):
        fill(tmp_path)
    assert (folder / "config.json").read_bytes() == right
    assert (folder / "record.jsonl").read_bytes() == whole


def test_what_changes_tokens_changes_the_hash_and_what_does_not_does_not():
    same = config().hash()
    moved = {"backend": "made", "dtype": "float32", "chat_template": {"from": "moved", "sha256": "ab"}}
    assert config(sampling=Sampling(samples=8)).hash() == same
    assert config(info={**moved, "pair": {"base": "elsewhere"}, "self_test": "off"}).hash() == same
    changes = [
        {"decoding": Decoding(mode="replace", tau=-0.2)},
        {"sampling": Sampling(seed=1)},
        {"sampling": Sampling(max_tokens=10)},
        {"stop": ("\n",)},
        {"prompt": "0" * 16},
        {"data": "0" * 16},
        {"info": {"backend": "made", "dtype": "bfloat16", "chat_template": {"sha256": "ab"}}},
        {"info": {"backend": "made", "dtype": "float32", "chat_template": {"sha256": "ab"}, "new fact": 1}},
    ]
    hashes = {config(**change).hash() for change in changes}
    assert len(hashes | {same}) == len(changes) + 1


def test_a_checkpoint_is_known_by_its_contents(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    for folder in (a, b):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"w" * (20 << 20))  # larger than what is read whole
    assert fingerprint(str(a)) == fingerprint(str(b))
    (b / "training.log").write_text("does not count")
    assert fingerprint(str(a)) == fingerprint(str(b))
    (b / "model.safetensors").write_bytes(b"w" * (19 << 20) + b"v" * (1 << 20))
    assert fingerprint(str(a)) != fingerprint(str(b))


def test_a_hub_checkpoint_is_known_by_its_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert fingerprint("org/model") == "org/model"
    assert fingerprint("org/model", "v1") == "org/model@v1"
    (tmp_path / "models--org--model" / "refs").mkdir(parents=True)
    (tmp_path / "models--org--model" / "refs" / "main").write_text("c0ffee")
    assert fingerprint("org/model") == "org/model@c0ffee"


def test_weights_in_files_of_torch_are_a_checkpoints_contents_where_there_are_no_others(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.pt").write_bytes(b"before")
    before = fingerprint(str(tmp_path))
    (tmp_path / "model.pt").write_bytes(b"afterw")
    assert fingerprint(str(tmp_path)) != before
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with_others = fingerprint(str(tmp_path))
    (tmp_path / "model.pt").write_bytes(b"an optimiser's state, say")
    assert fingerprint(str(tmp_path)) == with_others


def test_another_prompt_is_another_record(tmp_path):
    fill(tmp_path)
    with open_record(tmp_path) as record:
        held = {rollout.problem: rollout.prompt for rollout in record.rollouts()}
    with open_record(tmp_path, problems=held):
        pass
    with pytest.raises(UserError, match="another prompt"):
        open_record(tmp_path, problems={**held, PROBLEMS[3]: "0" * 16})
    with open_record(tmp_path):  # the refusal has let go of the lock
        pass


def test_an_incomplete_record_is_not_finished(tmp_path):
    with open_record(tmp_path) as record:
        record.add(made(PROBLEMS[0], 0))
        with pytest.raises(UserError, match="lacks 35 of 36 rollouts"):
            record.finish()
        with pytest.raises(RuntimeError, match="no rollout came back"):
            list(resume(record, lambda missing: [made(*missing[0])]))
        with pytest.raises(ValueError, match="not asked"):
            record.add(made("another/0", 0))
        again = record.add(made(PROBLEMS[0], 0, length=3))  # the one that is held stays
        assert again.token_ids == made(PROBLEMS[0], 0).token_ids


def test_verdicts_are_kept_until_text_gold_or_grader_changes(tmp_path, monkeypatch):
    from harness.records import verdicts

    graded = []
    original = verdicts.grade_many

    def count(items, grader):
        items = list(items)
        graded.append(len(items))
        return original(items, grader=grader)

    monkeypatch.setattr(verdicts, "grade_many", count)
    fill(tmp_path)
    gold = dict.fromkeys(PROBLEMS, "1")
    with open_record(tmp_path) as record:
        first = record.grade(gold)
        data = (record.folder / "verdicts-robust-2.jsonl").read_bytes()
        assert all(v.correct == (len(made(*key).token_ids) % 3 == 1) for key, v in first.items())
        assert record.grade(gold) == first
        assert graded == [36, 0]
        changed = record.grade({**gold, PROBLEMS[0]: "2"})
        assert graded == [36, 0, 3]
        assert changed != first
        record.grade(gold)
        assert (record.folder / "verdicts-robust-2.jsonl").read_bytes() == data
        with pytest.raises(UserError, match="no answer"):
            record.grade({})


def test_a_trace_is_added_to_what_is_held_and_changes_no_exact_byte(tmp_path):
    def traced(key, width):
        rollout = made(*key)
        table = np.arange(len(rollout.token_ids) * width, dtype=np.float32).reshape(-1, width)
        rollout.trace = SimpleNamespace(table=table)
        return rollout

    folder = fill(tmp_path)
    data = (folder / "record.jsonl").read_bytes()
    key, other = (PROBLEMS[0], 1), (PROBLEMS[1], 0)
    with open_record(tmp_path, trace_columns=9) as record:
        assert len(record.missing()) == 36
        assert record.get(*key) is None
        record.add(traced(key, 9))
        assert key not in record.missing()
        assert (record.get(*key).trace == traced(key, 9).trace.table).all()
        changed = traced(other, 9)
        changed.text += "!"
        with pytest.raises(RuntimeError, match="came out with other tokens"):
            record.add(changed)
    with open_record(tmp_path) as record:
        assert not record.missing()
        assert record.get(*other).trace is None
        record.finish()
    with open_record(tmp_path, trace_columns=13) as record:
        assert key in record.missing()
        record.add(traced(key, 13))
    snapshot = RecordStore(tmp_path).read(*RecordStore(tmp_path).names()[0])
    assert len(snapshot.held) == 36
    assert snapshot.finished
    assert {r.key: r for r in snapshot.rollouts()}[key].trace.shape[1] == 13
    assert (folder / "record.jsonl").read_bytes() == data


def test_a_finished_record_is_plain_json_and_says_what_the_exported_lines_are(tmp_path):
    folder = fill(tmp_path)
    head, *rows = map(json.loads, (folder / "record.jsonl").read_text(encoding="ascii").splitlines())
    snapshot = RecordStore(tmp_path).read(*RecordStore(tmp_path).names()[0])
    first, *exported = snapshot.export()
    assert head["row"] == {"config": config().hash(), "task": TASK, "format": 2}
    assert json.loads(first)["row"] == {"config": config().hash(), "task": TASK, "format": 1}
    for row, line in zip(rows, exported, strict=True):
        whole = json.loads(line)
        assert row["row"]["digest"] == whole["sha"] == lines.checksum(whole["row"])
        assert row["row"]["n_tokens"] == len(whole["row"]["token_ids"])
        assert lines.encode(row["row"]).startswith(b'{"sha":"%s"' % row["sha"].encode())


def test_a_rollout_that_contradicts_itself_is_not_stored():
    with pytest.raises(ValueError, match="3 entries, not 2"):
        StoredRollout("p", 0, "", "stop", np.zeros(2, bool), np.zeros(2, bool), token_ids=(1, 2, 3))
