"""A broken model is never a number: whatever is wrong with a checkpoint, `rlvr-dir eval` ends with one sentence."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from rlvr_dir.bench.random_pair import random_pair
from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.checkpoints.weights import PICKLE
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode import open_engine
from rlvr_dir.decode.types import BrokenLogits
from rlvr_dir.errors import UserError
from rlvr_dir.tiny import tiny_pair
from tests.checkpoints.made import variant
from tests.decode.requests import assert_same, make_requests, read_once
from tests.facts import states

DOWN = "model.layers.0.mlp.down_proj.weight"
INDEX = "model.safetensors.index.json"
GGUF = b"GGUF" + bytes(64)


def broken(change=lambda place: None, without=()):
    """Breaks a copy of a checkpoint: files of these names are left out, and something is done to the rest."""

    def copy(source, place):
        shutil.copytree(source, place, ignore=shutil.ignore_patterns(*without))
        change(place)
        return place

    return copy


def of_file(change):
    return broken(lambda place: change(place / "model.safetensors"))


def changed_tensors(file, change):
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def of_weights(change):
    return of_file(lambda file: changed_tensors(file, change))


def one(value):
    return of_weights(lambda tensors: tensors[DOWN][3, 4].fill_(value))


def of_shards(change):
    """Breaks a copy whose weights are in two files, of which one holds `DOWN`."""

    def copy(source, place):
        variant(source, place, shards=2)
        [holds] = {file for name, file in json.loads((place / INDEX).read_text())["weight_map"].items() if name == DOWN}
        change(place, place / holds)
        return place

    return copy


def gguf(source, place):
    place = place.with_suffix(".gguf")
    place.write_bytes(GGUF)
    return place


def gpt2(place):
    """The same tokenizer and vocabulary around a model of another kind."""
    vocab = json.loads((place / "config.json").read_text())["vocab_size"]
    GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_embd=8, n_layer=1, n_head=1)).save_pretrained(place)


def gpt2_weights(place):
    """Its weights beneath the configuration that the checkpoint had."""
    own = {name: (place / name).read_text() for name in ("config.json", "generation_config.json")}
    gpt2(place)
    for name, text in own.items():
        (place / name).write_text(text)


class Code:
    """A pickle of it runs code if it is loaded whole."""

    def __reduce__(self):
        return sys.exit, ("run",)


def pickled(**how):
    content = {DOWN: torch.ones(2, 2), "more": Code()}
    return broken(lambda place: torch.save(content, place / "pytorch_model.bin", **how), without=["*.safetensors"])


# How a checkpoint is broken -> whether its files' headers tell, so that nothing else is printed; what is said.
BROKEN = {
    "cut short": (of_file(lambda file: file.write_bytes(file.read_bytes()[:4000])), True, "model.safetensors"),
    "empty file": (of_file(lambda file: file.write_bytes(b"")), True, "model.safetensors"),
    "git lfs": (of_file(lambda file: file.write_text("version https://git-lfs.github.com")), True, "git lfs pull"),
    "no weights": (of_file(Path.unlink), True, "model.safetensors"),
    "missing shard": (of_shards(lambda place, file: file.unlink()), True, ".safetensors"),
    "shard of less": (
        of_shards(lambda place, file: changed_tensors(file, lambda tensors: tensors.pop(DOWN))), True,
        DOWN,
    ),
    "cut index": (
        of_shards(lambda place, file: (place / INDEX).write_text((place / INDEX).read_text()[:100])), True,
        f"{INDEX} weight_map",
    ),
    "pickle": (pickled(), True, f"(pytorch_model.bin): {PICKLE}"),
    "old pickle": (pickled(_use_new_zipfile_serialization=False), False, f"cannot be loaded: {PICKLE}"),
    "gguf": (gguf, True, "GGUF"),
    "gguf within": (
        broken(lambda place: (place / "model.gguf").write_bytes(GGUF), without=["*.safetensors"]), True,
        "GGUF model.gguf",
    ),
    "empty directory": (broken(without=["*"]), True, "config.json"),
    "not there": (lambda source, place: place, True, ""),
    "another architecture": (broken(gpt2, without=["*.safetensors"]), True, "gpt2"),
    "another one's weights": (broken(gpt2_weights, without=["*.safetensors"]), False, "lm_head.weight"),
    "NaN": (one(float("nan")), False, f"NaN {DOWN} float32"),
    "infinity": (one(float("inf")), False, f"NaN {DOWN} float32"),
    "lacks a weight": (of_weights(lambda tensors: tensors.pop(DOWN)), False, DOWN),
    "no tokenizer": (broken(without=["tokenizer.json"]), True, "tokenizer.json"),
    "another shape": (
        of_weights(lambda tensors: tensors.update({DOWN: tensors[DOWN][:, :-2].clone()})), True,
        f"{DOWN} 254) 256) config.json"
    ),
}  # fmt: skip


SMALL = ["eval", "--samples", "1", "--max-tokens", "8", "--backend", "transformers", "--no-track"]


@pytest.mark.parametrize("role", ["base", "rl"])
@pytest.mark.parametrize("how", BROKEN)
def test_one_sentence_and_status_2(typed, capsys, tmp_path, how, role):
    break_it, at_once, words = BROKEN[how]
    place = break_it(getattr(tiny_pair(), role), tmp_path / "broken")
    pair, out = tiny_pair().replace(**{role: str(place)}), tmp_path / "out"
    capsys.readouterr()  # of what was made
    asked = ["--tasks", "tiny_easy", "--limit", "2", "--base", pair.base, "--pretrained", pair.rl, "--out", out]
    done = typed(*SMALL, *asked)
    assert done.returncode == 2
    assert not list(out.glob("*.json"))  # no result
    lines = [
        line for line in done.stderr.strip().splitlines() if not re.fullmatch(r"[a-z, ]+ \d\d:\d\d", line)
    ]  # phases
    assert lines[-1].startswith("error: ")
    option = {"base": "--base", "rl": "--pretrained"}[role]  # as it was typed
    assert any(f"{name}{str(place)!r}" in lines[-1] for name in (f"{option} ", f"{role}=")), lines[-1]
    states(lines[-1], *words.split())
    if at_once:
        assert len(lines) == 1


def test_a_home_is_one_in_every_engine_and_option(typed, monkeypatch, tmp_path):
    """`~` within a word, where no shell makes a home of it: a broken checkpoint there is the one that is refused."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for role in ("base", "rl"):
        shutil.copytree(getattr(tiny_pair(), role), tmp_path / role)
    (tmp_path / "spec.yaml").write_text("pair: {base: ~/base, rl: ~/rl}\ntasks: [tiny_easy]\nlimit: 2\n")
    for pair in (["--base=~/base", "--pretrained=~/rl", "--tasks=tiny_easy", "--limit=2"], ["~/spec.yaml"]):
        assert typed(*SMALL, "--out=~/out", *pair).returncode == 0
    assert len(list((tmp_path / "out").glob("*.json"))) == 1  # of the same checkpoints


