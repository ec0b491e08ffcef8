"""A record in one file: what goes in comes out, damage is found, named and redone, the end is always the same."""

import random
import re
import warnings
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.errors import UserError
from rlvr_dir.grading import Verdict
from rlvr_dir.policy.trace import FACTS, columns
from rlvr_dir.records import Record, RecordStore, Row, fingerprint
from rlvr_dir.records.commands import verify_records
from rlvr_dir.records.entries import decode, encode
from rlvr_dir.records.record import JOURNAL, in_order
from rlvr_dir.records.row import DELTA_ERROR, UNKNOWN
from tests.facts import ROBUST, refuses, warns_of
from tests.records.made import PROBLEMS, TASK, config, fill, made, open_record, read, resume, row

DOCS = Path(__file__).parents[2] / "docs" / "records.md"
HASH = config().hash()


@pytest.fixture
def whole(tmp_path):
    """The digest of an uninterrupted run's record."""
    return Record(fill(tmp_path / "whole")).read().digest()


def entries(path):
    """The bytes of each entry of a file, and what kind it is."""
    found, data, at = [], path.read_bytes(), 0
    while at < len(data):
        end = data.index(b"\n", at) + 1
        kind, _, value = decode(data[at:end])
        end += value.size + 1 if kind == "rollout" else 0
        found.append((kind, data[at:end]))
        at = end
    return found


def delta(values, **fields):
    flags = np.zeros(len(values), bool)
    fields = {"token_ids": np.zeros(len(values), int), "prompt_token_ids": (1,), **fields}
    return Row.make("p/0", 0, "", "stop", flags, flags, delta_logp=np.asarray(values, np.float32), **fields)


# A response


def test_delta_logp_is_kept_within_its_bound_at_every_size():
    values = np.concatenate([sign * np.logspace(-30, 4.8, 20_001) for sign in (1, -1)])
    kept = delta(values).delta_logp
    assert (np.abs(kept - np.float32(values)) <= np.maximum(DELTA_ERROR * np.abs(values), 2.0**-25)).all()
    assert np.abs(kept - values)[np.abs(values) < 0.125].max() <= 2.0**-14 / 2 < 3.1e-5
    odd = delta([np.inf, -np.inf, np.nan, 1e30, -1e30, 0.0]).delta_logp
    assert np.array_equal(odd, np.float32([np.inf, -np.inf, np.nan, 65504, -65504, 0]), equal_nan=True)


@pytest.mark.parametrize(
    ("name", "most"), [("text", 1 << 22), ("delta_logp", 2 * 5), ("prompt_token_ids", 1 << 24), ("replaced", 1)]
)
def test_a_few_bytes_never_unpack_to_more_than_their_tokens_could_have(name, most):
    """Eight rollouts with 1 MB of compressed zeros for a text had cost 3 GiB."""
    one = delta([0.0] * 5, prompt_token_ids=(1, 2))
    columns = one.to_dict()["columns"]
    names = list(columns)
    at = sum(columns[each][0] for each in names[: names.index(name)])
    for size in (most, most + 1):
        bomb = zlib.compress(bytes(size))
        payload = one.payload()[:at] + bomb + one.payload()[at + columns[name][0] :]
        changed = Row(**{**one.to_dict(), "columns": {**columns, name: (len(bomb), zlib.crc32(bomb))}})
        changed.place(payload)
        if size > most:
            with refuses("column", name):
                getattr(changed, name)
        else:
            assert len(getattr(changed, name))


def test_a_response_that_contradicts_itself_is_not_made():
    with pytest.raises(ValueError, match="3 entries, not 2"):
        Row.make("p", 0, "", "stop", np.zeros(2, bool), np.zeros(2, bool), (1, 2, 3), (1,), np.zeros(2))


# A record


def test_record_is_the_same_in_any_order_of_arrival_and_with_any_history_of_limits(tmp_path, whole):
    for seed in range(5):
        rng = random.Random(seed)
        for problems, samples in ((PROBLEMS[:4], 1), (PROBLEMS[:9], 2), (PROBLEMS, 3)):
            with open_record(tmp_path / str(seed), samples, problems) as record:
                missing = record.missing()
                rng.shuffle(missing)
                resume(record, lambda _, keys=missing: (made(*key) for key in keys))
        record = read(tmp_path / str(seed))
        assert record.finished
        assert record.digest() == whole


