"""For `found_apart`: an evaluation that is begun with one rank and continued with two (vLLM, tensor parallel)."""

import os


def main(pair, store, ranks, samples):
    """Return what was decoded, the records, and each response's tokens."""
    if ranks > 1:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    from rlvr_dir.config import EvalSpec
    from rlvr_dir.decode import open_engine
    from rlvr_dir.evals.jobs import jobs_of
    from rlvr_dir.evals.loop import run_jobs
    from rlvr_dir.records import RecordStore
    from tests.conftest import vllm_spec

    settings = vllm_spec(tensor_parallel_size=ranks, kv_cache_gib=0.125, self_test=False)
    fields = {"tasks": ("tiny_easy",), "decodings": ("rl", "replace,tau=-0.1"), "limit": 4, "pair": pair}
    spec = EvalSpec(**fields, engine=settings, sampling={"samples": samples, "max_tokens": 8})
    records = RecordStore(store)
    with open_engine(pair, settings) as engine:
        done = list(run_jobs(engine, jobs_of(spec, engine, store=records), records))
        ranks = engine.info()["tensor_parallel_size"]
    rows = ((each.job.decoding.mode, row) for each in done for row in each.responses.values())
    tokens = {(mode, *row.key): row.load().token_ids for mode, row in rows}
    provenance = [each.result({}).provenance["engine"]["tensor_parallel_size"] for each in done]
    return sum(each.decoded for each in done), records.names(), tokens, ranks, provenance
