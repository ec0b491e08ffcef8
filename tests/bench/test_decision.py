"""The cost of a decision is measured beside its parts; how much it is, is no test."""

import json

from harness.bench.decision import SHAPES, bench_decision


def test_every_part_of_both_shapes_is_measured():
    found = bench_decision(rows=2, vocab=3000, rounds=1)
    assert found["ms_a_row"].keys() == found["memory"].keys() == set(SHAPES)
    for parts in found["ms_a_row"].values():
        assert set(parts) == {"decision", "extrapolate", "both log-softmax", "full sort"}
    assert all(times > 0 for times in found["memory"].values())
    assert json.loads(json.dumps(found)) == found


def test_a_fused_decision_is_five_launches_and_no_wait():
    paths = bench_decision(rows=1, vocab=300, rounds=1)["paths"]
    for counts in paths["fused"].values():
        assert counts["launches"] == 5
        assert counts["waits"] == []
        assert counts["operators"] < 30  # allocations and views
    assert all(counts["waits"] for counts in paths["torch"].values())  # the count sees a path that looks