def test_the_last_bits_of_delta_logp_are_kept_but_not_compared(tmp_path, whole):
    """Another batch changes them: what was measured is kept, the digest has only what never varies."""
    with open_record(tmp_path / "noisy") as record:
        for key in record.missing():
            measured = made(*key).delta_logp * np.float32(1 + 1e-6)
            record.add(row(*key, delta_logp=measured))
        assert record.digest() == whole
        assert np.array_equal(record.get(key).delta_logp, measured.astype(np.float16).astype(np.float32))


def test_a_problem_order_counts_numbers_as_numbers():
    names = ["a/10", "a/2", "a/x", "a/01", "a/1"]
    assert [key[0] for key in in_order((name, 0) for name in names)] == ["a/01", "a/1", "a/2", "a/10", "a/x"]


def test_a_rollout_comes_back_to_the_bit_and_the_reader_in_the_docs_has_it_too(tmp_path):
    path, key = fill(tmp_path) / JOURNAL, (PROBLEMS[2], 1)
    table = np.random.default_rng(0).normal(size=(len(made(*key).token_ids), columns(0))).astype(np.float32)
    with open_record(tmp_path, trace_columns=columns(0)) as record:
        record.add(row(*key, trace=SimpleNamespace(table=table)))
    [code] = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    theirs = {(each["problem"], each["sample"]): each for each in names["rollouts"](path)}
    assert len(theirs) == 36
    assert (theirs[key]["trace"] == table).all()
    assert (read(tmp_path).rows[key].trace == table).all()
    for ours in read(tmp_path):
        each, rollout = theirs[ours.key], made(*ours.key)
        for name in ("text", "token_ids", "replaced", "changed", "delta_logp"):
            assert np.array_equal(each[name], getattr(ours, name)), name
        assert np.array_equal(each.get("proposed", ()), ours.proposed[ours.changed])
        assert np.array_equal(each.get("delta_logp_written", ()), ours.delta_logp_written[ours.changed])
        for name in ("text", "token_ids", "replaced", "changed", "prompt_token_ids", "finish_reason"):
            assert np.array_equal(getattr(ours, name), getattr(rollout, name)), name
        assert np.abs(ours.delta_logp - rollout.delta_logp).max() <= DELTA_ERROR * np.abs(rollout.delta_logp).max()
        assert ours.n_replaced == rollout.replaced.sum()
        assert np.array_equal(ours.proposed, np.where(rollout.changed, rollout.proposed, rollout.token_ids))
        written = np.where(rollout.changed, rollout.delta_logp_written, rollout.delta_logp)
        assert np.abs(ours.delta_logp_written - written).max() <= 4 * DELTA_ERROR


@pytest.mark.parametrize("traced", [False, True])
def test_a_record_of_a_version_without_proposals_is_read_with_the_proposals_unknown(traced):
    table = np.zeros((20, columns(0)), np.float32) if traced else None
    new = next(row(p, s, 20) for p in PROBLEMS for s in range(3) if row(p, s, 20).n_changed)
    rollout = made(*new.key, 20)
    fields = {name: getattr(rollout, name) for name in ("text", "finish_reason", "replaced", "changed", "token_ids")}
    fields |= {"prompt_token_ids": rollout.prompt_token_ids, "delta_logp": rollout.delta_logp, "trace": table}
    now = {"proposed": rollout.proposed, "delta_logp_written": rollout.delta_logp_written}
    old, new = Row.make(*new.key, **fields), Row.make(*new.key, **fields, **now)
    assert old.digest == new.digest
    assert not {"proposed", "delta_logp_written"} & set(old.to_dict()["columns"])
    again = Row(**old.to_dict())
    again.place(old.payload())
    unknown = old.changed
    assert (again.proposed[unknown] == (0 if traced else UNKNOWN)).all()  # a trace has it
    assert np.isnan(again.delta_logp_written[unknown]).all()
    assert np.array_equal(again.proposed[~unknown], new.proposed[~unknown])
    assert np.array_equal(again.delta_logp_written[~unknown], new.delta_logp_written[~unknown])
    assert (new.proposed[unknown] == rollout.proposed[unknown]).all()


