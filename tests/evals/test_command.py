"""What the start-up hook of the stock `lm_eval` must not touch; `test_front_door.py` runs the command itself."""

import os
import subprocess
import sys
import textwrap


def run(code, **environment):
    """The words that a program prints, in a process of its own that knows none of our settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RLVR_DIR")}
    clean |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | environment
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


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
    """
    run(code)


def test_opting_out():
    code = """
        import sys
        assert "harness._autoload" in sys.modules
        import lm_eval.models
        from lm_eval.api.registry import model_registry
        print("rlvr_dir" in model_registry, "hf" in model_registry)
    """
    assert run(code, RLVR_DIR_NO_AUTOLOAD="1") == ["False", "True"]
    assert run(code) == ["True", "True"]
