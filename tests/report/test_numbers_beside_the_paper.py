"""Each number beside the paper's, computed here by other means: theirs from its tables as data, ours from results."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from rlvr_dir.config import Decoding
from rlvr_dir.report.paper import against_paper, paper_chapter
from tests.report.held import number, rows_of
from tests.report.made import DAPO, result

PAPER = yaml.safe_load((Path(__file__).parents[2] / "reports" / "paper.yaml").read_text())
PROBLEMS = {"aime24": 30, "amc": 83, "minerva": 272}
TITLES = {"aime24": "AIME24", "aime25": "AIME25", "amc": "AMC", "minerva": "Minerva"}
ROWS = {"replace": 0.0, "gamma_0.05": 0.05, "gamma_0.1": 0.1}


def made(decoding, task, samples=32, **how):
    """A result whose problems, lengths and shares differ from response to response."""
    one = result(decoding, 0.5, task=task, problems=PROBLEMS[task], samples=samples, **how)
    random = np.random.default_rng([*map(ord, decoding.label()), *map(ord, task)])
    chance = np.clip(0.5 + random.normal(0, 0.2, (len(one.correct), 1)), 0.02, 0.98)
    tokens = random.integers(20, 90, one.correct.shape)
    replaced = random.binomial(tokens, random.uniform(0.05, 0.2, tokens.shape)) * decoding.gated
    right = random.random(tokens.shape) < chance
    return one.replace(correct=right, n_tokens=tokens, n_replaced=replaced, n_changed=replaced // 2)


def way(tau, gamma, primary="base"):
    return Decoding(mode="extrapolate" if gamma else "replace", tau=tau, gamma=gamma, primary=primary)


def sampling(values, samples):
    """The error of the mean of ours and of theirs, of as many problems with `samples` each, from sampling alone."""
    variance = values.var(axis=1, ddof=1).sum() / len(values) ** 2
    return np.sqrt(variance / values.shape[1] + variance / samples)


def holds(row, theirs, ours, error, half):
    assert number(row, "Paper") == pytest.approx(theirs)
    assert number(row, "Ours") == pytest.approx(ours)
    assert number(row, "Difference") == pytest.approx(ours - theirs)
    if error is None:
        assert (row["Sampling error of both"], row["Within?"]) == ("–", "–")
        return
    allowed = 196 * error + half
    assert number(row, "Sampling error of both") == pytest.approx(allowed)
    assert row["Within?"] == ("yes" if abs(ours - theirs) <= allowed else "no")


def beside(results, base=None):
    [table] = against_paper(results, base).sections
    return {row["What"]: row for row in rows_of(table)}


def test_every_cell_of_the_grids_has_its_score_and_each_threshold_its_share():
    wanted, results = {}, []
    for task, samples in (("aime24", 32), ("minerva", 8)):
        grid = PAPER[f"grid_{task}"]["dapo"]
        for row, gamma in ROWS.items():
            for i, tau in enumerate(grid["tau"]):
                one = made(way(tau, gamma), task)
                results.append(one)
                label = f"{TITLES[task]}, {one.decoding.label()}"
                wanted[f"{label}, Avg@32"] = grid[row][i], one.correct, samples, 0.005
                if not gamma:
                    wanted[f"{label}, replaced"] = grid["ratio"][i], one.n_replaced / one.n_tokens, samples, 0.05
        rl = made(Decoding(mode="rl"), task)
        results.append(rl)
        if "rl" in grid:
            wanted[f"{TITLES[task]}, rl, Avg@32"] = grid["rl"], rl.correct, samples, 0.005
    for row in PAPER["extrapolate_on_rl"][1:]:
        gate, extra = (made(way(row["tau"], gamma, "rl"), "aime24") for gamma in (0.0, 0.1))
        results += [gate, extra, made(way(row["tau"], 0.1, "rl"), "minerva")]  # of the gate alone it prints nothing
        label = f"AIME24, {extra.decoding.label()}"
        wanted[f"{label}, Avg@32"] = row["avg_at_32"], extra.correct, 32, 0.005
        wanted[f"{label}, replaced"] = row["ratio"], extra.n_replaced / extra.n_tokens, 32, 0.05
    results += [made(way(-0.3, 0.0), "amc"), made(Decoding(mode="veto", tau=-0.3), "aime24")]
    results += [made(Decoding(mode="replace", tau=-0.3, criterion="delta_logp above"), "aime24")]
    rows = beside(results)
    assert rows.keys() == wanted.keys()
    for name, (theirs, values, samples, half) in wanted.items():
        holds(rows[name], theirs, 100 * values.mean(), sampling(np.asarray(values, float), samples), half)
    assert {row["Within?"] for row in rows.values()} == {"yes", "no"}


def test_another_pair_of_the_paper_has_its_own_row():
    orz = {"base": DAPO["base"], "rl": PAPER["pairs"]["orz"]["rl"]}
    rows = beside([made(way(-0.4, 0.1), "aime24", pair=orz), made(way(-0.2, 0.1, "rl"), "aime24", pair=orz)])
    assert {name: number(row, "Paper") for name, row in rows.items()} == {
        "AIME24, extrapolate τ-0.4 γ0.1, Avg@32": 47.5,
    }


@pytest.mark.parametrize("place", ["/b", ""])
@pytest.mark.parametrize("model", ["qwen2.5-math-7b", "qwen3-8b-base"])
def test_a_trained_model_stands_beside_the_papers_of_its_method(model, place):
    """By the name that the base is given, or by its hub id."""
    names = {"dapo": "DAPO", "low_prob": "Ours", "ppl": "PPL", "dominate": "Dominate", "base": ""}
    title = {"qwen2.5-math-7b": "Qwen2.5-Math-7B", "qwen3-8b-base": "Qwen3-8B-Base"}[model]
    hub = {"qwen2.5-math-7b": "Qwen/Qwen2.5-Math-7B", "qwen3-8b-base": "Qwen/Qwen3-8B-Base"}[model]
    results, wanted = [], {}
    for method, name in names.items():
        for task in PROBLEMS:
            table = "minerva" if task == "minerva" else "main"
            printed = PAPER[table][model].get(method)
            if printed is None and task != "minerva" and model == "qwen2.5-math-7b":
                printed = PAPER["reweighting"].get(method)
            one = made(
                Decoding(mode="rl" if name else "base"), task, pair={"base": place or hub, "rl": f"/{name}"}, name=name
            )
            results.append(one)
            if printed is not None:
                wanted[f"{TITLES[task]}, {title}, {name or 'Base'}"] = (printed if table == "minerva" else printed[task]), one  # noqa: E501  # fmt: skip
    rows = beside(results, model if place else None)
    assert rows.keys() == {f"{name}, {metric}" for name in wanted for metric in ("Avg@32", "Pass@16")}
    for name, ((avg, passed), one) in wanted.items():
        holds(rows[f"{name}, Avg@32"], avg, 100 * one.correct.mean(), sampling(one.correct.astype(float), 32), 0.005)
        hits, ways = one.correct.sum(axis=1), np.ones(len(one.correct))
        for i in range(16):  # the chance that sixteen of 32 are all wrong
            ways *= np.clip(32 - hits - i, 0, None) / (32 - i)
        holds(rows[f"{name}, Pass@16"], passed, 100 - 100 * ways.mean(), None, 0.005)


def test_the_papers_own_tables_have_the_largest_error_that_sampling_can_make():
    """1.96 standard errors of independent samples, of problems of one accuracy; of an average, of its benchmarks."""
    tables = {section.name: section for section in paper_chapter().sections}
    data = PAPER["main"]
    rows = rows_of(tables["paper-main"])
    for row, one in zip(rows, [each for methods in data.values() for each in methods.values()], strict=True):
        errors = []
        for task, problems in (("aime24", 30), ("aime25", 30), ("amc", 83)):
            p = one[task][0] / 100
            errors.append(196 * np.sqrt(p * (1 - p) / problems / 32))
            assert row[f"{TITLES[task]} Avg@32: beside"] == f"±{errors[-1]:.1f}"
        assert row["Average Avg@32: beside"] == f"±{np.sqrt(np.square(errors).sum()) / 3:.1f}"
        assert number(row, "Average Avg@32") == pytest.approx(one["average"][0])
    for pair in ("dapo", "orz", "unireason"):
        for task, problems, samples in (("aime24", 30, 32), ("minerva", 272, 8)):
            grid = PAPER[f"grid_{task}"][pair]
            shown = {row["Threshold τ"]: row for row in rows_of(tables[f"paper-grid-{task}-{pair}"])}
            for i, tau in enumerate(grid["tau"]):
                assert shown["replaced"][f"'{tau:g}"] == f"{grid['ratio'][i]:.1f} %"
                for row, gamma in ROWS.items():
                    head = f"Extrapolate, γ = {gamma:g}" if gamma else "Replace with π_RL (γ = 0)"
                    p = grid[row][i] / 100
                    assert number(shown[head], f"'{tau:g}") == grid[row][i]
                    error = 196 * np.sqrt(p * (1 - p) / problems / samples)
                    assert shown[head][f"'{tau:g}: beside"] == f"±{error:.1f}"
    [row, *_] = [row for row in rows_of(tables["paper-on-rl"]) if row["Threshold τ"].startswith("Extrapolate")]
    assert number(row, "RL itself") == PAPER["extrapolate_on_rl"][0]["avg_at_32"]
    for one in PAPER["extrapolate_on_rl"][1:]:
        column = f"'{one['tau']:g}" if one["tau"] else "0"
        assert number(row, column) == one["avg_at_32"]