def test_another_prompt_is_another_record(tmp_path):
    fill(tmp_path)
    held = {one.problem: one.prompt for one in read(tmp_path)}
    with open_record(tmp_path, problems=held):
        pass
    with refuses("another"):
        open_record(tmp_path, problems={**held, PROBLEMS[3]: "0" * 16})
    with open_record(tmp_path):  # the refusal has let go of the lock
        pass


def test_an_incomplete_record_is_not_finished(tmp_path):
    with open_record(tmp_path) as record:
        record.add(row(PROBLEMS[0], 0))
        with refuses("35", "36"):
            record.finish()
        with pytest.raises(ValueError, match="another/0"):
            record.add(row("another/0", 0))
    assert not read(tmp_path).finished


def test_a_trace_is_added_to_what_is_held_and_changes_nothing_exact(tmp_path, whole):
    def traced(key, width, **changes):
        table = np.arange(len(made(*key).token_ids) * width, dtype=np.float32).reshape(-1, width)
        return row(*key, trace=SimpleNamespace(table=table), **changes)

    fill(tmp_path / "s")
    key, other = (PROBLEMS[0], 1), (PROBLEMS[1], 0)
    with open_record(tmp_path / "s", trace_columns=columns(0)) as record:
        assert len(record.missing()) == 36
        assert record.get(key) is None
        record.add(traced(key, columns(0)))
        assert key not in record.missing()
        assert (record.get(key).trace == traced(key, columns(0)).trace).all()
        with pytest.raises(RuntimeError, match="came out with other tokens"):
            record.add(traced(other, columns(0), text="!"))
    with open_record(tmp_path / "s") as record:
        assert not record.missing()
        assert record.get(other).trace is None
    with open_record(tmp_path / "s", trace_columns=columns(1)) as record:
        assert key in record.missing()
        record.add(traced(key, columns(1)))
    record = read(tmp_path / "s")
    assert (len(record.response_keys), record.finished, record.digest()) == (36, True, whole)
    assert record.get(key).trace.shape[1] == columns(1)


def test_a_trace_of_the_columns_of_an_earlier_version_is_none_and_is_made_again(tmp_path):
    """Ten facts and one likeliest token of each model, as before `tv_other`: more columns than eleven facts have."""
    key, older = (PROBLEMS[0], 0), columns(1) - 1
    with open_record(tmp_path, trace_columns=0) as record:
        table = np.ones((len(made(*key).token_ids), older), np.float32)
        record.add(row(*key, trace=SimpleNamespace(table=table)))
        assert record.rows[key].trace_columns == older
        assert record.get(key).trace is None
    with open_record(tmp_path, trace_columns=columns(0)) as record:
        assert key in record.missing()


def test_verdicts_hold_for_text_gold_and_grader_and_are_graded_again_else(tmp_path, monkeypatch):
    from rlvr_dir.records import record as module

    graded, grade_many = [], module.grade_many

    def counting(items, **options):
        items = list(items)
        graded.append(len(items))
        return grade_many(items, **options)

    monkeypatch.setattr(module, "grade_many", counting)
    fill(tmp_path)
    gold = dict.fromkeys(PROBLEMS, "1")
    with open_record(tmp_path) as record:
        first = record.grade(gold)
        assert all(v.correct == (len(made(*key).token_ids) % 3 == 1) for key, v in first.items())
        size = record.path.stat().st_size
        assert record.grade(gold) == first
        assert record.path.stat().st_size == size
        assert record.grade({**gold, PROBLEMS[0]: ("2", "3")}) != first
        with refuses("tiny_easy/0"):
            record.grade({})
    assert graded == [36, 0, 3]
    record = read(tmp_path)
    assert record.verdict(ROBUST, record.rows[PROBLEMS[1], 0], "1") == first[PROBLEMS[1], 0]
    assert record.verdict(ROBUST, record.rows[PROBLEMS[1], 0], "2") is None
    assert record.verdict(ROBUST, record.rows[PROBLEMS[0], 0], ["2", "3"]) is not None
    monkeypatch.setattr(module, "versions", lambda judge: {"grader": judge, "sympy": "another"})
    assert record.verdict(ROBUST, record.rows[PROBLEMS[1], 0], "1") is None
    assert len(record.verdicts(ROBUST)) == 36  # whoever only reads has them all the same
    with open_record(tmp_path) as record:
        record.grade(gold, keys=[(PROBLEMS[1], 0)])
    assert graded[3:] == [1, 35], "no verdict of the older one is left that would be taken for the newer's"


