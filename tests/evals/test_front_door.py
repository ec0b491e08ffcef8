"""The stock `lm_eval` command keeps its rollouts and logs its results, ours and lm-eval's own, unless told not to.

One run of the command serves all tests: it costs half a minute, most of which lm-eval spends on its index of tasks.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.evals.compare import read_results
from harness.evals.data import problems
from harness.records import RecordStore

BIN = Path(sys.executable).parent

# Somebody else's task: generated text, judged by lm-eval's own metrics.
FOREIGN = """
task: sums_of_theirs
dataset_path: json
dataset_kwargs: {data_files: {test: "DATA"}}
test_split: test
output_type: generate_until
doc_to_text: "What is {{a}} + 1?"
doc_to_target: "{{c}}"
generation_kwargs: {until: ["\\n\\n"], do_sample: true, temperature: 1.0, max_gen_toks: 20}
metric_list:
- {metric: exact_match, aggregation: mean, higher_is_better: true}
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
    (folder / "data.jsonl").write_text("".join(json.dumps({"a": i, "c": str(i + 1)}) + "\n" for i in range(5)))
    (folder / "tasks/theirs.yaml").write_text(FOREIGN.replace("DATA", str(folder / "data.jsonl")))
    mine = [{"problem": row["problem"], "answer": row["answer"]} for row in problems("tiny_easy")[:5]]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    done = run(
        folder, "lm_eval", "--model", "rlvr_dir", "--tasks", "tiny_easy,mine.jsonl,sums_of_theirs", "--limit", "4",
        "--model_args", "backend=transformers,mode=replace,tau=-0.3", "--metadata", '{"repeats": 2}',
        "--include_path", str(folder / "tasks"),
    )  # fmt: skip
    return folder, done


def runs(folder):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'runs/mlflow.db'}")
    found = {e.name: client.search_runs([e.experiment_id]) for e in client.search_experiments()}
    return client, {name: each for name, each in found.items() if name.startswith("rlvr-dir")}


def test_where_things_went_is_one_line(where):
    _, done = where
    [line] = [line for line in done.stderr.splitlines() if "records=off" in line]
    assert line == (
        "rlvr_dir: rollouts are kept in runs/records; results are in MLflow at runs (`rlvr-dir ui --store runs` shows "
        "them); the model arguments records=off and tracking=off decline"
    )


def test_rollouts_are_kept(where):
    store = RecordStore(where[0] / "runs/records")
    held = {task: len(store.read(config, task).held) for config, task in store.names()}
    assert held == {"tiny_easy": 8, "sums_of_theirs": 4, "mine": 8}


def test_our_task_is_logged_as_our_own_command_logs_it(where):
    """The same settings under `rlvr-dir eval` decode nothing, and are the run that is there."""
    folder, _ = where
    done = run(
        folder, "rlvr-dir", "eval", "--tasks", "tiny_easy", "--limit", "4", "--samples", "2", "--backend",
        "transformers", "--mode", "replace", "--tau", "-0.3",
    )  # fmt: skip
    assert "decode:" not in done.stderr
    client, found = runs(folder)
    [one] = found["rlvr-dir-tiny_easy"]
    assert one.info.status == "FINISHED"
    assert one.data.params["tau"] == "-0.3"
    [file] = (folder / "runs").glob("tiny_easy-*.json")
    assert file.stem.endswith(one.data.tags["config_hash"])
    correct = json.loads(file.read_text())["correct"]
    assert one.data.metrics["avg_at_2"] == pytest.approx(100 * sum(map(sum, correct)) / 8, abs=0.01)
    assert "samples.jsonl.gz" in {each.path for each in client.list_artifacts(one.info.run_id)}


def test_a_users_file_is_a_benchmark_there_too(where):
    """Its rows are `tiny_easy`'s under other ids; what is printed is what the record gives, of 4 of its 5 problems."""
    [result] = read_results([*(where[0] / "runs/records").glob("*/mine")])
    assert (result.benchmark, result.samples) == ("mine (4 of 5 problems)", 2)
    [row] = [line for line in where[1].stdout.splitlines() if line.startswith("|mine ")]
    assert float(row.split("|")[7]) == pytest.approx(result.avg, abs=1e-4)


def test_a_file_that_does_not_exist_is_said_at_once(tmp_path):
    done = subprocess.run(
        [BIN / "lm_eval", "--model", "rlvr_dir", "--tasks", "no.jsonl"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("rlvr_dir: task='no.jsonl': no.jsonl does not exist; accepted: PATH")


def test_somebody_elses_task_is_logged_with_lm_evals_metrics(where):
    client, found = runs(where[0])
    [one] = found["rlvr-dir-sums_of_theirs"]
    assert one.info.status == "FINISHED"
    assert {"exact_match", "exact_match_stderr", "replacement_ratio", "mean_tokens"} <= set(one.data.metrics)
    [row] = [line for line in where[1].stdout.splitlines() if "exact_match" in line]
    assert float(row.split("|")[7]) == pytest.approx(one.data.metrics["exact_match"], abs=1e-4)
    assert "exact_match" in one.data.tags["mlflow.note.content"]
    path = client.download_artifacts(one.info.run_id, "lm_eval.json")
    assert json.loads(Path(path).read_text())["scores"]["exact_match"] == one.data.metrics["exact_match"]
