"""The benchmark of the store, small: every stage checks what it reads; sizes and speeds at full size are no test."""

import json

import pytest

from benchmarks.records import STAGES, bench_records, made_values
from harness.errors import UserError
from harness.records import Row


def test_every_stage_runs_and_leaves_nothing(tmp_path):
    said = []
    found = bench_records(responses=32, tokens=2000, decodings=3, folder=tmp_path, say=said.append)
    assert list(found["stages"]) == list(STAGES)
    assert len(said) == 2 * len(STAGES)
    assert all(stage["peak_mib"] > 10 for stage in found["stages"].values())
    assert 3 < found["bytes_a_token"] < 6
    assert json.loads(json.dumps(found)) == found
    assert list(tmp_path.iterdir()) == []


def test_a_made_up_response_is_the_same_for_the_same_key_and_has_the_statistics_it_claims():
    one, same, other = (Row.make(**made_values("p/1", sample, 20_000, "7")) for sample in (1, 1, 3))
    assert one.exact_row() == same.exact_row()
    assert one.token_ids != other.token_ids
    assert 3.5 < len(one.text) / one.n_tokens < 5
    assert one.n_replaced / one.n_tokens == pytest.approx(0.07, abs=0.001)
    assert max(one.token_ids) < 151_936
    assert len(set(one.token_ids)) > 3000
    packed = one.payload()
    assert len(packed) / one.n_tokens < 6


@pytest.mark.parametrize("sizes", [{"responses": 33}, {"responses": 32_000}, {"decodings": 1}, {"tokens": 5}])
def test_sizes_that_do_not_fit_are_a_sentence(sizes):
    with pytest.raises(UserError, match="accepted: "):
        bench_records(**sizes)
