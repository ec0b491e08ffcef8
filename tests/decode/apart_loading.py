"""Run as a process of its own: opens vLLM on one pair after the other.

    python -m tests.decode.apart_loading SOURCES OUT

`SOURCES` is a pickle of {name: (fields of the pair, settings)}; writes a pickle of {name: rollouts, or a refusal}.
"""

import gc
import pickle
import sys
from pathlib import Path

from tests.decode.requests import make_requests

REQUESTS = {"n": 6, "samples": 1, "max_tokens": 12}


def main(sources, out):
    import vllm  # noqa: F401 - before garbage is counted

    from harness.decode import open_engine
    from harness.errors import UserError
    from harness.spec import Pair
    from tests.conftest import vllm_spec

    gc.freeze()  # vLLM collects garbage eight times a start, through all that is imported
    found = {}
    for name, (pair, settings) in pickle.loads(Path(sources).read_bytes()).items():
        try:
            with open_engine(Pair(**pair), vllm_spec(**settings)) as engine:
                found[name] = list(engine.generate(make_requests(**REQUESTS)))
        except UserError as error:
            found[name] = str(error)
    Path(out).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
