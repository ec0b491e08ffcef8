"""Extrapolated logits against loops over every token of the vocabulary, and on logits that move in a straight line."""

import numpy as np
import pytest

from harness.analysis.extrapolated import NUCLEUS, SETS, TOP, compare, strength
from harness.analysis.extrapolated import estimates as rows_of

N, VOCAB = 70, 23
PROBLEMS = [f"p{i // 7}" for i in range(N)]


def estimates(found, problems):
    """The rows by what they estimate, those of each set by its name."""
    told = {"sets": {name: {} for name in SETS}}
    for row in rows_of(found, problems):
        told["sets"][row["over"]] |= {row["what"]: row, "positions": row["positions"]}
        told |= {row["what"]: row} if row["what"].startswith("kl") else {}
    return told


@pytest.fixture
def logits():
    """Logits of four checkpoints, (4, n, vocab): a straight line with some noise, and a constant of each position."""
    random = np.random.default_rng(0)
    start, way = random.normal(0, 2, (N, VOCAB)), random.normal(0, 0.3, (N, VOCAB))
    line = np.stack([start + step * way for step in (0, 2, 4, 8)])
    return line, line + random.normal(0, 0.2, line.shape) + random.normal(0, 5, (4, N, 1))


def test_every_number_is_that_of_a_loop(logits):
    early, late, _, real = logits[1]
    gamma = strength(0, 2, 8)
    found = compare(early, late, real, gamma)
    told = estimates(found, PROBLEMS)
    r2, r2_late = {name: [] for name in SETS}, {name: [] for name in SETS}
    pooled = {name: np.zeros(4) for name in SETS}
    worse = dict.fromkeys(SETS, 0)
    for n in range(N):
        p = np.exp(real[n]) / np.exp(real[n]).sum()
        hat = [late[n, v] + gamma * (late[n, v] - early[n, v]) for v in range(VOCAB)]
        for name, other in (("kl_late", late[n]), ("kl_extrapolated", np.array(hat))):
            q = np.exp(other) / np.exp(other).sum()
            assert found[name][n] == pytest.approx(sum(p[v] * np.log(p[v] / q[v]) for v in range(VOCAB)))
        ranked = sorted(range(VOCAB), key=lambda v: -p[v])
        mass, nucleus = 0.0, []
        for v in ranked:
            if mass < NUCLEUS:
                nucleus.append(v)
            mass += p[v]
        for name, chosen in {"all": ranked, "top": ranked[:TOP], "nucleus": nucleus}.items():
            if len(chosen) < 2:
                assert np.isnan(found[name][n]).all()
                continue
            c = {k: np.mean([x[v] for v in chosen]) for k, x in enumerate((early[n], late[n], real[n], hat))}
            total = sum((real[n, v] - c[2]) ** 2 for v in chosen)
            stay = sum((real[n, v] - c[2] - late[n, v] + c[1]) ** 2 for v in chosen)
            miss = sum((real[n, v] - c[2] - hat[v] + c[3]) ** 2 for v in chosen)
            moved = [late[n, v] - c[1] - early[n, v] + c[0] for v in chosen]
            along = sum((real[n, v] - c[2] - late[n, v] + c[1]) * m for v, m in zip(chosen, moved, strict=True))
            r2[name].append(1 - miss / total)
            r2_late[name].append(1 - stay / total)
            worse[name] += miss > stay
            pooled[name] += (stay, miss, along, sum(m * m for m in moved))
    for name in SETS:
        one, (stay, miss, along, before) = told["sets"][name], pooled[name]
        assert one["positions"] == len(r2[name])
        wanted = {
            "r2": np.mean(r2[name]), "r2_late": np.mean(r2_late[name]),
            "r2_added": np.mean(r2[name]) - np.mean(r2_late[name]), "explained": 1 - miss / stay,
            "worse": worse[name] / len(r2[name]), "best_gamma": along / before,
        }  # fmt: skip
        assert {what: one[what]["value"] for what in wanted} == pytest.approx(wanted)
        assert one["explained"]["low"] < one["explained"]["value"] < one["explained"]["high"]
    added = found["kl_extrapolated"] - found["kl_late"]
    assert told["kl_added"]["value"] == pytest.approx(added.mean())
