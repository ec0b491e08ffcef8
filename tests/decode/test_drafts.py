"""Drafts looked up in siblings change no token: the look-up against a brute search, its kernel, and whole engines."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness.bench.random_pair import random_adapter
from harness.decode import Request, open_engine
from harness.decode.memory import shape_of
from harness.decode.vllm_pair import drafting
from harness.decode.vllm_pair.lookup import LEAST, MOST, SIBLINGS, Texts, longest, longest_fused
from harness.decode.worth import ASSUMED, CARDS, Worth
from harness.errors import UserError
from harness.spec import Decoding, EngineSpec, Sampling
from tests.decode.apart_drafts import requests_with
from tests.decode.found import found_apart
from tests.decode.requests import DECODINGS, assert_drawn_by, assert_same, by_key, law_after, make_requests

K = 4


def made_texts(seed, slots=4, length=70):
    """Texts of few different tokens: two groups, running rows and finished ones."""
    generator = torch.Generator().manual_seed(seed)
    texts = Texts(slots, length, "cpu")
    texts.tokens.copy_(torch.randint(0, 3, texts.tokens.shape, generator=generator))
    for turn in range(2):
        for slot in range(slots):
            texts.add(slot, slot % 2, expected=[0, 1, 2] * turn)
    texts.lengths.copy_(torch.randint(1, length, texts.lengths.shape, generator=generator))
    return texts


def brute(texts, row, among):
    """The drafts of a row, by comparing every place of every text with the row's end."""
    mine, best = texts.tokens[row, : texts.lengths[row]].tolist(), None
    for which, text in enumerate(among):
        theirs = texts.tokens[text, : texts.lengths[text]].tolist() if text >= 0 else []
        for place in range(1, len(theirs)):
            run = 0
            while run < min(MOST, place, len(mine)) and theirs[place - 1 - run] == mine[-1 - run]:
                run += 1
            if run >= LEAST:
                best = max(best or (), (run, which == 0, place, -which, theirs[place : place + K]))
    return ((best[-1] if best else []) + K * [mine[-1]])[:K]


@pytest.mark.parametrize("seed", range(12))
def test_drafts_follow_the_longest_run_that_is_shared(seed):
    texts = made_texts(seed)
    rows = texts.rows(np.array([2, 0, 3]))
    found = texts.drafts(rows, K)
    assert found.tolist() == [brute(texts, row, rows.among[i].tolist()) for i, row in enumerate(rows.own.tolist())]
    same = {texts._groups[text] for text in rows.among[0].tolist() if text >= 0}
    assert len(same) == 1  # never another problem's text


def compare_kernel():
    """In a process whose Triton interprets."""
    for seed in range(6):
        texts = made_texts(seed, length=1100)  # more than the kernel looks at together
        rows = texts.rows(np.array([2, 0, 3]))
        arguments = texts.tokens, texts.lengths, rows
        assert torch.equal(longest(*arguments), longest_fused(*arguments))
    print("equal")


