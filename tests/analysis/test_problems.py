"""The kinds of problem, by cases that leave no doubt."""

import numpy as np
import pytest

from rlvr_dir.analysis.problems import problem_kind, problems
from rlvr_dir.config import Decoding
from rlvr_dir.results.settings import Setting
from tests.facts import refuses
from tests.report import made


def result(*args, **how):
    return Setting.of([made.result(*args, **how)])


CASES = [
    ([0, 0, 0, 0], "never solved"),
    ([1, 1, 1, 1], "always solved"),
    ([0.5, 0.1, 0.6, 0.9], "dips first"),
    ([0.5, 0.9, 0.1, 0.8], "dips first"),
    ([0.1, 0.3, 0.6, 0.9], "rises"),
    ([0.9, 0.6, 0.3, 0.1], "falls"),
    ([0.5, 0.45, 0.5, 0.55], "unclear"),
    ([0.0, 0.03, 0.0, 0.03], "unclear"),
    ([0.1, 0.9], "rises"),
]


@pytest.mark.parametrize(("accuracy", "expected"), CASES)
def test_kinds(accuracy, expected):
    assert problem_kind(np.array(accuracy, float), samples=32) == expected


def test_steps_go_by_ratio_and_all_problems_are_there():
    steps = [result(Decoding(mode="replace", tau=tau), seed=i) for i, tau in enumerate((-0.1, -0.5), 1)]
    found = problems(result(Decoding(mode="base")), steps, result(Decoding()))
    assert found.accuracy.shape == (6, 3)
    assert list(found.ratios) == sorted(found.ratios)
    assert sum(found.counts.values()) == 6
    with refuses("problems"):
        problems(result(Decoding(mode="base")), [result(Decoding(mode="replace", tau=-1.0), problems=5)])
    with refuses("replaced"):
        problems(result(Decoding(mode="base")), [])


def test_what_rl_solves_is_not_called_never_solved():
    steps = [result(Decoding(mode="replace", tau=tau), 0.0) for tau in (-0.1, -0.5)]
    base = result(Decoding(mode="base"), 0.0)
    never = problems(base, steps)
    assert set(never.kinds) == {"never solved"}
    assert never.seen == 3 * base.samples
    rl = result(Decoding(), 0.5)
    solved = rl.values.mean(axis=1) > 0
    assert [kind == "never solved" for kind in problems(base, steps, rl).kinds] == (~solved).tolist()
