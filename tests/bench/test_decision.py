"""The cost of a decision is measured beside its parts; how much it is, is no test."""

import pytest
import torch

from benchmarks.decision import VOCAB, as_on_a_gpu, count_paths, growth
from rlvr_dir.policy.algorithm import decide
from rlvr_dir.policy.rule import Rules
from tests.policy.rules import requests, rule


def test_what_a_gpu_runs_waits_for_nothing_and_holds_little():
    paths = count_paths(VOCAB)
    for counts in paths["fused"].values():
        assert counts["launches"] == 5
        assert counts["waits"] == []
        assert counts["operators"] < 20  # allocations and views
        assert counts["bytes"] < 1  # nothing is as large as the vocabulary
        assert 16 <= counts["moved"] <= 20.5  # float32: both models' logits twice, and the forced row
    for name, most in (("decision", 30), ("extrapolate", 60)):
        assert paths["torch dense"][name]["waits"] == []
        assert paths["torch dense"][name]["bytes"] <= most
        assert paths["torch"][name]["bytes"] <= most
        assert paths["torch"][name]["waits"]  # the count sees a path that looks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gamma", [0.0, 0.1])
def test_a_gpus_torch_path_holds_little_whatever_the_rule(gamma, dtype):
    base, rl = (torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(i)).to(dtype) for i in range(2))
    kept = base.clone(), rl.clone()
    asked = [rule("kl", primary, 0.5, gamma, temperature=0.6, top_p=0.9) for primary in ("base", "rl")] * 2
    rules, where = Rules.compile(asked), requests(4)
    with as_on_a_gpu():
        assert growth(lambda: decide({"base": base, "rl": rl}, rules, where)) <= 60 * base.numel()
        decide({"base": base, "rl": rl.float()}, rules, where)
    assert base.equal(kept[0])
    assert rl.equal(kept[1])
