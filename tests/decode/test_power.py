"""Power sampling: its chain against brute force, and its one number a token; `test_vllm_pair` has both engines."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness.decode import Request
from harness.decode.plan import Plan, rollout
from harness.decode.power import Chain, power_rollouts
from harness.errors import UserError
from harness.policy.algorithm import decide
from harness.policy.noise import request_key
from harness.policy.rule import Rule, Rules
from harness.policy.statistics import renyi_entropy
from harness.policy.step import Requests
from harness.spec import Decoding, Sampling, parse, parse_decoding
from tests.laws import p_value
from tests.policy.rules import PATHS, decided, requests, rule

END, LENGTH = 2, 4  # of a model of three tokens
TABLE = torch.randn(4**LENGTH, 3, generator=torch.Generator().manual_seed(2)) * 1.5
OWN = Sampling(top_p=1.0, max_tokens=LENGTH)
TOKENIZER = SimpleNamespace(decode=lambda ids, **_: " ".join(map(str, ids)))


def logits_after(tokens):
    """The little model: logits that depend on everything before."""
    return TABLE[sum((token + 1) * 4**i for i, token in enumerate(tokens))]


def decode(plans):
    """Decodes plans on the little model as an engine does: by `decide`, under each plan's row and key."""
    written, told, running = [[] for _ in plans], [[] for _ in plans], list(range(len(plans)))
    while running:
        prefixes = [[*plans[i].token_ids[1:], *written[i]] for i in running]
        logits = torch.stack([logits_after(prefix) for prefix in prefixes])
        at = torch.tensor([1 + len(p) for p in prefixes])
        where = Requests(torch.tensor([plans[i].key for i in running]), at, at)
        made = decide({"base": logits, "rl": logits}, Rules.compile([plans[i].rule for i in running]), where)
        for i, token, delta in zip(running, made.token.tolist(), made.delta_logp.tolist(), strict=True):
            written[i].append(token)
            told[i].append(delta)
        running = [i for i in running if written[i][-1] != END and len(written[i]) < plans[i].max_new_tokens]
    for plan, tokens, delta in zip(plans, written, told, strict=True):
        none = np.zeros(len(tokens))
        yield rollout(plan, TOKENIZER, tokens, none, none, delta, "stop" if tokens[-1] == END else "length")


def plans_of(n, **fields):
    decoding = Decoding(mode="power", **fields)
    requests = [Request("", "little", i, decoding, OWN, prompt_token_ids=(9,)) for i in range(n)]
    row = Rule(primary="rl")
    return [Plan(row, request_key(0, "little", request.sample), 1, None, request, (9,), LENGTH) for request in requests]


def log_p(tokens, since=0, temperature=1.0):
    """Log-probability of tokens[since:] under the little model at a temperature."""
    steps = range(since, len(tokens))
    each = (torch.log_softmax(logits_after(tokens[:i]).double() / temperature, 0)[tokens[i]] for i in steps)
    return float(sum(each))


def law(power):
    """p^power over all responses, by brute force."""
    ended = [(*x, END) for n in range(LENGTH) for x in itertools.product((0, 1), repeat=n)]
    every = [*ended, *itertools.product((0, 1), repeat=LENGTH)]
    weights = [math.exp(power * log_p(x)) for x in every]
    return {x: weight / sum(weights) for x, weight in zip(every, weights, strict=True)}


@pytest.mark.parametrize("power", [4.0, 2.0])
def test_the_chain_has_the_law_of_p_to_the_power_and_its_proposal_has_not(power):
    """Level 0.001; a chain that only proposes is told from it at once."""
    wanted = law(power)
    for moves in (12, 0):
        plans = plans_of(2000, power=power, block=4, moves=moves)
        drawn = Counter(each.token_ids for each in power_rollouts(plans, decode, TOKENIZER))
        p = p_value([drawn[x] for x in wanted], [*wanted.values()])
        assert sum(drawn.values()) == 2000
        assert drawn.keys() <= wanted.keys()
        assert p > 1e-3 if moves else p < 1e-9


