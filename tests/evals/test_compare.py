"""Comparing finished results: right differences, corrected over the table, and refusals that name what is wrong."""

import os

import numpy as np
import pytest

from harness import stats
from harness.errors import UserError
from harness.evals import EvalResult
from harness.evals.compare import compare, markdown, read_results
from harness.spec import Decoding, Sampling


def result(decoding, accuracy, task="aime24", seed=0, problems=12, samples=8, **sampling):
    shape = (problems, samples)
    correct = np.random.default_rng(seed).random(shape) < accuracy
    none = np.zeros(shape, bool)
    return EvalResult(
        task, decoding, Sampling(samples=samples, **sampling), tuple(f"{task}-{i}" for i in range(problems)),
        correct, np.full(shape, 10), none, none, none, none, none,
    )  # fmt: skip


RL, CONTROL = Decoding(mode="rl"), Decoding(mode="replace", tau=-0.3)
EXTRA = Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)


def test_differences_are_paired_and_corrected_over_all_benchmarks():
    results = [
        result(d, a, task, seed)
        for seed, (d, a) in enumerate([(RL, 0.5), (CONTROL, 0.6), (EXTRA, 0.9)])
        for task in ("aime24", "amc")
    ]
    rows = compare(results, "rl")
    assert [(r.result.task, r.result.decoding) for r in rows] == [
        ("aime24", CONTROL), ("aime24", EXTRA), ("amc", CONTROL), ("amc", EXTRA)
    ]  # fmt: skip
    for row in rows:
        assert row.difference == stats.paired_difference(row.result.correct, row.reference.correct)
    assert [r.holm_p for r in rows] == stats.holm([r.difference.p for r in rows]).tolist()
    text = markdown(rows)
    assert f"{100 * rows[1].difference.mean:+.2f}" in text
    assert "over these 4 comparisons" in text


def test_a_reference_is_a_label_or_a_mode():
    results = [result(RL, 0.5), result(CONTROL, 0.6, seed=1), result(EXTRA, 0.7, seed=2)]
    assert {r.reference.decoding for r in compare(results, "replace τ-0.3")} == {CONTROL}
    assert {r.reference.decoding for r in compare(results, "extrapolate")} == {EXTRA}


@pytest.mark.parametrize(
    ("results", "against", "words"),
    [
        ([result(RL, 0.5), result(CONTROL, 0.5)], "base", "against='base' names no result of aime24; accepted: one of"),
        ([result(RL, 0.5), result(RL, 0.5)], "rl", "names 2 result"),
        ([result(RL, 0.5)], "rl", "only the reference is there"),
        ([result(RL, 0.5), result(CONTROL, 0.5, top_p=0.9)], "rl", r"top_p of aime24 differs \(0.9 and 0.7\)"),
        ([result(RL, 0.5), result(CONTROL, 0.5, problems=11)], "rl", "differ in their problems"),
    ],
)
def test_what_cannot_be_compared(results, against, words):
    with pytest.raises(UserError, match=words):
        compare(results, against)


def test_without_a_reference_rl_is_it_and_extrapolation_meets_its_control():
    results = [result(EXTRA, 0.9), result(RL, 0.5, seed=1), result(CONTROL, 0.6, seed=2)]
    assert [(r.result.decoding, r.reference.decoding) for r in compare(results)] == [
        (EXTRA, RL), (CONTROL, RL), (EXTRA, CONTROL)
    ]  # fmt: skip
    assert [(r.result.decoding, r.reference.decoding) for r in compare([results[2], results[0]])] == [(EXTRA, CONTROL)]


def test_of_one_setting_graded_twice_the_newer_counts(tmp_path):
    from dataclasses import replace

    old = replace(result(RL, 0.5), provenance={"grader": "robust", "graded_with": {"grader": "robust", "code": "1"}})
    new = replace(result(RL, 0.6), provenance={"grader": "robust", "graded_with": {"grader": "robust", "code": "2"}})
    other = replace(old, provenance={"grader": "plain", "graded_with": {"grader": "plain", "code": "1"}})
    for i, one in enumerate((old, other, new)):
        path = one.write(tmp_path)
        os.utime(path, (i, i))
    read = read_results([tmp_path])
    assert [r.provenance["graded_with"]["code"] for r in read] == ["1", "2"]
    assert read[1].avg == new.avg


def test_reading_files_and_folders(tmp_path):
    written = [result(RL, 0.5), result(CONTROL, 0.6, seed=1)]
    for i, one in enumerate(written):
        (tmp_path / f"{i}.json").write_text(one.to_json())
    read = read_results([tmp_path])
    assert [r.decoding for r in read] == [RL, CONTROL]
    assert all((a.correct == b.correct).all() for a, b in zip(read, written, strict=True))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UserError, match=r"other.json' is not a result"):
        read_results([tmp_path])
    with pytest.raises(UserError, match="does not exist"):
        read_results([tmp_path / "none"])
