"""The benchmark runs its engines side by side and reports ratios of what it measured; speeds themselves are no test."""

import statistics

import pytest

from rlvr_dir.bench.decode import ENGINES, bench_decode
from tests.facts import refuses

pytestmark = [pytest.mark.vllm, pytest.mark.whole(reason="six engines one after the other")]
pytest.importorskip("vllm", reason="vLLM is not installed")


def test_the_ratios_are_those_of_the_rounds(peaked_pair, monkeypatch):
    monkeypatch.setattr("rlvr_dir.bench.decode.MOST_CALLS", 5)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # vLLM alone would compile helpers of its sampler, in each process
    said = []
    found = bench_decode(pair=peaked_pair, sequences=(4, 6), tokens=4, rounds=2, say=said.append)
    few, many = found["sizes"]
    assert (few["sequences"], many["sequences"]) == (4, 6)
    for size, kinds in ((few, set(ENGINES)), (many, set(ENGINES) - {"calls"})):
        assert len(size["rounds"]) == 2
        for one in size["rounds"]:
            assert one.keys() == kinds
            most = size["sequences"] * 4
            assert all(0 < figures["tokens"] <= most and figures["cpu"] > 0 for figures in one.values())
        for kind in kinds - {"pair"}:
            speeds = [{k: f["tokens"] / f["cpu"] for k, f in one.items()} for one in size["rounds"]]
            expected = statistics.median(s["pair"] / s[kind] for s in speeds)
            assert size["ratios"][f"pair_to_{kind}"] == pytest.approx(expected, abs=1e-3)


def test_an_engine_that_cannot_start_is_named(tmp_path):
    from rlvr_dir.config import Pair

    nowhere = str(tmp_path / "nothing")
    with refuses("engine", "single"):  # the first
        bench_decode(pair=Pair(base=nowhere, rl=nowhere), sequences=(1,), tokens=1, rounds=1)
