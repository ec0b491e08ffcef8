"""Every weight of both models comes from its checkpoint, whoever ties its head, or the pair is refused by name."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from benchmarks.random_adapter import random_adapter
from rlvr_dir.bench.random_pair import random_pair
from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.config import EngineSpec, Pair, Sampling
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.decode.plan import DELTA_LIMIT
from rlvr_dir.errors import UserError
from tests.checkpoints.made import EMBEDDINGS, HEAD, drop, edit, head_of_embeddings, variant
from tests.decode.found import found_apart
from tests.decode.requests import DECODINGS, assert_same, make_requests
from tests.facts import refuses, states

REQUESTS = {"n": 6, "samples": 1, "max_tokens": 12}
QUERY, NORM = "model.layers.1.self_attn.q_proj.weight", "model.norm.weight"


def without_a_head(tensors):
    """As a tied model is saved; its embeddings are as peaked as the head was."""
    del tensors[HEAD]
    tensors[EMBEDDINGS] *= 6


SIZES, THREE = "two sizes", "a change carried over to a third model"
ADDED = "tokens of RL's own"


def moved(tensors):
    """As training would: all weights a little."""
    noise = torch.Generator().manual_seed(7)
    for tensor in tensors.values():
        tensor += 0.05 * tensor.std() * torch.randn(tensor.shape, generator=noise)


def of_two_sizes(place):
    """Base and RL of other widths, depths, heads, paddings, positions; RL's rotary embeddings are scaled."""
    small = random_pair(place / "small", padding=20).base
    large = random_pair(place / "large", hidden=128, layers=3, padding=27, positions=2048).rl
    edit(large, {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}})

    def softened(tensors):  # else the self-test finds nothing in common
        tensors[HEAD] /= 3

    return Pair(base=variant(small, place / "base", change=softened), rl=variant(large, place / "rl", change=softened))


def of_two_vocabularies(place):
    """RL has four tokens of its own, which it likes to write; base has another padding and no row for them."""
    from transformers import AutoTokenizer

    base, large = (random_pair(place / name, padding=padding) for name, padding in (("few", 1), ("many", 40)))
    known = len(AutoTokenizer.from_pretrained(base.base))

    def liked(tensors):
        tensors[HEAD] /= 5  # else the self-test finds nothing in common
        tensors[HEAD][known : known + 4] *= 6

    def softened(tensors):
        tensors[HEAD] /= 5

    rl = variant(large.rl, place / "rl", change=liked)
    tokenizer = AutoTokenizer.from_pretrained(rl)
    assert tokenizer.add_tokens(["<think>", "</think>", "<tool>", "</tool>"]) == 4
    tokenizer.save_pretrained(rl)
    return Pair(base=variant(base.base, place / "base", change=softened), rl=rl)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """{name: pair}: base and RL in all shapes that must load; the padded vocabulary is no multiple of vLLM's 64."""
    place = tmp_path_factory.mktemp("heads")
    untied, found = random_pair(place, padding=27), {}
    kinds = {
        "untied": {"tied": False},
        "tied": {"tied": True, "change": without_a_head},
        "equal": {"tied": True, "change": head_of_embeddings(1)},  # tied, and saved twice
        "other": {"tied": True, "change": lambda tensors: None},  # says that it is tied, and has a head of its own
    }
    for base, rl, shards in (
        ("tied", "tied", 3),
        ("tied", "untied", 1),
        ("untied", "tied", 2),
        ("tied", "other", 1),
        ("other", "tied", 3),
        ("equal", "untied", 1),
    ):
        name = f"base {base}, rl {rl}"
        sides = {role: kinds[kind] for role, kind in (("base", base), ("rl", rl))}
        found[name] = Pair(
            **{
                role: variant(getattr(untied, role), place / name / role, shards=shards, **how)
                for role, how in sides.items()
            }
        )
    other = found["base other, rl tied"].base  # in shards, like a large base
    whole = variant(untied.base, place / "adapted", tied=True)
    found[SIZES] = of_two_sizes(place / "sizes")
    found[THREE] = found[SIZES].replace(
        rl=variant(found[SIZES].base, place / "three", change=moved), recipient=found[SIZES].rl
    )
    found[ADDED] = of_two_vocabularies(place / "added")
    found["adapter on another head"] = Pair(base=other, rl=random_adapter(place / "adapter", whole, step=0.01).rl)
    return found


@pytest.fixture(scope="module")
def incomplete(pairs, tmp_path_factory):
    """{name: (pair, what is missing in whose files)}"""
    place = tmp_path_factory.mktemp("incomplete")
    whole = random_pair(place)

    def broken(role, name, **how):
        return whole.replace(**{role: variant(getattr(whole, role), place / name, **how)})

    found = {
        "no head": (broken("rl", "a", tied=False, change=drop(HEAD)), "rl", HEAD),
        "a third of a packed weight": (broken("base", "b", change=drop(QUERY), shards=2), "base", QUERY),
        "not a number": (
            broken("base", "d", change=lambda tensors: tensors[NORM][3:4].fill_(float("nan"))), "base", NORM
        ),
        "no embeddings": (broken("base", "e", tied=False, change=drop(EMBEDDINGS)), "base", EMBEDDINGS),
    }  # fmt: skip
    return found


