"""A record that is begun on one GPU is continued on two: nothing is decoded twice."""

import pytest

from tests.decode.found import found_apart
from tests.records.made import stored


@pytest.mark.whole(reason="two starts of vLLM in processes of their own")
def test_a_record_that_was_begun_with_one_rank_is_continued_with_two(peaked_pair, tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    store = tmp_path / "records"
    decoded, names, first, *ranks = found_apart(tmp_path, "evals.apart_ranks", peaked_pair, store, 1, 1)
    assert (decoded, ranks) == (2 * 4, [1, [1, 1]])
    decoded, again, both, *ranks = found_apart(tmp_path, "evals.apart_ranks", peaked_pair, store, 2, 2)
    assert (decoded, ranks) == (2 * 4, [2, [2, 2]])
    assert again == names
    assert len(both) == 2 * 4 * 2
    assert {key: both[key] for key in first} == first
    assert all(len(keys) == len(set(keys)) == 4 * 2 for keys in stored(store).values())
