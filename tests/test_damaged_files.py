"""Files that disks damage or strangers write: each is refused in a sentence or left out by name, never a traceback.

Every case changes one file of a healthy folder and runs the commands' own functions on it. `RLVR_DIR_FUZZ=9` runs nine
times as many cases, others every time.
"""

import json
import os
import random
import shutil
import warnings
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rlvr_dir.analysis.curves import curves
from rlvr_dir.config import Decoding, load_eval, read_yaml
from rlvr_dir.config.base import read_jsonl
from rlvr_dir.errors import UserError
from rlvr_dir.problems.benchmark import read_benchmark
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.records import RecordStore
from rlvr_dir.records.commands import gc_records, list_records, verify_records
from rlvr_dir.records.entries import decode, encode
from rlvr_dir.report.build import build
from rlvr_dir.report.viewer import common_problems, stored_answers, viewer_data
from rlvr_dir.results.compare import compare, markdown
from rlvr_dir.results.from_records import grade_again, show_record
from rlvr_dir.results.load_results import read_results
from rlvr_dir.results.settings import settings_of
from rlvr_dir.sweep.estimate import _speed
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.run import best, open_sweep, status
from rlvr_dir.sweep.specs import load
from rlvr_dir.sweep.taus import stored_taus
from rlvr_dir.tracking.training import metrics_of, scores_of
from rlvr_dir.train import TrainSpec
from rlvr_dir.train.data import read_problems
from rlvr_dir.train.folder import TrainingFolder
from rlvr_dir.train.schemas import Input
from rlvr_dir.train.spec import load_train
from rlvr_dir.train.summary import write_summary
from tests.commands import run
from tests.facts import refuses
from tests.records import made
from tests.report.made import lm_eval_result, result
from tests.sweep.made import SMALL
from tests.train.test_summary import training

ROOT = Path(__file__).parents[1]
TIMES = int(os.environ.get("RLVR_DIR_FUZZ", "1"))


HOSTILE = (
    float("nan"), float("inf"), -float("inf"), -1, 0, 1, 2, 7, 0.5, 1e308, 2**31, 2**63, 2**70, 10**400, True, False,
    None, "", "false", "0", "x", "NaN", "a" * 400, "../../../etc/passwd", "/dev/zero", "\x1b[2J", "\ud800", "\u202e",
    "\0", [], {}, [[]], [None], [1, "x"], {"": None}, {"a": {"b": [1]}}, 20 * [[20 * [1]]],
)  # fmt: skip


