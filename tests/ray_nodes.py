"""A Ray cluster of several nodes on this machine, which tests share: nodes can be lost in mid-run."""

import os
import shutil
import tempfile
from contextlib import contextmanager

import psutil
import pytest

from rlvr_dir.decode.ray.cluster import _private, quiet


class Nodes:
    """A head without GPUs, one node with one and one with two, on the loopback interface."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        shared = {"object_store_memory": 80 << 20}
        quick = {"health_check_period_ms": 1000}  # of a lost node, which takes Ray 15 seconds otherwise
        self.cluster = Cluster(True, head_node_args={**shared, "include_dashboard": False, "_system_config": quick})
        self.one, self.two = (self.cluster.add_node(num_gpus=n, num_cpus=n, wait=False, **shared) for n in (1, 2))
        self.cluster.wait_for_nodes()
        self.address = self.cluster.address

    @staticmethod
    def raylet(node):
        """The process that is a node's other processes' parent."""
        [info] = node.all_processes["raylet"]
        return info.process.pid

    def of(self, pid):
        """The node that a worker is on."""
        parent = psutil.Process(pid).ppid()
        return next(node for node in (self.one, self.two) if self.raylet(node) == parent)

    def lose(self, node):
        """Kill a node and all of its processes."""
        raylet = psutil.Process(self.raylet(node))
        for process in [raylet, *raylet.children(recursive=True)]:
            process.kill()


@contextmanager
def started_nodes():
    """Start the cluster, and end it."""
    quiet()
    import ray

    folder = tempfile.mkdtemp(prefix="rlvr-nodes-", dir="/tmp")  # the names of sockets must be short
    with pytest.MonkeyPatch.context() as patch, _private(ray):
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("RAY_TMPDIR", folder)
        os.mkdir(f"{folder}/ray")
        nodes = Nodes()
        try:
            yield nodes
        finally:
            nodes.cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
