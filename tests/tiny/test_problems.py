"""Problems, checked by a reader of their text who shares no code with the generator; what the base reads of them."""

import hashlib
import json
import re
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from examples.tiny import corpus
from rlvr_dir.tiny import TINY_TASKS, benchmark
from rlvr_dir.tiny import vocabulary as v
from rlvr_dir.tiny.problems import DISTRACTORS, benchmark_texts, draw_problem, tuning_problems

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


@pytest.mark.parametrize("task", TINY_TASKS)
def test_no_tuning_problem_is_in_a_benchmark(task):
    for seed in range(3):
        problems = tuning_problems(task, 300, seed)
        assert len({problem.text for problem in problems} - benchmark_texts()) == 300


LINE = re.compile(r" (?:so|then|next|now|thus|here|wait) (\d\d)((?:(?: [a-n])? [+-] \d)+) = (\d\d)")


@pytest.mark.parametrize("style", [*corpus.AUTHORS, corpus.TEACHER])
def test_an_author_without_slips_guesses_and_confusions_is_right(style):
    flawless = replace(style, slips=0.0, ignores_distractors=1.0)
    random = Random(1)
    for _ in range(300):
        problem = draw_problem(random, random.randint(1, 9), random.choice(DISTRACTORS))
        text = "".join(corpus.solution_words(random, problem, flawless))
        assert text.endswith(f" answer \\boxed{{{problem.answer:02d}}}<eos>")
        lines = LINE.findall(text)
        for start, steps, result in lines:
            assert int(start) + sum(int(sign + digit) for sign, digit in re.findall(r"([+-]) (\d)", steps)) == int(
                result
            )


def test_drills_are_right():
    text = "".join(corpus.drill_words(Random(0), lines=200))
    lines = LINE.findall(text)
    assert len(lines) == 200
    assert all(int(start) + int(step.replace(" ", "")) == int(result) for start, step, result in lines)


@pytest.mark.parametrize("progress", [0.0, 0.5, 0.9])
def test_no_document_holds_a_benchmark_problem(progress):
    random = Random(4)
    for _ in range(2000):
        prompt, _ = corpus.document(random, progress)
        assert "".join(v.VOCABULARY[token] for token in prompt[1:-1]) not in benchmark_texts()


def test_the_corpus_is_reproducible_and_batches_hold_like_lengths():
    first, again, other = (
        list(islice(corpus.batches(Random(seed), lambda: 0.8), 8)) for seed in ("a", "a", "b")
    )  # fmt: skip
    assert first == again != other
    spread = [max(map(length, batch)) - min(map(length, batch)) for batch in first]
    assert sum(spread) / len(spread) < 40


def length(document):
    return len(document[0]) + len(document[1])
