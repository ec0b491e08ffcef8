"""For `found_apart`: a LoRA pair in vLLM, and what the tests ask of it.

Gives `rollouts` of the shared requests, `again` (the same, now with a warm prefix cache), `cached` (tokens of prompts
found in it), `merged` (by an engine on the whole checkpoints), `logits` (of `inside.computed_logits`), `bytes` (of both
models, of base, of RL), and what the `self_tests` said: of this pair, and of one with biases whose head is its
embeddings.
"""

from tests.decode.inside import computed_logits
from tests.decode.requests import make_requests


def main(pair, merged, tiny):
    from benchmarks.lora import loaded_models, weight_bytes
    from benchmarks.random_adapter import random_adapter
    from harness.decode import open_engine
    from harness.tiny import tiny_pair
    from tests.conftest import vllm_spec

    found, requests = {}, make_requests(18, samples=2)

    def look(model):
        found["bytes"] = [weight_bytes(each) for each in (model, model.base, model.rl)]

    with loaded_models(look), open_engine(pair, vllm_spec()) as engine:
        found |= {"logits": computed_logits(engine, 4), "rollouts": list(engine.generate(requests))}
        found |= {"self_tests": [engine.self_test], **counted_again(engine, requests)}
    with open_engine(merged, vllm_spec()) as engine:
        found["merged"] = list(engine.generate(requests))
    with open_engine(random_adapter(tiny, tiny_pair().base, rank=2, step=0.2), vllm_spec()) as engine:
        found["self_tests"].append(engine.self_test)
    return found


def counted_again(engine, requests):
    """The same requests once more, and how many tokens of their prompts the prefix cache had."""
    from vllm.v1.metrics.stats import PrefixCacheStats

    manager = engine._engine.engine_core.engine_core.scheduler.kv_cache_manager
    manager.log_stats, manager.prefix_cache_stats = True, PrefixCacheStats()
    return {"again": list(engine.generate(requests)), "cached": manager.prefix_cache_stats.hits}
