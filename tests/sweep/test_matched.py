"""Thresholds for wanted ratios against brute force over every threshold there could be."""

import numpy as np
import pytest

from rlvr_dir.config import parse_decoding
from rlvr_dir.errors import UserError
from rlvr_dir.sweep.matched import tau_for
from rlvr_dir.sweep.taus import probe, probe_samples, wanted
from tests.sweep.made import sweep

RATIOS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9, 0.999)


def fires(criterion, values, tau):
    return values < tau if gate_of(criterion).holds_below else values > tau


def gate_of(criterion):
    return parse_decoding(f"replace,criterion={criterion},tau=0").gate


def arrays():
    random = np.random.default_rng(0)
    yield "smooth", random.normal(size=1000)
    yield "peaked", np.where(random.random(1000) < 0.8, 0.0, random.exponential(size=1000)).astype(np.float32)
    yield "ties", random.integers(0, 4, size=57) / 10
    yield "one value", np.full(10, 0.25)
    yield "one position", np.array([3.0])
    yield "neighbours", np.nextafter(np.float32(1), np.float32(2), dtype=np.float32) * np.ones(3, np.float32)
    yield "close", np.array([1.0, np.nextafter(np.float32(1), np.float32(2))], dtype=np.float32)


@pytest.mark.parametrize("criterion", ["delta_logp", "kl", "kl below"])
@pytest.mark.parametrize(("name", "values"), list(arrays()), ids=lambda value: value if isinstance(value, str) else "")
def test_no_threshold_is_nearer_to_the_ratio(criterion, name, values):
    x = values.astype(float)
    candidates = np.concatenate([x, (x[:, None] / 2 + x[None, :] / 2).ravel()[:5000], [x.min() - 1, x.max() + 1]])
    reachable = np.array([fires(criterion, x, tau).mean() for tau in candidates])
    for ratio in RATIOS:
        found = tau_for(gate_of(criterion), values, ratio)
        assert fires(criterion, x, found.tau).mean() == pytest.approx(found.expected, abs=1e-12)
        assert abs(found.expected - ratio) <= np.abs(reachable - ratio).min() + 1e-12


def test_thresholds_are_strict_and_short():
    found = tau_for(gate_of("delta_logp"), [-2.0, -1.0, 0.0, 0.0], 0.5)
    assert (found.tau, found.expected) == (-0.5, 0.5)
    assert tau_for(gate_of("kl"), [0.123456, 0.923456], 0.5).tau == 0.5


def test_random_needs_no_values():
    for criterion, tau in (("random", 0.05), ("random above", 0.95), ("random below", 0.05)):
        found = tau_for(gate_of(criterion), (), 0.05)
        assert (found.tau, found.expected) == (tau, 0.05)
        assert np.mean(fires(criterion, np.linspace(0, 1, 10_000), found.tau)) == pytest.approx(0.05, abs=1e-3)


@pytest.mark.parametrize(("values", "ratio"), [([1.0], 0.0), ([1.0], 1.0), ([], 0.5), ([float("nan")], 0.5)])
def test_what_cannot_be_matched_is_refused(values, ratio):
    with pytest.raises(UserError):
        tau_for(gate_of("kl"), values, ratio)


def test_a_threshold_is_refined_on_the_sweeps_own_replacement():
    varied = {"decode.criterion": {"values": ["kl", "delta_logp"]}, "decode.tau": {"ratio": [0.1]}}
    asked = wanted(sweep(parameters=varied))
    assert [key for key, _ in asked] == ["kl", "delta_logp"]
    found = probe(asked["delta_logp", 0.1], -0.2)
    assert (found.mode, found.criterion, found.tau, found.primary) == ("replace", "delta_logp", -0.2, "base")
    on_rl = {"decode": {"primary": "rl", "gamma": 0.1}, "parameters": {"decode.tau": {"ratio": [0.1]}}}
    found = probe(wanted(sweep(**on_rl))["delta_logp", 0.1], -0.2)
    assert (found.mode, found.gamma, found.primary) == ("replace", 0.0, "rl"), "on RL's text, where RL proposes"


def test_as_many_samples_as_promise_enough_replaced_tokens():
    assert probe_samples(32, 4_800_000, 0.002) == 2
    assert probe_samples(32, 4_800_000, 0.3) == 1
    assert probe_samples(8, 12_000, 0.01) == 8
