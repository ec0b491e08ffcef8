"""Grading beside decoding: stored verdicts are taken, the score so far is shown, failures are told in the end."""

import pytest

from harness.evals import loop
from harness.spec import Decoding, Sampling
from tests.evals.asked import evaluate


def test_a_grader_that_fails_is_told_when_every_response_is_safe(engine, data_dir, tmp_path, monkeypatch):
    def broken(items, grader):
        raise OSError("no grader today")

    asked = (engine, [Decoding()], ["amc"], Sampling(samples=2, max_tokens=4))
    how = {"limit": 2, "data_dir": data_dir, "records": tmp_path}
    with monkeypatch.context() as patched:
        patched.setattr(loop, "grade_many", broken)
        with pytest.raises(OSError, match="no grader today"):
            evaluate(*asked, **how)
    monkeypatch.setattr(engine, "generate", None)  # nothing is decoded again
    assert evaluate(*asked, **how)[0].correct.shape == (2, 2)