def test_a_verdict_that_the_machinery_failed_to_give_is_given_again(tmp_path):
    fill(tmp_path)
    with open_record(tmp_path) as record:
        one = record.rows[PROBLEMS[0], 0]
        record.judge(ROBUST, [(one, "1", Verdict("timed_out", "7"))])
        assert record.verdict(ROBUST, one, "1") is None


# Damage


def damaged(data, how, at, size):
    """The bytes of a file after a power cut, a bad disk or a stranger."""
    at %= len(data)
    return {
        "cut": data[:at],
        "flip": data[:at] + bytes([data[at] ^ 1 << size % 8]) + data[at + 1 :],
        "lose": data[:at] + data[at + 1 + size % 40 :],
        "add": data[:at] + b"\n" + b"{" * (size % 1000) + data[at:],
        "zeros": data + bytes(1 + size),
        "rubbish": random.Random(size).randbytes(at),
    }[how]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The bytes of a finished record's file, and its digest."""
    folder = tmp_path_factory.mktemp("sound")
    return (fill(folder) / JOURNAL).read_bytes(), read(folder).digest()


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["cut", "flip", "lose", "add", "zeros", "rubbish"]), st.integers(0, 10**6), st.integers(0, 5000))
def test_whatever_happens_to_a_file_its_record_is_made_whole_again(sound, tmp_path_factory, how, at, size):
    data, whole = sound
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / HASH / TASK / JOURNAL
    path.parent.mkdir(parents=True)
    path.write_bytes(bad := damaged(data, how, at, size))
    found = read(folder, whole=True)
    lost = {(problem, sample) for problem in PROBLEMS for sample in range(3)} - set(found.response_keys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verify_records(folder, repair=True) if found.config else None  # of one that says what it is
        record = open_record(folder)
    with record:
        assert set(record.missing()) == lost
        assert len(lost) <= 2 or how in ("cut", "rubbish")  # where a line's end is hit, two lines are one
        resume(record)
    again = read(folder, whole=True)
    assert (again.digest(), again.finished, again.damage) == (whole, True, [])
    aside = [each.read_bytes() for each in path.parent.glob("journal.corrupt-*")]
    assert aside in ([], [bad])  # a file that is only torn is repaired where it is


def test_a_file_of_another_record_is_never_mixed_in(tmp_path, whole):
    ours = fill(tmp_path / "ours") / JOURNAL
    with RecordStore(tmp_path / "b").open(config(sampling=Sampling(seed=1)), TASK, PROBLEMS, 3) as other:
        other.add(*(row(*key, length=3) for key in other.missing()))
    ours.write_bytes(other.path.read_bytes())
    assert "is not of the record that its folder is named after" in read(tmp_path / "ours").damage[0]
    assert read(tmp_path / "ours").response_keys == []
    with warns_of("belongs"):
        fill(tmp_path / "ours")
    assert read(tmp_path / "ours").digest() == whole


def flip(path, row):
    """Damage a bit of a response's columns."""
    data = bytearray(path.read_bytes())
    data[data.find(row.payload()) + 20] ^= 1
    path.write_bytes(data)


def test_what_is_skipped_is_checked_when_it_is_read(tmp_path):
    """Counts come from intact lines; damage of what a command was done with is found by who wants it, and by verify."""
    path, key = fill(tmp_path) / JOURNAL, (PROBLEMS[3], 1)
    flip(path, read(tmp_path).rows[key])
    for record in (read(tmp_path), open_record(tmp_path)):
        with record:
            assert (len(record.response_keys), record.rows[key].n_tokens) == (36, len(made(*key).token_ids))
            for want in (lambda row=record.rows[key]: row.text, record.rows[key].load):
                with refuses("1", "--repair", PROBLEMS[3]):
                    want()
    assert "1 damaged entries" in verify_records(tmp_path)[record.name][0]
    with warns_of("aside"):
        verify_records(tmp_path, repair=True)
    with open_record(tmp_path) as record:
        assert record.missing() == [key]


def test_a_writer_checks_what_was_written_after_the_last_command_was_done(tmp_path):
    """Of a finished record that was then asked for more: damage of what came later, and not of what was there."""
    path, early, late = fill(tmp_path, samples=2) / JOURNAL, (PROBLEMS[3], 1), (PROBLEMS[3], 2)
    with open_record(tmp_path) as record:
        record.add(*(row(*key) for key in record.missing()[:6]))
    flip(path, read(tmp_path).rows[late])
    with warns_of("aside"):
        record = open_record(tmp_path)
    assert len(record.missing()) == 7
    assert late in record.missing()
    resume(record)
    record.close()
    flip(path, read(tmp_path).rows[early])
    with open_record(tmp_path) as record:
        assert not record.missing()
    with open_record(tmp_path, samples=4) as record:
        record.add(row(PROBLEMS[0], 3))
    flip(path, read(tmp_path).rows[PROBLEMS[0], 3])
    with warns_of("2"), open_record(tmp_path) as record:
        assert record.missing() == [early], "where a file is written anew, all of it is checked"


def test_a_text_is_read_without_the_columns_beside_it(tmp_path):
    """Damage of a trace is its reader's; a text alone is read as if nothing were wrong."""
    key, table = (
        (PROBLEMS[0], 0),
        np.random.default_rng(0).normal(size=(len(made(PROBLEMS[0], 0).token_ids), columns(1))),
    )
    with open_record(tmp_path, trace_columns=columns(1)) as record:
        record.add(row(*key, trace=SimpleNamespace(table=table)))
    data = bytearray(record.path.read_bytes())
    data[-20] ^= 1  # the trace is the last column
    record.path.write_bytes(data)
    one = read(tmp_path).rows[key]
    assert one.text == made(*key).text
    assert one.token_ids == made(*key).token_ids
    with refuses("damaged"):
        _ = one.trace


@pytest.mark.parametrize("number", [4, 6])
def test_another_format_is_refused_and_left_alone(tmp_path, number):
    path = fill(tmp_path) / JOURNAL
    data = encode({"about": {"format": number, "task": TASK, "what": "ever"}}) + b"who knows"
    path.write_bytes(data)
    for look in (lambda: open_record(tmp_path), lambda: read(tmp_path)):
        with refuses("5", number):
            look()
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "change",
    [
        {"n_tokens": -1},
        {"n_tokens": True},
        {"n_tokens": "7"},
        {"n_tokens": 2**40},
        {"n_replaced": 10**6},
        {"sample": 0.5},
        {"problem": None},
        {"finish_reason": ["stop"]},
        {"columns": {"text": [-400, 1]}},
        {"columns": {"text": [2.0, 1]}},
        {"columns": {"text": [2**60, 1]}},
        {"columns": {"text": [3, 2**32]}},
        {"columns": {"text": [3]}},
        {"columns": {"text": 3}},
        {"columns": {"texts": [3, 1]}},
        {"columns": 7},
        {"columns": None},
        {"trace_columns": 2**20},
        {"trace_columns": 10},
    ],
)
def test_rows_that_someone_made_are_checked_though_their_checksum_fits(tmp_path, change):
    """Only that rollout is lost, by whatever it claims of itself."""
    path = fill(tmp_path) / JOURNAL
    found = entries(path)
    at = [kind for kind, _ in found].index("rollout") + 5
    line, _, payload = found[at][1].partition(b"\n")
    _, plain, value = decode(line + b"\n")
    if isinstance(change.get("columns"), dict):
        change = {"columns": {**plain["columns"], **change["columns"]}}
    found[at] = ("rollout", encode({"rollout": {**plain, **change}}) + payload)
    path.write_bytes(b"".join(data for _, data in found))
    with warns_of("aside"):
        record = open_record(tmp_path)
    assert record.missing() == [value.key]
    resume(record)
    record.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with open_record(tmp_path) as record:
            assert not record.missing()


