"""A cluster of several nodes, all on this machine: workers go where GPUs are, and a node may be lost in mid-run."""

import os
import signal
from contextlib import closing

import psutil
import pytest

from rlvr_dir.config import EngineSpec
from rlvr_dir.decode import open_engine
from rlvr_dir.decode.ray.pool import RayEngines
from tests.decode.requests import assert_same, make_requests
from tests.facts import refuses
from tests.ray_nodes import started_nodes

pytest.importorskip("ray", reason="Ray is not installed (the extra [ray])")

pytestmark = pytest.mark.whole(reason="a Ray cluster of three nodes")

ONE = EngineSpec(backend="transformers", dtype="float32", max_num_seqs=4, device="cpu")


class OnGpus(RayEngines):
    """Engines that compute on the CPU, each with a GPU reserved: nodes can say that they have some."""

    def _on_gpus(self):
        return True


@pytest.fixture(scope="module")
def nodes():
    with started_nodes() as nodes:
        yield nodes


def load_all(pool):
    """Waits until every worker's engine is loaded."""
    pool.start()
    while len(pool.pids) < pool.spec.workers:
        pool._next_rollout({})


def killing(pool, after, kill):
    """The pool's rollouts; `kill` is called when so many have come back."""
    for n, rollout in enumerate(pool, 1):
        yield rollout
        if n == after:
            kill()


def test_a_lost_node_loses_and_repeats_nothing(nodes, peaked_pair):
    import ray

    requests = make_requests(12)
    with open_engine(peaked_pair, ONE) as one:
        alone = list(one.generate(requests))
    with closing(OnGpus(peaked_pair, ONE.replace(workers=2, ray_address=nodes.address))) as pool:
        load_all(pool)
        assert {nodes.of(pid) for pid in pool.pids} == {nodes.one, nodes.two}
        [victim] = [member for member in pool._workers.values() if nodes.of(member.pid) is nodes.one]

        def kill():
            assert victim in pool._calls.values()
            where = pool._waiting.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
            assert ray.get(where) == ray.get_runtime_context().get_node_id(), "the queue is on a node that may be lost"
            nodes.lose(nodes.one)

        with pytest.warns(UserWarning, match=r"worker . \(process \d+ on .*\) was lost: .* [1-9] responses"):
            many = list(killing(pool.generate(requests), 5, kill))
        assert len(many) == len(requests) == len({id(rollout.request) for rollout in many})
        assert_same(many, alone)

        load_all(pool)
        assert [nodes.of(pid) for pid in pool.pids] == [nodes.two, nodes.two]
        with refuses("workers", 3, "tensor_parallel_size=1", "3 GPUs", "up to 2"):
            OnGpus(peaked_pair, ONE.replace(workers=3, ray_address=nodes.address)).start()

        workers = [psutil.Process(pid) for pid in pool.pids]
        os.kill(nodes.raylet(nodes.two), signal.SIGKILL)
        assert psutil.wait_procs(workers, timeout=60)[1] == [], "they outlive their node"
