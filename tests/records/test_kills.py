"""Decoding processes of both engines, killed with -9 again and again: the record ends as if nothing had happened."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.records.host import PROBLEMS, SAMPLES
from tests.records.made import read, stored_count
from tests.said import started

pytestmark = pytest.mark.whole(
    reason="both engines killed again and again; the store's own kills are in test_interruptions"
)

ROOT = Path(__file__).parents[2]
KILLS = 24
PATIENCE = 120  # seconds for any one answer of the host


class Host:
    """The process of `tests.records.host`, and what it says."""

    def __init__(self, backend, pair):
        command = [sys.executable, "-m", "tests.records.host", backend, pair.base, pair.rl]
        self.process, self.lines = started(command, stdin=subprocess.PIPE, cwd=ROOT)
        assert self.answer() == "ready"

    def answer(self):
        for line in self.lines:
            return line.strip()
        raise AssertionError(f"the host is gone, status {self.process.wait()}")

    def start(self, folder):
        """The pid of a process that decodes into `folder`."""
        print(folder, file=self.process.stdin, flush=True)
        return int(self.answer())

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


@pytest.fixture(params=["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def host(request, peaked_pair):
    if request.param == "vllm":
        pytest.importorskip("vllm", reason="vLLM is not installed")
    host = Host(request.param, peaked_pair)
    yield host
    host.close()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_until_done(host, folder, seconds, rng, most):
    """Starts and kills decoding processes (at most so often) until one lives to finish; what was stored after each."""
    progress = []
    while True:
        before = stored_count(folder)
        pid = host.start(folder)
        # Half of the kills at any time at all (start, prefill, decoding), the others a moment after new rollouts.
        anytime = rng.random() < 0.5
        moment = time.monotonic() + (rng.random() * seconds / 4 if anytime else PATIENCE)
        wanted = 10**9 if anytime else before + rng.randrange(1, 4)
        while alive(pid) and time.monotonic() < moment and stored_count(folder) < wanted:
            time.sleep(0.0005)
        time.sleep(rng.random() * 0.01)
        if len(progress) < most:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        status = host.answer()
        if status == "0":
            return progress
        assert status == "-9"
        progress.append(stored_count(folder))


def test_killed_again_and_again_the_record_is_the_uninterrupted_runs(host, tmp_path):
    began = time.monotonic()
    host.start(tmp_path / "whole")
    assert host.answer() == "0"
    seconds = time.monotonic() - began
    whole = read(tmp_path / "whole")
    assert len(whole.held) == len(PROBLEMS) * SAMPLES
    assert sum(rollout.n_changed for rollout in whole) > 0

    rng, kills, worst = random.Random(11), 0, 0.0
    for turn in range(KILLS):
        folder = tmp_path / f"killed{turn}"
        progress = kill_until_done(host, folder, seconds, rng, KILLS - kills)
        kills += len(progress)
        ours = read(folder)
        assert (ours.digest(), ours.config, ours.finished) == (whole.digest(), whole.config, True)
        pairs = zip(ours, whole, strict=True)
        worst = max(worst, *(float(np.abs(mine.delta_logp - theirs.delta_logp).max()) for mine, theirs in pairs))
        print(f"record {turn}: {len(progress)} kills, rollouts on the disk after each {progress}, then finished")
        if kills >= KILLS:
            break
    print(f"{kills} kills; {seconds:.2f} s uninterrupted; largest difference of delta log p {worst:.1e}")
    assert kills >= 20
    assert worst < 1e-3  # float32 in other batches: why it is not in the digest