@pytest.mark.parametrize(
    "entry",
    [
        {"about": {"asked": {"problems": "many"}}},
        {"about": {"complete": {"x": -1}}},
        {"about": {"presentation": "{{"}},
        {"about": 7},
        {"verdict": {"judge": "../robust", "problem": "x", "sample": 0, "text": "", "gold": "", "kind": "correct"}},
        {"verdict": {"judge": ROBUST, "problem": "x", "sample": 0, "text": "", "gold": {}, "kind": "correct"}},
        {"verdict": {"judge": ROBUST, "problem": "x", "sample": 0, "text": "", "gold": "", "kind": "splendid"}},
        {"scores": 3},
        {"rollout": {}},
        {"unheard": {}},
        {"about": {}, "verdict": {}},
        {},
    ],
)
def test_other_entries_that_someone_made_are_named_and_left_out(tmp_path, entry, whole):
    path = fill(tmp_path / "x") / JOURNAL
    path.write_bytes(path.read_bytes() + encode(entry) + encode({"about": {"chat": "after"}}))
    record = read(tmp_path / "x")
    assert record.damage == [f"1 damaged entries in {path}: what they held is made again by its command"]
    assert (record.digest(), record.metadata.chat, record.judges) == (whole, "after", [])


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(b" " + path.read_bytes()), "its checksum does not fit"),
    ],
    ids=["deleted", "moved"],
)
def test_a_rollout_that_is_gone_when_it_is_read_is_one_sentence(tmp_path, break_it, why):
    one = next(iter(Record(fill(tmp_path)).read()))
    assert one.text == one.load().text
    break_it(tmp_path / HASH / TASK / JOURNAL)
    for get in (lambda: one.text, one.load):
        with refuses("damaged", why):
            get()