@pytest.fixture(scope="module")
def opened(pairs, incomplete, tmp_path_factory):
    """What vLLM says or decodes, for every pair."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    place = tmp_path_factory.mktemp("opened")
    every = pairs | {name: pair for name, (pair, *_) in incomplete.items()}
    tested, requests = (SIZES, THREE, ADDED), make_requests(**REQUESTS)
    sources = {name: (pair, {"self_test": name in tested}, requests) for name, pair in every.items()}
    return found_apart(place, "checkpoints.apart_loading", sources)


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
@pytest.mark.parametrize(
    "name",
    [
        "base tied, rl tied", "base tied, rl untied", "base untied, rl tied", "base tied, rl other",
        "base other, rl tied", "base equal, rl untied", "adapter on another head", SIZES, THREE, ADDED,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*each is built as its own configuration says", "ignore:.*only rl has 4 tokens")
def test_whoever_ties_its_head_and_of_any_size_both_engines_give_the_same_tokens(pairs, opened, name):
    assert not isinstance(opened[name], str), opened[name]
    with open_engine(pairs[name], EngineSpec(backend="transformers")) as engine:
        assert_same(opened[name], engine.generate(make_requests(**REQUESTS)))
    assert max(abs(rollout.delta_logp).max() for rollout in opened[name]) > 0.1


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
@pytest.mark.filterwarnings("ignore:.*only rl has 4 tokens")
def test_only_rl_alone_writes_the_tokens_that_rl_alone_has(pairs, opened):
    known = check_pair(pairs[ADDED])
    assert known.vocab_size == known.shared + 4
    own = {rollout.request.decoding.label(): max(rollout.token_ids) >= known.shared for rollout in opened[ADDED]}
    assert own == {label: label == "rl" for label in own}
    [mine] = [rollout for rollout in opened[ADDED] if rollout.request.decoding.mode == "rl"]
    at = np.array(mine.token_ids) >= known.shared
    assert (mine.delta_logp[at] == DELTA_LIMIT).all()  # base has no probability for them
    assert not at.all()


@pytest.mark.filterwarnings("ignore:.*only rl has 4 tokens")
def test_what_a_token_of_rls_own_rules_out_is_refused(pairs):
    prompt = Request("What is <think> 7?", "own", sampling=Sampling(max_tokens=4), trace=1, decoding=DECODINGS[1])
    with open_engine(pairs[ADDED], EngineSpec(backend="transformers")) as engine:
        with refuses("mode", "rl"):
            list(engine.generate([prompt]))
        [one] = engine.generate([replace(prompt, decoding=DECODINGS[3])])  # base reads the prompt with a stand-in
        assert np.isfinite(one.trace.table).all()
        assert max(one.prompt_token_ids) >= engine.checkpoints.shared > max(one.token_ids)
    with pytest.raises(UserError, match=r"has 4 ids that base=.* recipient="):
        check_pair(pairs[ADDED].replace(recipient=pairs[ADDED].rl))


def test_tokens_that_base_alone_has_are_named_and_never_written(pairs):
    turned = Pair(base=pairs[ADDED].rl, rl=pairs[ADDED].base)
    with pytest.warns(UserWarning, match=r"only base has 4 tokens \('</think>', "):
        found = check_pair(turned)
    assert found.shared == found.vocab_size


@pytest.mark.parametrize("name", ["base tied, rl other", "base equal, rl untied"])
def test_the_reference_takes_the_head_that_is_in_the_file(pairs, name):
    """The oracle of the oracle: logits = head x hidden state, with the tensors as they were saved."""
    with open_engine(pairs[name], EngineSpec(backend="transformers")) as engine:
        for role, model in engine.models.items():
            saved = load_file(Path(getattr(pairs[name], role), "model.safetensors"))
            hidden = model.model(torch.arange(5, 25)[None]).last_hidden_state[0]
            logits = engine.logits(list(range(5, 25)))[role == "rl"]
            expected = hidden @ saved.get(HEAD, saved[EMBEDDINGS]).T
            assert (logits - expected).abs().max() < 1e-4


CASES = ["no head", "a third of a packed weight", "not a number", "no embeddings"]


@pytest.mark.vllm
@pytest.mark.whole(reason="vLLM in a process of its own")
@pytest.mark.parametrize("name", CASES)
def test_a_weight_that_is_not_there_is_refused_by_name(incomplete, opened, name):
    pair, role, missing = incomplete[name]
    said = opened[name]
    assert isinstance(said, str)
    assert said.startswith(f"{role}={getattr(pair, role)!r}")
    states(said, missing, *(["NaN"] if name == "not a number" else []))  # else the header alone tells
