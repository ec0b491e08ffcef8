"""The drafting benchmark decodes the same tokens each way and reports ratios of what it measured."""

import json

from harness.bench.draft import bench_draft
from harness.tiny import tiny_pair


def test_every_cell_is_measured_each_way():
    found = bench_draft(pair=tiny_pair(), batches=(1, 3), contexts=(20, 40), ratios=(0.1,), tokens=12, rounds=1)
    assert [(cell["context"], cell["batch"]) for cell in found["cells"]] == [(20, 1), (20, 3), (40, 1), (40, 3)]
    for cell in found["cells"]:
        assert cell["same"]
        assert 0 < cell["tokens"] <= 12 * cell["batch"]
        seconds = cell["seconds"]
        assert cell["speedup"].keys() == {"4", "auto"} == seconds.keys() - {"None"}
        assert cell["reads"]["None"] == 2
        assert 1 < cell["reads"]["4"] <= 5  # four drafts and a look at them, for a token at worst
    assert json.loads(json.dumps(found)) == found
