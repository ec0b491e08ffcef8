"""Run as a process of its own: loads an engine once, then forks a decoding process for every folder it reads.

    python -m tests.records.host {transformers|vllm} BASE RL

Reads folders from standard input; answers each with the pid of a child that decodes what is missing in the store there,
and, once the child is gone, with its exit status (-9: killed). The child is what the test kills: it opens the record,
locks it, decodes and finishes like any run; only loading the models anew is spared.
"""

import os
import sys

from tests.said import say

TASK = "kill"
PROBLEMS = [f"{TASK}/{i}" for i in range(20)]
SAMPLES = 3


def decode(engine, folder):
    from harness.decode import Request
    from harness.records import RecordConfig, RecordStore
    from harness.spec import Decoding, Sampling
    from tests.decode.requests import LONG
    from tests.records.made import resume

    decoding = Decoding(mode="extrapolate", tau=-0.1, gamma=0.5)
    sampling = Sampling(max_tokens=40, samples=SAMPLES, seed=3)

    def prompt(problem):
        i = int(problem.split("/")[1])
        return LONG.format(i) * 2 if i % 3 == 0 else f"What is {i} + {3 * i}?"

    def generate(missing):
        return engine.generate(Request(prompt(p), p, s, decoding, sampling) for p, s in missing)

    config = RecordConfig.of(engine.pair, decoding, sampling, engine.info())
    with RecordStore(folder).open(config, TASK, PROBLEMS, SAMPLES) as record:
        resume(record, generate)


def main(backend, base, rl):
    from harness.decode import open_engine
    from harness.spec import EngineSpec, Pair
    from tests.conftest import vllm_spec

    spec = {
        "transformers": EngineSpec(backend="transformers", max_num_seqs=3),
        "vllm": vllm_spec(max_num_seqs=4),
    }[backend]  # few at a time, so that rollouts arrive spread over the run
    with open_engine(Pair(base=base, rl=rl), spec) as engine:
        say("ready")
        for line in sys.stdin:
            pid = os.fork()
            if pid == 0:
                code = 70
                os.dup2(2, 1)  # answers come from this process alone
                try:
                    decode(engine, line.strip())
                    code = 0
                finally:
                    os._exit(code)
            say(pid)
            _, status = os.waitpid(pid, 0)
            say(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
