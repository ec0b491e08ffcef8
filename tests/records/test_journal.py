"""The journal's bytes: what is kept of each number, what skipping finds and misses, and rows that were made by hand."""

import re
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from harness.errors import UserError
from harness.records import RecordStore, StoredRollout, lines
from harness.records.commands import verify_records
from harness.records.journal import JOURNAL, contents, header
from harness.records.rollout import DELTA_ERROR, unpacked
from tests.records.made import PROBLEMS, TASK, config, fill, made, open_record

DOCS = Path(__file__).parents[2] / "docs" / "records.md"
HASH = config().hash()


def read(store, *, whole=False):
    return RecordStore(store).read(HASH, TASK, whole=whole)


def rollout(delta, **fields):
    flags = np.zeros(len(delta), bool)
    return StoredRollout("p/0", 0, "", "stop", flags, flags, delta_logp=np.asarray(delta, np.float32), **fields)


def test_delta_logp_is_kept_within_its_bound_at_every_size():
    values = np.concatenate([sign * np.logspace(-30, 4.8, 20_001) for sign in (1, -1)])
    kept = StoredRollout.unpack(*rollout(values).pack()).delta_logp
    assert (np.abs(kept - np.float32(values)) <= np.maximum(DELTA_ERROR * np.abs(values), 2.0**-25)).all()
    assert np.array_equal(kept, StoredRollout.of(rollout(values)).delta_logp)  # what `add` gives back
    assert np.abs(kept - values)[np.abs(values) < 0.125].max() <= 2.0**-14 / 2 < 3.1e-5
    odd = StoredRollout.unpack(*rollout([np.inf, -np.inf, np.nan, 1e30, -1e30, 0.0]).pack()).delta_logp
    assert np.array_equal(odd, np.float32([np.inf, -np.inf, np.nan, 65504, -65504, 0]), equal_nan=True)


def test_beside_a_trace_delta_logp_is_kept_to_the_bit():
    values = np.random.default_rng(0).normal(size=500).astype(np.float32)
    trace = np.random.default_rng(1).normal(size=(500, 9)).astype(np.float32)
    kept = StoredRollout.unpack(*StoredRollout.of(rollout(values, trace=trace)).pack())
    assert kept.delta_logp.tobytes() == values.tobytes()
    assert kept.trace.tobytes() == trace.tobytes()


