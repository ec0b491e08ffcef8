"""The stock `lm_eval` command keeps its rollouts and logs its results, ours and lm-eval's own, unless told not to.

One run of the command serves all tests: it costs half a minute.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr_dir.problems import preflight
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.records import Record
from rlvr_dir.results.load_results import read_results
from rlvr_dir.results.result import read_any_result
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.run import open_sweep
from rlvr_dir.sweep.specs import load
from rlvr_dir.train.spec import load_train
from rlvr_dir.train.training import inputs
from tests.commands import refused
from tests.commands import run as ours
from tests.facts import refuses, states

BIN = Path(sys.executable).parent

# Somebody else's task: his own filters over three samples, and metrics of lm-eval's and of his own.
FOREIGN = r"""
task: sums_of_theirs
dataset_path: json
dataset_kwargs: {data_files: {test: "DATA"}}
test_split: test
output_type: generate_until
doc_to_text: "{{problem}}\nPlease reason step by step, and put your final answer within \\boxed{}."
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\n\n"], do_sample: true, temperature: 1.0, top_p: 0.9, max_gen_toks: 60}
repeats: 3
filter_list:
- name: first
  filter: [{function: regex, regex_pattern: "boxed.(-?[0-9]+)"}, {function: take_first}]
- name: vote
  filter: [{function: regex, regex_pattern: "boxed.(-?[0-9]+)"}, {function: majority_vote}, {function: take_first}]
metric_list:
- {metric: exact_match, aggregation: mean, higher_is_better: true}
- {metric: !function judge.distance, aggregation: mean, higher_is_better: false}
- {metric: !function judge.digits, aggregation: median, higher_is_better: true}
metadata: {version: 2.0}
"""
# The same problems, scored by lm-eval's own match of the whole response, with numbers for gold answers.
NUMBERS = r"""
task: numbers_of_theirs
dataset_path: json
dataset_kwargs: {data_files: {test: "DATA"}}
test_split: test
output_type: generate_until
doc_to_text: "{{problem}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\n"], do_sample: false, max_gen_toks: 20}
metric_list:
- {metric: exact_match, aggregation: mean, higher_is_better: true}
"""
JUDGE = """
def distance(references, predictions):
    [gold], [said] = references, predictions
    return abs(int(gold) - int(said)) if said.lstrip("-").isdigit() else 100.0


def digits(references, predictions):
    return len(predictions[0])
"""


def run(where, program, *words):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RLVR_DIR")}
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([BIN / program, *words], capture_output=True, text=True, env=environment, cwd=where)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    """The folder in which the command was run, and what it said."""
    folder = tmp_path_factory.mktemp("where")
    (folder / "tasks").mkdir()
    mine = [{"problem": row["problem"], "answer": row["answer"]} for row in find_benchmark("tiny_easy").problems[:5]]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    (folder / "tasks/theirs.yaml").write_text(FOREIGN.replace("DATA", str(folder / "mine.jsonl")))
    (folder / "tasks/numbers.yaml").write_text(NUMBERS.replace("DATA", str(folder / "mine.jsonl")))
    (folder / "tasks/judge.py").write_text(JUDGE)
    (folder / "shots.jsonl").write_text(json.dumps({"problem": mine[0]["problem"], "answer": "so \\boxed{2}"}) + "\n")
    done = run(
        folder, "lm_eval", "--model", "rlvr_dir", "--tasks", "tiny_easy,mine.jsonl,sums_of_theirs,numbers_of_theirs",
        "--limit", "4",
        "--model_args", "backend=transformers,mode=replace,tau=-0.3,examples=shots.jsonl,grader=plain",
        "--metadata", '{"repeats": 2}', "--include_path", str(folder / "tasks"),
        "--log_samples", "--output_path", str(folder / "logged"),
    )  # fmt: skip
    assert "|tiny_easy (4 of 240 problems)" in done.stdout
    return folder, done


def test_the_samples_that_lm_eval_logs_are_the_rows_of_the_record(where):
    """Of `--log_samples`: each text, what the engine counted of it, its verdict, and the problem's own metrics."""
    [logged] = (where[0] / "logged").rglob("samples_tiny_easy_*.jsonl")
    [place] = (where[0] / "runs/records").glob("*/tiny_easy")
    record, [result] = Record(place).read(), read_results([place], grader="plain")
    verdicts, lines = record.latest_verdicts("plain"), [json.loads(line) for line in logged.read_text().splitlines()]
    assert [str(line["doc"]["id"]) for line in lines] == list(result.problem_ids)
    for line, correct in zip(lines, result.correct, strict=True):
        keys = [(f"tiny_easy/{line['doc']['id']}", k) for k in range(result.samples)]
        rows = [record.rows[key] for key in keys]
        assert line["resps"] == [[row.text for row in rows]]
        assert line["target"] == verdicts[keys[0]].gold
        assert line["avg@2"] == correct.mean()
        assert line["pass@2"] == correct.any()
        for sample, row, key in zip(line["doc"]["samples"], rows, keys, strict=True):
            assert sample.items() >= row.counts().items()
            assert (sample["verdict"], sample["answer"]) == (verdicts[key].kind, verdicts[key].answer)


