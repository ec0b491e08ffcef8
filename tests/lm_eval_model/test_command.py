"""What the start-up hook of the stock `lm_eval` must not touch; `test_front_door.py` runs the command itself."""

import json
import os
import subprocess
import sys
import textwrap


def run(code, cwd=None, **environment):
    """The words that a program prints, in a process of its own that knows none of our settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RLVR_DIR")}
    clean |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | environment
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean, cwd=cwd)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def test_other_models_and_configs_are_left_alone(tmp_path):
    """`--model dummy` keeps lm-eval's own aime24; a --config file that names our model gets ours."""
    (tmp_path / "ours.yaml").write_text("model: rlvr_dir\ntasks: [tiny_easy]\n")
    code = f"""
        import lm_eval.models
        from lm_eval.api.registry import get_model, model_registry
        from lm_eval.config.evaluate_config import EvaluatorConfig
        from rlvr_dir.problems import tasks_dir

        assert get_model("dummy").__name__ == "DummyLM" and "hf" in model_registry
        config = EvaluatorConfig(model="dummy", tasks=["aime24"])
        manager = config.process_tasks()
        assert config.include_path is None
        assert tasks_dir() not in manager.task_index["aime24"].yaml_path.parents
        assert "rlvr_math" not in manager.task_index  # which would take lm-eval's aime24

        config = EvaluatorConfig.from_config({str(tmp_path / "ours.yaml")!r})
        manager = config.process_tasks()
        assert tasks_dir() in manager.task_index["aime24"].yaml_path.parents
        assert tasks_dir() in manager.task_index["tiny_easy"].yaml_path.parents
        assert "gsm8k" not in manager.task_index, "lm-eval's own files were read, and none was asked for"
    """
    run(code)


def test_opting_out():
    code = """
        import sys
        assert "rlvr_dir_autoload" in sys.modules
        import lm_eval.models
        from lm_eval.api.registry import model_registry
        print("rlvr_dir" in model_registry, "hf" in model_registry)
    """
    assert run(code, RLVR_DIR_NO_AUTOLOAD="1") == ["False", "True"]
    assert run(code) == ["True", "True"]


def test_from_python_our_model_finds_our_tasks_and_a_task_manager_those_that_lm_eval_has_not(tmp_path):
    """By either name of the model; `aime24` is ours there, and a manager's own folder of tasks stays."""
    (tmp_path / "theirs.yaml").write_text("task: theirs\ndataset_path: json\noutput_type: generate_until\n")
    (tmp_path / "mine.jsonl").write_text('{"problem": "1 + 1 =", "answer": "2"}\n')
    (tmp_path / "aime24.jsonl").write_text(
        "".join(json.dumps({"problem": f"{i} + 1 =", "answer": "2"}) + "\n" for i in range(30))
    )
    code = f"""
        import lm_eval
        from lm_eval.tasks import TaskManager
        from rlvr_dir.problems import tasks_dir
        from rlvr_dir.lm_eval_model.args import with_tasks

        manager = TaskManager(include_path={str(tmp_path)!r})
        assert [manager.load(["tiny_easy"])["tasks"]["tiny_easy"].config.task, *manager.match_tasks(["tiny_h*"])] == [
            "tiny_easy", "tiny_hard"
        ]
        assert tasks_dir() not in manager.task_index["aime24"].yaml_path.parents
        asked = dict(model="rlvr-dir", tasks=["aime24", "mine.jsonl", "theirs"], task_manager=manager)
        ours = with_tasks(asked)
        assert tasks_dir() in ours["task_manager"].task_index["aime24"].yaml_path.parents
        assert "theirs" in ours["task_manager"].task_index
        assert ours["tasks"][:2] == ["aime24", "theirs"] and ours["tasks"][2]["task"] == "mine"

        found = lm_eval.simple_evaluate(
            model="rlvr-dir", model_args="backend=transformers,mode=base,samples=2,max_model_len=256",
            tasks=["tiny_easy"], limit=2, gen_kwargs="max_gen_toks=4",
        )
        from rlvr_dir.errors import UserError
        from rlvr_dir.lm_eval_model.lm import RlvrDirLM

        files = {{"test": {str(tmp_path / "aime24.jsonl")!r}}}
        choice = dict(
            task="choice", dataset_path="json", dataset_kwargs=dict(data_files=files), test_split="test",
            output_type="multiple_choice", doc_to_text="problem", doc_to_choice=["1", "2"], doc_to_target=0,
            metric_list=[dict(metric="acc", aggregation="mean", higher_is_better=True)],
        )
        lm, none = RlvrDirLM(backend="transformers", samples=1), TaskManager(include_defaults=False)
        try:
            lm_eval.simple_evaluate(model=lm, tasks=["tiny_easy", choice], limit=1, task_manager=none)
        except UserError as error:
            assert (error.argument, error.value, error.accepted) == ("task", "choice", "generate_until")
            assert not lm.engine.started, "weights were loaded, and tiny_easy decoded"
        print(*(name for name in found["results"]["tiny_easy"] if name.startswith("avg")))
    """
    assert run(code, cwd=tmp_path, RLVR_DIR_DATA=str(tmp_path))[-2:] == ["avg@2,boxed", "avg@2_stderr,boxed"]
