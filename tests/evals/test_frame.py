"""Responses as a frame: the numbers of results, by anybody's own `groupby`."""

import numpy as np
import pandas
import pytest

from harness.evals import frame, read_results
from harness.evals.compare import compare
from harness.evals.result import EvalResult
from harness.evals.settings import settings_of
from harness.spec import Decoding, Sampling
from tests.commands import run
from tests.evals.test_compare import result

GATED = Decoding(mode="extrapolate", tau=-0.3, gamma=0.1, primary="rl")


def test_grouped_by_setting_it_gives_the_numbers_of_comparisons():
    tau = Decoding(mode="replace", tau=-0.1)
    found = [result(Decoding(mode="rl"), 0.7, noise=seed, seed=seed) for seed in (0, 1)]
    found += [result(each, 0.5, noise=seed, seed=7 + seed) for each in (GATED, tau) for seed in (0, 1)]
    rows = compare(settings_of(found))
    by = frame(found).groupby(["setting", "problem"], sort=False)["correct"].mean()
    assert len(rows) == 2
    for row in rows:
        assert (by[row.result.label] - by[row.reference.label]).mean() == pytest.approx(row.difference.mean, abs=1e-12)


def test_of_one_seed_the_result_with_the_most_samples_has_the_setting():
    few = result(GATED, 0.4, samples=2)
    rows = frame([few, result(GATED, 0.4)])
    assert rows.groupby("config_hash")["setting"].count().to_dict()[few.config_hash] == 0


def test_what_a_result_does_not_say_is_missing():
    rows = frame([result(Decoding(mode="rl"), 0.5, lacks=["n_tokens", "seed"]), result(GATED, 0.5)])
    assert rows["tokens"].isna().tolist() == [True] * 96 + [False] * 96
    assert rows["seed"].isna().sum() == 96
    assert frame([]).empty


def test_a_task_of_lm_evals_has_its_metrics_by_problem():
    counts = np.full((2, 2), 1)
    theirs = EvalResult(
        task="squad", decoding=Decoding(), sampling=Sampling(samples=2), problem_ids=("a", "b"), n_tokens=counts,
        n_replaced=counts, n_changed=counts, truncated=counts - 1, scores={"f1": 0.5, "em": 0.25},
        values={"f1": [[0.5], [0.5]], "em": [[0.5], [0.0]]},
    )  # fmt: skip
    rows = frame([theirs, result(GATED, 0.5)])
    assert rows["em"].dropna().tolist() == [0.5, 0.5, 0.0, 0.0]
    assert rows["correct"].isna().sum() == 4


def test_the_command_writes_what_python_gives(tmp_path):
    (tmp_path / "results").mkdir()
    for each in (result(Decoding(mode="rl"), 0.7), result(GATED, 0.4, seed=1)):
        each.write(tmp_path / "results")
    asked = ["table", str(tmp_path / "results"), "--csv", str(tmp_path / "all.csv")]
    run(*asked)
    rows = pandas.read_csv(tmp_path / "all.csv")
    expected = frame(read_results([tmp_path / "results"]))
    assert list(rows.columns) == list(expected.columns)
    assert (
        rows.groupby("decoding")["correct"].mean().to_dict() == expected.groupby("decoding")["correct"].mean().to_dict()
    )
