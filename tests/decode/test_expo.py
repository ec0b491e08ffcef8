"""Extrapolated weights: the right weights, decoded by one model in either engine, beside everything else."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from harness.decode import open_engine
from harness.decode.expo import INDEX, expo_pair, write_expo
from harness.errors import UserError
from harness.evals import evaluate
from harness.spec import Decoding, EngineSpec, EvalSpec, Pair, Sampling
from harness.tiny import tiny_pair
from tests.decode.checkpoints import HEAD, drop, variant
from tests.decode.found import found_apart
from tests.decode.requests import assert_same, make_requests

TRANSFORMERS = EngineSpec(backend="transformers", dtype="float32", max_num_seqs=16)
EXPO = Decoding(mode="expo", gamma=0.5)


def state(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


@pytest.fixture
def requests():
    """Three ways of decoding by turns, of which two are extrapolated weights."""
    decodings = (Decoding(mode="replace", tau=-0.05), EXPO, Decoding(mode="expo", gamma=2.0))
    return [replace(r, decoding=decodings[i % 3]) for i, r in enumerate(make_requests(12, samples=1))]


def test_the_weights_are_rl_and_a_step_beyond(peaked_pair):
    with expo_pair(peaked_pair, 0.5) as made:
        folder = Path(made.rl)
        base, rl, beyond = (state(place) for place in (peaked_pair.base, peaked_pair.rl, folder))
        for name, weight in beyond.items():
            assert torch.allclose(weight, rl[name] + 0.5 * (rl[name] - base[name]), atol=1e-6), name
        assert any(not torch.equal(weight, rl[name]) for name, weight in beyond.items())
        generation = json.loads((folder / "generation_config.json").read_text())
        assert generation["eos_token_id"] == [1, 3]  # RL's own
    assert not folder.exists()
    with expo_pair(peaked_pair, 0.5, frozenset({1, 7})) as made:
        assert json.loads((Path(made.rl) / "generation_config.json").read_text())["eos_token_id"] == [1, 3, 7]


def test_shards_and_narrow_types_are_kept(peaked_pair, tmp_path):
    """A checkpoint in several files and bfloat16 gives one in as many, computed in float32."""
    places = {}
    for role in ("base", "rl"):
        folder = Path(shutil.copytree(getattr(peaked_pair, role), tmp_path / role))
        tensors = {name: t.bfloat16() for name, t in load_file(folder / "model.safetensors").items()}
        (folder / "model.safetensors").unlink()
        names = sorted(tensors)
        cut = len(names) // (2 if role == "rl" else 3)  # not cut alike
        parts = {"a.safetensors": names[:cut], "b.safetensors": names[cut:]}
        for file, mine in parts.items():
            save_file({name: tensors[name] for name in mine}, folder / file)
        weight_map = {name: file for file, mine in parts.items() for name in mine}
        (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
        places[role] = tensors
    (tmp_path / "out").mkdir()
    write_expo(Pair(base=str(tmp_path / "base"), rl=str(tmp_path / "rl")), 0.3, tmp_path / "out")
    index = json.loads((tmp_path / "out" / INDEX).read_text())["weight_map"]
    assert len(set(index.values())) == 2
    for name, file in index.items():
        base, rl = places["base"][name].float(), places["rl"][name].float()
        expected = (rl + 0.3 * (rl - base)).bfloat16()
        assert torch.equal(load_file(tmp_path / "out" / file)[name], expected)


def test_one_call_decodes_it_beside_everything_else(peaked_pair, requests):
    """Each gamma as the checkpoint it stands for would be decoded alone; the pair is there again afterwards."""
    with open_engine(peaked_pair, TRANSFORMERS) as engine:
        ours = list(engine.generate(requests))
        again = list(engine.generate(requests[:1]))
    assert_same(again, ours[:1])
    for gamma in (0.5, 2.0):
        mine = [r for r in ours if r.request.decoding.gamma == gamma]
        assert len(mine) == 4
        with expo_pair(peaked_pair, gamma) as pair, open_engine(pair, TRANSFORMERS) as alone:
            theirs = alone.generate([replace(r.request, decoding=Decoding(mode="rl")) for r in mine])
            assert_same(mine, theirs)
        for one in mine:
            assert not one.delta_logp.any()
            assert one.n_replaced == 0


def test_it_ends_where_either_model_would(peaked_pair):
    """Here only base ends at <|im_end|>; written past it, a response would be cut at the limit and wrong."""
    swapped = Pair(base=peaked_pair.rl, rl=peaked_pair.base)
    requests = [replace(r, decoding=EXPO) for r in make_requests(40, samples=2, max_tokens=200)]
    with open_engine(swapped, TRANSFORMERS) as engine:
        done = list(engine.generate(requests))
    assert any(r.token_ids[-1] == 3 for r in done)
    assert not any(3 in r.token_ids[:-1] for r in done)


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
def test_both_engines_agree(peaked_pair, requests, tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    requests = [request for request in requests if request.decoding.gamma != 2]  # an engine start less
    with open_engine(peaked_pair, TRANSFORMERS) as engine:
        theirs = list(engine.generate(requests))
    assert_same(found_apart(tmp_path, "apart_loading", {"expo": (peaked_pair, {}, requests)})["expo"], theirs)


def test_an_evaluation_has_it_as_one_decoding_among_others(tmp_path):
    decodings = [Decoding(mode="rl"), EXPO]
    sampling = Sampling(samples=2, max_tokens=80)
    spec = EvalSpec(decodings=decodings, tasks=("tiny_easy",), sampling=sampling, limit=3, engine=TRANSFORMERS)
    first = evaluate(spec, records=tmp_path, progress=False)
    assert [result.decoding for result in first] == decodings
    assert first[0].config_hash != first[1].config_hash
    again = evaluate(spec, records=tmp_path, progress=False)  # from the records
    assert [(r.correct == a.correct).all() for r, a in zip(first, again, strict=True)] == [True, True]
    assert {r.provenance["engine"]["pair"]["rl"] for r in first} == {tiny_pair().rl}  # not a temporary folder


def test_checkpoints_that_cannot_be_combined_are_refused(peaked_pair, tmp_path):
    def based_on(name, change):
        return peaked_pair.replace(base=variant(peaked_pair.base, tmp_path / name, change=change))

    without, small = based_on("a", drop(HEAD)), based_on("b", lambda it: it.update({HEAD: torch.zeros(3, 64)}))
    empty = based_on("c", lambda tensors: None)
    Path(empty.base, "model.safetensors").unlink()
    for pair, words in (
        (without, r"do not have the same tensors \(lm_head.weight is in one only\)"),
        (small, r"lm_head.weight is \(3, 64\) in base=.* and \(\d+, 64\) in rl="),
        (empty, "base=.* holds no model"),
    ):
        with pytest.raises(UserError, match=words):
            write_expo(pair, 0.1, tmp_path)
    engine = open_engine(without, TRANSFORMERS, lazily=True)
    requests = make_requests(2, samples=1)
    with pytest.raises(UserError, match="do not have the same tensors"):
        engine.generate([requests[0], replace(requests[1], decoding=EXPO)])  # before anything is decoded
    assert not engine.started
