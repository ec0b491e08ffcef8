"""Sweeps killed with -9 at random moments, parent and workers; the same command ends as if nothing had happened."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from rlvr_dir.sweep.points import key, listed_points
from tests.broken import alive
from tests.records.made import stored, stored_count

pytestmark = pytest.mark.whole(reason="minutes of sweeps that are killed, and PostgreSQL")

PATIENCE = 120  # seconds for anything a sweep does
LARGER = {"limit": 6, "sampling": {"samples": 4, "max_tokens": 40}}
RESPONSES = 10 * 6 * 4  # four points, base, RL, two rejects and two vetoes, of six problems


def children(pid):
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_for_a_moment(pid, out, rng, seconds):
    """Half of the moments are any time at all, the others come just after new lines in some journal."""
    anytime = rng.random() < 0.5
    moment = time.monotonic() + (rng.random() * seconds if anytime else PATIENCE)
    wanted = 10**9 if anytime else stored_count(out / "records") + rng.randrange(1, 12)
    while alive(pid) and time.monotonic() < moment and stored_count(out / "records") < wanted:
        time.sleep(0.001)
    time.sleep(rng.random() * 0.02)


def check(study, out, spec, responses):
    """Every point is complete, nothing failed, no response has been decoded twice."""
    assert sorted(key(t.point) for t in study.complete(references=False)) == sorted(map(key, listed_points(spec)))
    assert len(study.complete(references=True)) == 6
    assert {trial.state for trial in study} == {"complete"}
    found = stored(out / "records")
    for name, keys in found.items():
        assert len(keys) == len(set(keys)), f"record {name} has a response twice"
    assert sum(map(len, found.values())) == responses


@pytest.mark.parametrize("storage", ["journal", "postgresql"])
def test_workers_and_parents_killed_leave_every_point_complete_once(host, look, tmp_path, request, storage):
    rng = random.Random(3)
    out = tmp_path / "out"
    killed = {"parent": 0, "worker": 0}
    url = storage if storage == "journal" else request.getfixturevalue("postgresql")
    changes = {**LARGER, "workers": {"count": 2}, "retries": 20, "storage": url}
    while True:
        pid = host.start(out, **changes)
        while alive(pid) and sum(killed.values()) < 5:
            wait_for_a_moment(pid, out, rng, seconds=2)
            workers = children(pid)
            if workers and (killed["worker"] <= killed["parent"] or rng.random() < 0.3):
                kill(rng.choice(workers))
                killed["worker"] += 1
            elif alive(pid):
                kill(pid)
                killed["parent"] += 1
                for worker in workers:
                    deadline = time.monotonic() + PATIENCE
                    while alive(worker) and time.monotonic() < deadline:
                        time.sleep(0.01)
                    assert not alive(worker), "a worker outlived its parent"
                break
        status = host.answer()
        if status == 0:
            break
        assert status == -9
    study, _ = look(out, **changes)
    check(study, out, study.spec, RESPONSES)
    assert killed["worker"]
    assert killed["parent"]
