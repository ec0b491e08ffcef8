"""Requests that the engine tests share: twelve configurations, prompts of many lengths; and their laws."""

import numpy as np

from benchmarks.closed_form import distribution
from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.decode import Request
from rlvr_dir.decode.plan import rule_of
from rlvr_dir.policy.combine import Combination
from rlvr_dir.policy.rule import Rules
from tests.laws import p_value

DECODINGS = (
    Decoding(mode="base"),
    Decoding(mode="rl"),
    Decoding(mode="replace", tau=-0.05),
    Decoding(mode="extrapolate", tau=-0.1, gamma=0.5),
    Decoding(mode="extrapolate", primary="rl", tau=-0.02, gamma=0.1),
    Decoding(mode="replace", criterion="entropy_base", tau=1.0),
    Decoding(mode="extrapolate", criterion="js", tau=0.002, gamma=2.0, window="2:"),
    Decoding(mode="extrapolate", criterion="coupling", gamma=-0.5, window=":60%"),
    Decoding(mode="replace", criterion="ce", tau=1.2, window="3:40"),
    Decoding(mode="veto", tau=-0.05),
    Decoding(mode="reject", tau=-0.05),
    Decoding(mode="reject", primary="rl", criterion="kl", tau=0.01, sign="positive"),
    Decoding(mode="veto", primary="rl", criterion="kl", tau=0.01, gamma=0.5),
    Decoding(mode="resample", tau=-0.02, window="1:"),
    Decoding(mode="resample", decider="base", tau=-0.02),
    Decoding(mode="replace", decider="rl", tau=-0.02),
    Decoding(mode="extrapolate", decider="base", gamma=0.3, primary="rl", criterion="kl", tau=0.01),
)
LONG = "Let n be a positive integer such that the sum of its digits is {}. Find n squared, and show each step. "


def make_requests(n, samples=2, max_tokens=48, **sampling):
    """`n` problems x `samples`, configurations taking turns; every third prompt is longer than a prefill chunk."""
    sampling = Sampling(**{"max_tokens": max_tokens, "seed": 3, **sampling})
    return [
        Request(
            prompt=(LONG.format(i) * 3 if i % 3 == 0 else f"What is {i} + {3 * i}?"),
            problem=f"test/{i}",
            sample=s,
            decoding=DECODINGS[i % len(DECODINGS)],
            sampling=sampling,
        )
        for i in range(n)
        for s in range(samples)
    ]


def by_key(rollouts):
    """{(problem, sample): rollout}"""
    return {(r.request.problem, r.request.sample): r for r in rollouts}


def facts(rollout):
    """All that must not depend on the batch: tokens, flags, proposals, text, reason."""
    return (
        rollout.token_ids,
        rollout.replaced.tolist(),
        rollout.changed.tolist(),
        rollout.proposed.tolist(),
        rollout.text,
        rollout.finish_reason,
    )


def assert_same(ours, theirs, tolerance=1e-3):
    """Two sets of rollouts agree in every token and flag, and in delta log p up to `tolerance`."""
    ours, theirs = by_key(ours), by_key(theirs)
    assert ours.keys() == theirs.keys()
    for key, mine in ours.items():
        assert facts(mine) == facts(theirs[key]), key
        assert abs(mine.delta_logp - theirs[key].delta_logp).max() <= tolerance
        assert abs(mine.delta_logp_written - theirs[key].delta_logp_written).max() <= tolerance


def law_after(engine, ids, request):
    """The closed form of the token that a request draws after these token ids, and the probability of a replacement."""
    both = zip(("base", "rl"), engine.logits(list(ids)), strict=True)
    rules = Rules.compile([rule_of(request.decoding, request.sampling)])
    law, replaced = distribution(
        {role: x[-1:] for role, x in both}, rules, combination=Combination(engine.checkpoints.vocab_size)
    )
    return law[0].numpy(), replaced.item()


def assert_drawn_by(law, tokens):
    """Tokens are drawn by a law: none that it excludes, and the others as often as it says (chi squared)."""
    assert p_value(np.bincount(tokens, minlength=len(law)), law) > 1e-3


def read_once(rollouts):
    """A token that only the last response that has one reads: the token, that response, how many tokens come before."""
    rollouts = list(rollouts)
    for i in reversed(range(len(rollouts))):
        own, others = rollouts[i], rollouts[:i] + rollouts[i + 1 :]
        elsewhere = {token for each in others for token in (*each.prompt_token_ids, *each.token_ids)}
        for at, token in enumerate(own.token_ids[:-1]):
            if at > 2 and token not in elsewhere | {*own.prompt_token_ids, *own.token_ids[:at]}:
                return token, own, at
    raise AssertionError("no response reads a token of its own")
