"""Run as a process of its own: decodes the shared requests in another vLLM engine than the test's.

    python -m tests.decode.apart {few_blocks|client} BASE RL OUT

A second engine cannot live in the process of the first. `few_blocks` has a KV cache far too small for its requests;
`client` runs its engine in yet another process. Writes a pickle of (preemptions or None, rollouts).
"""

import os
import pickle
import sys
from pathlib import Path

from tests.decode.requests import make_requests

BLOCKS = 40  # of 32 tokens; a token's keys and values take 1 KiB in this pair
REQUESTS = {"samples": 2, "max_tokens": 120}


def main(how, base, rl, out):
    if how == "client":
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    from harness.decode import open_engine
    from harness.spec import Pair
    from tests.conftest import vllm_spec

    spec = vllm_spec() if how == "client" else vllm_spec(kv_cache_gib=BLOCKS * 32 * 1024 / 2**30)
    with open_engine(Pair(base=base, rl=rl), spec) as engine:
        core, preempted = engine._engine.engine_core, None
        if how == "client":
            assert not hasattr(core, "engine_core")  # only a client lives here
        else:
            scheduler, preempted = core.engine_core.scheduler, []
            preempt = scheduler._preempt_request
            scheduler._preempt_request = lambda request, *a, **k: preempted.append(1) or preempt(request, *a, **k)
        rollouts = list(engine.generate(make_requests(30, **REQUESTS)))
    Path(out).write_bytes(pickle.dumps((preempted and len(preempted), rollouts)))


if __name__ == "__main__":
    main(*sys.argv[1:])
