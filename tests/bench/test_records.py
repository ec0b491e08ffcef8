"""The benchmark of the store, small: every stage checks what it reads; sizes and speeds at full size are no test."""

import json

import pytest

from benchmarks.records import STAGES, bench_records
from harness.errors import UserError


def test_every_stage_runs_and_leaves_nothing(tmp_path):
    said = []
    found = bench_records(responses=32, tokens=2000, decodings=3, folder=tmp_path, say=said.append)
    assert list(found["stages"]) == list(STAGES)
    assert len(said) == 2 * len(STAGES)
    assert all(stage["peak_mib"] > 10 for stage in found["stages"].values())
    assert 3 < found["bytes_a_token"] < 6
    assert json.loads(json.dumps(found)) == found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sizes", [{"responses": 33}, {"responses": 32_000}, {"decodings": 1}, {"tokens": 5}])
def test_sizes_that_do_not_fit_are_a_sentence(sizes):
    with pytest.raises(UserError, match="accepted: "):
        bench_records(**sizes)
