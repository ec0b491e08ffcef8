"""What vLLM chooses for a pair on a GPU, where its platform is told to be one; nothing is computed."""

import pytest

from tests.decode.found import found_apart

pytest.importorskip("vllm", reason="vLLM is not installed")
pytestmark = [pytest.mark.vllm, pytest.mark.whole(reason="vLLM in a process of its own")]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    return found_apart(folder, "decode.apart_cuda", folder)


def test_full_batches_have_graphs_on_runner_v2_and_logits_are_float32(said):
    full = said["full batches"]
    assert (full["largest"], full["sizes"], full["graphs"]) == (960, 79, "FULL_AND_PIECEWISE")
    assert full["v2"]
    assert full["async"]
    assert full["head"] == "torch.float32"


@pytest.mark.parametrize("name", ["full batches", "ordinary", "deterministic"])
def test_a_submodels_part_of_the_configuration_is_the_whole_ones_but_for_its_name(said, name):
    assert said[name]["alike"] == [True, True, True]
    rl, base, again = said[name]["hashes"]
    assert rl == again != base


def test_a_deterministic_engine_leaves_nothing_to_the_next(said):
    assert said["deterministic"]["left"] == ["VLLM_BATCH_INVARIANT", "VLLM_USE_BREAKABLE_CUDAGRAPH"]
    assert said["deterministic"]["mode"] == 0  # not compiled
    assert said["ordinary again"] == said["ordinary"]
    assert said["ordinary"]["mode"] == 3
