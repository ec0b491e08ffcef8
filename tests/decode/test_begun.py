"""A response that is gone on with from tokens that it has: what the whole decoding would have written, to the token."""

from dataclasses import replace

import numpy as np
import pytest

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.decode import Request
from rlvr_dir.errors import UserError
from tests.decode.requests import make_requests


@pytest.fixture(params=["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def engine(request):
    return request.getfixturevalue(f"{request.param}_engine")


def cut(rollout, at):
    return replace(rollout.request, begun=rollout.token_ids[:at])


def test_the_rest_of_a_response_is_that_of_the_whole_one(engine):
    requests = make_requests(18)
    whole = {each.request: each for each in engine.generate(requests) if each.n_tokens > 3}
    asked = [replace(cut(each, at), tag=each.request) for each in whole.values() for at in (1, each.n_tokens // 2)]
    rest = list(engine.generate(asked))
    assert len(rest) == 2 * len(whole) > 50
    assert sum(each.n_changed for each in rest) > 20
    for each in rest:
        first, at = whole[each.request.tag], len(each.request.begun)
        assert each.token_ids == first.token_ids[at:]
        assert (each.text, each.finish_reason) == (first.text, first.finish_reason)
        assert each.prompt_token_ids == first.prompt_token_ids
        for name in ("replaced", "changed"):
            assert (getattr(each, name) == getattr(first, name)[at:]).all()
        assert np.abs(each.delta_logp - first.delta_logp[at:]).max() < 1e-3


@pytest.mark.parametrize(
    ("who", "other"),
    [
        ("base", {"mode": "replace"}),
        ("rl", {"mode": "extrapolate", "primary": "rl", "gamma": -1.0}),
        ("base", {"mode": "extrapolate", "gamma": 2.0}),
    ],
)
def test_one_token_drawn_and_the_rest_replayed_are_a_window_of_one_token(engine, who, other):
    sampling, changed = Sampling(max_tokens=32, temperature=1.3, seed=5), 0
    how = {"decoding": Decoding(mode=who), "sampling": sampling}
    asked = [Request(f"What is {i} + {i}?", f"one/{i}", **how) for i in range(12)]
    for first in list(engine.generate(asked)):
        at = min(int(first.request.problem[4:]), first.n_tokens - 1)
        window = Decoding(**other, criterion="always", window=f"{at}:{at + 1}")
        [whole] = engine.generate([replace(first.request, decoding=window)])
        short = Sampling(max_tokens=at + 1, temperature=1.3, seed=5)
        [drawn] = engine.generate([replace(cut(first, at), decoding=window, sampling=short)])
        assert first.token_ids[:at] + drawn.token_ids == whole.token_ids[: at + 1]
        changed += drawn.token_ids[0] != first.token_ids[at]
        if whole.n_tokens > at + 1:
            [rest] = engine.generate([cut(replace(whole, request=first.request), at + 1)])
            assert rest.token_ids == whole.token_ids[at + 1 :]
            assert rest.text == whole.text
    assert changed >= 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"begun": (5,) * 48}, "48"),
        ({"begun": (5, 1)}, "2 given tokens"),
        ({"begun": (5, 10**6)}, "begun"),
        ({"begun": (5,), "stop": ("x",)}, "stop="),
    ],
)
def test_what_cannot_be_gone_on_with_is_one_sentence(transformers_engine, changes, words):
    request = replace(make_requests(1)[0], **changes)
    with pytest.raises(UserError) as error:
        transformers_engine.generate([request])
    assert words in str(error.value)
