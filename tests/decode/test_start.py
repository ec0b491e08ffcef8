"""Failures of vLLM's start in one sentence: texts as its processes print them, and what becomes of them."""

import os
import subprocess
import sys
from textwrap import dedent

import pytest

from rlvr_dir.checkpoints.weights import PICKLE
from rlvr_dir.decode.vllm_pair.start import Log, cause_of, explain
from tests.facts import states

FAILED = RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}")
ARGUMENTS = {"gpu_memory_utilization": 0.9, "tensor_parallel_size": 1, "max_num_seqs": 256}


def logged(who, text):
    """Lines as vLLM's log writes them."""
    prefix = f"({who}) ERROR 11-21 21:49:22 [core.py:1510] "
    return "".join(f"{prefix}{line}\n" for line in dedent(text).strip().splitlines())


def traceback(error, line="raise ValueError("):
    return f'Traceback (most recent call last):\n  File "/lib/vllm/core.py", line 1482, in run\n    {line}\n{error}'


KV = (
    "ValueError: To serve at least one request with the model's max seq len (32768), (3.5 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (1.25 GiB). Based on the available memory, the estimated "
    "maximum model length is 11696. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`. "
    "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
)
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 0 has a total capacity of 23.5 GiB"
)
PYDANTIC = (
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
    "  Value error, Model architectures ['Nonsense'] are not supported for now. [type=value_error, input_value=Args]\n"
    "    For further information visit https://errors.pydantic.dev/2.12/v/value_error"
)


PASSED_ON = "Exception: WorkerProc initialization failed due to an exception in a background process."
OURS = "base='b' has no lm_head.weight. Accepted: one that has it"
CASES = {
    "core": (
        logged("EngineCore pid=7", f"EngineCore failed to start.\n{traceback('KeyError: 17')}")
        + f"Process EngineCore:\n{traceback('KeyError: 17')}\n",
        "KeyError: 17",
    ),
    "core, which says more afterwards": (
        logged(
            "EngineCore pid=7",
            traceback("KeyError: 17") + "\nWorker proc VllmWorker-0 died unexpectedly (exit code: 0)",
        ),
        "KeyError: 17",
    ),
    "the rank that failed first": (
        logged("Worker_TP1 pid=9", traceback(OUT_OF_MEMORY))
        + logged("Worker_TP0 pid=8", traceback("RuntimeError: Connection closed by peer [127.0.0.1]:4711"))
        + logged("EngineCore pid=7", traceback(PASSED_ON)),
        OUT_OF_MEMORY.removeprefix("torch."),
    ),
    "chained": (
        logged("EngineCore pid=7", traceback("KeyError: 'x'"))
        + logged("EngineCore pid=7", "\nDuring handling of the above exception, another exception occurred:\n")
        + logged("EngineCore pid=7", traceback("ValueError: no such layer: x")),
        "no such layer: x",
    ),
    "what follows from another's end": (
        logged("Worker_TP0 pid=8", traceback("EOFError")) + logged("EngineCore pid=7", traceback("OSError: disk full")),
        "OSError: disk full",
    ),
    "pydantic": (traceback(PYDANTIC), "Model architectures ['Nonsense'] are not supported for now"),
    "ours": (logged("EngineCore pid=7", traceback(f"rlvr_dir.errors.UserError: {OURS}")), OURS),
}


@pytest.mark.parametrize(("printed", "cause"), CASES.values(), ids=CASES)
def test_the_cause_is_found_among_what_was_printed(printed, cause):
    assert cause_of(FAILED, printed) == cause


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RuntimeError("Failed core proc(s): {'EngineCore': -9}"),
         "its process was ended by SIGKILL, as Linux does where memory runs out"),
        (RuntimeError("Failed core proc(s): {'EngineCore': -11}"), "its process was ended by SIGSEGV"),
        (ValueError("one\ntwo"), "one"),
        (AssertionError(), "AssertionError"),
        (KeyError("x"), "KeyError: 'x'"),
    ],
)  # fmt: skip
def test_the_cause_where_nothing_was_printed(error, cause):
    assert cause_of(error, "") == cause


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (KV.removeprefix("ValueError: "),
         "max_model_len 32768 3.5 1.25 11696 gpu_memory_utilization kv_cache_gib tensor_parallel_size"),
        ("Free memory on device cuda:0 (20.5/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, "
         "71.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes",
         "gpu_memory_utilization=0.9 79.1 20.5 0.25"),
        (OUT_OF_MEMORY, f"{OUT_OF_MEMORY} tensor_parallel_size max_num_seqs 256 max_num_batched_tokens"),
        ("An attempt has been made to start a new process before the current process has finished its bootstrapping "
         "phase", "__name__ '__main__'"),
        ("UnpicklingError: Weights only load failed. Re-running `torch.load` with `weights_only` set to `False` will "
         "likely succeed", PICKLE),
        ("no such layer: x", "no such layer: x"),
    ],
    ids=["context", "occupied", "memory", "no guard", "pickle", "else"],
)  # fmt: skip
def test_the_sentence_says_what_would_be_accepted(cause, sentence):
    states(explain(cause, ARGUMENTS), *sentence.split())


OWNER = """
import multiprocessing, os, sys
from pathlib import Path
from rlvr_dir.watch import end_with_parent, owning

def child():
    end_with_parent()
    os.write(1, b"one\\n")
    print("(EngineCore pid=7) INFO 11-22 10:00:00 [core.py:1]  two", file=sys.stderr)

if __name__ == "__main__":
    with owning(Path(sys.argv[1])):
        process = multiprocessing.get_context("spawn").Process(target=child)
        process.start()
        process.join()
    print("three")
"""


def test_what_an_engines_processes_print_goes_to_its_log(tmp_path):
    (tmp_path / "owner.py").write_text(OWNER)
    log = Log()
    done = subprocess.run([sys.executable, tmp_path / "owner.py", log.path], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("three\n", "")
    assert log.text().startswith("one\n")
    assert log.last() == ""  # no progress
    log.discard()
    assert not log.path.exists()


def test_processes_are_spawned_off_the_cpu(monkeypatch):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from rlvr_dir.config import EngineSpec
    from rlvr_dir.decode.vllm_pair import start

    monkeypatch.setattr(start, "on_cpu", lambda: False)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    for given, expected in ((None, "spawn"), ("fork", "fork")):
        monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD", raising=False)
        if given:
            monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", given)
        start.prepare(EngineSpec())
        assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == expected
