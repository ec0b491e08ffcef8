"""The stock `lm_eval` command, as a user types it, and what the start-up hook must not touch.

A command-line run costs about ten seconds (lm-eval indexes fourteen thousand tasks), so there are few of them.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LM_EVAL = str(Path(sys.executable).with_name("lm_eval"))


def run(*words, env=None, program=LM_EVAL, cwd=None):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RLVR_DIR")}
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | (env or {})
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=300, env=environment, cwd=cwd)


@pytest.fixture(scope="module")
def finished(peaked_pair, data_dir, tmp_path_factory):
    """One run of the command of the README, small."""
    out = tmp_path_factory.mktemp("out")
    done = run(
        "--model", "rlvr_dir",
        "--model_args", f"pretrained={peaked_pair.rl},base={peaked_pair.base},mode=extrapolate,criterion=delta_logp,"
        "tau=-0.2,gamma=0.05,seed=3,backend=transformers,records=off,tracking=off",
        "--tasks", "aime24", "--samples", '{"aime24": [5, 7]}', "--metadata", '{"repeats": 4}',
        "--gen_kwargs", "max_gen_toks=10,temperature=2.0,top_p=1.0", "--log_samples", "--output_path", str(out),
        env={"RLVR_DIR_DATA": data_dir}, cwd=out,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert not (out / "runs").exists()
    [results] = out.rglob("results_*.json")
    [samples] = out.rglob("samples_aime24_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    [numbers] = json.loads(results.read_text())["results"].values()
    assert {"avg@4,boxed", "avg@4_stderr,boxed", "pass@2,boxed", "mean_tokens,boxed"} <= set(numbers)
    assert "|aime24 (2 of 30 problems)|" in done.stdout
    return sorted(rows, key=lambda row: row["doc_id"])


def test_the_samples_file_has_the_facts_of_each_sample(finished):
    assert [row["doc_id"] for row in finished] == [5, 7]
    for row in finished:
        assert len(row["doc"]["samples"]) == len(row["resps"][0]) == len(row["filtered_resps"][0]) == 4
        assert len(set(row["resps"][0])) == 4
        for sample in row["doc"]["samples"]:
            assert set(sample) == {
                "verdict", "answer", "grader", "n_tokens", "n_replaced", "n_changed", "finish_reason",
            }  # fmt: skip
            assert sample["n_changed"] <= sample["n_replaced"] <= sample["n_tokens"] <= 10


def test_the_command_equals_the_python_api(finished, engine, data_dir):
    """Another process, another batch, problems 5 and 7 among eight: the same key gives the same tokens."""
    from harness.spec import Decoding, Sampling
    from tests.evals.asked import evaluate

    [result] = evaluate(
        engine,
        [Decoding(mode="extrapolate", tau=-0.2, gamma=0.05)],
        ["aime24"],
        Sampling(samples=4, seed=3, max_tokens=10, temperature=2.0, top_p=1.0),
        limit=8,
        data_dir=data_dir,
        progress=False,
    )
    for row in finished:
        index = result.problem_ids.index(row["doc"]["id"])
        assert [s["n_replaced"] for s in row["doc"]["samples"]] == result.n_replaced[index].tolist()
        assert [s["n_tokens"] for s in row["doc"]["samples"]] == result.n_tokens[index].tolist()


def test_other_models_and_configs_are_left_alone(tmp_path):
    """`--model dummy` keeps lm-eval's own aime24; a --config file that names our model gets ours."""
    (tmp_path / "ours.yaml").write_text("model: rlvr_dir\ntasks: [tiny_easy]\n")
    code = f"""
        import lm_eval.models
        from lm_eval.api.registry import get_model, model_registry
        from lm_eval.config.evaluate_config import EvaluatorConfig
        from harness.evals import tasks_dir

        assert get_model("dummy").__name__ == "DummyLM" and "hf" in model_registry
        config = EvaluatorConfig(model="dummy", tasks=["aime24"])
        manager = config.process_tasks()
        assert config.include_path is None
        assert tasks_dir() not in manager.task_index["aime24"].yaml_path.parents
        assert "tiny_easy" not in manager.task_index

        config = EvaluatorConfig.from_config({str(tmp_path / "ours.yaml")!r})
        manager = config.process_tasks()
        assert tasks_dir() in manager.task_index["aime24"].yaml_path.parents
        assert tasks_dir() in manager.task_index["tiny_easy"].yaml_path.parents
        print("good")
    """
    done = run("-c", textwrap.dedent(code), program=sys.executable)
    assert done.stdout.strip().endswith("good"), done.stderr[-3000:]


def test_opting_out():
    code = """
        import sys
        assert "harness._autoload" in sys.modules
        import lm_eval.models
        from lm_eval.api.registry import model_registry
        print("rlvr_dir" in model_registry, "hf" in model_registry)
    """
    done = run("-c", textwrap.dedent(code), program=sys.executable, env={"RLVR_DIR_NO_AUTOLOAD": "1"})
    assert done.stdout.split() == ["False", "True"], done.stderr[-2000:]
    done = run("-c", textwrap.dedent(code), program=sys.executable)
    assert done.stdout.split() == ["True", "True"], done.stderr[-2000:]


def test_the_hook_costs_no_imports():
    code = "import sys; print(*(m for m in sys.modules if m.split('.')[0] in ('harness', 'numpy', 'torch', 'lm_eval')))"
    done = run("-c", code, program=sys.executable)
    assert set(done.stdout.split()) == {"harness", "harness._autoload"}
