"""The generator and the benchmarks, checked by a reader of the problem's text who shares no code with it."""

import hashlib
import json
import re

import pytest

from harness.tiny import TINY_TASKS, benchmark
from harness.tiny.problems import benchmark_texts, tuning_problems

SIGNS = {"gets": 1, "finds": 1, "buys": 1, "loses": -1, "gives": -1, "sells": -1, "sees": 0, "counts": 0, "draws": 0}
# A change here is a change of the benchmarks: old and new scores cannot be compared, and the pair must be retrained.
DIGESTS = {
    "tiny_easy": "54a0083b193665bd",
    "tiny_medium": "34535e0de2b77e88",
    "tiny_hard": "50dd2e846b1c2b22",
}


def solve(text):
    """The answer and the numbers of operations and distractors, from the text alone."""
    head, tail = re.fullmatch(r"\w+ has (\d\d) \w+((?: [a-n] \w+ \d)+) how many \?", text).groups()
    clauses = re.findall(r" ([a-n]) (\w+) (\d)", tail)
    assert [label for label, _, _ in clauses] == list("abcdefghijklmn"[: len(clauses)])
    value = int(head)
    for _, verb, amount in clauses:
        value += SIGNS[verb] * int(amount)
        assert 0 <= value <= 99
    operations = sum(SIGNS[verb] != 0 for _, verb, _ in clauses)
    return value, operations, len(clauses) - operations


@pytest.mark.parametrize(
    ("task", "operations", "distractors"),
    [("tiny_easy", {2, 3}, {0, 1}), ("tiny_medium", {4, 5}, {1, 2}), ("tiny_hard", {7, 8}, {2, 3})],
)
def test_answers_are_right_and_difficulties_as_stated(task, operations, distractors):
    rows = benchmark(task)
    solved = [solve(row["problem"]) for row in rows]
    assert [row["answer"] for row in rows] == [str(value) for value, _, _ in solved]
    assert {n for _, n, _ in solved} == operations
    assert {n for _, _, n in solved} == distractors


def test_benchmarks_are_pinned():
    assert {
        task: hashlib.sha256(json.dumps(benchmark(task), sort_keys=True).encode()).hexdigest()[:16]
        for task in TINY_TASKS
    } == DIGESTS


def test_rows_are_unique_and_named():
    rows = [row for task in TINY_TASKS for row in benchmark(task)]
    assert len(rows) == 720 == len({row["problem"] for row in rows}) == len({row["id"] for row in rows})
    assert [row["id"] for row in benchmark("tiny_hard")[:2]] == ["tiny_hard-000", "tiny_hard-001"]


@pytest.mark.parametrize("task", TINY_TASKS)
def test_no_tuning_problem_is_in_a_benchmark(task):
    for seed in range(3):
        problems = tuning_problems(task, 300, seed)
        assert len({problem.text for problem in problems} - benchmark_texts()) == 300
