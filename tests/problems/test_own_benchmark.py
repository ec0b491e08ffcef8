"""A user's JSONL is a benchmark in every command, from a file of five sums; the stock command is in test_front_door."""

import json
import re
from pathlib import Path
from shutil import copytree

import pytest
from jinja2 import Environment
from yaml import safe_load

from rlvr_dir.config import Decoding, load_eval
from rlvr_dir.problems import data as data_module
from rlvr_dir.problems import preflight
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.records import Record, RecordStore
from rlvr_dir.records.commands import list_records
from rlvr_dir.records.entries import scan
from rlvr_dir.results.from_records import benchmark_of
from rlvr_dir.results.load_results import read_results
from rlvr_dir.results.matching import mismatches
from rlvr_dir.sweep.specs import load
from rlvr_dir.train.spec import load_train
from tests.commands import refused, run
from tests.facts import ROBUST, refuses, states, warns_of
from tests.records.made import say

FAST = ["--samples", "2", "--max-tokens", "60", "--backend", "transformers"]
YAML = """
prompt: "{{problem}}\\nPlease reason step by step, and put your final answer within \\\\boxed{}."
examples:
- {problem: "Flo has 5 pens a gives 3 how many ?", answer: "so \\\\boxed{2}"}
"""


def unlike(*results):
    return mismatches(*results)