@pytest.mark.parametrize(
    ("name", "most"), [("text", 1 << 22), ("delta_logp", 4 * 5 + 1), ("prompt_token_ids", 1 << 24)]
)
def test_a_few_bytes_never_unpack_to_more_than_their_tokens_could_have(name, most):
    """Eight rollouts with 1 MB of compressed zeros for a text had cost 3 GiB."""
    row, payload = StoredRollout.of(rollout([0.0] * 5, prompt_token_ids=(1, 2))).pack()
    sizes = {column[0]: column[2] for column in row["columns"]}
    at = sum(sizes[column[0]] for column in row["columns"][: [each[0] for each in row["columns"]].index(name)])
    for size, refused in ((most, False), (most + 1, True)):
        bomb = zlib.compress(bytes(size // 4 * 4 if not refused else size))
        columns = [[kind[0], kind[1], len(bomb) if kind[0] == name else kind[2]] for kind in row["columns"]]
        changed = payload[:at] + bomb + payload[at + sizes[name] :]
        if refused:
            with pytest.raises(ValueError, match=f"column {name} is cut short, or too large"):
                unpacked({**row, "columns": columns}, changed)
        else:
            assert name in unpacked({**row, "columns": columns}, changed, name)


def test_tokens_text_and_flags_are_exact():
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 151_936, 999)
    flags = rng.random(999) < 0.5
    text = "naïve 数 \u2028 \r\n\0 \ud800" * 50
    one = StoredRollout("p/0", 0, text, "length", flags, ~flags, tuple(ids.tolist()), (1, 2**32 - 1))
    same = StoredRollout.unpack(*one.pack())
    assert same.exact_row() == one.exact_row()
    assert (same.replaced == flags).all()
    assert (same.changed == ~flags).all()
    assert same.delta_logp is same.trace is None
    empty = rollout([])
    assert StoredRollout.unpack(*empty.pack()).exact_row() == empty.exact_row()


def test_the_reader_in_the_docs_reads_a_record(tmp_path):
    path = fill(tmp_path) / JOURNAL
    [code] = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    theirs = {(row["problem"], row["sample"]): row for row in names["rollouts"](path)}
    assert len(theirs) == 36
    for ours in read(tmp_path).rollouts():
        row = theirs[ours.key]
        assert row["text"] == ours.text
        assert tuple(row["token_ids"]) == ours.token_ids
        for name in ("replaced", "changed", "delta_logp"):
            assert np.array_equal(row[name], getattr(ours, name))


def test_what_is_skipped_is_checked_when_it_is_read(tmp_path):
    """Counts come from intact lines; damaged columns are found by who wants them, by verify and by the next run."""
    path = fill(tmp_path) / JOURNAL
    entry = read(tmp_path).entry((PROBLEMS[3], 1))
    data = bytearray(path.read_bytes())
    data[entry.offset + entry.length - 3] ^= 1
    path.write_bytes(data)
    snapshot = read(tmp_path)
    assert len(snapshot.held) == 36
    assert snapshot.entry(entry.key).n_tokens == entry.n_tokens
    for want in (lambda e: e.text, lambda e: e.load()):
        with pytest.raises(UserError, match=f"{PROBLEMS[3]} sample 1 was damaged"):
            want(snapshot.entry(entry.key))
    assert "1 damaged entries" in verify_records(tmp_path)[f"{HASH}/{TASK}"][0]
    with pytest.warns(UserWarning, match="set aside"), open_record(tmp_path) as record:
        assert record.missing() == [entry.key]


@pytest.mark.parametrize("whole", [True, False])
def test_bytes_that_are_lost_or_added_inside_cost_one_rollout(tmp_path, whole):
    path = fill(tmp_path) / JOURNAL
    data, entries = path.read_bytes(), [*read(tmp_path).contents.entries.values()]
    for entry in (entries[0], entries[17], entries[-2]):
        middle = entry.offset + entry.length - 30
        for changed in (data[:middle] + data[middle + 20 :], data[:middle] + b"\n{" * 500 + data[middle:]):
            path.write_bytes(changed)
            found = contents(path, HASH, TASK, whole=whole)
            assert set(read(tmp_path).contents.entries) == {e.key for e in entries} - {entry.key}
            assert found.bad == 1
            assert found.tail == 0


def test_a_journal_that_lost_its_first_line_keeps_its_rollouts(tmp_path):
    path = fill(tmp_path) / JOURNAL
    data = path.read_bytes()
    path.write_bytes(data[data.find(b"\n") + 1 :])
    with pytest.warns(UserWarning, match="set aside"), open_record(tmp_path) as record:
        assert not record.missing()
    assert path.read_bytes() == data


def test_a_later_format_is_refused_and_left_alone(tmp_path):
    path = fill(tmp_path) / JOURNAL
    data = lines.encode(header(HASH, TASK, 3)) + b"who knows"
    path.write_bytes(data)
    for look in (lambda: open_record(tmp_path), lambda: read(tmp_path)):
        with pytest.raises(UserError, match=r"is of format 3.*accepted: 2"):
            look()
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "change",
    [
        {"n_tokens": -1},
        {"n_tokens": True},
        {"n_tokens": "7"},
        {"n_replaced": 10**6},
        {"sample": 0.5},
        {"problem": None},
        {"finish_reason": ["stop"]},
        {"columns": [["text", "utf-8"]]},
        {"columns": [["text", "utf-8", -400]]},
        {"columns": [["text", "utf-8", 2.0]]},
        {"columns": [["text", "utf-8", 2**60]]},
        {"columns": 7},
        {"crc": None},
    ],
)
def test_rows_that_someone_made_are_checked_though_their_checksum_fits(tmp_path, change):
    """Only that rollout is lost, by whatever it claims of itself."""
    path = fill(tmp_path) / JOURNAL
    entry = [*read(tmp_path).contents.entries.values()][5]
    data = path.read_bytes()
    line = data[entry.offset : data.find(b"\n", entry.offset) + 1]
    row = lines.encode({**lines.decode(line), **change})
    path.write_bytes(data[: entry.offset] + row + data[entry.offset + len(line) :])
    with pytest.warns(UserWarning, match="set aside"):
        record = open_record(tmp_path)
    assert record.missing() == [entry.key]
    record.add(made(*entry.key))
    record.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not open_record(tmp_path).missing()


@pytest.mark.parametrize(
    "columns",
    [
        lambda row: [["text", "<f9", row["columns"][0][2]], *row["columns"][1:]],
        lambda row: [["texts", *row["columns"][0][1:]], *row["columns"][1:]],
        lambda row: [[name, "utf-8", size] for name, _, size in row["columns"]],
    ],
)
def test_columns_of_another_kind_are_a_sentence(tmp_path, columns):
    path = fill(tmp_path) / JOURNAL
    entry = [*read(tmp_path).contents.entries.values()][5]
    data = path.read_bytes()
    line = data[entry.offset : data.find(b"\n", entry.offset) + 1]
    row = lines.decode(line)
    changed = lines.encode({**row, "columns": columns(row)})
    path.write_bytes(data[: entry.offset] + changed + data[entry.offset + len(line) :])
    for each in read(tmp_path).entries():
        if each.key != entry.key:
            each.load()
    with pytest.raises(UserError, match="was damaged"):
        read(tmp_path).rollout(entry.key)


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(b" " + path.read_bytes()), "it is not where it was"),
        (
            lambda path: path.write_bytes(re.sub(rb"(?s)x\x9c.", b"x\x9c!", path.read_bytes())),
            "its checksum does not fit",
        ),
    ],
    ids=["deleted", "moved", "damaged"],
)
def test_a_rollout_that_is_gone_when_it_is_read_is_one_sentence(tmp_path, break_it, why):
    fill(tmp_path)
    entry = next(read(tmp_path).entries())
    assert entry.text == entry.load().text
    break_it(entry.path)
    for get in (lambda: entry.text, entry.load):
        with pytest.raises(UserError, match=rf"was damaged or moved while in use \({why}"):
            get()
