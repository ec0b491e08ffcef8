"""A user's JSONL is a benchmark in every command, from a file of five sums; the stock command is in test_front_door."""

import json
import re
from pathlib import Path
from shutil import copytree

import pytest
from typer.testing import CliRunner

from harness.cli import app
from harness.errors import UserError
from harness.evals import data as data_module
from harness.evals import preflight
from harness.evals.compare import read_results
from harness.evals.data import problems
from harness.records import RecordStore
from harness.tiny import tiny_pair

FAST = ["--samples", "2", "--max-tokens", "60", "--backend", "transformers"]
YAML = """
prompt: "{{problem}}\\nPlease reason step by step, and put your final answer within \\\\boxed{}."
examples:
- {problem: "Flo has 5 pens a gives 3 how many ?", answer: "so \\\\boxed{2}"}
"""


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, UserError), done.output
    return str(done.exception)


def write(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    """A folder with `sums.jsonl`, another file of that name, the latter with a YAML, and all of them evaluated."""
    folder = tmp_path_factory.mktemp("own")
    rows = [{"problem": row["problem"], "answer": int(row["answer"])} for row in problems("tiny_easy")[:5]]
    write(folder / "sums.jsonl", rows)
    write(folder / "changed/sums.jsonl", [{**row, "answer": 0} for row in rows])
    write(folder / "shown/sums.jsonl", [{"id": f"sum-{i}", **row} for i, row in enumerate(rows)])
    (folder / "shown/sums.yaml").write_text(YAML)
    for name in ("sums", "changed/sums", "shown=shown/sums"):
        task, _, file = name.rpartition("=")
        asked = f"{task}={folder / file}.jsonl" if task else folder / f"{file}.jsonl"
        told = run("eval", "--tasks", asked, "-d", "rl", "-d", "base", *FAST, "--no-track", "--out", folder / "runs")
        assert re.search(rf"^\| {task or 'sums'} +\| rl ", told, re.MULTILINE), told
    return folder


def test_its_rollouts_are_kept_and_scored_under_its_name(where):
    results = read_results([where / "runs"])
    scores = {(r.task, r.decoding.mode, r.provenance["data"]): r for r in results}
    assert len(scores) == 6
    assert {r.task for r in results} == {"sums", "shown"}
    right, wrong = preflight([str(where / "sums.jsonl")]), preflight([str(where / "changed/sums.jsonl")])
    [right], [wrong] = right.values(), wrong.values()
    assert scores["sums", "rl", right].avg > 0.5
    assert scores["sums", "rl", wrong].avg == 0
    assert scores["sums", "rl", right].problem_ids == ("0", "1", "2", "3", "4")
    assert scores["shown", "rl", preflight([f"shown={where}/shown/sums.jsonl"]).popitem()[1]].problem_ids[0] == "sum-0"


def test_records_are_compared_reported_and_viewed_without_being_told_the_file(where):
    store = where / "runs/records"
    from_files, from_records = run("compare", where / "runs"), run("compare", store)
    assert sorted(from_files.splitlines()) == sorted(from_records.splitlines())
    report = run("report", store, "--out", where / "report")
    assert "report.html" in report
    assert "shown" in (where / "report/report.md").read_text()
    [name] = [f"{config}/{task}" for config, task in RecordStore(store).names() if task == "shown"][:1]
    run("view", name, "--store", store, "--out", where / "view.html")
    page = (where / "view.html").read_text()
    assert "Flo has 5 pens" in page
    assert "so \\\\boxed{2}" in page


def test_two_files_of_one_name_share_no_record_and_no_comparison(where):
    names = [config for config, task in RecordStore(where / "runs/records").names() if task == "sums"]
    assert len(set(names)) == 4
    rl = [r for r in read_results([where / "runs"]) if r.task == "sums" and r.decoding.mode == "rl"]
    assert rl[0].unlike(rl[1]) == ["data"]
    with pytest.raises(UserError, match="differ in data"):
        rl[0].minus(rl[1])
    rows = [line for line in run("compare", where / "runs").splitlines() if line.startswith("| sums")]
    pairs = [re.findall(r"\(data (\w+)\)", line) for line in rows]
    assert [len(set(digests)) for digests in pairs] == [1, 1]
    assert pairs[0][0] != pairs[1][0]


def test_what_the_yaml_says_is_part_of_what_the_benchmark_is(where, tmp_path):
    file = write(tmp_path / "sums.jsonl", [json.loads(line) for line in (where / "shown/sums.jsonl").open()])
    [plain] = preflight([str(file)]).values()
    [shown] = preflight([f"shown={where}/shown/sums.jsonl"]).values()
    assert plain != shown


def test_a_limited_run_says_of_what(where):
    told = run("eval", "--tasks", where / "sums.jsonl", *FAST, "--limit", 3, "--no-track", "--out", where / "limited")
    assert "| sums (3 of 5 problems) |" in told
    assert "| sums (3 of 5 problems) |" in run("eval", "--tasks", "sums", "--data-dir", where, *FAST, "--limit", 3,
        "--no-track", "--out", where / "limited")  # fmt: skip
    [name] = RecordStore(where / "limited/records").names()
    [result] = read_results([where / "limited/records"])
    assert (name[1], result.benchmark) == ("sums", "sums (3 of 5 problems)")


def test_a_record_whose_file_is_gone_or_changed_has_no_answers(where, tmp_path):
    file = write(tmp_path / "mine.jsonl", [json.loads(line) for line in (where / "sums.jsonl").open()])
    run("eval", "--tasks", file, *FAST, "--limit", 1, "--no-track", "--out", tmp_path / "runs")
    store = tmp_path / "runs/records"
    rows = file.read_text()
    file.write_text(rows.replace("how many", "how much"))
    data_module._own.cache_clear()
    assert "was decoded from other questions of mine than are here" in refused("compare", store)
    file.unlink()
    assert f"its right answers are not at hand (task='mine={file}': {file} does not exist" in refused("compare", store)
    write(tmp_path / "moved/mine.jsonl", [json.loads(line) for line in rows.splitlines()])
    [result] = read_results([store], data_dir=str(tmp_path / "moved"))
    assert result.benchmark == "mine (1 of 5 problems)"


def test_a_sweep_takes_it_and_is_not_gone_on_with_when_it_has_changed(where):
    file = write(where / "swept/sums.jsonl", [json.loads(line) for line in (where / "sums.jsonl").open()])
    asked = {"name": "mine", "pair": ["tiny"], "tasks": [str(file)], "method": "grid"}
    asked |= {"sampling": {"samples": 2, "max_tokens": 60}, "engine": {"backend": "transformers"}}
    asked |= {"parameters": {"decode.tau": {"values": [-0.1]}}}
    (where / "sweep.yaml").write_text(json.dumps(asked))
    told = run("sweep", "run", where / "sweep.yaml", "--no-track", "--out", where / "runs")
    assert re.search(r"^\| sums +\| replace τ-0.1 ", told, re.MULTILINE), told
    file.write_text(file.read_text().replace("how many", "how much"))
    data_module._own.cache_clear()
    sentence = refused("sweep", "run", where / "sweep.yaml", "--no-track", "--out", where / "runs")
    assert sentence.startswith("the problems of sums are not those that sweep 'mine' was begun with")


TRAIN = ["dapo.steps=1", "dapo.prompts=2", "dapo.samples=4", "dapo.minibatches=1", "dapo.max_response_tokens=40",
         "dapo.dynamic_sampling=false", "validation.sampling={samples: 2, max_tokens: 60}"]  # fmt: skip


def test_a_training_is_validated_on_it_and_not_gone_on_with_when_it_has_changed(where, tmp_path):
    """One step, then the held-out file, the training's own problems and the base change, one at a time."""
    held = write(tmp_path / "held.jsonl", [json.loads(line) for line in (where / "sums.jsonl").open()])
    rows = [{"problem": row["problem"], "answer": row["answer"]} for row in problems("tiny_easy")[5:9]]
    data, base = write(tmp_path / "train.jsonl", rows), tmp_path / "base"
    copytree(tiny_pair().base, base)
    out = tmp_path / "runs/train/mine"
    command = ["train", "--base", base, "--data", data, "--validate", f"held_out={held}", "--no-track", "--out", out]
    command += [word for each in TRAIN for word in ("--set", each)]
    told = run(*command)
    assert re.search(r"^\| held_out \(5 problems\) +\| Avg@2 +\|", told, re.MULTILINE), told
    data_now = preflight([f"held_out={held}"]).popitem()[1]
    results = read_results([out / "seed-0/results"])
    assert {(r.decoding.mode, r.benchmark, r.provenance["data"]) for r in results} == {
        (mode, "held_out", data_now) for mode in ("base", "rl")
    }
    left = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for file, name in ((held, "validation.tasks held_out"), (data, "data"), (base / "config.json", "base")):
        before = file.read_text()
        file.write_text(before.replace("how many", "how much").replace('"model_type"', ' "model_type"'))
        data_module._own.cache_clear()
        sentence = refused(*command)
        place = base if name == "base" else file
        assert re.fullmatch(
            rf"{name}: the content of {place} is (\S+), and {out} was begun with (?!\1)\S+; undo the change, or choose "
            "another --out",
            sentence,
        ), sentence
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == left
        file.write_text(before)
    data_module._own.cache_clear()
    assert run(*command) == told
    assert "no.jsonl does not exist" in refused("train", "--validate", "no.jsonl", "--dry-run")


GOOD = '{"problem": "What is 2+3?", "answer": 5}\n'


@pytest.mark.parametrize(
    ("tasks", "content", "sentence"),
    [
        ("no.jsonl", None, r"no\.jsonl does not exist; accepted: PATH\.jsonl or NAME=PATH"),
        ("x=no.jsonl", None, r"no\.jsonl does not exist"),
        ("x=", None, "is no file"),
        ("sums", None, "'sums' is not known; accepted: aime24, .*a file of your own is PATH.jsonl or NAME=PATH"),
        ("sums.jsonl", "", r"sums\.jsonl has no problem"),
        ("sums.jsonl", GOOD + "{", r"sums\.jsonl line 2 is not JSON; accepted: an object with problem, answer"),
        ("sums.jsonl", "[1]", r"sums\.jsonl line 1 lacks 'problem'"),
        ("sums.jsonl", GOOD + '{"problem": "x"}', r"line 2 lacks 'answer'"),
        ("sums.jsonl", '{"id": 1, "problem": "x", "answer": 1}\n' * 2, "line 2 has the id '1' of an earlier problem"),
        ("sums.jsonl", '{"problem": "x", "answer": null}', "line 1 has answer=None; accepted: text or a number"),
        ("sums.jsonl", '{"problem": " ", "answer": 1}', "line 1 has problem=' '; accepted: text"),
        ("aime24=sums.jsonl", GOOD, "aime24 is shipped with rlvr-dir; accepted: another name"),
        ("sums.jsonl,sums=sums.jsonl", GOOD, "asks for sums twice"),
        ("a b=sums.jsonl", GOOD, "'a b' cannot be a benchmark's name; accepted: NAME=sums.jsonl"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, monkeypatch, tasks, content, sentence):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("sums.jsonl").write_text(content)
    assert re.search(sentence, refused("eval", "--tasks", tasks))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("tasks: [a]", "key of benchmark='tasks' is not known; accepted: prompt, examples"),
        ("prompt: x", "prompt='x' reads \\[\\]; accepted: a template of {{problem}}"),
        ("prompt: '{{answer}} {{problem}}'", r"reads \['answer', 'problem'\]"),
        ("prompt: '{{problem'", "unexpected end of template"),
        ("examples: [{problem: a}]", "accepted: a list of {problem: TEXT, answer: TEXT}"),
    ],
)
def test_a_bad_yaml_beside_it_is_one_sentence(tmp_path, content, sentence):
    (tmp_path / "sums.jsonl").write_text(GOOD)
    (tmp_path / "sums.yaml").write_text(content)
    with pytest.raises(UserError, match=rf"sums\.yaml.*{sentence}"):
        preflight([str(tmp_path / "sums.jsonl")])
