"""What a command takes: responses, tokens, memory and hours, against arithmetic and against the commands themselves."""

import math

import pytest

from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import EngineSpec, EvalSpec, Pair
from rlvr_dir.evals import loop
from rlvr_dir.evals.plan import ASSUMED, GIB, OWN, Gpus, Memory, Plan, PlanRow, longest_response, memory_of
from rlvr_dir.evals.plan_jobs import plan_evaluation
from rlvr_dir.evals.speed import FILE, LEAST, Speed, keep_speed, read_speeds, speed_of
from rlvr_dir.records import RecordStore, fingerprint
from tests.records.made import stored

ROWS = [
    PlanRow("a", "base", 600, 600, 0, (30, 45)),
    PlanRow("a", "rl", 600, 450, 1500),
    PlanRow("b", "replace", 80, None, 800),
]
DAPO = Pair(base="Qwen/Qwen2.5-32B", rl="BytedTsinghua-SIA/DAPO-Qwen-32B")
SPEED = Speed(weights="w", backend="vllm", tokens=10, tokens_per_second=5.0)


def cells(text, first):
    """The rows of the table that begins with a column of this name."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    start = next(i for i, line in enumerate(lines) if line[0] == first)
    own = lines[start + 2 :]
    return own[: next((i for i, line in enumerate(own) if len(line) != len(lines[start])), None)]


def test_a_plan_adds_what_is_missing():
    plan = Plan("3 points", ROWS, 100, thresholds=(42, 420))
    assert (plan.missing, plan.most, plan.mean) == (150 + 80, 1500 + 800 + 420, 37.5)
    assert plan.expected == min(plan.most, round(37.5 * (230 + 42)))
    assert cells(plan.text(), "pair") == [
        ["a", "base", "600", "600", "0", "0"],
        ["a", "rl", "600", "450", "150", "1,500"],
        ["b", "replace", "80", "?", "80", "800"],
    ]
    unknown = Plan("", ROWS[1:], 100)
    assert (unknown.mean, unknown.expected) == (None, ASSUMED * 2300)
    done = Plan("", ROWS[:1], 100, speed=SPEED)
    assert (done.missing, done.most) == (0, 0)


def test_with_a_speed_each_row_says_when_it_is_done():
    rows = [PlanRow("a", name, 10, 0, most) for name, most in (("base", 3600), ("rl", 7200))]
    plan = Plan("", rows, 100, speed=SPEED)
    done = [row[-1] for row in cells(plan.text(), "in this order")]
    assert done == ["6 min", "18 min"], "half of the limit, at 5 tokens a second"


@pytest.mark.parametrize(
    ("size", "tokens"), [(1, 0), (2, 29_300), (4, 308_600), (8, 867_200)], ids=lambda value: str(value)
)
def test_the_memory_of_a_pair_of_32_billion_is_that_of_the_arithmetic(size, tokens):
    """64 layers of 8 heads of 128 numbers, keys and values of two models in bfloat16: 512 KiB a token."""
    memory = memory_of(DAPO, EngineSpec())
    assert isinstance(memory, Memory)
    assert memory.token() == 2 * 2 * 64 * 8 * 128 * 2 == 512 * 1024
    assert memory.weights / GIB == pytest.approx(122.1, abs=0.1)
    gpu = 79.1 * GIB
    room = 0.9 * gpu - OWN - memory.weights / size
    assert memory.tokens(size, gpu, 0.9) == max(0, math.floor(room / (512 * 1024 / size)))
    assert memory.tokens(size, gpu, 0.9) == pytest.approx(tokens, rel=2e-3)
    assert memory.token(16) == 2 * memory.token(8) / 2, "a head of keys and values is not divided"


@pytest.mark.parametrize(
    ("engine", "tokens", "longest"),
    [({}, 1_000, 1_000), ({}, 200_000, 131_072), ({"max_model_len": 22_048}, 200_000, 22_048)],
)
def test_the_longest_response_ends_with_the_context(engine, tokens, longest):
    assert longest_response(DAPO, EngineSpec(**engine), tokens) == longest


def test_the_setting_with_most_room_is_advised():
    memory = memory_of(DAPO, EngineSpec())
    plan = Plan("", ROWS, 20_730, EngineSpec(), memory={"dapo-32b": memory}, gpus=Gpus(8, 79.1 * GIB))
    found = {row[0]: row[-1] for row in cells(plan.text(), "tensor_parallel_size")}
    assert found == {"1": "does not fit", "2": "5.7", "4": "29.8", "8": "41.8"}
    assert "tensor_parallel_size=8" in plan.text()
    smaller = memory_of(DAPO, EngineSpec(vllm_args={"kv_cache_dtype": "fp8"}))
    assert smaller.token() == memory.token() / 2


def test_what_is_not_here_is_said():
    unknown = memory_of(Pair(base="org/none", rl="org/other"), EngineSpec())
    assert "org/none" in unknown
    assert unknown in Plan("", ROWS, 100, memory={"none": unknown}).text()


def test_the_plan_of_an_evaluation_counts_what_it_then_decodes(tmp_path):
    fields = {"tasks": ["tiny_easy"], "limit": 2, "engine": {"backend": "transformers"}}
    spec = EvalSpec(**fields, decodings=["rl", "base"], sampling={"samples": 2, "max_tokens": 4096})
    plan = plan_evaluation(spec, tmp_path)
    assert [(row.label, row.responses, row.cached) for row in plan.rows] == [("rl", 4, 0), ("base", 4, 0)]
    assert plan.longest == 2048, "the context of the tiny pair"
    assert plan.most < 8 * 2048
    loop.evaluate(spec, records=tmp_path, progress=False)
    assert plan_evaluation(spec, tmp_path).missing == 0
    more = plan_evaluation(spec.replace(sampling={"samples": 3, "max_tokens": 4096}), tmp_path)
    assert [row.missing for row in more.rows] == [2, 2]
    assert len([length for row in more.rows for length in row.lengths]) == sum(map(len, stored(tmp_path).values()))


def test_speeds_are_kept_by_pair_and_engine(tmp_path):
    RecordStore(tmp_path)
    weights, other = {"base": "a", "rl": "b"}, {"base": "a", "rl": "c"}
    keep_speed(tmp_path, weights, {"backend": "vllm", "tensor_parallel_size": 1}, LEAST - 1, 1.0)
    assert read_speeds(tmp_path) == (), "too little was generated"
    for size, seconds in ((1, 10.0), (4, 5.0), (1, 4.0)):
        keep_speed(tmp_path, weights, {"backend": "vllm", "tensor_parallel_size": size}, LEAST, seconds)
    assert len(read_speeds(tmp_path)) == 2
    for size, rate in ((1, LEAST / 4), (4, LEAST / 5), (8, LEAST / 4)):  # of another setting the newest
        found = speed_of(tmp_path, weights, EngineSpec(tensor_parallel_size=size))
        assert found.tokens_per_second == rate
    assert speed_of(tmp_path, other, EngineSpec()) is None
    (tmp_path / FILE).write_text("{")
    assert read_speeds(tmp_path) == ()


def test_a_probe_keeps_responses_and_measures_the_speed(tmp_path):
    fields = {"tasks": ["tiny_easy"], "engine": {"backend": "transformers", "max_num_seqs": 16}}
    spec = EvalSpec(**fields, decodings=["rl"], sampling={"samples": 8, "max_tokens": 64})
    loop.probe(spec, tmp_path, seconds=3.0, progress=False)
    [speed] = read_speeds(tmp_path)
    assert speed.backend == "transformers"
    assert speed.tokens > 0
    plan = plan_evaluation(spec, tmp_path)
    assert 0 < plan.missing < 240 * 8, "a part is cached, the rest is left"
    assert plan.speed == speed
    identity = {role: fingerprint(*model) for role, model in resolve("tiny").models.items()}
    assert speed_of(tmp_path, identity, spec.engine) == speed
