"""The fused decision against brute force, the closed form in float64, and the torch path: in Triton's interpreter."""

import itertools
import os
import random
import subprocess
import sys
from fractions import Fraction
from math import ceil

import pytest
import torch

from harness.policy import GATES, Decision, Noise, Rule, RuleRow, decide
from harness.policy.criteria import entropy, fires, kl_divergence
from harness.policy.decision import extrapolate

CLOSE = 2e-6  # float32's error in a cumulative mass: of the normaliser, and of the logits over the temperature


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """Runs a list of (name of a function in `interpreted.py`, its arguments) in a process that interprets Triton."""

    def run(*cases):
        folder = tmp_path_factory.mktemp("interpreted")
        torch.save(list(cases), folder / "in.pt")
        command = [sys.executable, "-m", "tests.policy.interpreted", str(folder / "in.pt"), str(folder / "out.pt")]
        done = subprocess.run(
            command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return torch.load(folder / "out.pt", weights_only=False)

    return run


def every_rule():
    taus = {"delta_logp": (-1.0, -0.1, 0.1), "random": (0.1, 0.6), "never": (0.0,), "always": (0.0,)}
    for gate in GATES:
        for tau, primary, gamma, temperature, top_p in itertools.product(
            taus.get(gate, (0.01, 0.5, 1.2)),
            ("base", "rl"),
            (0.0, 0.1, 0.7, -0.4, -1.0),
            (1.0, 0.6, 1.7),
            (0.7, 0.95, 1.0, 1e-6),
        ):
            yield RuleRow(gate, primary, tau, gamma, temperature, top_p)


def made(n, vocab, *, padded=0, seed=0, dtype=torch.float32, tile=None):
    """n rows of every kind: peaked, flat, tied, all tokens alike, impossible tokens, one possible token; any rule."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(n, vocab, generator=generator)
    rl = torch.randn(n, vocab, generator=generator)
    gone = torch.rand(2, n, vocab, generator=generator)
    for i in range(n):
        kind = i % 8
        base[i] *= (8.0, 2.5, 0.3, 2.0, 0.0, 2.0, 1.0, 3.0)[kind]
        rl[i] = base[i] + rl[i] * (0.5, 0.5, 0.2, 0.4, 0.0, 0.5, 0.5, 0.1)[kind]
        if kind == 3:  # ties, most of them of many tokens
            base[i], rl[i] = (base[i] * 2).round() / 2, (rl[i] * 2).round() / 2
        if kind == 5:  # impossible for one of them, or for both
            base[i, gone[0, i] < 0.3] = float("-inf")
            rl[i, gone[1, i] < 0.3] = float("-inf")
            base[i, 0] = rl[i, 0] = 0.0
        if kind == 6 and i % 16 == 6:
            base[i, 1:] = rl[i, 1:] = float("-inf")
    if padded:  # padding must not even be looked at
        base = torch.cat([base, torch.full((n, padded), 50.0)], 1)
        rl = torch.cat([rl, torch.full((n, padded), float("nan"))], 1)
    rules = list(every_rule())
    rows = random.Random(seed).choices(rules, k=n)
    keys = torch.randint(-(2**62), 2**62, (n,), generator=generator)
    return {
        "base": base.to(dtype),
        "rl": rl.to(dtype),
        "rows": rows,
        "keys": keys,
        "positions": torch.randint(0, 30_000, (n,), generator=generator),
        "vocab_size": vocab if padded else None,
        "tile": tile or min(1 << 16, 1 << (vocab - 1).bit_length()),
    }


def expected_token(mass, top_p, u):
    """By brute force, of (vocab,) float32 masses: sorted, summed up as integers, walked by u = bits / 2^53."""
    order = torch.sort(mass, descending=True, stable=True).indices
    weights = mass[order].long()  # a float32 below 2^63 is cut exactly
    upto = weights.cumsum(0)
    limit = ceil(Fraction(top_p) * 2**60) if top_p < 1 else int(upto[-1])
    size = int(((upto - weights) < limit).sum())
    point = (int(u * 2**53) * int(upto[size - 1])) >> 53
    return int(order[int(torch.searchsorted(upto, point, right=True))])


def check_draws(case, got):
    """Every draw is the brute-force one of the kernel's own masses, every gate that of its own statistics: exactly."""
    rule = Rule(case["rows"])
    noise = Noise.at(case["keys"], case["positions"])
    h_base, h_rl, kl_rl_base, kl_base_rl = got["statistics"].unbind(1)
    values = {
        "delta_logp": got["delta_logp"], "entropy_base": h_base, "entropy_rl": h_rl, "kl_rl_base": kl_rl_base,
        "kl_base_rl": kl_base_rl, "kl": 0.5 * (kl_rl_base + kl_base_rl), "random": noise.gate,
    }  # fmt: skip
    fired = {gate: fires(gate, value, rule.tau) for gate, value in values.items()}
    for i, row in enumerate(case["rows"]):
        proposed = expected_token(got["mass"][i, 0], row.top_p, noise.propose[i].item())
        assert got["proposed"][i] == proposed, (i, row)
        replaced = {"never": False, "always": True}.get(row.gate)
        assert got["replaced"][i] == (bool(fired[row.gate][i]) if replaced is None else replaced), (i, row)
        redrawn = (
            expected_token(got["mass"][i, 1], row.top_p, noise.redraw[i].item()) if got["replaced"][i] else proposed
        )
        assert got["token"][i] == redrawn, (i, row)


def truth(case):
    """Log-probabilities in float64 of base, RL, and both policies that are drawn from."""
    rule = Rule(case["rows"])
    width = case["vocab_size"] or case["base"].shape[1]
    lb, lr = (
        torch.log_softmax(case[name][:, :width].double() / rule.temperature[:, None], -1) for name in ("base", "rl")
    )
    primary = torch.where(rule.proposes_rl[:, None], lr, lb)
    return lb, lr, primary, extrapolate(lb, lr, rule.gamma.double())


def check_numbers(case, got):
    """Masses, statistics and delta log p against float64: one part in a million and the logits' rounding; 1e-5 nats."""
    lb, lr, primary, target = truth(case)
    rule = Rule(case["rows"])
    logits = torch.stack([case[name][:, : lb.shape[1]].float() for name in ("base", "rl")])
    largest = logits.abs().where(logits.isfinite(), 0.0).amax((0, 2))
    rounding = 1.2e-7 * largest * (1 + 2 * rule.gamma.abs()) / rule.temperature
    drawn = rule.gate != GATES.index("never")
    for policy, logp, rows in ((0, primary, drawn | True), (1, target, drawn)):
        p, mass = logp[rows].exp(), got["mass"][rows, policy].double() / 2**60
        assert ((p - mass).abs() <= p * (1e-6 + rounding[rows, None]) + 1e-30).all()
    expected = torch.stack([entropy(lb), entropy(lr), kl_divergence(lr, lb), kl_divergence(lb, lr)], 1)
    torch.testing.assert_close(got["statistics"].double(), expected, atol=1e-5, rtol=0)
    at = got["proposed"][:, None]
    torch.testing.assert_close(got["delta_logp"].double(), (lr - lb).gather(1, at)[:, 0], atol=1e-5, rtol=0)


def check_against_torch(case, got):
    """The torch path's tokens and gates, but where rounding decides."""
    rule, noise = Rule(case["rows"]), Noise.at(case["keys"], case["positions"])
    expected = decide(case["base"], case["rl"], rule, noise, vocab_size=case["vocab_size"])
    _, _, primary, target = truth(case)
    for i in (got["proposed"] != expected.proposed).nonzero()[:, 0].tolist():
        near(primary[i], case["rows"][i].top_p, noise.propose[i], got["proposed"][i])
    same = (got["proposed"] == expected.proposed) & (got["replaced"] == expected.replaced)
    for i in (same & (got["token"] != expected.token)).nonzero()[:, 0].tolist():
        near(target[i], case["rows"][i].top_p, noise.redraw[i], got["token"][i])
    return int((~same).sum()), int((same & (got["token"] != expected.token)).sum())


def near(logp, top_p, u, token):
    """Asserts that u's point of the cumulative mass is the token's, or within CLOSE of it: in float64."""
    p, order = torch.sort(logp.exp(), descending=True, stable=True)
    upto = p.cumsum(0)
    kept = upto - p < top_p + CLOSE
    least = ((upto - p < top_p - CLOSE) * p).sum()
    most = (kept * p).sum()
    at = int((order == token).nonzero())
    assert u * least - CLOSE <= upto[at]
    assert u * most + CLOSE >= upto[at] - p[at]


@pytest.fixture(scope="module")
def decisions(interpreted):
    cases = [
        made(160, 40, padded=8, seed=1),
        made(64, 1000, seed=2),
        made(16, 1000, seed=3, dtype=torch.bfloat16, tile=256),
        made(16, 32_000, seed=4),
        made(8, 151_936, padded=128, seed=6),
    ]
    return list(zip(cases, interpreted(*(("run", case) for case in cases)), strict=True))


def test_draws_and_gates_are_exact_in_their_own_numbers(decisions):
    for case, got in decisions:
        check_draws(case, got)


def test_masses_and_statistics_are_those_of_float64(decisions):
    for case, got in decisions:
        check_numbers(case, got)


def test_the_torch_path_decides_the_same(decisions):
    for case, got in decisions:
        check_against_torch(case, got)


def test_a_row_does_not_depend_on_its_batch(interpreted):
    case = made(48, 500, seed=7)
    order = torch.randperm(48, generator=torch.Generator().manual_seed(0))

    def part(index):
        return {name: value[index] for name, value in case.items() if isinstance(value, torch.Tensor)} | {
            "rows": [case["rows"][i] for i in index],
            "tile": case["tile"],
        }

    whole, shuffled, first = interpreted(("run", case), ("run", part(order)), ("run", part(torch.arange(5))))
    for name, value in whole.items():
        assert value[order].equal(shuffled[name])
        assert value[:5].equal(first[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_forced_row_has_one_finite_logit(interpreted, dtype):
    from harness.decode.vllm_pair import channel

    n, width = 6, 5000
    token, proposed = torch.tensor([0, 4999, 17, 4096, 4095, 3]), torch.tensor([0, 4999, 18, 4096, 1, 3])
    replaced = torch.tensor([False, True, True, True, True, False])
    delta = torch.tensor([-0.25, 4.0, float("inf"), float("-inf"), -77.0, float("nan")])
    decision = Decision(token, proposed, replaced, delta)
    decided = torch.tensor([True, True, False, True, True, True])
    logits = torch.randn(n, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    some, every = interpreted(
        ("forced", {"logits": logits.clone(), "decided": decided, "decision": decision}),
        ("forced", {"logits": logits.clone(), "decided": None, "decision": decision}),
    )
    numbers = channel.encode(replaced, decision.changed, delta).to(dtype)
    expected = torch.full_like(logits, float("-inf")).scatter_(1, token[:, None], numbers[:, None])
    torch.testing.assert_close(every, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(some, torch.where(decided[:, None], expected, logits), rtol=0, atol=0, equal_nan=True)