def test_the_kernel_finds_the_same(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    program = "from tests.decode.test_drafts import compare_kernel; compare_kernel()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]


def test_texts_are_followed_and_the_oldest_that_nobody_writes_gives_way():
    texts, length = Texts(2, 20, "cpu"), torch.zeros(2, dtype=torch.long)
    written = torch.zeros(2, 20, dtype=torch.int32)
    generator = np.random.default_rng(0)
    owned = {}
    for turn in range(40):
        slot = turn % 2
        texts.add(slot, "same")
        tokens = torch.from_numpy(generator.integers(1, 9, 20)).int()
        written[slot], length[slot], owned[slot] = tokens, 5, texts._in[slot]
        while length[slot] < 18:  # 1 to 3 tokens a step
            rows = texts.rows(np.array(sorted(owned)))
            slots = torch.tensor(sorted(owned))
            texts.follow(rows, written, length[slots], slots, 3)
            for each in owned:
                text, upto = texts._in[each], int(length[each])
                assert texts.lengths[text] == upto
                assert torch.equal(texts.tokens[text, :upto], written[each, :upto])
            length[slot] += int(generator.integers(1, 4))
        assert rows.among.shape[1] <= SIBLINGS
    assert not texts.knows(np.array([2]))


def test_siblings_take_turns_where_there_are_other_problems():
    plans = [SimpleNamespace(request=SimpleNamespace(problem=p, sample=s)) for p in "abc" for s in range(3)]
    in_turn = [f"{plan.request.problem}{plan.request.sample}" for plan in drafting.in_turn(plans, 2)]
    assert in_turn == ["a0", "b0", "a1", "b1", "a2", "b2", "c0", "c1", "c2"]


REFUSED = {
    "a CPU's runner": ({}, {}, True, "V1"),
    "runner V1": ({}, {drafting.RUNNER: "0"}, False, drafting.RUNNER),
    "deterministic": ({"deterministic": True}, {}, False, "deterministic"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_where_there_can_be_no_drafts_a_number_is_refused_and_auto_has_none(monkeypatch, case):
    asked, environment, on_cpu, named = REFUSED[case]
    monkeypatch.delenv(drafting.RUNNER, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"^draft=4 is refused .*{named}"):
        drafting.settings(EngineSpec(draft=4, **asked), [], 2048, on_cpu=on_cpu)
    assert drafting.settings(EngineSpec(draft="auto", **asked), [], 2048, on_cpu=on_cpu) is None


def test_drafts_pay_with_few_long_rows_and_not_with_full_short_batches():
    shape = shape_of("Qwen/Qwen2.5-7B")
    pair = Worth((shape, shape), CARDS["H200"])
    widths = pair.schedule(256, 20_000)
    assert [first for first, *_ in widths] == [1, *(last + 1 for _, last, _ in widths[:-1])]
    assert widths[0][2] == max(ASSUMED)
    assert widths[-1][1:] == (256, 0)
    assert pair.gain(pair.rows(16_000, 256), 16_000, 2, 1.57) > 1.4  # the drafting note's 1.55
    assert pair.gain(pair.rows(1000, 960), 1000, 2, 1.57) < 0.8


WHOLE = pytest.mark.whole(reason="vLLM in a process of its own")


@WHOLE
def test_a_draft_of_any_kind_changes_no_token(vllm_engine, peaked_pair, tmp_path):
    """Mixed rules, traces, stop strings, begun responses, preemption, chunks of prompts, plain requests beside."""
    found = found_apart(tmp_path, "apart_drafts", peaked_pair, "all")
    assert_all_same(vllm_engine, "all", found)
    assert found["looked up"]["preempted"] >= 3
    assert found["wrong"]["calls"] > found["random"]["calls"]  # logits were verified in several calls
    a_step = {source: seen["tokens"] / seen["requests"] for source, seen in found.items()}
    assert min(a_step["expected"], a_step["beyond"]) > 2 > 1.1 > a_step["wrong"]


@WHOLE
@pytest.mark.parametrize("kind", ["adapter", "third model"])
def test_so_it_is_with_other_kinds_of_pairs(peaked_pair, tmp_path, kind):
    pair = peaked_pair.replace(recipient=peaked_pair.rl)
    if kind == "adapter":
        pair = random_adapter(tmp_path / "adapter", peaked_pair.base, step=0.01)
    found = found_apart(tmp_path, "apart_drafts", pair, "few")
    with open_engine(pair, EngineSpec(backend="transformers")) as engine:
        assert_all_same(engine, "few", found)
    assert found["expected"]["tokens"] > 2 * found["expected"]["requests"]


@WHOLE
def test_so_it_is_with_each_rule_alone_and_a_draft_row_draws_by_the_closed_form(
    transformers_engine, peaked_pair, tmp_path
):
    sources, requests = {}, make_requests(len(DECODINGS), samples=2, max_tokens=24)  # a rule each
    known = by_key(transformers_engine.generate(requests))
    for one in requests:
        written = replace(one, expected=known[one.problem, one.sample].token_ids)
        sources.setdefault(f"{one.problem} looked up", []).append(one)
        sources.setdefault(f"{one.problem} expected", []).append(written)
    law, sources["law"] = two_sure_tokens_then_many(transformers_engine)
    found = found_apart(tmp_path, "apart_drafts", peaked_pair, sources)
    drawn = found.pop("law")
    for name, seen in found.items():
        assert_same([known[one.problem, one.sample] for one in sources[name]], seen["rollouts"])
        assert "looked" in name or seen["kept"] > seen["tokens"] / 2, name
    assert drawn["kept"] >= len(drawn["rollouts"])  # so the third token is that of a draft's row
    assert_drawn_by(law, [done.token_ids[-1] for done in drawn["rollouts"]])


def two_sure_tokens_then_many(engine):
    """The law of a third token, and requests that draw it after two that are all but certain, which they expect."""
    sampling = Sampling(max_tokens=5, temperature=2.0)
    one = Request("What is 6 + 2?", "law", 0, Decoding(mode="replace", tau=-0.005), sampling)
    [done] = engine.generate([replace(one, sampling=Sampling(max_tokens=4))])
    prompt, *written = done.prompt_token_ids, *done.token_ids
    for i in (2, 3):
        assert law_after(engine, (*prompt, *written[:i]), one)[0][written[i]] > 0.99
    one = replace(one, begun=tuple(written[:2]), expected=tuple(written))
    return law_after(engine, (*prompt, *written), one)[0], [replace(one, sample=i) for i in range(400)]


def assert_all_same(engine, how, found):
    """The rollouts of each source are those of an engine without drafts."""
    whole = by_key(engine.generate(requests_with("looked up", how, {})))
    known = {key: done.token_ids for key, done in whole.items()}
    for source, seen in found.items():
        asked = {(one.problem, one.sample) for one in requests_with(source, how, known)}
        assert_same([whole[key] for key in asked], seen["rollouts"])
