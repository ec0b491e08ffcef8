"""Settings are refused in one sentence, methods bring their defaults, and importing them costs nothing."""

import pytest

from harness.errors import UserError
from harness.spec import parse
from harness.train import DapoSettings


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"prompts": 3, "samples": 5, "minibatches": 4}, "minibatches=4"),
        ({"prompts": 4, "samples": 4, "minibatches": 4, "accumulation": 3}, "x accumulation=12 does not divide"),
        ({"samples": 1}, "samples=1 is refused"),
        ({"learning_rte": 1e-4}, "did you mean 'learning_rate'"),
        ({"top_p": 0}, "top_p=0 is refused"),
        ({"overlong_buffer": 129}, "overlong_buffer=129"),
        ({"alpha": 0.2}, "alpha=0.2"),
        ({"method": "lowprob"}, "method='lowprob'"),
        ({"method": "dominate", "alpha": 1.5}, "alpha=1.5"),
        ({"method": "ppl", "pi_source": "current"}, "pi_source='current'"),
        ({"method": "low_prob", "ppl_scope": "group"}, "ppl_scope='group'"),
        ({"grader": "strict"}, "grader='strict'"),
    ],
)
def test_mistakes_are_named(data, message):
    with pytest.raises(UserError, match=message):
        parse(DapoSettings, data)


@pytest.mark.parametrize(
    ("method", "alpha", "clip_high"),
    [("none", 0.0, 0.28), ("low_prob", 0.2, 0.28), ("dominate", 0.1, 0.24), ("ppl", 0.01, 0.28)],
)
def test_a_method_brings_the_papers_alpha_and_clip(method, alpha, clip_high):
    given = DapoSettings(method=method)
    assert (given.alpha, given.clip_high) == (alpha, clip_high)
    assert DapoSettings().replace(method=method) == given == given.replace(steps=16)
    assert DapoSettings(method="dominate").replace(method=method) == given
    assert given.hash() == DapoSettings(method=method, alpha=alpha, clip_high=clip_high).hash()


def test_what_is_given_stays():
    given = DapoSettings(method="dominate", alpha=0, clip_high=0.28)
    assert (given.alpha, given.clip_high) == (0, 0.28)
    assert given.replace(seed=3).clip_high == 0.28
