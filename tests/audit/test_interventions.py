"""Each row about interventions on points whose accuracies are known, and the points that are asked."""

import numpy as np
import pandas
import pytest

from rlvr_dir.audit.interventions import AT, CLAIMS, IN_RL, SHARES, WAYS, correct, name_of, point_frame, points_at
from rlvr_dir.config import Decoding
from rlvr_dir.policy.gates import Gate
from rlvr_dir.sweep.taus import gate_of
from tests.audit.made import responses

RL, BASE, PROBLEMS = 0.8, 0.2, 40


def right(accuracy, samples=10):
    return np.tile(np.arange(samples) < round(accuracy * samples), (PROBLEMS, 1)).astype(int)


def made(accuracy_of):
    """Points whose accuracies `accuracy_of` gives by way and share; at each half of what is flagged changes."""
    parts = [responses("base", right(BASE), way="base", share=0.0), responses("rl", right(RL), way="rl", share=1.0)]
    for way in map(name_of, WAYS):
        for share in SHARES:
            counts = {"tokens": 1000, "replaced": 1000 * share, "changed": 500 * share}
            parts.append(responses("x", right(accuracy_of(way, share)), way=way, share=share, **counts))
    return pandas.concat(parts, ignore_index=True)


def values(points):
    return {claim.name.removeprefix("interventions/"): claim.estimate(points) for claim in CLAIMS}


ACCURACY = {"replace": 0.7, "reject": 0.5, "veto": 0.3, "resample": 0.2}


def test_rows_at_one_share():
    found = values(made(lambda way, share: ACCURACY[way.split()[0]] if share == AT else 0.2))
    for criterion in ("delta_logp", "js", "entropy_base"):
        assert found[f"replace/{criterion}"].value == pytest.approx(0.5 / 0.6)
        assert found[f"token/{criterion}"].value == pytest.approx(0.2)
        assert found[f"decision/{criterion}"].value == pytest.approx(0.2)
    assert found["own_draw/delta_logp"].value == pytest.approx(0.3)
    assert found["resample/delta_logp"].value == pytest.approx(0)
    assert found["in_rl/js"].value == pytest.approx(0)
    assert len(found) == 4 + 4 + 3 + 3 + 1 + 1 + 3 + 3


def test_where_rl_is_reached_and_where_it_is_lost():
    """Base with RL's tokens is below RL up to 1 % flagged and above it at 5; RL with base's falls below base at 10."""
    rising = dict(zip(SHARES, (0.3, 0.5, 0.8, 0.9, 1.0), strict=True))
    falling = dict(zip(SHARES, (0.8, 0.7, 0.5, 0.3, 0.1), strict=True))
    found = values(made(lambda way, share: (falling if way.endswith("on rl") else rising)[share]))
    reached = found["reached/js"]
    assert (reached.low, reached.value, reached.high) == pytest.approx((0.005, 0.01, 0.025))
    lost = found["lost/js"]
    assert (lost.low, lost.high) == pytest.approx((0.025, 0.05))
    assert lost.value == pytest.approx(0.0375)
    never = values(made(lambda way, share: 0.3))["reached/random"]
    assert (never.value, never.low, never.high) == (None, 0.05, 1.0)


@pytest.mark.parametrize("rl", [BASE, 0.1])
def test_where_rl_does_not_gain_there_is_no_part_of_it(rl):
    """A placebo: no share of its gain, and nothing that makes base as good as it; differences are as they are."""
    points = made(lambda way, share: ACCURACY[way.split()[0]])
    alone = responses("rl", right(rl), way="rl", share=1.0)
    found = values(pandas.concat([points[points.way != "rl"], alone], ignore_index=True))
    for name, estimate in found.items():
        assert (estimate.value is None) == (
            name.split("/")[0] in ("replace", "resample", "reached", "in_rl", "lost")
        ), name
    assert found["own_draw/delta_logp"].value == pytest.approx(0.3)


def test_points_flag_the_same_share_of_whoever_writes():
    random = np.random.default_rng(0)
    models: dict[Decoding, dict[Gate, np.ndarray]] = {Decoding(mode=model): {} for model in ("base", "rl")}
    for values_of in models.values():
        for way in WAYS:
            values_of[gate_of(way).without_threshold()] = random.normal(size=10_000)
    points = points_at(models)
    assert len(points) == len(WAYS) * len(SHARES) == 70
    assert len({decoding for *_, decoding in points}) == 70
    for way, share, decoding in points:
        gate = gate_of(decoding)
        if gate.statistic == "random":
            assert gate.tau == pytest.approx(share)
            continue
        own = models[Decoding(mode=decoding.primary)][gate.without_threshold()]
        flagged = own < gate.tau if gate.holds_below else own > gate.tau
        assert flagged.mean() == pytest.approx(share, abs=1e-4), way


def test_ways_that_are_one_decoding_have_points_of_their_own():
    """Of a model and itself every value ties, and nothing is flagged at any share."""
    models: dict[Decoding, dict[Gate, np.ndarray]] = {
        Decoding(mode=model): {gate_of(way).without_threshold(): np.zeros(50) for way in WAYS}
        for model in ("base", "rl")
    }
    points = points_at(models)
    decodings = [*models, *(decoding for *_, decoding in points)]
    frame = point_frame(points, {decoding: responses("x", right(BASE)) for decoding in decodings})
    assert len(frame) == (70 + 2) * PROBLEMS * 10
    found = values(frame)
    assert found["replace/js"].value is None
    assert found["token/js"].value == 0


def test_decodings_of_one_label_are_apart():
    """Labels have three digits of a threshold: two points were taken for one."""
    taus = (0.12341, 0.12342)
    points = [("replace js", tau, Decoding(mode="replace", criterion="js", tau=tau)) for tau in taus]
    assert len({decoding.label() for *_, decoding in points}) == 1
    accuracies = {Decoding(mode="base"): 0.2, Decoding(mode="rl"): 0.8, points[0][2]: 0.4, points[1][2]: 0.5}
    frame = point_frame(points, {decoding: responses("x", right(value)) for decoding, value in accuracies.items()})
    assert [correct(frame, "replace js", tau).mean() for tau in taus] == pytest.approx([0.4, 0.5])


def test_both_directions_are_asked():
    assert [name_of(way) for way in WAYS if way.primary == "rl"] == [f"resample {name} on rl" for name in IN_RL]