def test_a_gold_answer_that_is_a_number_is_matched(where):
    """It was a traceback: lm-eval makes a gold answer of the type of the response, which was none of its own."""
    [logged] = (where[0] / "logged").rglob("samples_numbers_of_theirs_*.jsonl")
    rows = [json.loads(line) for line in logged.read_text().splitlines()]
    assert [row["exact_match"] for row in rows] == [float(row["resps"][0][0] == row["target"]) for row in rows]
    assert all(row["target"].lstrip("-").isdigit() for row in rows)


def runs(folder):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'runs/mlflow.db'}")
    found = {e.name: client.search_runs([e.experiment_id]) for e in client.search_experiments()}
    return client, {name: each for name, each in found.items() if name.startswith("rlvr-dir")}


def test_our_task_is_logged_as_our_own_command_logs_it(where):
    """The same settings under `rlvr-dir eval` decode nothing, and are the run there: examples and grader too."""
    folder, _ = where
    done = run(
        folder, "rlvr-dir", "eval", "--tasks", "tiny_easy", "--limit", "4", "--samples", "2", "--backend",
        "transformers", "--mode", "replace", "--tau", "-0.3", "--examples", "shots.jsonl", "--grader", "plain",
    )  # fmt: skip
    assert "decode:" not in done.stderr
    _, found = runs(folder)
    [one] = found["rlvr-dir-tiny_easy"]
    assert one.info.status == "FINISHED"
    assert one.data.params["tau"] == "-0.3"
    [file] = (folder / "runs").glob("tiny_easy-*.json")
    assert file.stem.endswith(one.data.tags["config_hash"])
    correct = json.loads(file.read_text())["correct"]
    assert one.data.metrics["avg_at_2"] == pytest.approx(100 * sum(map(sum, correct)) / 8, abs=0.01)


