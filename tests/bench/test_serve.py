"""`bench serve` at a tiny size: the same tokens as offline, and nobody lost."""

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

from benchmarks.serve import bench_serve

pytestmark = pytest.mark.whole(reason="a server and an engine of its own")


@pytest.mark.vllm
def test_the_server_is_measured_beside_the_engine_and_loses_nobody():
    found = bench_serve(users=8, requests=24, rounds=1, tokens=24, eager=True)
    assert set(found["served_to_offline"]) == {"whole", "streamed"}
    assert min(found["tokens_per_second"].values()) > 0
    assert 0 < found["first_token_s"]["p50"] <= found["first_token_s"]["p95"] <= found["answer_s"]["p95"]
    assert found["left"]["streams"] == 4
    assert found["ended"] == {"running": 8, "whole": 8, "lost": 0}
