"""Token statistics against the definitions, computed once more without any streaming."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from rlvr_dir.analysis.histogram import Histogram
from rlvr_dir.analysis.records import TracedRecords
from rlvr_dir.analysis.result import Analysis
from rlvr_dir.analysis.selected import nucleus, selections, threshold
from rlvr_dir.analysis.tokens import BINS, DELTA_EDGES, Generation
from rlvr_dir.audit.run import audit
from rlvr_dir.audit.tokens import TOP
from rlvr_dir.config import EngineSpec, EvalSpec, Sampling
from rlvr_dir.evals.traces import trace_of
from rlvr_dir.policy.statistics import entropy, kl_divergence
from rlvr_dir.report.responses import token_chapter

FACTS = (*BINS, "logp_base", "logp_rl")


@pytest.fixture(scope="module")
def generation(made):
    return Generation("base").add_all(row[0] for row in made)


@pytest.fixture(scope="module")
def whole(made):
    """Every token's numbers, from the log-probabilities themselves."""
    lb, lr, y = (torch.cat([row[i] for row in made]) for i in (1, 2, 3))
    pick = lambda table: table.gather(1, y[:, None])[:, 0]  # noqa: E731
    return {
        "delta_logp": pick(lr) - pick(lb), "p_base": pick(lb).exp(), "p_rl": pick(lr).exp(), "token": y,
        "entropy_base": entropy(lb), "kl": 0.5 * (kl_divergence(lr, lb) + kl_divergence(lb, lr)), "lr": lr,
        "problem": torch.cat([torch.full((len(row[3]),), i % 4) for i, row in enumerate(made)]),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["delta_logp", "entropy_base", "kl"])
def test_histograms_are_those_of_all_values(generation, whole, name):
    h = generation.histograms[name]
    expected, _ = np.histogram(whole[name].numpy().astype(float), bins=h.edges)
    assert h.counts.sum() == expected.sum() == h.tokens
    assert np.abs(h.counts - expected).sum() <= 2  # a value on an edge may fall to either side


def test_histograms_count_what_lies_outside_and_list_what_lies_inside():
    values = np.random.default_rng(0).normal(size=1000) * 12
    one = Histogram(-20.0, 20.0, 400)
    for part in np.split(values, [300]):
        one.add(part)
    assert one.tokens == 1000
    rows = one.rows()
    assert sum(row["tokens"] for row in rows) == ((values >= -20) & (values < 20)).sum()
    assert all(row["to"] - row["from"] == pytest.approx(0.1) and row["tokens"] > 0 for row in rows)


def test_probability_by_bin(generation, whole):
    table = generation.by_problem("in_bin", generation.problems).sum(axis=0)
    bins = np.digitize(whole["delta_logp"].numpy(), DELTA_EDGES)
    for i in range(len(table)):
        assert table[i, 0] == (bins == i).sum()
        assert table[i, 1] == pytest.approx(float(whole["p_base"][bins == i].sum()), abs=1e-4)
        assert table[i, 2] == pytest.approx(float(whole["p_rl"][bins == i].sum()), abs=1e-4)


def test_gradient_mass_by_probability(generation, whole):
    table = generation.by_problem("mass", generation.problems).sum(axis=0)
    assert table[:, 0].sum() == len(whole["token"])
    assert table[:, 1].sum() == pytest.approx(float((2 * (1 - whole["p_base"])).sum()), rel=1e-5)


def test_words_are_ranked_by_mean_difference(generation, whole):
    found = generation.likelier(least=2, most=5)
    means = {int(t): float(whole["delta_logp"][whole["token"] == t].mean()) for t in whole["token"].unique()}
    counts = {int(t): int((whole["token"] == t).sum()) for t in whole["token"].unique()}
    expected = sorted((t for t in means if counts[t] >= 2 and means[t] > 0), key=lambda t: -means[t])[:5]
    assert [one["id"] for one in found] == expected
    assert found[0]["delta_logp"] == pytest.approx(means[expected[0]], abs=1e-5)


@pytest.mark.parametrize("target", [0.05, 0.2])
def test_criteria_pick_equally_many(made, whole, target):
    found, positions = selections(lambda: (row[0] for row in made), target, top_p=0.7)
    assert positions == len(whole["token"])
    for one in found:
        assert one.positions == round(target * positions)
        assert sum(one.picked.values()) == one.positions
    delta = next(one for one in found if one.criterion == "delta_logp")
    picked = whole["token"][whole["delta_logp"] < delta.tau - 1e-7]
    assert delta.picked == dict(zip(*(x.tolist() for x in picked.unique(return_counts=True)), strict=True))


