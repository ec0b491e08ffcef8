"""Run as a process of its own, to be watched and killed: opens vLLM engines, those of `owner` in processes of theirs.

    python -m tests.decode.processes {owner|again|evaluated} BASE RL

Says what has happened on standard output, a line of JSON each: a word, and what belongs to it.
"""

import gc
import json
import os
import sys
import weakref
from itertools import count

import psutil

from tests.decode.requests import facts, make_requests
from tests.said import say as say_line

TOO_SMALL = 0.0002  # GiB of KV cache: no room for a single response


def say(word, fact=None):
    say_line(json.dumps([word, fact]))


def decode_for_ever(engine):
    for n in count():
        for _ in engine.generate(make_requests(40, max_tokens=100, seed=n)):
            yield


def owner(open_one):
    """A start that fails, an engine that is lost, and one that this process leaves behind."""
    from rlvr_dir.decode.types import EngineLost
    from rlvr_dir.errors import UserError

    try:
        open_one(kv_cache_gib=TOO_SMALL)
    except UserError as error:
        say("refused", str(error))
    engine = open_one()
    decoding = decode_for_ever(engine)
    next(decoding)
    say("decoding", [child.pid for child in psutil.Process().children(recursive=True)])
    try:
        for _ in decoding:
            pass
    except EngineLost as error:
        say("lost", str(error))
    engine.close()
    for n, _ in enumerate(decode_for_ever(open_one())):  # until this process is killed
        if n == 0:
            say("decoding")


def again(open_one):
    """In this process: a start that fails, then two engines one after the other; what the first leaves behind."""
    from rlvr_dir.errors import UserError

    try:
        open_one(kv_cache_gib=TOO_SMALL)
    except UserError as error:
        say("refused", str(error))
    decoded = []
    for _ in range(2):
        with open_one() as engine:
            runner = engine._engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
            held = [*runner.model.parameters(), *runner.kv_caches]
            say("held", sum(tensor.nbytes for tensor in held))
            held = [weakref.ref(tensor) for tensor in held]
            del runner
            decoded.append(
                [facts(r) for r in sorted(engine.generate(make_requests(6)), key=lambda r: r.request.problem)]
            )
        del engine
        gc.collect()
        say("left", sum(ref().nbytes for ref in held if ref() is not None))
    say("same", decoded[0] == decoded[1])


def evaluated(open_one):
    """An evaluation whose engine is lost and started again."""
    from rlvr_dir.config import EvalSpec
    from rlvr_dir.evals.jobs import jobs_of
    from rlvr_dir.evals.loop import run_jobs
    from rlvr_dir.records import RecordStore

    with open_one() as engine:
        asked = {"tasks": ("tiny_easy",), "decodings": ("rl", "base"), "limit": 40, "pair": engine.pair}
        spec = EvalSpec(**asked, sampling={"samples": 8, "max_tokens": 100})
        engine.start()
        store = os.path.join(os.environ["TMPDIR"], "records")
        say("decoding", store)
        jobs = jobs_of(spec, engine)
        say("done", [[len(each.responses), each.decoded] for each in run_jobs(engine, jobs, RecordStore(store))])


if __name__ == "__main__":
    how, base, rl = sys.argv[1:]
    if how in ("owner", "evaluated"):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    from rlvr_dir.config import Pair
    from rlvr_dir.decode import open_engine
    from tests.conftest import vllm_spec

    def open_one(**changes):
        settings = {"self_test": False, "kv_cache_gib": 0.125, **changes}
        return open_engine(Pair(base=base, rl=rl), vllm_spec(**settings))

    {"owner": owner, "again": again, "evaluated": evaluated}[how](open_one)
