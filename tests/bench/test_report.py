"""The report benchmark builds the report of a whole study and says how its parts compare."""

import json

from benchmarks.report import BENCHMARKS, bench_report


def test_its_figures_are_of_one_report():
    found = bench_report(samples=2, rounds=1)
    assert found["results"] == 17 * len(BENCHMARKS)
    seconds = found["seconds"]
    assert seconds.keys() == {"read", "build", "write"}
    assert found["build_to_read"] == round(seconds["build"] / seconds["read"], 2)
    assert found["page"] > 100_000
    assert json.loads(json.dumps(found)) == found