def logged(folder):
    """What lm-eval itself wrote of the task: its scores, and its values by metric and filter, document by document."""
    [results] = folder.glob("logged/*/results_*.json")
    scores = json.loads(results.read_text())["results"]["sums_of_theirs"]
    [samples] = folder.glob("logged/*/samples_sums_of_theirs_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    by = {(m, f): [r[m] for r in rows if r["filter"] == f] for f in ("first", "vote") for m in rows[0]["metrics"]}
    return scores, by


def test_somebody_elses_task_is_kept_as_lm_eval_scored_it(where):
    scores, by = logged(where[0])
    [file] = (where[0] / "runs").glob("sums_of_theirs-*.json")
    result = read_any_result(file)
    assert result.problem_ids == ("0.0", "1.0", "2.0", "3.0")
    assert (result.samples, result.limited) == (3, "4 of 5 problems")
    assert set(result.metric_names) == {f"{metric}/{kind}" for metric, kind in by}
    for metric, kind in by:
        assert result.scores[f"{metric}/{kind}"] == pytest.approx(scores[f"{metric},{kind}"], abs=1e-12)
        if metric != "digits":  # lm-eval has no error of a median without a bootstrap
            assert result.scores[f"{metric}_stderr/{kind}"] == pytest.approx(scores[f"{metric}_stderr,{kind}"])
    assert set(result.lower_is_better) == {"distance/first", "distance/vote"}
    [place] = (where[0] / "runs/records").glob("*/sums_of_theirs")
    assert len(Record(place).read().rows) == 12
    _, found = runs(where[0])
    [run] = found["rlvr-dir-sums_of_theirs"]
    assert run.data.metrics["distance/vote"] == pytest.approx(scores["distance,vote"], abs=1e-6)


def test_our_own_command_scores_it_alike_and_decodes_nothing_again(where, monkeypatch):
    """The record is the stock command's; the table has lm-eval's units."""
    folder, _ = where
    monkeypatch.chdir(folder)
    words = ["--tasks", "tasks/theirs.yaml", "--limit", "4", "--backend", "transformers"]
    told = ours("eval", *words, "-d", "replace,tau=-0.3", "-d", "rl", "--no-track").stdout
    assert len([*(folder / "runs").glob("sums_of_theirs-replace-*.json")]) == 1  # of equal hashes: equal numbers
    assert len([*(folder / "runs/records").glob("*/sums_of_theirs")]) == 2
    scores, _ = logged(folder)
    [row] = [line for line in told.splitlines() if re.search(r"\| replace τ-0.3 +\| distance/first", line)]
    assert f" {scores['distance,first']:.4f} ± {scores['distance_stderr,first']:.4f} " in row


def test_it_is_not_compared_swept_or_trained_on(where, monkeypatch):
    """Each is one sentence; of a record no code is run, and benchmarks beside it are read."""
    monkeypatch.chdir(where[0])
    Path("tasks/judge.py").write_text("raise SystemExit('code of a record was run')")
    with refuses("task", "lm-eval"):
        read_results([*Path("runs/records").glob("*/sums_of_theirs")])
    assert {result.task for result in read_results(["runs/records"])} == {"tiny_easy", "mine"}
    Path("tasks/judge.py").write_text(JUDGE)
    asked = {
        "name": "theirs", "tasks": ["tasks/theirs.yaml"], "limit": 4, "engine": {"backend": "transformers"},
        "sampling": {"samples": 3}, "decode": {"mode": "replace"}, "parameters": {"decode.tau": {"values": [-0.3]}},
    }  # fmt: skip
    with refuses("task", "lm-eval"):
        open_sweep(load(asked), Places.under(Path("runs"), track=False)).objective.check()
    Path("theirs.sweep.yaml").write_text(json.dumps(asked))
    for words in ([], ["--dry-run"]):
        states(refused("sweep", "run", "theirs.sweep.yaml", "--no-track", *words), "lm-eval")
    with refuses("task", "lm-eval"):
        inputs(load_train({"validation": {"tasks": "tasks/theirs.yaml"}}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("generate_until", "loglikelihood"), "task output_type loglikelihood generate_until"),
        (("judge.distance", "judge.nothing"), "task AttributeError"),
        (("DATA", "/nowhere.jsonl"), "task FileNotFoundError"),
        (("task: sums_of_theirs", "task: tiny_easy"), "task tiny_easy"),
        (("repeats: 3", "unsafe_code: true"), "task"),
        (("", ""), None),
    ],
)
def test_a_task_that_cannot_be_is_one_sentence_before_a_model_loads(tmp_path, change, sentence):
    (tmp_path / "judge.py").write_text(JUDGE)
    (tmp_path / "mine.jsonl").write_text('{"problem": "1 + 1 ?", "answer": "2"}\n')
    file = tmp_path / "theirs.yaml"
    file.write_text(FOREIGN.replace(*change).replace("DATA", str(tmp_path / "mine.jsonl")))
    if sentence is None:
        assert preflight([str(file)]).keys() == {str(file)}
        return
    with refuses(*sentence.split()):
        preflight([str(file)])