# What a record is known by


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
    """By its configuration and weights, which are those in files of PyTorch where there are no others."""
    place, known = tmp_path / "a", []
    place.mkdir()
    for file, content, is_new in (
        ("config.json", b"{}", True),
        ("model.pt", b"before", True),
        ("model.pt", b"afterw", True),
        ("model.safetensors", b"w" * (20 << 20), True),  # larger than what is read whole
        ("model.safetensors", b"w" * (19 << 20) + b"v" * (1 << 20), True),
        ("model.pt", b"an optimiser's state, say", False),
        ("training.log", b"does not count", False),
    ):
        (place / file).write_bytes(content)
        found = fingerprint(str(place))
        assert (found not in known) == is_new, file
        known.append(found)
    assert fingerprint(str(place.rename(tmp_path / "b"))) == known[-1]


def test_a_hub_checkpoint_is_known_by_its_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert fingerprint("org/model") == "org/model"
    assert fingerprint("org/model", "v1") == "org/model@v1"
    (tmp_path / "models--org--model" / "refs").mkdir(parents=True)
    (tmp_path / "models--org--model" / "refs" / "main").write_text("c0ffee")
    assert fingerprint("org/model") == "org/model@c0ffee"


def test_tokens_of_a_record_have_the_columns_of_its_traces(tmp_path):
    """Of responses with traces of different widths and without one: what is not there is missing."""
    from rlvr_dir import tokens

    def traced(key, width):
        table = np.arange(len(made(*key).token_ids) * width, dtype=np.float32).reshape(-1, width)
        return row(*key, trace=SimpleNamespace(table=table))

    fill(tmp_path / "s", samples=1, problems=[f"{TASK}/10", f"{TASK}/2", f"{TASK}/7"])
    widths = {"2": 0, "7": columns(0), "10": columns(1)}  # numbers as numbers
    for problem in ("7", "10"):
        problems = [f"{TASK}/10", f"{TASK}/2", f"{TASK}/7"]
        with open_record(tmp_path / "s", 1, problems, trace_columns=widths[problem]) as record:
            record.add(traced((f"{TASK}/{problem}", 0), widths[problem]))
    frame = tokens(tmp_path / "s")
    assert frame["problem"].unique().tolist() == [*widths]
    names = [*FACTS, "base_id_0", "base_logp_0", "rl_id_0", "rl_logp_0"]
    of_traces = [name for name in names if name != "proposed"]  # every record has it
    assert [*frame.columns[-len(of_traces) :]] == of_traces
    for problem, width in widths.items():
        part, whole = frame[frame["problem"] == problem], made(f"{TASK}/{problem}", 0)
        assert part["position"].tolist() == list(range(len(whole.token_ids)))
        assert part["token"].tolist() == list(whole.token_ids)
        assert part["flagged"].tolist() == whole.replaced.tolist()
        assert part["proposed"].tolist() == np.where(whole.changed, whole.proposed, whole.token_ids).tolist()
        table = np.arange(len(part) * width, dtype=float).reshape(len(part), width)
        for i, name in enumerate(names):
            if name != "proposed":
                expected = table[:, i] if i < width else np.full(len(part), np.nan)
                assert np.array_equal(part[name], expected, equal_nan=True), name
    with pytest.raises(UserError) as error:
        tokens(tmp_path / "nothing")
    assert error.value.argument == "place"