def write(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path_factory):
    """The current folder is above all of them: a file that a record names is not read elsewhere."""
    monkeypatch.chdir(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    """A folder with `sums.jsonl`, another file of that name, the latter with a YAML, and all of them evaluated."""
    folder = tmp_path_factory.mktemp("own")
    rows = [
        {"problem": row["problem"], "answer": int(row["answer"])} for row in find_benchmark("tiny_easy").problems[:5]
    ]
    write(folder / "sums.jsonl", rows)
    write(folder / "changed/sums.jsonl", [{**row, "answer": 0} for row in rows])
    write(folder / "shown/sums.jsonl", [{"id": f"sum-{i}", **row} for i, row in enumerate(rows)])
    (folder / "shown/sums.prompt.yaml").write_text(YAML)
    (folder / "shown/sums.yaml").write_text("a file of somebody's own, which is not read")
    for name in ("sums", "changed/sums", "shown=shown/sums"):
        task, _, file = name.rpartition("=")
        asked = f"{task}={folder / file}.jsonl" if task else folder / f"{file}.jsonl"
        done = run("eval", "--tasks", asked, "-d", "rl", "-d", "base", *FAST, "--no-track", "--out", folder / "runs")
        assert re.search(rf"^{task or 'sums'}\b[^\n]*\n(  [^\n]*\n)*  rl ", done.stdout, re.MULTILINE), done.stdout
    return folder


def test_two_files_of_one_name_share_no_record_and_no_comparison(where):
    names = [config for config, task in RecordStore(where / "runs/records").names() if task == "sums"]
    assert len(set(names)) == 4
    rl = [r for r in read_results([where / "runs"]) if r.task == "sums" and r.decoding.mode == "rl"]
    assert unlike(rl[0], rl[1]) == ["data"]
    rows = [line for line in run("compare", where / "runs").stdout.splitlines() if line.startswith("| sums")]
    pairs = [re.findall(r"\(data (\w+)\)", line) for line in rows]
    assert [len(set(digests)) for digests in pairs] == [1, 1]
    assert pairs[0][0] != pairs[1][0]


def test_options_put_it_as_its_yaml_would_and_choose_the_grader(where, tmp_path):
    """The same words from files, given as options: the same benchmark, so the same record; another grader, no other."""
    yaml = safe_load(YAML)
    file = write(tmp_path / "shown.jsonl", [json.loads(line) for line in (where / "shown/sums.jsonl").open()])
    (tmp_path / "prompt.txt").write_text(yaml["prompt"] + "\n")
    write(tmp_path / "shots.jsonl", yaml["examples"])
    store = where / "runs/records"
    before = RecordStore(store).names()
    asked = ["--prompt", tmp_path / "prompt.txt", "--examples", tmp_path / "shots.jsonl", "--grader", "plain"]
    eval_it = ["eval", "--tasks", file, "-d", "rl", *FAST, "--no-track", "--records", store, "--out", tmp_path / "runs"]
    run(*eval_it, *asked)
    assert RecordStore(store).names() == before
    [result] = read_results([tmp_path / "runs"])
    [robust] = [r for r in read_results([where / "runs"]) if (r.task, r.decoding.mode) == ("shown", "rl")]
    assert result.provenance["record"] == robust.provenance["record"]
    assert (result.provenance["grader"], robust.provenance["grader"]) == ("plain", ROBUST)
    assert unlike(result, robust) == ["grader"]

    (tmp_path / "shown.prompt.yaml").write_text("grader: plain\nprompt: prompt.txt\nexamples: shots.jsonl")
    data_module._own.cache_clear()
    run(*eval_it, "--examples", "none")
    [config] = {config for config, task in set(RecordStore(store).names()) - set(before)}
    record = RecordStore(store).read(config, "shown")
    assert record.metadata.presentation.model_dump(mode="json") == {"prompt": yaml["prompt"], "examples": []}
    [unshown] = read_results([store / config / "shown"])
    assert unlike(unshown, result) == ["data"]
    assert unshown.provenance["grader"] == "plain"
    assert read_results([store / config / "shown"], grader="robust")[0].provenance["grader"] == ROBUST
    said = refused("view", config, result.provenance["settings"], "--store", store)
    states(said, f"{config}/shown", "data")


def test_what_a_strangers_record_says_of_its_prompt_is_compared_and_no_more(where, tmp_path, monkeypatch):
    """Nothing of it is compiled (which would compute its constants) or rendered, and no file that it names is read."""
    shown, compiled = safe_load(YAML)["prompt"], []
    [result] = [r for r in read_results([where / "runs"]) if (r.task, r.decoding.mode) == ("shown", "rl")]
    name = result.provenance["record"]
    record = Path(copytree(where / "runs/records" / name, tmp_path / name))
    monkeypatch.setattr(Environment, "parse", lambda self, source, *_: compiled.append(source))
    assert Record(record).read().metadata.presentation.prompt == shown
    (tmp_path / "prompt.txt").write_text(shown)
    [again] = read_results([record])  # shown an example, the tiny pair has no answer right
    assert (again.n_tokens == result.n_tokens).all()
    assert again.problem_ids == result.problem_ids == tuple(f"sum-{i}" for i in range(5))
    for said in ({"prompt": str(tmp_path / "prompt.txt")}, {"prompt": "{{ 9**9**9 }}{{problem}}"}, "{{", 3):
        say(record, presentation=said)
        [again] = read_results([record])
        assert (again.n_tokens == result.n_tokens).all()
        found = Record(record).read()
        if isinstance(said, dict):
            with refuses(name):
                benchmark_of(found)
        else:
            assert "damaged entries" in found.damage[0]
    assert compiled == []


def test_a_file_that_an_option_names_is_read_at_once(tmp_path, monkeypatch):
    """So that a sweep or a training that has begun knows when it has changed."""
    monkeypatch.chdir(tmp_path)
    Path("prompt.txt").write_text("Q: {{problem}}\nA:\n")
    write(tmp_path / "shots.jsonl", [{"problem": "1+1?", "answer": 2, "id": "x"}])
    asked = {"prompt": "prompt.txt", "examples": "shots.jsonl"}
    shown = {"prompt": "Q: {{problem}}\nA:", "examples": [{"problem": "1+1?", "answer": "2"}]}
    sweep = load({"name": "x", "tasks": "tiny_easy", "parameters": {"decode.tau": {"values": [-0.1]}}, **asked})
    assert load_eval({}, asked).non_default() == sweep.evaluation("tiny", [Decoding()]).non_default() == shown
    assert load(sweep.plain()) == sweep
    assert load_train({"validation": {"tasks": "tiny_easy", **asked}}).validation.non_default() == shown
    for prompt in ("p.txt", "Q: {problem}"):
        states(refused("eval", "--tasks", "tiny_easy", "--prompt", prompt), "--prompt", prompt, "{{problem}}")


def test_one_problem_with_two_answers_is_warned_of(tmp_path):
    rows = [{"id": name, "problem": "1+1?", "answer": answer} for name, answer in (("a", 2), ("b", "2"), ("c", 3))]
    with warns_of("a ", "c ", "'2'", "'3'"):
        find_benchmark(str(write(tmp_path / "twice.jsonl", rows)))
    find_benchmark(str(write(tmp_path / "alike.jsonl", rows[:2])))


def test_a_record_is_compared_reported_and_viewed_without_the_file_it_was_made_of(where, tmp_path, monkeypatch):
    file = write(tmp_path / "mine.jsonl", [json.loads(line) for line in (where / "sums.jsonl").open()])
    rows, store = file.read_text(), tmp_path / "runs/records"
    run(
        "eval", "--tasks", file, *FAST, "-d", "base", "-d", "rl", "--limit", 3, "--no-track", "--out", tmp_path / "runs"
    )
    wanted, [before, *_] = run("compare", store).stdout, read_results([store])
    assert "mine (3 of 5 problems)" in wanted
    monkeypatch.chdir(where)
    for change in (lambda: file.write_text(rows.replace("how many", "how much")), file.unlink):
        change()
        data_module._own.cache_clear()
        assert run("compare", store).stdout == wanted
        assert read_results([store])[0].config_hash == before.config_hash
        assert {each.provenance["grader"] for each in read_results([store], grader="plain")} == {"plain"}  # kept golds
        run("report", store, "--out", tmp_path / "report", "--tokens", "1")
        assert "mine (3 of 5 problems)" in (tmp_path / "report/report.md").read_text()
        name = before.provenance["settings"]
        run("view", name, "--store", store, "--out", tmp_path / "view.html")
        page = (tmp_path / "view.html").read_text()
        assert "mine/0" in page
        assert '"words":false' in page  # by the tiny pair's own tokenizer, of which nobody told
    write(tmp_path / "moved/mine.jsonl", [json.loads(line) for line in rows.splitlines()])
    [again, *_] = read_results([store], data_dir=str(tmp_path / "moved"), grader="plain")
    assert again.provenance["grader"] == "plain"
    assert (again.correct == before.correct).all()


def test_families_travel_with_the_record_and_are_no_part_of_what_is_decoded(where, tmp_path):
    rows = [json.loads(line) for line in (where / "sums.jsonl").open()]
    file, store = tmp_path / "mine.jsonl", tmp_path / "runs/records"

    def evaluated(families):
        write(file, [row | ({"family": name} if name else {}) for row, name in zip(rows, families, strict=True)])
        data_module._own.cache_clear()
        ways = ("--tasks", file, *FAST, "-d", "base", "-d", "rl")
        run("eval", *ways, "--no-track", "--out", tmp_path / "runs")
        [result] = [r for r in read_results([store]) if r.decoding.mode == "rl"]
        return result

    plain = evaluated([None] * 5)
    assert plain.families is None
    assert '"families":' not in plain.to_json()
    own = ("a", "a", "b", "b", "c")
    named = evaluated(own)
    [newest] = [r for r in read_results([tmp_path / "runs"]) if r.decoding.mode == "rl"]  # not beside the one without
    assert (newest.families, newest.config_hash) == (own, named.config_hash)
    assert named.families == own
    assert named.provenance["settings"] == plain.provenance["settings"]  # the same rollouts, decoded once
    assert named.provenance["data"] == plain.provenance["data"]
    assert (named.correct == plain.correct).all()
    assert named.config_hash != plain.config_hash  # whose intervals are others
    assert named.benchmark == "mine (over 3 families)"
    table = run("compare", tmp_path / "runs").stdout
    assert "| mine (over 3 families) |" in table
    assert "Few families: mine (over 3 families). There 95 % intervals cover" in table
    file.unlink()  # the record knows them
    assert {r.families for r in read_results([store])} == {own}
    assert evaluated([None] * 5).config_hash == plain.config_hash  # and forgets them


def test_what_was_never_graded_needs_the_gold_answers_of_its_own_questions(where, tmp_path):
    file = write(tmp_path / "mine.jsonl", [json.loads(line) for line in (where / "sums.jsonl").open()])
    run("eval", "--tasks", file, *FAST, "--limit", 1, "--no-track", "--out", tmp_path / "runs")
    store = tmp_path / "runs/records"
    for path in store.glob("*/*/journal.bin"):
        with path.open("rb") as found:
            verdicts = [(at, end) for at, end, entry in scan(found) if entry[0] == "verdict"]
        data = path.read_bytes()
        path.write_bytes(data[: verdicts[0][0]] + data[verdicts[-1][1] :])
    file.write_text(file.read_text().replace("how many", "how much"))
    data_module._own.cache_clear()
    states(refused("compare", store), "record ", "mine")
    file.unlink()
    states(refused("compare", store), "record ", file)


def test_looking_changes_no_statistics(where, tmp_path):
    store, asked = tmp_path / "records", ["--tasks", where / "sums.jsonl", *FAST[2:]]
    run(
        "eval",
        *asked,
        "-d",
        "rl",
        "--samples",
        "1",
        "--limit",
        "2",
        "--no-track",
        "--records",
        store,
        "--out",
        tmp_path,
    )
    before, [row] = read_results([store]), list_records(store)
    look = ["view", *asked, "--store", store, "--out", tmp_path / "view.html", "-d", "rl", "-d", "base"]
    run(*look, "--limit", "3", "--sample", "1")
    after = read_results([store])
    assert [(r.label, r.problem_ids, r.samples, r.avg) for r in after] == [
        (r.label, r.problem_ids, r.samples, r.avg) for r in before
    ]
    rows = {each["decoding"]: each for each in list_records(store)}
    assert (rows["rl"]["asked"], rows["rl"]["held"], row["asked"]) == (2, 6, 2)
    assert (rows["base"]["asked"], rows["base"]["held"]) == (0, 6)
    run(
        "eval",
        *asked,
        "-d",
        "base",
        "--samples",
        "2",
        "--limit",
        "3",
        "--no-track",
        "--records",
        store,
        "--out",
        tmp_path,
    )
    assert sorted(r.label for r in read_results([store])) == ["base", "rl"]


def test_a_sweep_takes_it_and_is_made_again_when_it_has_changed(where):
    file = write(where / "swept/sums.jsonl", [json.loads(line) for line in (where / "sums.jsonl").open()])
    asked = {"name": "mine", "pair": ["tiny"], "tasks": [str(file)], "method": "grid"}
    asked |= {"sampling": {"samples": 2, "max_tokens": 60}, "engine": {"backend": "transformers"}}
    asked |= {"parameters": {"decode.tau": {"values": [-0.1]}}}
    (where / "sweep.yaml").write_text(json.dumps(asked))
    told = run("sweep", "run", where / "sweep.yaml", "--no-track", "--out", where / "runs").stdout
    assert re.search(r"^\| sums +\| replace τ-0.1 ", told, re.MULTILINE), told
    yaml = file.with_suffix(".prompt.yaml")
    for changed, content, name in (
        (file, file.read_text().replace("how many", "how much"), "data"),
        (yaml, "examples: [{problem: x, answer: y}]", "data"),
        (yaml, "grader: plain", "grader"),
    ):
        before = changed.read_text() if changed.is_file() else "{}"
        changed.write_text(content)
        data_module._own.cache_clear()
        results = where / "runs/sweeps/mine/results"
        old = {path.name for path in results.iterdir()}
        run("sweep", "run", where / "sweep.yaml", "--no-track", "--out", where / "runs")
        assert len(old) == len(list(results.iterdir())) == 5
        assert not old & {path.name for path in results.iterdir()}, name
        changed.write_text(before)


GOOD = '{"problem": "What is 2+3?", "answer": 5}\n'
FAMILY = '{{"problem": "x", "answer": 1, "family": {}}}\n'


@pytest.mark.parametrize(
    ("tasks", "content", "sentence"),
    [
        ("no.jsonl", None, "no.jsonl PATH.jsonl PATH"),
        ("x=no.jsonl", None, "no.jsonl"),
        ("x=", None, "NAME"),
        ("sums.parquet", None, "sums.parquet PATH.jsonl"),
        ("sums.json", GOOD, "sums.jsonl PATH.jsonl"),
        ("sums.jsonl.gz", None, "jsonl.gz PATH.jsonl"),
        ("sums", None, "sums aime24 PATH.jsonl PATH"),
        ("sums.jsonl", "", "sums.jsonl"),
        ("sums.jsonl", GOOD + "{", "sums.jsonl 2 JSON"),
        ("sums.jsonl", "[1]", "sums.jsonl 1 problem"),
        ("sums.jsonl", GOOD + '{"problem": "x"}', "2 answer problem"),
        ("sums.jsonl", '{"Question": "x", "gold": 1}', "1 problem Question gold"),
        ("TINY_EASY", None, "TINY_EASY tiny_easy"),
        ("sums.jsonl", '{"id": 1, "problem": "x", "answer": 1}\n' * 2, "sums.jsonl 2 id '1'"),
        ("sums.jsonl", '{"problem": "x", "answer": null}', "1 answer None"),
        ("sums.jsonl", '{"problem": " ", "answer": 1}', "1 problem"),
        (
            "sums.jsonl",
            GOOD + FAMILY.format('"a"'),
            "2 family a",
        ),
        (
            "sums.jsonl",
            FAMILY.format('"a"') + GOOD,
            "sums.jsonl 2 family None",
        ),
        ("sums.jsonl", FAMILY.format("3"), "1 family 3"),
        ("sums.jsonl", FAMILY.format('" "'), "1 family"),
        ("aime24=sums.jsonl", GOOD, "aime24 rlvr-dir"),
        ("sums.jsonl,sums=sums.jsonl", GOOD, "--tasks sums NAME=PATH"),
        ("a b=sums.jsonl", GOOD, "NAME=sums.jsonl"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, monkeypatch, tasks, content, sentence):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("sums.jsonl").write_text(content)
    states(refused("eval", "--tasks", tasks), *sentence.split())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("tasks: [a]", "tasks"),
        ("promt: x", "prompt"),
        ("grader: robst", "grader robst robust"),
        ("prompt: x", "prompt=x"),
        ("prompt: '{{answer}} {{problem}}'", "prompt answer problem"),
        ("prompt: '{{problem'", "prompt"),
        ("prompt: '{{problem|upcase}}'", "prompt upcase"),
        ("examples: [{problem: a}]", "examples.0.answer"),
        ("examples: [{problem: a, answr: 1}]", "examples.0 answr answer"),
        ("examples: no.jsonl", "examples no.jsonl"),
        ("examples: sums.prompt.yaml", "1 JSON"),
        ("prompt: '{{problem.__class__}}'", "prompt"),
        ("prompt: '{{problem|attr(\"__class__\")}}'", "prompt"),
        ("prompt: '{{problem}}{{problem[\"__class__\"]}}'", "prompt"),
        ("prompt: '{{problem}}{{lipsum.__globals__}}'", "prompt"),
        ("prompt: '{{problem}}'\nprompt: '{{problem}}!'", "'prompt'"),
    ],
)
def test_a_bad_yaml_beside_it_is_one_sentence(tmp_path, content, sentence):
    (tmp_path / "sums.jsonl").write_text(GOOD)
    (tmp_path / "sums.prompt.yaml").write_text(content)
    with refuses("sums.prompt.yaml", *sentence.split()):
        preflight([str(tmp_path / "sums.jsonl")])
