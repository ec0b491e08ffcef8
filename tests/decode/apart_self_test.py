"""For `found_apart`: vLLM on a pair in the hub's cache, broken in one way after the other.

The pair counts as large, like any of the hub's. Gives {how it was broken: what the self-test said}; under `info` what
the engine says of itself, under `logits` of each submodel (type, share of bfloat16 numbers in them).
"""

import os
from contextlib import contextmanager

from tests.checkpoints.made import in_the_hubs_cache


def requests_of(positions):
    """How many requests a step serves: each has consecutive positions."""
    return 1 + int((positions[1:] != positions[:-1] + 1).sum())


@contextmanager
def forward(model, change):
    """Changes what the pair's forward returns; `change` gets the two halves and the positions."""
    compute, half = type(model).forward, model.widths["rl"]

    def changed(input_ids, positions, *args, **kwargs):
        both = compute(model, input_ids, positions, *args, **kwargs)
        change(both[:, :half], both[:, half:], positions)
        return both

    model.forward = changed
    yield
    del model.forward


def overwritten(model):
    """RL's hidden states lie in memory that base reuses, in steps that read prompts while others decode."""

    def change(rl, base, positions):
        if 1 < requests_of(positions) < len(positions):
            rl.copy_(base)

    return forward(model, change)


def overwritten_below_256(model):
    """The same in every step that a CUDA graph is made for (`cudagraph_mode=PIECEWISE`)."""

    def change(rl, base, positions):
        if len(positions) <= 256:
            rl.copy_(base)

    return forward(model, change)


def a_little_wrong(model):
    """Hidden states of RL that are off by some per cent in steps that read prompts: what a wrong mask would do."""

    def change(rl, base, positions):
        if requests_of(positions) < len(positions):
            rl.mul_(1 + 0.1 * (positions[:, None] % 3 - 1))

    return forward(model, change)


@contextmanager
def swapped(model):
    """Each submodel has the other's place."""
    model.rl, model.base = model.base, model.rl
    yield
    model.rl, model.base = model.base, model.rl


@contextmanager
def rls_code(model):
    """Base has its own weights, but RL's code runs on RL's; only the output layer is base's."""
    model.base.forward = model.rl.forward
    yield
    del model.base.forward


@contextmanager
def one_cache(model):
    """Both submodels' attention writes into RL's KV cache."""
    layers = [
        (base.self_attn.attn, rl.self_attn.attn)
        for base, rl in zip(model.base.model.layers, model.rl.model.layers, strict=True)
    ]
    kept = [base.kv_cache for base, _ in layers]
    for base, rl in layers:
        base.kv_cache = rl.kv_cache
    yield
    for (base, _), cache in zip(layers, kept, strict=True):
        base.kv_cache = cache


@contextmanager
def logits(model, role, change):
    """Changes a submodel's logits."""
    submodel = getattr(model, role)
    compute = submodel.compute_logits
    submodel.compute_logits = lambda hidden: change(compute(hidden))
    yield
    del submodel.compute_logits


@contextmanager
def wrong_norm(model):
    """Weights of base that are another model's, in all steps alike: only another program can tell."""
    weight = model.base.model.norm.weight
    kept = weight.data.clone()
    weight.data.mul_(0.5)
    yield
    weight.data.copy_(kept)


BREAKS = {
    "overwritten": overwritten,
    "overwritten below 256": overwritten_below_256,
    "a little wrong": a_little_wrong,
    "swapped": swapped,
    "rl's code": rls_code,
    "one cache": one_cache,
    "no head": lambda model: logits(model, "base", lambda x: x * 1e-40),  # as of memory that nobody wrote to
    "no numbers": lambda model: logits(model, "rl", lambda x: x * float("nan")),
}


def kind_of_logits(engine, role):
    """The type of a submodel's logits, and how many of them bfloat16 could hold."""
    from rlvr_dir.decode.vllm_pair.self_test import _draw
    from tests.decode.inside import worker_model

    seen = []
    with logits(worker_model(engine), role, lambda x: seen.append(x.clone()) or x):
        _draw(engine)
    return str(seen[0].dtype), float((seen[0].bfloat16().float() == seen[0]).float().mean())


def main(pair, hub):
    in_the_hubs_cache(hub, base=pair.base, rl=pair.rl)
    os.environ |= {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"}
    from rlvr_dir.config import Pair
    from rlvr_dir.decode import open_engine
    from rlvr_dir.decode.vllm_pair.self_test import self_test
    from rlvr_dir.errors import UserError
    from tests.conftest import vllm_spec
    from tests.decode.inside import worker_model

    said = {}

    def test(engine, full=False):
        try:
            return self_test(engine, full)
        except UserError as error:
            return str(error)
        finally:
            engine.forget_prompts()

    spec = vllm_spec(dtype="bfloat16", max_num_batched_tokens=1024, max_num_seqs=256)
    with open_engine(Pair(base="someone/base", rl="someone/rl"), spec) as engine:
        said["as opened"] = engine.self_test
        model = worker_model(engine)
        for how, broken in BREAKS.items():
            with broken(model):
                said[how] = test(engine)
        with wrong_norm(model):
            said["wrong norm"], said["wrong norm, full"] = test(engine), test(engine, full=True)
        said |= {"info": engine.info(), "logits": {role: kind_of_logits(engine, role) for role in ("base", "rl")}}
        said["mended"], said["full"] = test(engine), test(engine, full=True)
    return said
