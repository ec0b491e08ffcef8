"""The self-test refuses a broken engine, at any size, in bfloat16, where it allows most; faults are made on purpose."""

import pytest

from tests.decode.found import found_apart

pytestmark = [pytest.mark.vllm, pytest.mark.whole(reason="vLLM in a process of its own")]
pytest.importorskip("vllm", reason="vLLM is not installed")


@pytest.fixture(scope="module")
def said(peaked_pair, tmp_path_factory):
    """{how the engine was broken: what the self-test said}"""
    folder = tmp_path_factory.mktemp("said")
    return found_apart(folder, "decode.apart_self_test", peaked_pair, folder / "hub")


def test_a_healthy_engine_passes(said):
    assert said["as opened"] == said["mended"] == "engine"
    assert said["full"] == "transformers"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("overwritten", "both submodels have the same hidden states in steps that admit requests"),
        ("overwritten below 256", "both submodels have the same hidden states token by token"),
        ("a little wrong", "the rl submodel's log-probabilities are off by"),
        ("swapped", "the base submodel holds rl's"),
        ("rl's code", "both submodels have the same hidden states token by token"),
        ("one cache", "submodel's log-probabilities are"),
        ("no head", "the base submodel's log-probabilities are those of a model without an output layer"),
        ("no numbers", "NaN or infinite logits after 0 tokens of the response to problem='self-test'"),
        ("wrong norm, full", "the base submodel's log-probabilities are off by"),
    ],
)
def test_a_broken_engine_is_refused(said, how, words):
    assert said[how].startswith("self-test: ")
    assert words in said[how]


def test_only_another_program_sees_wrong_weights_that_every_route_shares(said):
    assert said["wrong norm"] == "engine"
    assert "against transformers on the same checkpoint" in said["wrong norm, full"]


def test_logits_are_float32_numbers_whatever_the_models_type(said):
    for kind, on_the_grid in said["logits"].values():
        assert kind == "torch.float32"
        assert on_the_grid < 0.05  # by chance one number in some hundred is
    assert said["info"]["head_dtype"] == "float32"
