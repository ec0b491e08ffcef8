"""Submodels whose outputs lie in memory that the next one reuses, as under vLLM's piecewise CUDA graphs."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("vllm", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

HIDDEN, VOCAB = 4, 7


class InPool(torch.nn.Module):
    """A submodel that returns a view of one shared buffer, as the last piece of a captured graph does."""

    def __init__(self, pool, value):
        super().__init__()
        self.pool, self.value = pool, value

    def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None):
        view = self.pool[: len(input_ids)]
        return view.fill_(self.value).add_(input_ids[:, None])

    def compute_logits(self, hidden):
        return hidden[:, :1].expand(-1, VOCAB) * 1.0


def classes():
    from harness.decode.vllm_pair.lora import RLVRLoRAPairForCausalLM
    from harness.decode.vllm_pair.model import RLVRPairForCausalLM, RLVRPairOnTargetForCausalLM

    return [RLVRPairForCausalLM, RLVRLoRAPairForCausalLM, RLVRPairOnTargetForCausalLM]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["pair", "LoRA pair", "pair on target"])
def test_rls_hidden_states_survive_bases_forward(which, monkeypatch):
    made = classes()[which]
    pool = torch.zeros(8, HIDDEN)

    def build(self, vllm_config, prefix):
        self.rl, self.base, self.target = (InPool(pool, value) for value in (100.0, 200.0, 400.0))

    monkeypatch.setattr(made, "build", build)
    config = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=SimpleNamespace(hidden_size=HIDDEN, rlvr_vocab=VOCAB - 1)),
        compilation_config=SimpleNamespace(static_forward_context={}),
    )
    model = made(vllm_config=config)
    ids = torch.arange(3)
    hidden = model(ids, ids)
    assert hidden.data_ptr() != pool.data_ptr()
    pool.fill_(-1.0)  # what runs next reuses base's output as well
    rl = model.compute_logits(hidden)
    ours, theirs = (400.0, 300.0) if which == 2 else (200.0, 100.0)  # target and target + RL - base; or base and RL
    assert rl[:, 0].tolist() == [theirs, theirs + 1, theirs + 2]
    assert model.base_logits[:, 0].tolist() == [ours, ours + 1, ours + 2]


def test_every_class_that_runs_several_submodels_is_tested_here():
    from harness.decode.vllm_pair import plugin
    from harness.decode.vllm_pair.model import RLVRPairForCausalLM, RLVRSingleForCausalLM

    known = {RLVRPairForCausalLM, *RLVRPairForCausalLM.__subclasses__()}
    assert known == {*classes(), RLVRSingleForCausalLM}  # the last runs one
    assert {each.__name__ for each in known} == {
        plugin.ARCHITECTURE, plugin.LORA_ARCHITECTURE, plugin.SINGLE_ARCHITECTURE, plugin.TARGET_ARCHITECTURE
    }  # fmt: skip


def test_the_first_step_rehearses_the_decision_where_memory_is_measured(monkeypatch):
    from harness.decode.vllm_pair import model as module
    from harness.decode.vllm_pair.step import rehearse

    seen = []

    def noted(base, rl, combination):
        seen.append((base.shape, rl.shape, combination.vocab))
        rehearse(base, rl, combination)

    def build(self, vllm_config, prefix):
        self.rl, self.base = InPool(torch.zeros(8, HIDDEN), 1.0), InPool(torch.zeros(8, HIDDEN), 2.0)

    monkeypatch.setattr(module, "rehearse", noted)
    monkeypatch.setattr(module.RLVRPairForCausalLM, "build", build)
    config = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=SimpleNamespace(hidden_size=HIDDEN, rlvr_vocab=VOCAB - 1)),
        compilation_config=SimpleNamespace(static_forward_context={}),
    )
    for profiled, times in (((), 0), (("cpu",), 1)):
        monkeypatch.setattr(module, "PROFILED", profiled)
        model = module.RLVRPairForCausalLM(vllm_config=config)
        for _ in range(2):
            model.compute_logits(torch.zeros(5, 2 * HIDDEN))
        assert seen == [((5, VOCAB), (5, VOCAB), VOCAB - 1)] * times