def places(value, at=()):
    """Every place in plain values, the outermost first."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*at, key))


def inner(value, at):
    for key in at:
        value = value[key]
    return value


def changed(value, how, rng):
    """Plain values as JSON with one of them changed; deep places are as likely as shallow ones."""
    if how == "deep":
        return "[" * 1100 + "]" * 1100  # as text, since Python cannot write it
    value, put = json.loads(json.dumps(value)), rng.choice(HOSTILE)
    every = list(places(value))
    depth = rng.choice(sorted({len(at) for at in every}))
    *way, last = rng.choice([at for at in every if len(at) == depth]) or [None]
    if last is None:
        return json.dumps(put)
    inside = inner(value, way)
    if how == "delete":
        del inside[last]
    elif how == "double" and isinstance(inside, list):
        inside.insert(last, inside[last])
    elif how == "swap":
        inside[last] = json.loads(json.dumps(inner(value, rng.choice(every))))
    else:
        inside[last] = put
    return json.dumps(value)


def damage(data, rng):
    """The bytes of a file, damaged: its JSON (or that of one of its lines, with a checksum that fits) or the bytes."""
    how = rng.choice(["value"] * 8 + ["delete", "double", "swap", "bytes", "cut", "rubbish", "empty", "deep"])
    if how == "empty" or not data:
        return b""
    if how == "rubbish":
        return rng.randbytes(rng.choice([1, 40, 3000]))
    if how == "cut":
        return data[: rng.randrange(len(data) + 1)]
    if how == "bytes":
        data = bytearray(data)
        for _ in range(rng.choice([1, 3, 30])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    with suppress(ValueError):
        return changed(json.loads(data), how, rng).encode()
    rows = data.split(b"\n")
    number = rng.randrange(len(rows))
    with suppress(ValueError):
        if (entry := decode(rows[number] + b"\n")) is None:
            rows[number] = changed(json.loads(rows[number]), how, rng).encode()
        else:
            how = "value" if how == "deep" else how
            rows[number] = encode(json.loads(changed({entry[0]: entry[1]}, how, rng)))[:-1]
    return b"\n".join(rows)


class Folder:
    """A healthy folder of which one file at a time is damaged."""

    def __init__(self, path, pattern="**/*"):
        self.path = path
        skip = ("lock", "claim", ".flock", ".npy")
        self.files = sorted(each for each in path.glob(pattern) if each.is_file() and not each.name.endswith(skip))
        self.healthy = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}

    def damage(self, rng):
        """Damage a file, and return it."""
        for file in [each for each in self.path.rglob("*") if each.is_file() and each not in self.healthy]:
            file.unlink()
        for file, data in self.healthy.items():
            if not file.is_file() or file.read_bytes() != data:
                file.write_bytes(data)
        file = rng.choice(self.files)
        file.write_bytes(damage(self.healthy[file], rng))
        return file


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        # Each of these was read as a score, 100.00 % some of them.
        ("correct", "false", "correct "),
        ("correct", 7, "correct "),
        ("correct", float("nan"), "correct "),
        ("n_tokens", float("nan"), "n_tokens "),
        ("n_tokens", -1, "n_tokens "),
        ("n_tokens", 2**70, "n_tokens "),
        ("n_tokens", 1.5, "n_tokens "),
        ("truncated", "0", "truncated "),
        ("votes", -2, "votes "),
        # Other forms.
        ("correct", [[1] * 4] * 5, "correct aime24 (5, (6,"),
        ("correct", [[1] * 4] * 5 + [[1]], "correct"),
        ("problem_ids", ["p0"] * 6, "problem_ids p0"),
        ("task", "../../escape", "task ../../escape"),
        ("seconds", float("inf"), "seconds inf"),
        ("provenance", {"grader": 7}, "provenance.grader 7"),
        ("provenance", {"engine": "vllm"}, "provenance.engine vllm"),
        ("sampling", {"samples": -4}, "sampling.samples -4"),
    ],
)
def test_a_result_of_a_value_out_of_range_or_another_form_is_refused_by_name(tmp_path, key, value, sentence):
    file = result(Decoding(mode="rl")).write(tmp_path)
    data = json.loads(file.read_text())
    if sentence == f"{key} ":
        data[key][0][1] = value
    else:
        data[key] = value
    file.write_text(json.dumps(data))
    with refuses(file, *sentence.split()):
        read_results([file])


def test_no_file_is_read_because_a_record_names_it(tmp_path, monkeypatch):
    """Its right answers are taken from below the current folder alone; a link that leads out of it is not followed."""
    (tmp_path / "here").mkdir()
    secret, link = tmp_path / "secret.jsonl", tmp_path / "here/link.jsonl"
    secret.write_text('{"id": 0, "problem": "x", "answer": 1}\n')
    link.symlink_to(secret)
    for number, file in enumerate((secret, link, tmp_path / "here/../secret.jsonl")):
        store = RecordStore(tmp_path / f"store-{number}")
        with store.open(made.config(), "mine", ["mine/0"], 1, metadata={"file": str(file)}) as record:
            record.add(made.row("mine/0", 0))
            record.finish()
        monkeypatch.chdir(tmp_path / "here")
        with refuses(file.name, "--data-dir"):
            read_results([store.folder])
        assert file == link or read_results([store.folder], data_dir=str(tmp_path))  # there, by the name it had
        monkeypatch.chdir(tmp_path)
        assert len(read_results([store.folder])) == 1
        with store.read(*store.names()[0]).lock() as record:  # once graded, it needs no file
            record.grade({"mine/0": "1"})
        monkeypatch.chdir(tmp_path / "here")
        assert len(read_results([store.folder])) == 1


SWEEP, TRAININGS = (read_yaml(ROOT / f"sweeps/{name}.yaml") for name in ("tiny_tau_gamma", "tiny_alpha"))


@pytest.mark.parametrize(
    ("reader", "spec", "sentence"),
    [
        (load, {"kind": [1, "x"]}, "kind [1 'x']"),
        (load, {**SWEEP, "references": 368211162}, "references 368211162"),
        (load, {**SWEEP, "decode": 7}, "decode 7"),
        (load, {**TRAININGS, "train": {"dapo": 7}}, "train.dapo 7"),
        (load_eval, {"tasks": ["amc"], "pair": ["x"]}, "pair ['x']"),
        (load_eval, {"tasks": ["amc"], "decodings": True}, "decodings True"),
        (load_train, {"preset": [None]}, "preset [None]"),
        (load_train, {"dapo": {"method": {}}}, "dapo.method {}"),
    ],
)
def test_a_value_of_another_type_in_a_spec_is_one_sentence(reader, spec, sentence):
    """Each of these was a TypeError."""
    with refuses(*sentence.split()):
        reader(spec)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x]\n"
        + "".join(f"{new}: &{new} [{', '.join(9 * [f'*{old}'])}]\n" for old, new in pairwise("abcdefghij")),
        "tasks: &a [*a]",
        "tasks: 2026-13-45",
        "tasks: 0b_",
        "tasks: " + "[" * 900,
        "{a: " * 900,
        "? [a]\n: b",
        "1: x",
        "\x00",
        "!!python/object/apply:os.system [ls]",
    ],
    ids=[
        "bomb",
        "itself",
        "no date",
        "no number",
        "deep",
        "deep mapping",
        "list as key",
        "number as key",
        "zero",
        "code",
    ],
)
def test_a_hostile_yaml_is_one_sentence(tmp_path, text):
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(UserError, match=r"spec\.yaml|tasks"):
        load_eval(read_yaml(tmp_path / "spec.yaml"))


# Each scene makes a healthy folder, and lists what is done with it when a file of it is damaged.


def some_results(path):
    for seed in (0, 1):
        for mode in ({"mode": "base"}, {"mode": "rl"}, {"mode": "replace", "tau": -0.3}):
            result(Decoding(**mode), 0.5, seed=seed).write(path)
    for mode in ("base", "rl"):
        lm_eval_result("other", Decoding(mode=mode), grader="lm-eval", graded_with={"task": "0"}).write(path)
    return Folder(path)


def look_at_results(path, file, rng):
    found = []

    def compared():
        for each in found:
            assert 0.0 <= each.avg <= 1.0
            assert (each.n_replaced <= each.n_tokens).all()
        markdown(compare(settings_of(found)))

    yield lambda: found.extend(read_results([path]))
    yield compared
    if rng.random() < 1 / 8:
        yield lambda: build(found)


def begun(path):
    """A sweep that has run, with its records."""
    (path / "small.yaml").write_text(json.dumps(SMALL))
    run("sweep", "run", path / "small.yaml", "--no-track", "--out", path, "--records", path / "records")
    return path


def some_records(path):
    for each in sorted((begun(path / "..") / "records").iterdir())[:2]:
        shutil.copytree(each, path / each.name)
    problems = [f"tiny_easy/{row['id']}" for row in find_benchmark("tiny_easy").problems[:4]]
    settings = {"metadata": {"base": "org/base", "rl": "org/rl"}}
    with RecordStore(path).open(made.config(), "tiny_easy", problems, 2, **settings) as record:
        made.resume(record)
    for name in RecordStore(path).names():
        with suppress(UserError):
            grade_again(RecordStore(path).read(*name), grader="plain")
    return Folder(path)


def look_at_records(path, file, rng):
    """A damaged record is named; the others are listed, checked and compared."""
    names = RecordStore(path).names()
    mine, task = file.relative_to(path).parts[:2]

    def listed():
        assert len(list_records(path)) == len(names)
        damage = verify_records(path)
        assert not any(said for record, said in damage.items() if not record.startswith(mine))

    def seen():
        snapshot = RecordStore(path).read(mine, task)
        viewer_data(stored_answers([snapshot], common_problems([snapshot])[:2]))

    yield listed
    yield lambda: show_record(path, f"{mine}/{task}")
    yield lambda: gc_records(path)
    yield lambda: read_results([path], partial=True)
    yield lambda: grade_again(RecordStore(path).read(mine, task), grader="plain")
    yield seen


def some_sweeps(path):
    folder = begun(path) / "sweeps/small"
    rows = [
        {"criterion": gate, "tau": 0.1, "wanted": 0.05, "expected": 0.05} for gate in ("kl", "delta_logp above @0:16")
    ]
    (folder / "matched.json").write_text(json.dumps({"tiny": rows}))
    summary = {"states": {"failed": 1}, "tokens_per_second": 9.5, "mean_tokens": {"tiny": {"tiny_easy": 20}}}
    (folder / "summary.json").write_text(json.dumps(summary))
    return Folder(path, "sweeps/small/**/*")


def look_at_sweeps(path, file, rng):
    folder, drawn = SweepFolder(path / "sweeps/small"), rng.random() < 1 / 4  # a report with all of its figures

    def looked():
        spec = folder.stored()
        status(folder, spec)
        best(folder, spec)
        summary = open_sweep(spec, Places.under(path, track=False)).summary()
        summary.plain()
        if drawn:
            summary.text()

    yield looked
    yield lambda: _speed(path, folder.stored())
    yield lambda: stored_taus(folder.stored(), folder, "tiny")
    yield lambda: read_results([folder.path])


def some_trainings(path):
    ours = {0: (4, 2, 6, 4, 5, 5), 1: (4, 4, 4, 6, 5, 5)}
    for name, right in {"dapo": dict.fromkeys(ours, (2, 2, 6, 4, 3, 5)), "ours": ours}.items():
        folder, spec = training(path / name, right, method="low_prob" if name == "ours" else "none")
        folder.create_or_verify(spec, {"data": Input(file="somewhere", digest="0" * 16, judges=True)})
        write_summary(folder, spec)
    return Folder(path)


def look_at_trainings(path, file, rng):
    ours = TrainingFolder(path / "ours")
    seeds = [ours.seed(0), ours.seed(1)]
    yield lambda: write_summary(ours, ours.stored(), path / "dapo")
    yield lambda: [metrics_of(record) for one in seeds for record in one.records()]
    yield lambda: [scores_of(one.outcome()["scores"]) for one in seeds]


def some_data(path):
    rows = [{"id": i, "problem": f"What is {i} + 1?", "answer": i + 1, "answers": [str(i + 1)]} for i in range(4)]
    texts = [{"prompt": [{"role": "user", "content": "x"}], "answer": "1"}, {"problem": "x", "answer": 2.5}]
    log = [
        {"step": i, "accuracy": 0.1 * i, "entropy": 1.0, "token_share": [0.5, 0.5], "gradient_share": [1, 0]}
        for i in range(4)
    ]
    for name, each in {"own.jsonl": rows, "train.jsonl": texts, "log.jsonl": log}.items():
        (path / name).write_text("".join(json.dumps(row) + "\n" for row in each))
    for name, each in {
        "own.yaml": {"prompt": "Q: {{problem}}", "examples": [{"problem": "x", "answer": "1"}]},
        "build.json": {"dapo": {"rollout_accuracy": [0.1, 0.2], "rollout_tokens": [5, 6]}},
        "trl.json": {"log_history": log},
    }.items():
        (path / name).write_text(json.dumps(each))
    return Folder(path)


def look_at_data(path, file, rng):
    logs = [path / name for name in ("log.jsonl", "build.json", "trl.json")]
    yield lambda: json.dumps(read_benchmark("own", str(path / "own.jsonl")).data)
    yield lambda: read_jsonl(path / "own.jsonl", ("id", "answers"))
    yield lambda: "".join(map(str, read_problems(path / "train.jsonl", TrainSpec(instruction=" Box it.")))).encode()
    yield lambda: curves({each.name: [each] for each in logs}).model_dump_json()


SCENES = {
    "results": (some_results, look_at_results),
    "records": (some_records, look_at_records),
    "sweeps": (some_sweeps, look_at_sweeps),
    "trainings": (some_trainings, look_at_trainings),
    "data": (some_data, look_at_data),
}


@pytest.fixture(scope="module", params=SCENES)
def scene(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("scene") / "healthy"
    path.mkdir()
    make, look = SCENES[request.param]
    return make(path), look


@pytest.mark.whole(reason="hundreds of damaged files")
@settings(
    max_examples=40 * TIMES,
    deadline=None,
    derandomize=TIMES == 1,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_is_read_or_refused(scene, seed):
    """Each step ends, or refuses what it reads; another exception fails the test."""
    (folder, look), rng = scene, random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in look(folder.path, folder.damage(rng), rng):
            with suppress(UserError):
                step()
