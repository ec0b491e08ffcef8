"""The rehearsal of a step, which vLLM's memory profile sees: the bytes and the kernels of a step of decoding."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.decision import growth
from rlvr_dir.decode.vllm_pair import step
from rlvr_dir.policy import kernels
from rlvr_dir.policy.combine import AddedTokens, Combination
from rlvr_dir.policy.fused import decide_fused
from rlvr_dir.policy.rule import Rules
from rlvr_dir.policy.step import Requests
from tests.policy.rules import rule

pytest.importorskip("vllm", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm
WIDTH, VOCAB = 152_064, 151_665  # Qwen2.5's output layer, and its tokenizer


class Recorded:
    """Stands for a kernel, and notes what Triton would compile anew for."""

    def __init__(self, name, keys):
        self.name, self.keys = name, keys

    def __getitem__(self, grid):
        def run(*args, **options):
            def kind(value):
                if isinstance(value, torch.Tensor):
                    return str(value.dtype), value.data_ptr() % 16 == 0
                return (type(value).__name__, value == 1, value % 16 == 0)

            for written in args[11:15] if self.name == "decide" else ():  # token, proposal, replaced, delta
                written.zero_()
            self.keys.add((self.name, tuple(map(kind, args)), tuple(sorted(options.items()))))

        return run


@pytest.fixture
def keys(monkeypatch):
    monkeypatch.setenv(step.VARIABLE, "triton")
    step.decision_path.cache_clear()
    found = set()
    for name in ("summarise", "normalise", "gather", "decide", "force"):
        monkeypatch.setattr(kernels, name, Recorded(name, found))
    yield found
    step.decision_path.cache_clear()


def processor_of(model, rows):
    """Runner V2's processor with these rows in its slots."""
    from vllm import SamplingParams

    from rlvr_dir.decode.types import Plan
    from rlvr_dir.decode.vllm_pair.plugin import CONTEXT_KEY
    from rlvr_dir.decode.vllm_pair.processor import EXTRA_ARG, PairProcessor

    config = SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context={CONTEXT_KEY: model}))
    made = PairProcessor(config, SimpleNamespace(max_num_reqs=64, device=torch.device("cpu")))
    for slot, row in enumerate(rows):
        fields = {} if row is None else {EXTRA_ARG: Plan(row, slot, 3, None).plain()}
        made.add_request(slot, SamplingParams(temperature=0.0, extra_args=fields))
    n = len(rows)
    slots = torch.arange(n, dtype=torch.int32)
    return made, SimpleNamespace(idx_mapping_np=np.arange(n), idx_mapping=slots, pos=torch.full((n,), 7))


@pytest.mark.parametrize("shared", [None, 151_643])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_finds_every_kernel_compiled_that_the_rehearsal_has_run(keys, shared, dtype):
    base, rl = (torch.zeros(3, WIDTH, dtype=dtype) for _ in range(2))
    model = SimpleNamespace(
        combination=AddedTokens(VOCAB, shared) if shared else Combination(VOCAB), logits={"base": base}, texts=None
    )
    step.rehearse({"base": base, "rl": rl}, model.combination)
    rehearsed = set(keys)
    assert {name for name, *_ in rehearsed} == {"summarise", "normalise", "gather", "decide", "force"}
    for rows in ([rule("kl", tau=0.1)] * 3, [rule(None), None, rule("coupling")]):
        keys.clear()
        processor, context = processor_of(model, rows)
        processor.apply(rl.float().clone(), context)
        assert {name for name, *_ in keys} >= {"decide", "force"}
        assert keys <= rehearsed


def test_no_step_holds_more_than_the_rehearsal(keys):
    """On the fused path, whose kernels hold next to nothing (and are left out here)."""
    n, vocab = 48, 20_000
    base, rl = (torch.randn(n, vocab, generator=torch.Generator().manual_seed(i)) for i in range(2))
    numbers = torch.arange(n)
    held = growth(lambda: step.rehearse({"base": base, "rl": rl}, Combination(vocab)))
    ways = {
        "trace": rule("kl", tau=0.1, trace=10), "coupling": rule("coupling", gamma=0.1, temperature=0.9, top_p=0.9),
        "js": rule("js", tau=0.1, gamma=0.1),
    }  # fmt: skip
    for name, row in ways.items():
        rules, where = Rules.compile([row] * n), Requests(numbers, numbers, numbers)

        def one(rules=rules, where=where):
            logits = rl.clone()  # as runner V2 has them
            return decide_fused({"base": base, "rl": logits}, rules, where, Combination(vocab))

        grown = growth(one)
        assert grown <= held, name
