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


def made(monkeypatch, *roles):
    """Our model of submodels whose outputs are 100, 200 and 400 more than what they read, in one pool."""
    from rlvr_dir.decode.vllm_pair.model import RLVRPairForCausalLM

    pool = torch.zeros(8, HIDDEN)

    def build(self, role, vllm_config, prefix):
        setattr(self, role, InPool(pool, {"rl": 100.0, "base": 200.0, "recipient": 400.0}[role]))
        self.widths[role] = HIDDEN

    monkeypatch.setattr(RLVRPairForCausalLM, "build", build)
    facts = {"models": dict.fromkeys(roles), "adapter": False, "vocab": VOCAB - 1, "shared": VOCAB - 1}
    config = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=SimpleNamespace(rlvr=facts)),
        compilation_config=SimpleNamespace(static_forward_context={}),
        speculative_config=None,
    )
    return RLVRPairForCausalLM(vllm_config=config), pool


@pytest.mark.parametrize("roles", [("rl", "base"), ("base", "rl"), ("rl", "base", "recipient")])
def test_hidden_states_survive_the_forward_of_the_next_model(roles, monkeypatch):
    model, pool = made(monkeypatch, *roles)
    ids = torch.arange(3)
    hidden = model(ids, ids)
    assert hidden.data_ptr() != pool.data_ptr()
    pool.fill_(-1.0)  # what runs next reuses the last output as well
    rl = model.compute_logits(hidden)
    ours, theirs = model.combination.policies({**model.logits, "rl": rl})
    low, high = (400.0, 300.0) if len(roles) == 3 else (200.0, 100.0)  # recipient, recipient + RL - base; or base, RL
    assert ours[:, 0].tolist() == [low, low + 1, low + 2]
    assert theirs[:, 0].tolist() == [high, high + 1, high + 2]


def test_a_model_paired_with_itself_is_read_once(monkeypatch):
    model, pool = made(monkeypatch, "rl")
    ids = torch.arange(3)
    hidden = model(ids, ids)
    assert hidden.data_ptr() == pool.data_ptr()
    rl = model.compute_logits(hidden)
    assert model.logits == {}
    assert [each.data_ptr() for each in model.combination.policies({"rl": rl})] == [rl.data_ptr()] * 2


def test_the_first_step_rehearses_the_decision_where_memory_is_measured(monkeypatch):
    from rlvr_dir.decode.vllm_pair import model as module
    from rlvr_dir.decode.vllm_pair.step import rehearse

    seen = []

    def noted(logits, combination):
        seen.append(({role: each.shape for role, each in logits.items()}, combination.vocab))
        rehearse(logits, combination)

    monkeypatch.setattr(module, "rehearse", noted)
    for profiled, times in (((), 0), (("cpu",), 1)):
        monkeypatch.setattr(module, "PROFILED", profiled)
        model, _ = made(monkeypatch, "rl", "base")
        for _ in range(2):
            model.compute_logits(torch.zeros(5, 2 * HIDDEN))
        assert seen == [({"rl": (5, VOCAB), "base": (5, VOCAB)}, VOCAB - 1)] * times
