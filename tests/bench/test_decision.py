"""The cost of a decision is measured beside its parts; how much it is, is no test."""

import json

from harness.bench.decision import SHAPES, VOCAB, bench_decision, count_paths


def test_every_part_of_both_shapes_is_measured():
    found = bench_decision(rows=2, vocab=3000, rounds=1)
    assert found["ms_a_row"].keys() == found["memory"].keys() == set(SHAPES)
    for parts in found["ms_a_row"].values():
        assert set(parts) == {"decision", "extrapolate", "both log-softmax", "full sort"}
    assert all(times > 0 for times in found["memory"].values())
    assert json.loads(json.dumps(found)) == found


def test_what_a_gpu_runs_waits_for_nothing_and_holds_little():
    paths = count_paths(VOCAB)
    for counts in paths["fused"].values():
        assert counts["launches"] == 5
        assert counts["waits"] == []
        assert counts["operators"] < 20  # allocations and views
    for rule, most in (("decision", 20), ("extrapolate", 60)):
        assert paths["torch dense"][rule]["waits"] == []
        assert paths["torch dense"][rule]["bytes"] <= most
        assert paths["torch"][rule]["bytes"] <= most
        assert paths["torch"][rule]["waits"]  # the count sees a path that looks
