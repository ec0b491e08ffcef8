"""Two engines on a real Ray: the tokens of one engine, each response once, whoever is killed meanwhile."""

import os
import shutil
import signal
from contextlib import closing, suppress
from dataclasses import replace
from threading import Event, Thread

import psutil
import pytest

from rlvr_dir.config import Decoding, EngineSpec, Pair, Sampling
from rlvr_dir.decode import open_engine
from rlvr_dir.decode.ray.cluster import Cluster
from rlvr_dir.decode.ray.pool import _Member
from rlvr_dir.errors import UserError
from tests.conftest import vllm_spec
from tests.cores import core_of
from tests.decode.requests import assert_same, by_key, make_requests
from tests.evals.asked import evaluate
from tests.facts import refuses
from tests.records.made import read, stored_count

ray = pytest.importorskip("ray", reason="Ray is not installed (the extra [ray])")

pytestmark = pytest.mark.whole(reason="a Ray cluster and its engines")

ONE = EngineSpec(backend="transformers", dtype="float32", max_num_seqs=4)
TWO = ONE.replace(workers=2)
TASK, DECODING = "tiny_easy", Decoding(mode="replace", tau=-0.05)


@pytest.fixture(scope="module")
def cluster():
    """A private Ray that all pools of this module share, so that it is started once.

    In its workers vLLM's core is a process of its own, as on a GPU.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
        cluster = Cluster(None, workers=2)
    with pytest.MonkeyPatch.context() as patch, closing(cluster):
        patch.delenv("RAY_ADDRESS", raising=False)
        yield cluster


@pytest.fixture(scope="module")
def pool(cluster, peaked_pair):
    with open_engine(peaked_pair, TWO) as pool:
        yield pool


@pytest.fixture(scope="module")
def one(peaked_pair):
    with open_engine(peaked_pair, ONE) as engine:
        yield engine


class Sabotaged:
    """A pool whose `kill` is called when so many of its rollouts have come back."""

    def __init__(self, pool, after, kill):
        self._pool, self._after, self._kill = pool, after, kill
        self.keys = []

    def __getattr__(self, name):
        return getattr(self._pool, name)

    def generate(self, requests, *, progress=False):
        with closing(self._pool.generate(requests, progress=progress)) as rollouts:
            for rollout in rollouts:
                self.keys.append((rollout.request.problem, rollout.request.sample))
                if len(self.keys) == self._after:
                    self._kill()
                yield rollout


def evaluated(engine, folder, **changes):
    sampling = Sampling(**{"samples": 4, "max_tokens": 24, "seed": 3, **changes})
    [result] = evaluate(engine, [DECODING], [TASK], sampling, limit=6, records=folder, progress=False)
    return result


@pytest.fixture(scope="module")
def whole(one, tmp_path_factory):
    """The evaluation by one engine: its folder, its result."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, evaluated(one, folder)


def assert_same_record(folder, whole):
    ours, theirs = read(folder), read(whole)
    assert (ours.name, ours.digest(), ours.finished) == (theirs.name, theirs.digest(), True)


def processes_of_ray():
    """(process, command line) of all that Ray runs for this process now."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it may end meanwhile
            command = " ".join(process.cmdline())
            if "ray" in command:
                yield process, command


def kill_workers():
    """Kills every worker that is there now, loaded or loading."""
    for process, command in processes_of_ray():
        if "ray::Worker" in command:
            with suppress(psutil.Error):
                process.kill()


def test_two_workers_give_the_tokens_of_one_engine(pool, one):
    requests = [replace(request, trace=2 if i % 5 == 0 else None) for i, request in enumerate(make_requests(12))]
    many = list(pool.generate(requests))
    assert set(map(id, requests)) == {id(rollout.request) for rollout in many}
    assert len(many) == len(requests)
    theirs = by_key(one.generate(requests))
    assert_same(many, theirs.values())
    for key, rollout in by_key(many).items():
        assert (rollout.trace is None) == (theirs[key].trace is None)
        assert rollout.trace is None or abs(rollout.trace.table - theirs[key].trace.table).max() <= 1e-3
    assert pool.info() == {**one.info(), "workers": 2}


def test_a_killed_workers_work_is_done_again_and_nothing_twice(pool, whole, tmp_path):
    def kill():
        os.kill(next(iter(pool._calls.values())).pid, signal.SIGKILL)

    engine = Sabotaged(pool, 5, kill)
    with pytest.warns(UserWarning, match=r"worker . \(process \d+ on .*\) was lost: .* [1-9] responses"):
        result = evaluated(engine, tmp_path)
    assert len(engine.keys) == len(set(engine.keys)) == 24
    assert_same_record(tmp_path, whole[0])
    assert result.config_hash == whole[1].config_hash
    assert result.metrics() == whole[1].metrics()


def test_all_killed_again_and_again_is_one_sentence_and_nothing_is_lost(pool, tmp_path):
    stop = Event()

    def rampage():
        while not stop.wait(0.01):
            kill_workers()

    thread = Thread(target=rampage)
    engine = Sabotaged(pool, 7, thread.start)
    try:
        with pytest.warns(UserWarning, match="was lost"), refuses("workers", 2, "3 times"):
            evaluated(engine, tmp_path)
    finally:
        stop.set()
        thread.join()
    assert 7 <= len(engine.keys) == stored_count(tmp_path) < 24


def test_what_a_workers_engine_refuses_is_one_sentence(cluster, peaked_pair, tmp_path):
    """A checkpoint that this machine has and the worker's does not: it is moved away in between."""
    rl = tmp_path / "rl"
    shutil.copytree(peaked_pair.rl, rl)
    alone = ONE.replace(ray_address=ray.get_runtime_context().gcs_address)
    engine = open_engine(Pair(base=peaked_pair.base, rl=str(rl)), alone, lazily=True)
    rl.rename(tmp_path / "away")
    with pytest.raises(UserError, match=r"^worker 0, process \d+ on .*: rl='.*/rl' [^\n]*$"):
        engine.generate(make_requests(1))


def test_a_worker_that_differs_is_refused_by_name(peaked_pair, one):
    pool = open_engine(peaked_pair, TWO, lazily=True)
    with pytest.raises(UserError, match=r"^worker 1 has torch='0.1', and "):
        pool._compare(_Member(1), {**one.info(), "torch": "0.1"})


def test_settings_that_are_refused(cluster, peaked_pair, monkeypatch):
    with refuses("workers", 99):
        open_engine(peaked_pair, ONE.replace(workers=99))
    with refuses("tensor_parallel_size", 2):
        open_engine(peaked_pair, TWO.replace(tensor_parallel_size=2))
    monkeypatch.setattr("rlvr_dir.decode.ray.cluster.find_spec", lambda name: None)
    with refuses("workers", 2, "Ray"):
        open_engine(peaked_pair, TWO)


def test_every_server_of_a_private_ray_is_on_loopback(cluster):
    addresses = set()
    for process, _ in processes_of_ray():
        with suppress(psutil.Error):
            addresses |= {c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert addresses
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


@pytest.mark.vllm
def test_vllms_processes_end_with_a_killed_worker(cluster, peaked_pair):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    alone = vllm_spec(workers=1, ray_address=ray.get_runtime_context().gcs_address, self_test=False)
    with closing(open_engine(peaked_pair, alone)) as pool, closing(pool.generate(make_requests(40))) as rollouts:
        next(rollouts)
        [worker] = map(psutil.Process, pool.pids)
        started = worker.children(recursive=True)
        assert core_of(worker.pid) in started
        worker.kill()
        assert psutil.wait_procs([worker, *started], timeout=60)[1] == []
