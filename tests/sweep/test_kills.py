"""Sweeps killed with -9 at random moments, parent and workers; the same command ends as if nothing had happened."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.broken import alive
from tests.records.made import stored, stored_count

pytestmark = pytest.mark.whole(reason="minutes of sweeps that are killed")

PATIENCE = 120  # seconds for anything a sweep does
LARGER = {"limit": 6, "sampling": {"samples": 4, "max_tokens": 40}}
RESPONSES = 6 * 4  # of each decoding


def children(pid):
    """The processes that any thread of a process has started."""
    try:
        return [
            int(each)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for each in (task / "children").read_text().split()
        ]
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


def once(records):
    """Every response of every record has been decoded exactly once; how many there are."""
    found = stored(records)
    for name, keys in found.items():
        assert len(keys) == len(set(keys)), f"record {name} has a response twice"
    return sum(map(len, found.values()))


GRID = {**LARGER, "parameters": {"decode.tau": {"values": [-0.3, -0.1]}, "decode.gamma": {"values": [0.0, 0.1]}}}
TPE = {
    **LARGER, "method": "tpe", "run_cap": 6, "batch": 2,
    "parameters": {"decode.tau": {"min": -1.0, "max": -0.05}}, "decode": {"mode": "replace"},
}  # fmt: skip
KILLS, TRAINING_KILLS = 10, 3


@pytest.mark.parametrize(("changes", "points"), [(GRID, 4), (TPE, 6)], ids=["grid", "tpe"])
def test_killed_at_any_moment_it_ends_as_if_nothing_had_happened(host, look, tmp_path, changes, points):
    """A search proposes the very points of one that nobody killed."""
    rng, kills, out, undisturbed = random.Random(3), 0, tmp_path / "out", tmp_path / "undisturbed"
    assert host.run(undisturbed, **changes) == 0
    while True:
        pid = host.start(out, **changes)
        if kills < KILLS:
            wait_for_a_moment(pid, out, rng, seconds=1.5)
            kill(pid)
        if (status := host.answer()) == 0:
            break
        assert status == -9
        kills += 1
    assert kills >= KILLS / 2, "it was killed while it ran"
    (study, folder), (expected, other) = look(out, **changes), look(undisturbed, **changes)
    assert sum(entry.point is not None for entry in study.trials) == points
    assert not folder.failed.is_file()
    assert once(out / "records") == once(undisturbed / "records") == len(study.trials) * RESPONSES
    assert numbers(study) == numbers(expected)
    assert trials(folder) == trials(other)


def numbers(study):
    return {(str(entry.point), trial.label): (trial.number, trial.metrics) for entry, trial in study.trials.items()}


def trials(folder):
    """What Optuna has of each point, in its order for a search; a grid is written in the order of completion."""
    storage = JournalStorage(JournalFileBackend(str(folder.journal)))
    found = optuna.load_study(study_name="small", storage=storage).trials
    facts = [(trial.params, trial.value, trial.state.name, trial.user_attrs) for trial in found]
    return facts if "batch" in found[0].user_attrs else sorted(facts, key=str)


def test_a_sweep_of_trainings_is_killed_with_its_workers(host, look, tmp_path):
    """Two trainings at a time, in processes of their own, which end with the sweep."""
    rng, kills, out, undisturbed = random.Random(5), 0, tmp_path / "out", tmp_path / "undisturbed"
    changes = {"kind": "train", "workers": {"count": 2}, "seeds": [0]}
    assert host.run(undisturbed, **changes) == 0
    assert not look(undisturbed, **changes)[1].read_failures()
    while True:
        pid = host.start(out, **changes)
        if kills < TRAINING_KILLS:
            workers = wait_for_workers(pid, rng)
            kill(pid)
            for worker in workers:
                while alive(worker):
                    time.sleep(0.01)
        if (status := host.answer()) == 0:
            break
        assert status == -9
        kills += 1
    assert kills >= TRAINING_KILLS / 2
    (study, folder), (expected, _) = look(out, **changes), look(undisturbed, **changes)
    assert not folder.failed.is_file()
    assert numbers(study) == numbers(expected)
    assert len(study.trials) == 3


def wait_for_workers(pid, rng):
    """Wait until workers run, and for any moment of their first seconds; their pids are returned."""
    until = time.monotonic() + PATIENCE
    while alive(pid) and not (found := children(pid)) and time.monotonic() < until:
        time.sleep(0.01)
    moment = time.monotonic() + rng.random() * 12
    while alive(pid) and time.monotonic() < moment:
        found = children(pid) or found
        time.sleep(0.01)
    return found