def test_what_comes_instead_is_the_nucleus_of_rl(made, whole):
    found, _ = selections(lambda: (row[0] for row in made), 0.1, top_p=0.7)
    one = found[0]
    expected = {}
    for i in torch.nonzero(whole["entropy_base"] > one.tau + 1e-6)[:, 0]:
        p, ids = whole["lr"][i].exp().sort(descending=True)
        kept = nucleus(p.numpy(), 0.7)
        for token, weight in zip(ids.tolist(), kept.tolist(), strict=True):
            if weight and token != whole["token"][i]:
                expected[token] = expected.get(token, 0) + weight
    for token, weight in expected.items():
        assert one.placed[token] == pytest.approx(weight, abs=0.1)  # a nucleus longer than ten tokens was cut


def test_thresholds_are_strict_and_ties_fall_short():
    values = np.array([0.0, 0.0, 0.0, 1.0, 2.0])
    assert (values > threshold(values, 0.4, below=False)).mean() == 0.4
    assert (values < threshold(values, 0.4, below=True)).mean() == 0.0


def test_from_the_tiny_pair_to_a_chapter(tmp_path):
    """End to end on the reference engine: records, every table as by hand, a file, figures without a gap."""
    spec = EvalSpec(
        tasks=("tiny_easy",),
        sampling=Sampling(samples=2, max_tokens=48),
        limit=4,
        engine=EngineSpec(backend="transformers"),
    )

    asked = {"samples": 2, "max_tokens": 48, "limit": 4, "backend": "transformers", "rows": "tokens"}

    def run(out):
        audit("tiny@base", "tiny@8", "tiny_easy", records=tmp_path / "records", out=out, **asked)
        return Analysis.read(out / "tokens.json")

    found = run(tmp_path)
    assert found == run(tmp_path / "again")  # the second time from the records
    chapter = token_chapter(found)
    assert [one.name for one in chapter.sections] == [
        "histogram-delta", "histogram-magnitude", "probability-by-delta", "gradient", "selected", "likelier",
    ]  # fmt: skip
    both = spec.replace(decodings=("base", "rl"))
    records = TracedRecords(both, tmp_path / "records", top=TOP, progress=False)
    for who in ("base", "rl"):
        traces = [trace_of(row) for row in records.read(who)]
        facts = {name: np.concatenate([trace.fact(name) for trace in traces]).astype(float) for name in FACTS}
        delta, p = facts["delta_logp"], {each: np.exp(facts[f"logp_{each}"]) for each in ("base", "rl")}
        rows = {name: [row for row in table if row.get("generation") == who] for name, table in found.tables.items()}
        [told] = rows["generations"]
        assert (told["tokens"], told["near_zero"]) == (delta.size, (np.abs(delta) < 1e-3).sum())
        last = len(rows["gradient"]) - 1
        for i, row in enumerate(rows["gradient"]):
            assert (row["p_from"], row["p_to"]) == pytest.approx((i / 10, (i + 1) / 10))
            mine = (p[who] >= row["p_from"]) & ((p[who] < row["p_to"]) | (i == last))
            assert row["tokens"] == pytest.approx(mine.mean())
            assert row["mass"] == pytest.approx((1 - p[who])[mine].sum() / (1 - p[who]).sum(), abs=1e-5)
        edges = pairwise([-np.inf, *DELTA_EDGES, np.inf])
        for row, (low, high) in zip(rows["by_delta"], edges, strict=True):
            mine = (delta >= low) & (delta < high)
            assert row["tokens"] == mine.sum()
            for each in p if mine.any() else ():
                assert row[f"p_{each}"] == pytest.approx(p[each][mine].mean())
        for row in rows["histograms"]:
            values = facts[row["fact"]]
            assert row["tokens"] == pytest.approx(((values >= row["from"]) & (values < row["to"])).sum(), abs=1)
    proposed = np.concatenate([trace.proposed for trace in traces])
    assert found.tables["likelier"]
    for row in found.tables["likelier"]:  # of RL's own responses
        mine = proposed == row["id"]
        assert row["count"] == mine.sum()
        for name, values in {"delta_logp": delta, "p_base": p["base"], "p_rl": p["rl"]}.items():
            assert row[name] == pytest.approx(values[mine].mean())
