"""Engines whose processes are really killed, and engines that are closed: nothing of them is left."""

import json
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.cores import core_of
from tests.said import started

pytestmark = [pytest.mark.vllm, pytest.mark.whole(reason="a dozen starts of vLLM in processes of their own")]
pytest.importorskip("vllm", reason="vLLM is not installed")

HERE = Path(__file__).parents[2]


@contextmanager
def running(how, pair, tmp_path):
    """`tests.decode.processes` with its facts, one after the other; killed in the end with all that it started."""
    command = [sys.executable, "-m", "tests.decode.processes", how, pair.base, pair.rl]
    clean = {name: value for name, value in os.environ.items() if name != "VLLM_LOGGING_LEVEL"}
    with (
        (tmp_path / "stdout").open("w") as stdout,
        (tmp_path / "stderr").open("w") as stderr,
    ):
        clean["TMPDIR"] = str(tmp_path)
        process, lines = started(command, clean, cwd=HERE, stdout=stdout, stderr=stderr)
        try:
            yield process, map(json.loads, lines)
        finally:
            for left in [*started_by(process), process]:
                left.kill()
            process.wait()


def started_by(process):
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_and_watch(process):
    """Kills a process with SIGKILL; gives those of its descendants that are still there a minute later."""
    descendants = started_by(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, left = psutil.wait_procs(descendants, timeout=60)
    for one in left:
        one.kill()
    return descendants, left


def test_a_failed_start_a_lost_core_and_a_killed_owner(peaked_pair, tmp_path):
    with running("owner", peaked_pair, tmp_path) as (process, facts):
        word, sentence = next(facts)
        assert word == "refused"
        cause, _, _ = sentence.partition("; all that it said is in ")
        assert cause.startswith(
            "vLLM does not start: max_model_len=1024 does not fit: one response of that length takes"
        )

        assert next(facts)[0] == "decoding"
        core_of(process.pid).kill()
        word, sentence = next(facts)
        assert word == "lost"
        assert sentence.startswith("vLLM's processes ended while they decoded: ")

        assert next(facts)[0] == "decoding"
        descendants, left = kill_and_watch(process)
        assert len(descendants) >= 2
        assert left == []


def test_two_engines_in_one_process_one_after_the_other(peaked_pair, tmp_path):
    """A start that failed is in nobody's way; what is closed gives its weights and its KV cache back."""
    with running("again", peaked_pair, tmp_path) as (_, facts):
        word, sentence = next(facts)
        assert word == "refused"
        assert sentence.startswith("vLLM does not start: max_model_len=1024 does not fit")
        for _ in range(2):
            word, held = next(facts)
            assert word == "held"
            assert held > 2**26
            assert next(facts) == ["left", 0]
        assert next(facts) == ["same", True]
