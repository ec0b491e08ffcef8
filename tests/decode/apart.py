"""Run as a process of its own: decodes the shared requests in another vLLM engine than the test's.

    python -m tests.decode.apart {few_blocks|client|two_ranks|fused} BASE RL OUT

A second engine cannot live in the process of the first. `few_blocks` has a KV cache far too small for its requests;
`client` runs its engine in yet another process; `two_ranks` cuts both models in two (tensor parallel); `fused` decides
with the GPU's kernels, in Triton's interpreter, and traces some requests. Writes a pickle of (preemptions or None,
rollouts).
"""

import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

from tests.decode.requests import make_requests

BLOCKS = 40  # of 32 tokens; a token's keys and values take 1 KiB in this pair
REQUESTS = {
    "few_blocks": {"n": 30, "samples": 2, "max_tokens": 120},
    "client": {"n": 30, "samples": 2, "max_tokens": 120},
    "two_ranks": {"n": 6, "samples": 1, "max_tokens": 12},  # two ranks on two busy cores wait for each other
    "fused": {"n": 18, "samples": 1, "max_tokens": 16},
}


def main(how, base, rl, out):
    if how == "client":
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    if how == "fused":
        os.environ |= {"TRITON_INTERPRET": "1", "RLVR_DIR_DECISION": "triton"}
    if how == "two_ranks":
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    from harness.decode import open_engine
    from harness.spec import Pair
    from tests.conftest import vllm_spec

    if how == "fused":
        from tests.policy.interpreted import hasten

        hasten()

    changes = {
        "client": {},
        "fused": {"self_test": False},  # its 700 rows would take most of the time
        "few_blocks": {"kv_cache_gib": BLOCKS * 32 * 1024 / 2**30},
        "two_ranks": {"tensor_parallel_size": 2, "kv_cache_gib": 0.125},
    }
    with open_engine(Pair(base=base, rl=rl), vllm_spec(**changes[how])) as engine:
        core, preempted = engine._engine.engine_core, None
        if how == "client":
            assert not hasattr(core, "engine_core")  # only a client lives here
        if how == "few_blocks":
            scheduler, preempted = core.engine_core.scheduler, []
            preempt = scheduler._preempt_request
            scheduler._preempt_request = lambda request, *a, **k: preempted.append(1) or preempt(request, *a, **k)
        if how == "fused":
            assert engine.info()["decision"] == "triton"
        requests = make_requests(**REQUESTS[how])
        if how == "fused":
            requests = [replace(request, trace=(None, 0, 2)[i % 3]) for i, request in enumerate(requests)]
        rollouts = list(engine.generate(requests))
    Path(out).write_bytes(pickle.dumps((preempted and len(preempted), rollouts)))


if __name__ == "__main__":
    main(*sys.argv[1:])
