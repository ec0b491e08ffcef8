"""Exact drafting: whatever is drafted and cut, the tokens are lock-step's; how far it pays to draft."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from harness.bench.random_pair import random_pair
from harness.decode.drafting import Counts, Pace, expected_tokens
from harness.decode.transformers_pair import TransformersPair
from harness.decode.vllm_pair.engine import refuse
from harness.errors import UserError
from harness.spec import CRITERIA, Decoding, EngineSpec, Sampling, parse
from harness.spec.decoding import WITHOUT_TAU
from harness.tiny import tiny_pair
from harness.tiny.recipe import rl_problems
from tests.decode.requests import assert_same, by_key, make_requests

TAUS = {"spike": 1.2, "delta_logp": -0.1, "random": 0.15, "kl": 0.02, "kl_rl_base": 0.02, "kl_base_rl": 0.02}


def engine(pair, draft=None, rows=24, **settings):
    return TransformersPair(
        pair, EngineSpec(backend="transformers", dtype="float32", max_num_seqs=rows, draft=draft, **settings)
    )


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    return random_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def requests():
    """Of the tiny pair, which ends its answers: every criterion on both primaries, some traced, some with a limit."""
    with engine(tiny_pair()) as one:
        prompts = [one.chat_prompt(row["prompt"]) for row in rl_problems(0, 6)]
    decodings = [Decoding(mode="base"), Decoding(mode="rl")] + [
        Decoding(
            mode="extrapolate", criterion=c, tau=None if c in WITHOUT_TAU else TAUS.get(c, 0.4), gamma=0.2, primary=p
        )
        for c, p in product(CRITERIA, ("base", "rl"))
    ]
    made = make_requests(6 * len(decodings), samples=1, top_p=0.95, seed=4)  # 3 has a draw at a token's edge
    return [
        replace(
            request,
            prompt=prompts[i % 6],
            decoding=decodings[i // 6],
            sampling=request.sampling.replace(max_tokens=8 if i % 6 == 5 else 90),
            trace=2 if i % 6 == 1 else None,
            stop=("=",) if i % 6 == 2 else (),
        )
        for i, request in enumerate(made)
    ]


@pytest.fixture(scope="module")
def lock_step(requests):
    with engine(tiny_pair()) as one:
        return list(one.generate(requests))


@pytest.mark.parametrize("draft", [1, 3, 16, "auto"])
def test_the_tokens_are_those_of_lock_step(requests, lock_step, draft):
    with engine(tiny_pair(), draft) as one:
        ours = list(one.generate(requests))
    assert_same(ours, lock_step)
    assert {r.finish_reason for r in ours} == {"stop", "length"}
    theirs = by_key(lock_step)
    traced = [r for r in ours if r.trace is not None]
    assert len(traced) == len(requests) / 6
    for mine in traced:
        assert np.abs(mine.trace.table - theirs[mine.request.problem, 0].trace.table).max() < 1e-3
    counts = one.drafting
    assert counts.tokens == sum(r.n_tokens for r in ours)
    if draft == 3:
        assert counts.reads_per_token < 2


@pytest.mark.parametrize("rows", [1, 7])
def test_prompts_of_any_length_and_long_responses_are_drafted_alike(made_up, rows):
    """A random pair redraws often, never ends, and its holes are closed on the way. (With seed 3 a draw lies so close
    to the edge of a token that lock-step itself decides it another way in a batch of 7 than alone.)"""
    requests = make_requests(7, samples=1, max_tokens=120, seed=4)
    with engine(made_up, rows=rows) as plain, engine(made_up, 6, rows=rows) as drafting:
        assert_same(list(drafting.generate(requests)), list(plain.generate(requests)))
        assert drafting.drafting.positions > drafting.drafting.tokens  # something was cut


def test_a_criterion_of_the_primary_alone_cuts_nothing_off(made_up):
    """Then the other model runs only where the criterion holds, or at the end of a draft."""
    decoding = Decoding(mode="replace", criterion="random", tau=0.1)
    requests = [replace(r, decoding=decoding) for r in make_requests(3, samples=1, max_tokens=100)]
    with engine(made_up, 16, rows=1) as one:
        done = list(one.generate(requests))
    counts: Counts = one.drafting
    assert counts.positions == counts.tokens == sum(r.n_tokens for r in done)
    fired = sum(r.n_replaced for r in done)
    assert fired > 0
    assert counts.verified <= fired + counts.tokens / 16 + len(done)


def test_a_round_emits_what_the_formula_says():
    for k, ratio in ((1, 0.3), (4, 0.1), (9, 0.02), (5, 0.0)):
        stop_at = [ratio * (1 - ratio) ** j * (j + 1) for j in range(k)]  # the first that is redrawn is the (j + 1)th
        assert expected_tokens(k, ratio) == pytest.approx(sum(stop_at) + k * (1 - ratio) ** k)
    assert (4 + 1) / expected_tokens(4, 0.1) == pytest.approx(1.45, abs=0.005)  # reads a token
    assert (10 + 1) / expected_tokens(10, 0.02) == pytest.approx(1.20, abs=0.005)


@pytest.mark.parametrize(
    ("ratio", "verify", "best"),
    [
        (0.1, lambda k: 1.0, {4}),  # a forward costs what it reads: the best of (k + 1) r / (1 - (1 - r)^k)
        (0.02, lambda k: 1.0, {9, 10}),
        (0.1, lambda k: float(k), {1}),  # arithmetic: a draft that is cut is lost
        (0.0, lambda k: 1.0, {16}),
    ],
)
def test_the_pace_follows_ratio_and_costs(ratio, verify, best):
    pace = Pace("auto")
    chosen = []
    for _ in range(400):
        k = pace.choose(16)
        emitted = expected_tokens(k, ratio)
        pace.saw(k, k * 1.0, verify(k), ratio * emitted, emitted)
        chosen.append(k)
    usual = max(set(chosen[100:]), key=chosen[100:].count)
    assert usual in best
    assert Pace(5).choose(16) == 5
    assert Pace(5).choose(3) == 3


def test_what_cannot_draft_is_refused(made_up, tmp_path):
    with pytest.raises(UserError, match=r"draft=4 is refused by backend='vllm'; accepted: backend=transformers"):
        refuse(EngineSpec(draft=4))
    for value in (0, "often"):
        with pytest.raises(UserError, match="draft"):
            parse(EngineSpec, {"draft": value})
    import json
    import shutil
    from pathlib import Path

    folder = Path(shutil.copytree(Path(made_up.rl).parent, tmp_path / "sliding"))
    for role in ("base", "rl"):
        file = folder / role / "config.json"
        config = json.loads(file.read_text())
        kinds = ["sliding_attention", "full_attention"]
        file.write_text(json.dumps({**config, "use_sliding_window": True, "sliding_window": 8, "layer_types": kinds}))
    with pytest.raises(UserError, match=r"draft=4 is refused: .*sliding_attention.*accepted: leave draft out"):
        engine(type(made_up)(base=str(folder / "base"), rl=str(folder / "rl")), 4)


def test_sampling_is_that_of_the_request():
    """At another temperature too, greedily, and otherwise truncated: drafts are drawn at the request's own."""
    requests = [
        replace(r, sampling=Sampling(max_tokens=30, temperature=t, seed=5, **how))
        for r, t, how in zip(
            make_requests(6, samples=1),
            (0.7, 1.0, 0.0, 0.7, 1.0, 1.0),
            ({"top_p": 0.8}, {"top_p": 0.8}, {}, {"top_p": 0.8}, {"min_p": 0.1}, {"typical_p": 0.7}),
            strict=True,
        )
    ]
    with engine(tiny_pair()) as plain, engine(tiny_pair(), 4) as drafting:
        assert_same(list(drafting.generate(requests)), list(plain.generate(requests)))
