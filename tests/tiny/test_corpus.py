"""What the base reads: right where an author makes no slip, never a benchmark problem, the same for the same seed."""

import re
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from harness.tiny import corpus
from harness.tiny import vocabulary as v
from harness.tiny.problems import DISTRACTORS, benchmark_texts, draw_problem

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
