"""A quantised RL is dequantised into a temporary folder: beside weights by hand, decoded, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlvr_dir.audit.weights import weight_changes
from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.checkpoints.pair_check import examine
from rlvr_dir.checkpoints.rewrite import whole
from rlvr_dir.config import EngineSpec
from rlvr_dir.decode import open_engine
from rlvr_dir.records import fingerprint
from rlvr_dir.tiny import tiny_pair
from tests.checkpoints.quantised import compressed, gguf_copy, plain
from tests.decode.requests import assert_same, make_requests
from tests.facts import refuses

ENGINE = EngineSpec(backend="transformers", dtype="float32", max_num_seqs=16)
WEIGHTS = "model.safetensors"


@pytest.fixture(params=["W8A8", "FP8_DYNAMIC", "gguf"])
def quantised(request, tmp_path):
    """The tiny pair with a quantised RL, and with the same RL as it is dequantised by hand."""
    pair, place = tiny_pair(), tmp_path / "quantised"
    if request.param == "gguf":
        pytest.importorskip("gguf", reason="gguf is not installed")
        place = tmp_path / "rl.gguf"
        weights = gguf_copy(pair.rl, place)
    else:
        pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
        weights = compressed(pair.rl, place, request.param)
    return pair.replace(rl=str(place)), pair.replace(rl=str(plain(pair.rl, tmp_path / "by-hand", weights)))


def test_weights_and_responses_are_those_of_the_codes_times_their_scales(quantised):
    pair, by_hand = quantised
    wanted = load_file(Path(by_hand.rl, WEIGHTS))
    with whole(pair) as written:
        folder, found = Path(written.rl), load_file(Path(written.rl, WEIGHTS))
        assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert not folder.exists()
    assert {*found} == {*wanted}
    for name, tensor in found.items():
        assert torch.allclose(tensor, wanted[name], rtol=1e-6, atol=1e-9), name
    stored = {name: load_file(Path(tiny_pair().rl, WEIGHTS))[name] for name in wanted}
    assert any(not torch.equal(wanted[name], stored[name]) for name in wanted), "the codes have lost something"
    with open_engine(pair, ENGINE) as ours, open_engine(by_hand, ENGINE) as theirs:
        assert_same(ours.generate(make_requests(4, samples=1)), theirs.generate(make_requests(4, samples=1)))


def test_rows_about_weights_are_those_of_the_dequantised_model(quantised):
    pair, by_hand = quantised
    ours, theirs = weight_changes(pair), weight_changes(by_hand)
    assert ours.tensor.tolist() == theirs.tensor.tolist()
    size, change = (ours[name].sum() for name in ("size", "change"))
    assert change == pytest.approx(theirs.change.sum(), rel=1e-4)
    assert 0 < change < 0.1 * size


def test_the_check_says_that_it_runs_and_compares_no_codes(quantised):
    pair, _ = quantised
    found = examine(pair)
    assert (found.verdict, found.weights) == ("runs", None), found.why


def test_a_quantised_checkpoint_is_known_by_its_contents(quantised, tmp_path):
    pair, _ = quantised
    moved = tmp_path / "elsewhere" / Path(pair.rl).name
    copy = shutil.copytree if Path(pair.rl).is_dir() else shutil.copyfile
    moved.parent.mkdir()
    assert fingerprint(str(copy(pair.rl, moved))) == fingerprint(pair.rl) != fingerprint(pair.base)


def test_gguf_of_another_vocabulary_is_refused(tmp_path):
    pytest.importorskip("gguf", reason="gguf is not installed")
    pair = tiny_pair()
    vocabulary = sorted(check_pair(pair).tokenizer.get_vocab().items(), key=lambda item: item[1])
    tokens = [token for token, _ in vocabulary]
    tokens[7], tokens[8] = tokens[8], tokens[7]
    gguf_copy(pair.rl, tmp_path / "rl.gguf", tokens)
    with refuses("rl", tmp_path / "rl.gguf", "2"):
        check_pair(pair.replace(rl=str(tmp_path / "rl.gguf")))


def test_a_quantised_base_and_other_kinds_are_refused_before_weights_are_read(peaked_pair, tmp_path):
    for role, method in (("base", "compressed-tensors"), ("rl", "awq"), ("base", "fp8")):
        place = shutil.copytree(getattr(peaked_pair, role), tmp_path / f"{role}-{method}")
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": method}}))
        (place / WEIGHTS).write_bytes(b"")
        pair = peaked_pair.replace(**{role: str(place)})
        for read in (check_pair, weight_changes):
            with refuses(role, place, method):
                read(pair)


@pytest.mark.parametrize("role", ["base", "rl"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.float8_e4m3fn])
def test_codes_that_no_configuration_speaks_of_are_refused(peaked_pair, tmp_path, role, dtype):
    place = shutil.copytree(getattr(peaked_pair, role), tmp_path / "codes")
    tensors = load_file(place / WEIGHTS)
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = tensors[name].to(dtype)
    save_file(tensors, place / WEIGHTS, {"format": "pt"})
    pair = peaked_pair.replace(**{role: str(place)})
    for read in (check_pair, weight_changes):
        with refuses(role, place, name):
            read(pair)


def test_its_divergence_from_its_own_source_is_that_of_the_dequantised_weights(quantised):
    """KL(RL ‖ the quantised RL) in closed form, from the logits of transformers with weights by hand."""
    pair, by_hand = quantised
    ids = list(range(5, 45))
    with open_engine(pair.replace(base=tiny_pair().rl), ENGINE) as engine:
        source, own = (torch.log_softmax(logits.double(), -1) for logits in engine.logits(ids))  # pyright: ignore
    model = AutoModelForCausalLM.from_pretrained(by_hand.rl, dtype=torch.float32)
    with torch.inference_mode():
        known = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    ours, theirs = ((source.exp() * (source - other)).sum(1).mean() for other in (own, known))
    assert float(ours) == pytest.approx(float(theirs), rel=1e-2)
    assert float(theirs) > 1e-7
