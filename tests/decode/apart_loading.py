"""Run as a process of its own: opens vLLM on one pair after the other, and decodes.

    python -m tests.decode.apart_loading SOURCES OUT

`SOURCES` is a pickle of {name: (pair, settings, requests)}; writes a pickle of {name: rollouts, or a refusal}.
"""

import gc
import os
import pickle
import sys
from pathlib import Path


def main(sources, out):
    sources, found = pickle.loads(Path(sources).read_bytes()), {}
    if any(settings.get("tensor_parallel_size", 1) > 1 for _, settings, _ in sources.values()):
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    import vllm  # noqa: F401 - before garbage is counted

    from harness.decode import open_engine
    from harness.errors import UserError
    from tests.conftest import vllm_spec

    gc.freeze()  # vLLM collects garbage eight times a start, through all that is imported
    for name, (pair, settings, requests) in sources.items():
        try:
            with open_engine(pair, vllm_spec(**settings)) as engine:
                found[name] = list(engine.generate(requests))
        except UserError as error:
            found[name] = str(error)
    Path(out).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
