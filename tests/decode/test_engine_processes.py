"""Engines whose processes are really killed, and engines that are closed: nothing of them is left."""

import json
import os
import re
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.cores import core_of
from tests.records.made import stored, stored_count
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
        assert "max_model_len=1024" in sentence

        assert next(facts)[0] == "decoding"
        core_of(process.pid).kill()
        word, sentence = next(facts)
        assert word == "lost"
        assert str(tmp_path) in sentence, "it names the log"

        assert next(facts)[0] == "decoding"
        descendants, left = kill_and_watch(process)
        assert len(descendants) >= 2
        assert left == []


def test_an_evaluation_whose_engine_is_killed_starts_it_again_and_decodes_the_rest(peaked_pair, tmp_path):
    with running("evaluated", peaked_pair, tmp_path) as (process, facts):
        word, store = next(facts)
        assert word == "decoding"
        while stored_count(Path(store)) < 5:
            time.sleep(0.01)
        core_of(process.pid).kill()
        assert next(facts) == ["done", [[320, 320], [320, 320]]]
        assert all(len(keys) == len(set(keys)) == 320 for keys in stored(Path(store)).values())
        assert re.search(r"; \d+ responses ", (tmp_path / "stderr").read_text())  # how many are left


def test_two_engines_in_one_process_one_after_the_other(peaked_pair, tmp_path):
    """A start that failed is in nobody's way; what is closed gives its weights and its KV cache back."""
    with running("again", peaked_pair, tmp_path) as (_, facts):
        word, sentence = next(facts)
        assert word == "refused"
        assert "max_model_len=1024" in sentence
        for _ in range(2):
            word, held = next(facts)
            assert word == "held"
            assert held > 2**26
            assert next(facts) == ["left", 0]
        assert next(facts) == ["same", True]