def test_a_checkpoint_that_is_whole_in_another_format_is_read(tmp_path):
    rl = tmp_path / "rl"
    shutil.copytree(tiny_pair().rl, rl)
    torch.save(load_file(rl / "model.safetensors"), rl / "pytorch_model.bin")
    (rl / "model.safetensors").unlink()
    requests = make_requests(3, samples=1, max_tokens=6)
    with (
        open_engine(Pair(base=tiny_pair().base, rl=str(rl)), EngineSpec(backend="transformers")) as copied,
        open_engine(tiny_pair(), EngineSpec(backend="transformers")) as original,
    ):
        assert_same(copied.generate(requests), original.generate(requests))


# Names that are no paths ------------------------------------------------------------------------------------------


def refusal(name):
    with pytest.raises(UserError) as error:
        check_pair(tiny_pair().replace(rl=name))
    return str(error.value)


def test_a_path_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("./rl", "../rl", "~/no/such", "/no/such", "runs/2026/rl", "runs/rl"):
        place = str(Path(name).expanduser()) if name.startswith("~") else name
        states(refusal(name), f"rl={place!r}")


def test_a_hub_that_cannot_be_reached_is_tried_once(monkeypatch):
    states(refusal("someone/nothing"), "HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    reached = refusal("someone/nothing")
    states(reached, "rl='someone/nothing'")
    assert "HF_HUB_OFFLINE" not in reached
    states(refusal("no such model"), "rl='no such model'")


# While it decodes --------------------------------------------------------------------------------------------------


@pytest.fixture
def breakable(tmp_path):
    """A pair whose output layers are not its embeddings, so that an embedding can be spoilt by itself."""
    return random_pair(tmp_path)


@pytest.mark.parametrize("role", ["rl", "base"])
def test_nan_in_mid_run_names_model_request_and_position(breakable, role):
    requests = make_requests(12, samples=1, max_tokens=24)
    with open_engine(breakable, EngineSpec(backend="transformers")) as engine:
        token, broken, at = read_once(engine.generate(requests))
        model = engine.models[role]
        model.get_input_embeddings().weight.data[token] = float("nan")
        with pytest.raises(BrokenLogits) as error:
            list(engine.generate(requests))
    said, request = str(error.value), broken.request
    assert said.startswith(
        f"{role}={getattr(breakable, role)!r}: NaN or infinite logits after {at + 1} tokens of the response to "
        f"problem={request.problem!r} (sample={request.sample}, {request.decoding.label()})"
    )