def test_the_odds_of_a_move_are_those_of_the_closed_form():
    """pi(x') q(x | x') / (pi(x) q(x' | x)), for every two responses that share what comes before a place."""
    [plan], power = plans_of(1, power=3.0, block=4, moves=1), 3.0
    compared = 0
    for old, new in itertools.permutations(law(power), 2):
        for place in range(min(len(old), len(new))):
            if old[:place] != new[:place]:
                break
            told = {
                x: [renyi_entropy(torch.log_softmax(power * logits_after(x[:i])[None], 1), torch.tensor([[1 / power]]))
                    for i in range(len(x))]
                for x in (old, new)
            }  # fmt: skip
            chain = Chain(plan, list(old), [float(h) for h in told[old]], move=1)
            forth, back = (log_p(x, place, 1 / power) - math.log(len(y)) for x, y in ((new, old), (old, new)))
            wanted = power * (log_p(new) - log_p(old)) + back - forth
            assert chain._log_odds(place, [float(h) for h in told[new][place:]]) == pytest.approx(wanted, abs=1e-4)
            compared += 1
    assert compared > 900


def test_every_token_that_is_drawn_is_counted():
    seen = Counter()

    def counting(plans):
        for part in decode(plans):
            seen[part.request.sample] += part.n_tokens
            yield part

    done = list(power_rollouts(plans_of(50, power=2.0, block=2, moves=3), counting, TOKENIZER))
    assert {r.request.sample: r.n_forwards for r in done} == seen
    assert all(r.n_tokens < r.n_forwards <= r.request.decoding.drawn(LENGTH) for r in done)
    alone = list(power_rollouts(plans_of(50, power=2.0, block=3, moves=0), decode, TOKENIZER))
    assert all(r.n_forwards == r.n_tokens for r in alone)


def test_renyi_entropy_by_hand():
    p = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    for order in (2.0, 4.0):
        cool = torch.log_softmax(order * p.log(), 1)
        want = (p**order).sum(1).log() / (1 - order)
        assert torch.allclose(renyi_entropy(cool, torch.full((3, 1), 1 / order)), want, atol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_a_rule_that_tells_a_renyi_entropy_changes_nothing_else(path):
    base, rl = (torch.randn(60, 40, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    rules = [rule(None, ("base", "rl")[i % 2], temperature=0.25) for i in range(60)]
    told = [replace(each, tells="renyi") if i % 3 == 0 else each for i, each in enumerate(rules)]
    rl[7, 3] = base[9, 3] = float("nan")
    with PATHS[path]():
        one, other = (decided(base, rl, each, requests(60)) for each in (rules, told))
    assert one.token.equal(other.token)
    assert one.delta_logp[1::3].equal(other.delta_logp[1::3]) or one.delta_logp[1::3].isnan().any()
    assert one.delta_logp.isnan().equal(other.delta_logp.isnan())
    own = torch.where(torch.arange(60)[:, None] % 2 == 0, base, rl)
    want = renyi_entropy(torch.log_softmax(4 * own, 1), torch.full((60, 1), 0.25))
    at = [i for i in range(0, 60, 3) if i != 9]
    assert torch.allclose(other.delta_logp[at], want[at], atol=1e-5)


def test_settings_are_those_of_the_authors_unless_said_otherwise():
    decoding = parse_decoding("power")
    assert (decoding.power, decoding.block, decoding.moves, decoding.primary) == (4.0, 192, 10, "rl")
    assert parse(Decoding, decoding.model_dump()) == decoding
    assert decoding.drawn(500) == 500 + 10 * (192 + 384 + 500)  # every move draws all of it anew, at most
    assert Decoding(mode="rl").drawn(500) == 500
    assert not {"power", "block", "moves"} & set(Decoding(mode="rl").model_dump())
    for fields, words in (
        ({"mode": "power", "tau": -0.1}, "tau=-0.1 has no effect with mode='power'"),
        ({"mode": "power", "power": 1}, "power=1 is refused"),
        ({"mode": "rl", "moves": 3}, "moves=3 has no effect with mode='rl'"),
    ):
        with pytest.raises(UserError, match=words):
            parse(Decoding, fields)
