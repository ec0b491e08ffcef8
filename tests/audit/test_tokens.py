"""Each row about tokens beside a computation of its own, from both models' log-probabilities at ten tokens."""

import numpy as np
import pytest

from rlvr_dir.audit.tokens import CLAIMS
from tests.audit.made import MARKS, row, ten_tokens

FRAME, MADE = ten_tokens()
LENGTHS = [3, 2, 4, 1]  # of the four responses
RIGHT = np.repeat([True, False, False, True], LENGTHS)


def entropy(logp):
    return -(np.exp(logp) * logp).sum(1)


def kl(p, q):
    return (np.exp(p) * (p - q)).sum(1)


def js(p, q):
    middle = np.log((np.exp(p) + np.exp(q)) / 2)
    return (kl(p, middle) + kl(q, middle)) / 2


def top_two(values):
    """Of ten values the fifth: those from the 0.8 quantile on, which lies between the eighth and the ninth."""
    return values >= np.sort(values)[-2]


def expected(owner):
    lb, lr, tokens = MADE[owner]
    each, first = np.arange(10), np.concatenate([np.arange(n) for n in LENGTHS])
    place = (lb > lb[each, lr.argmax(1)][:, None]).sum(1)
    divergence, fork = js(lb, lr), top_two(entropy(lb))
    tenth = 10 * first // np.repeat(LENGTHS, LENGTHS)
    delta = (lr - lb)[each, tokens]
    ordered = np.sort(divergence)[::-1]

    def fewest(share):
        held, at = share * ordered.sum(), 0
        while held > ordered[at]:
            held, at = held - ordered[at], at + 1
        return (at + held / ordered[at]) / 10

    return {
        "same_top": (place == 0).mean(),
        "second_or_third": ((place == 1) | (place == 2)).mean(),
        "later": (place > 2).mean(),
        "in_top_5": (place[place > 0] < 5).mean(),
        "in_top_10": (place[place > 0] < 10).mean(),
        "js": divergence.mean(),
        "js_above": (divergence > 0.1).mean(),
        "js_half": fewest(0.5),
        "js_ninety": fewest(0.9),
        "kld_50": np.sort(kl(lb, lr))[4],
        "kld_99.9": kl(lb, lr).max(),
        "kld_100": kl(lb, lr).max(),
        **{f"first_{model}": np.exp(logp).max(1).mean() for model, logp in (("base", lb), ("rl", lr))},
        **{
            f"others_{model}": np.sort(np.exp(logp), axis=1)[:, -10:-1].sum(1).mean()
            for model, logp in (("base", lb), ("rl", lr))
        },
        "boosted": (delta > 0)[RIGHT].mean() - (delta > 0)[~RIGHT].mean(),
        "kl_marks": kl(lr, lb)[np.isin(tokens, MARKS)].mean(),
        "kl_marks_share": kl(lr, lb)[np.isin(tokens, MARKS)].sum() / kl(lr, lb).sum(),
        "js_first": divergence[tenth == 0].sum() / divergence.sum(),
        "js_last": divergence[tenth == 9].sum() / divergence.sum() if (tenth == 9).any() else 0.0,
        "js_forks": divergence[fork].sum() / divergence.sum(),
        "forks": top_two(entropy(lr))[fork].mean(),
        "kl_rl_base": kl(lr, lb).mean(),
        "kl_base_rl": kl(lb, lr).mean(),
        "answer_kl_rl_base": kl(lr, lb).sum() / 4,
        "answer_kl_base_rl": kl(lb, lr).sum() / 4,
        "entropy_base": entropy(lb).mean(),
        "entropy_rl": entropy(lr).mean(),
        "logp_base": lb[each, tokens].mean(),
        "less_likely": (delta < -0.5).mean(),
        "likelier": (delta > 0.5).mean(),
    }


def tails(owner):
    """Count the tokens of a model, of ten, that lie beyond each edge."""
    lb, lr, tokens = MADE[owner]
    delta = (lr - lb)[np.arange(10), tokens]
    beyond = {"less_likely": delta < -0.5, "likelier": delta > 0.5, "kl_rl_base": kl(lr, lb) > 0.1}
    beyond |= {"entropy_base": entropy(lb) > 1, "entropy_rl": entropy(lr) > 1, "kl_base_rl": kl(lb, lr) > 0.1}
    return {name: hits.sum() for name, hits in beyond.items()}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_row_is_what_its_sentence_says(claim):
    found = claim.estimate(FRAME)
    if claim.name == "tokens/logp_difference":
        assert found.value == pytest.approx(expected("rl")["logp_base"] - expected("base")["logp_base"], abs=1e-6)
        return
    _, name, owner = claim.name.split("/")
    if name == "tail":
        more, less = ("rl", "base") if owner == "likelier" else ("base", "rl")
        assert found.value == pytest.approx((tails(more)[owner] + 0.5) / (tails(less)[owner] + 0.5))
        return
    assert found.value == pytest.approx(expected(owner)[name], abs=1e-6)
    assert found.low is None or found.low <= found.value + 1e-9


def test_every_measure_has_a_row():
    assert {claim.name.split("/")[1] for claim in CLAIMS} == {*expected("rl"), "logp_difference", "tail"}
    assert {claim.name.split("/")[2] for claim in CLAIMS if "/tail/" in claim.name} == {*tails("rl")}


def test_a_model_and_itself_gives_zeros_and_ones():
    frame, _ = ten_tokens(size=0.0)
    values = {claim.name: claim.estimate(frame).value for claim in CLAIMS}
    ones = {f"tokens/{name}/{owner}" for name in ("same_top", "forks") for owner in ("rl", "base")}
    for name, value in values.items():
        if name in ones:
            assert value == 1, name
        elif name.startswith("tokens/tail/"):  # of other answers: as large as chance has it
            assert 0.05 < (value or 0) < 20, name
        elif not any(word in name for word in ("entropy_", "logp", "first_", "others_")):
            assert value is None or abs(value) < 1e-6, name


def test_tokens_that_are_not_listed_are_behind_all_that_are():
    import torch

    base = torch.arange(12.0).flip(0)[None]  # RL's likeliest is base's last
    made, *_ = row("a", 0, base, torch.arange(12.0)[None], [0])
    from rlvr_dir.audit.tokens import TOP, traced_tokens

    assert traced_tokens({"rl": [made]}).place.tolist() == [TOP]


def test_a_quantile_and_its_interval_cover_the_truth():
    """Of 300 draws of 40 problems from one distribution, about 95 % of the intervals cover its quantiles."""
    import pandas

    from rlvr_dir.audit.tokens import quantile

    random = np.random.default_rng(0)
    unit = pandas.Categorical(np.repeat(np.arange(40), 50))
    covered = {0.5: 0, 0.9: 0}
    for _ in range(300):
        frame = pandas.DataFrame({"x": random.exponential(size=2000), "unit": unit})
        for share in covered:
            found = quantile("x", share)(frame)
            covered[share] += (found.low or 0) <= -np.log(1 - share) <= (found.high or np.inf)
    assert all(0.91 <= hits / 300 <= 0.985 for hits in covered.values()), covered
