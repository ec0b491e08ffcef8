"""Benchmarks of parts, small: each runs to its end and gives numbers that JSON takes; speeds themselves are no test."""

import json

import pytest

from benchmarks.grade import Item, bench_grade, boxed
from benchmarks.power import bench_power
from benchmarks.records import bench_records
from benchmarks.report import bench_report
from benchmarks.rollouts import write_rollouts
from benchmarks.serve import bench_serve
from benchmarks.train import bench_train
from rlvr_dir.analysis.score import score
from rlvr_dir.tiny import tiny_pair
from tests.facts import refuses

TRAINING = {"steps": 1, "prompts": 4, "samples": 4, "minibatches": 2, "max_response_tokens": 24}
ITEMS = [Item("right", "5", boxed("5.0")), Item("right", "x+1", boxed("1+x")), Item("wrong", "5", boxed("6"))]


@pytest.mark.parametrize(
    ("bench", "sizes"),
    [
        (bench_grade, {"corpora": {"mine": ITEMS}}),
        (bench_power, {"differs": 0.02}),
        (bench_records, {"responses": 32, "tokens": 2000, "decodings": 3}),
        (bench_report, {"samples": 2, "rounds": 1}),
        pytest.param(
            bench_train, {"rounds": 1, "sizes": TRAINING}, marks=pytest.mark.whole(reason="trainings of its own")
        ),
        pytest.param(
            bench_serve, {"users": 8, "requests": 24, "rounds": 1, "tokens": 24, "eager": True},
            marks=[pytest.mark.vllm, pytest.mark.whole(reason="a server and an engine of its own")],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_a_benchmark_runs_to_its_end(bench, sizes):
    found = bench(**sizes)
    assert found
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("sizes", [{"responses": 33}, {"responses": 32_000}, {"decodings": 1}, {"tokens": 5}])
def test_sizes_that_do_not_fit_are_a_sentence(sizes):
    with refuses(*[word for size in sizes.items() for word in size]):
        bench_records(**sizes)


@pytest.mark.whole(reason="a training of its own")
def test_rollouts_of_trl_have_the_log_probabilities_of_who_wrote_them(tmp_path):
    write_rollouts(steps=1, prompts=2, samples=4, out=str(tmp_path))
    options = {"engine": {"backend": "transformers"}, "out": tmp_path / "scored", "writer": "base"}
    scores = score(tiny_pair(), tmp_path / "step-1.jsonl", **options)
    assert len(scores.texts) == 8
    assert scores.numbers["off_spread"].value.value < 1e-4
    assert scores.explanation is None
    assert scores.fits[0].name == "base"
