"""For `found_apart`: opens vLLM on one pair after the other, and decodes."""

import os


def main(sources):
    """{name: rollouts, or a refusal} of {name: (pair, settings, requests)}."""
    if any(settings.get("tensor_parallel_size", 1) > 1 for _, settings, _ in sources.values()):
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    from rlvr_dir.decode import open_engine
    from rlvr_dir.errors import UserError
    from tests.conftest import vllm_spec

    found = {}
    for name, (pair, settings, requests) in sources.items():
        try:
            with open_engine(pair, vllm_spec(**settings)) as engine:
                found[name] = list(engine.generate(requests))
        except UserError as error:
            found[name] = str(error)
    return found
