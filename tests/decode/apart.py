"""For `found_apart`: decodes requests in another vLLM engine than the test's.

`few_blocks` has a KV cache far too small for its requests; `two_ranks` cuts both models in two (tensor parallel). The
other two run vLLM's model runner V2, a GPU's, whose Triton kernels the interpreter runs here: `fused` decides with our
own kernels, interpreted as well; `runner_v2` schedules a step ahead, has too few blocks, and plain requests beside
ours.
"""

import os
from dataclasses import replace
from types import SimpleNamespace

from tests.decode.requests import DECODINGS, make_requests

BLOCKS = 40  # of 32 tokens; a token's keys and values take 1 KiB in this pair
REQUESTS = {
    "few_blocks": {"n": 30, "samples": 2, "max_tokens": 120},
    "two_ranks": {"n": 6, "samples": 1, "max_tokens": 12},  # two ranks on two busy cores wait for each other
    "fused": {"n": 18, "samples": 1, "max_tokens": 16},
    "runner_v2": {"n": 18, "samples": 2, "max_tokens": 64},
}
WAYS = ({"temperature": 0}, {"top_p": 0.95}, {"top_p": 0.3}, {"temperature": 1.5})
V2 = ("fused", "runner_v2")
CHANGES = {
    "fused": {"self_test": False},  # its 700 rows would take most of the time
    "few_blocks": {"kv_cache_gib": BLOCKS * 32 * 1024 / 2**30},
    "two_ranks": {"tensor_parallel_size": 2, "kv_cache_gib": 0.125},
    "runner_v2": {"max_num_seqs": 16, "vllm_args": {"num_gpu_blocks_override": BLOCKS}},
}


def requests_of(how):
    """The same in this process and in the test's."""
    requests = make_requests(**REQUESTS[how])
    if how in V2:
        requests = [replace(request, trace=(None, 0, 2)[i % 3]) for i, request in enumerate(requests)]
        requests[1:15:5] = [replace(request, begun=(40, 50, 60, 70)) for request in requests[1:15:5]]
    if how == "runner_v2":
        requests[::5] = [replace(request, stop=("e",)) for request in requests[::5]]
        for way in WAYS:
            some = make_requests(len(DECODINGS), samples=1, max_tokens=24, **way)
            requests += [replace(request, problem=f"{request.problem} {way}") for request in some]
    return requests


def run_runner_v2():
    """Have vLLM, which is not imported yet, run its runner V2 on a CPU, and schedule a step ahead as on a GPU.

    vLLM keeps Triton where it finds a driver; a CPU's would come with another build, and the interpreter needs none.
    """
    os.environ |= {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    import triton.backends

    driver = SimpleNamespace(is_active=lambda: True)
    triton.backends.backends["cpu"] = SimpleNamespace(driver=driver, compiler=None)
    from vllm.platforms.cpu import CpuPlatform

    from tests.policy.interpreted import hasten

    hasten()
    check = CpuPlatform.check_and_update_config.__func__

    def check_and_look_ahead(cls, config):
        check(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check_and_look_ahead)


def add_plain_requests(engine):
    """Requests of vLLM's own, without a rule, beside those that come."""
    from vllm import SamplingParams

    for i in range(4):
        params = SamplingParams(temperature=(0.0, 0.8)[i % 2], max_tokens=30 + i, ignore_eos=True)
        engine._engine.add_request(f"plain-{i}", {"type": "token", "prompt_token_ids": [5, 6, 7 + i]}, params)


def main(how, pair):
    """Return how many requests were preempted (None: nobody counted), and the rollouts."""
    if how == "two_ranks":
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    if how in V2:
        os.environ["RLVR_DIR_DECISION"] = "triton" if how == "fused" else "torch"
        run_runner_v2()
    from rlvr_dir.decode import open_engine
    from tests.conftest import vllm_spec

    with open_engine(pair, vllm_spec(**CHANGES[how])) as engine:
        core, preempted = engine._engine.engine_core, None
        if how in ("few_blocks", "runner_v2"):
            scheduler, preempted = core.engine_core.scheduler, []
            preempt = scheduler._preempt_request
            scheduler._preempt_request = lambda request, *a, **k: preempted.append(1) or preempt(request, *a, **k)
        if how in V2:
            assert engine._engine.vllm_config.use_v2_model_runner
            assert engine._engine.vllm_config.scheduler_config.async_scheduling
            assert engine.info().get("decision", "torch") == os.environ["RLVR_DIR_DECISION"]
        if how == "runner_v2":
            assert engine.self_test == "transformers"
            add_plain_requests(engine)
        rollouts = list(engine.generate(requests_of(how)))
    return preempted and len(preempted), rollouts
