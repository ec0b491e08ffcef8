"""For `found_apart`: decodes with drafts on vLLM's runner V2, in Triton's interpreter.

`few`: drafts that are looked up, then all right, as many as the number of rows says. `all`: four a row, and more of
their sources: beyond a response's end, random, and all wrong, the latter with logits that are verified in several
calls. Or {source: requests}, which are decoded one source after the other, four drafts a row.
"""

from dataclasses import replace

import torch

from tests.decode.apart import add_plain_requests, requests_of, run_runner_v2

K = 4
SETTINGS = {"max_num_seqs": 16, "max_model_len": 512, "vllm_args": {"num_gpu_blocks_override": 24}}


def sources(vocab):
    """{name: what `Texts.drafts` is replaced by}; None: nothing."""
    generator = torch.Generator().manual_seed(0)
    return {
        "looked up": None,
        "expected": None,
        "beyond": None,
        "random": lambda rows: torch.randint(0, vocab, (len(rows.own), K), generator=generator),
        "wrong": lambda rows: torch.full((len(rows.own), K), vocab - 1),
    }


def requests_with(source, how, known):
    """The requests of all processes: with the responses that `known` has of them where these are to be drafts."""
    requests = requests_of("runner_v2")  # of all rules
    some = requests[:: 2 if (source, how) == ("looked up", "all") else 4]
    if source in ("expected", "beyond"):
        more = (7, 8, 9) * (source == "beyond")
        written = [known[request.problem, request.sample] for request in some]
        return [replace(one, expected=(*one.begun, *done, *more)) for one, done in zip(some, written, strict=True)]
    return some


def main(pair, how):
    """{source: what was counted, and the rollouts}, of one engine."""
    run_runner_v2()
    from vllm.v1.worker.gpu.spec_decode import rejection_sampler

    from harness.decode import open_engine, worth
    from harness.decode.vllm_pair import drafting
    from harness.decode.vllm_pair.lookup import Texts
    from harness.decode.vllm_pair.processor import PairProcessor
    from tests.conftest import vllm_spec

    given = how if isinstance(how, dict) else {}
    draft = "auto" if how == "few" else K
    found, known, counted = {}, {}, {"requests": 0, "calls": 0, "preempted": 0, "kept": 0}
    apply, drafts = PairProcessor.apply, Texts.drafts

    def counting(self, logits, ctx=None):
        counted["requests"] += len(ctx.idx_mapping_np)
        counted["calls"] += 1
        return apply(self, logits, ctx)

    PairProcessor.apply = counting
    if how == "few":
        drafting.device_name = lambda: "NVIDIA H200"
        worth.Worth.schedule = lambda self, most, longest: [(1, 4, 4), (5, 10, 2), (11, most, 0)]
    with open_engine(pair, vllm_spec(**SETTINGS, draft=draft, self_test=False)) as engine:
        vocab = engine.checkpoints.vocab_size
        scheduler = engine._engine.engine_core.engine_core.scheduler
        preempt = scheduler._preempt_request

        def preempted(request, *a, **k):
            counted["preempted"] += 1
            return preempt(request, *a, **k)

        def observed(*a, num_accepted_tokens, **k):
            counted["kept"] += num_accepted_tokens

        scheduler._preempt_request, scheduler.make_spec_decoding_stats = preempted, observed
        every = dict.fromkeys(given) or sources(vocab)
        for source, made in list(every.items())[: 2 if how == "few" else None]:
            counted.update(dict.fromkeys(counted, 0))
            Texts.drafts = drafts if made is None else lambda self, rows, k, made=made: made(rows)
            if source == "wrong":  # and rows of several requests verified in several calls
                rejection_sampler.MAX_CHUNK_BYTES = 4 * vocab * (3 * (K + 1) + 2)
            if source == "looked up" and how == "all":
                add_plain_requests(engine)
            rollouts = list(engine.generate(given.get(source) or requests_with(source, how, known)))
            known |= {(each.request.problem, each.request.sample): each.token_ids for each in rollouts}
            tokens = sum(each.n_tokens for each in rollouts)
            found[source] = {**counted, "tokens": tokens, "rollouts": rollouts}
    return found
