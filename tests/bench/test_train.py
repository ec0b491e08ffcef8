"""What reweighting costs is measured for every method in one run; how much it is, is no test."""

import json

from benchmarks.train import COMPARED, bench_train

SMALL = {"steps": 1, "prompts": 4, "samples": 4, "minibatches": 2, "max_response_tokens": 24}


def test_every_method_is_measured_beside_plain_dapo():
    found = bench_train(rounds=1, sizes=SMALL)
    assert found["shares"].keys() == found["ratios"].keys() == found["seconds"].keys() == set(COMPARED)
    for method in COMPARED:
        plain, reweighted = found["seconds"][method]
        assert 0 < found["shares"][method] < 1
        assert abs(found["ratios"][method] - reweighted / plain) < 0.1
    assert found["settings"]["samples"] == 4
    assert json.loads(json.dumps(found)) == found
