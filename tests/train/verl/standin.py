"""A stand-in for the Python of verl's environment: takes the same commands, logs and saves as verl, trains nothing.

Tests put `#!PYTHON` before it. Its folder may hold `answer.json`, what it says is installed, `refusal`, with what it
refuses all arguments, and `plan.json`, read and removed by the next training: `crash_at`, `hang_at`, `stop_at` (steps).
"""

import json
import os
import signal
import sys
from pathlib import Path

HERE = Path(__file__).parent


def compose():
    file = HERE / "refusal"
    if file.is_file():
        sys.exit(file.read_text())


def train(overrides):
    asked = dict(text.lstrip("+").split("=", 1) for text in overrides)
    steps, every = int(asked["trainer.total_training_steps"]), int(asked["trainer.save_freq"])
    checkpoints = Path(asked["trainer.default_local_dir"])
    plan = {}
    if (HERE / "plan.json").is_file():
        plan = json.loads((HERE / "plan.json").read_text())
        (HERE / "plan.json").unlink()
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    start = int(tracker.read_text()) if tracker.is_file() else 0
    if start:
        assert (checkpoints / f"global_step_{start}" / "actor" / "shard").read_text() == str(start)
    print(f"(TaskRunner pid=7) step {start}: training", flush=True)
    with open(os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0) as log:  # truncated, as verl does
        if not start or asked["trainer.val_before_train"] == "true":
            log.write(json.dumps({"step": start, "data": {"val-core/held/acc/mean@8": 0.25}}).encode() + b"\n")
        for step in range(start + 1, steps + 1):
            if step == plan.get("crash_at"):
                (checkpoints / f"global_step_{step}" / "actor").mkdir(parents=True)  # not whole
                raise RuntimeError(f"CUDA out of memory at step {step}")
            if step == plan.get("hang_at"):
                (HERE / "pid.new").write_text(str(os.getpid()))
                (HERE / "pid.new").rename(HERE / "pid")
                while True:
                    signal.pause()
            if step == plan.get("stop_at"):
                return
            data = {
                "rlvr_dir/accuracy": step / 10, "critic/score/mean": -0.5, "response_length/mean": 20.0 + step,
                "response_length/clip_ratio": 0.1, "actor/entropy": 0.5, "actor/pg_clipfrac": 0.01, "actor/lr": 1e-6,
                "actor/pg_loss": 0.0, "actor/grad_norm": 0.1, "timing_s/step": 2.0, "actor/advantage_weight": 1.1,
                "training/filter_groups/evicted_samples": 3, "val-core/held/acc/mean@8": None,
            }  # fmt: skip
            if right := plan.get("right"):
                data["rlvr_dir/right/8/held/0"] = right[step - 1]
                data["val-core/held/acc/mean@8"] = right[step - 1] / 8
            line = json.dumps({"step": step, "data": data}).encode() + b"\n"
            log.write(line[:40])
            log.write(line[40:])
            if step % every == 0 or step == steps:
                place = checkpoints / f"global_step_{step}"
                (place / "actor").mkdir(parents=True, exist_ok=True)
                (place / "actor" / "shard").write_text(str(step))
                tracker.write_text(str(step))


def merge(arguments):
    target = Path(arguments[arguments.index("--target_dir") + 1])
    shard = Path(arguments[arguments.index("--local_dir") + 1]) / "shard"
    target.mkdir(parents=True)
    (target / "config.json").write_text(json.dumps({"step": int(shard.read_text())}))
    (target / "model.safetensors").write_text("")


if __name__ == "__main__":
    if sys.argv[1] == "-c":
        print((HERE / "answer.json").read_text())
    elif sys.argv[1:5] == ["-m", "verl.trainer.main_ppo", "--cfg", "job"]:
        compose()
    elif sys.argv[1:3] == ["-m", "verl.trainer.main_ppo"]:
        train(sys.argv[3:])
    else:
        assert sys.argv[1:4] == ["-m", "verl.model_merger", "merge"]
        merge(sys.argv[4:])
