"""What vLLM is told for a pair: CUDA graphs for full batches, and batch-invariant kernels only where there are some."""

import os
import sys
from types import SimpleNamespace

import pytest

from rlvr_dir.checkpoints import beside_vllm
from rlvr_dir.checkpoints.compat import check_pair, heads_of_two_sizes
from rlvr_dir.config import Decoding, EngineSpec, Sampling
from rlvr_dir.decode import open_engine
from rlvr_dir.decode.vllm_pair import arguments, batch_invariance, engine, start
from rlvr_dir.records.config import RecordConfig
from tests.facts import refuses, states

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm", reason="vLLM is not installed")


@pytest.fixture
def on_a_gpu(monkeypatch):
    """As far as the arguments of the engine are concerned."""
    for module in (arguments, beside_vllm, engine, start):
        monkeypatch.setattr(module, "on_cpu", lambda: False)


@pytest.mark.parametrize(
    ("settings", "largest"),
    [
        ({"max_num_seqs": 512}, None),  # vLLM's own default reaches as far
        ({"max_num_seqs": 960}, 960),
        ({"max_num_seqs": 961}, 976),
        ({"max_num_seqs": 960, "enforce_eager": True}, None),
    ],
)
def test_full_batches_are_decoded_by_graphs(peaked_pair, on_a_gpu, settings, largest):
    made = open_engine(peaked_pair, EngineSpec(backend="vllm", **settings), lazily=True)
    assert made.arguments().get("max_cudagraph_capture_size") == largest


def test_on_a_cpu_what_is_asked_says_whether_models_are_compiled(peaked_pair, monkeypatch):
    made = open_engine(peaked_pair, EngineSpec(backend="vllm"), lazily=True)
    for work, eager in ((None, False), (10_000, True), (10_000_000, False)):
        made.work = work
        assert made._starts_eager() is eager
    for asked in (True, False):
        said = open_engine(peaked_pair, EngineSpec(backend="vllm", enforce_eager=asked), lazily=True)
        said.work = 10_000
        assert said._starts_eager() is asked
    monkeypatch.setattr(engine, "on_cpu", lambda: False)
    made.work = 10_000
    assert made._starts_eager() is False


def platform(monkeypatch, **facts):
    import vllm.platforms

    version = SimpleNamespace(as_version_str=lambda: "7.5")
    stand_in = SimpleNamespace(
        is_cuda=lambda: facts.get("cuda", True), is_cpu=lambda: not facts.get("cuda", True), device_name="cuda",
        has_device_capability=lambda least: facts["capability"] >= least, get_device_capability=lambda: version,
    )  # fmt: skip
    monkeypatch.setattr(vllm.platforms, "current_platform", stand_in)


def config(pair, **settings):
    """The configuration of a record of such an engine."""
    made = open_engine(pair, EngineSpec(backend="vllm", **settings), lazily=True)
    return RecordConfig.of(pair, Decoding(mode="rl"), Sampling(), made.info())


def test_deterministic_is_refused_where_there_are_no_such_kernels(peaked_pair, monkeypatch):
    for backend, why in (("vllm", "CPU"), ("transformers", "transformers")):
        with refuses("deterministic", "True", why):
            open_engine(peaked_pair, EngineSpec(backend=backend, deterministic=True))
    platform(monkeypatch, capability=75)
    with refuses("deterministic", "7.5"):
        open_engine(peaked_pair, EngineSpec(backend="vllm", deterministic=True))


def test_deterministic_is_part_of_the_hash_only_where_it_is_on(peaked_pair, monkeypatch):
    assert "deterministic" not in config(peaked_pair).engine
    platform(monkeypatch, capability=90)
    plain, exact = config(peaked_pair), config(peaked_pair, deterministic=True)
    assert exact.engine == {**plain.engine, "deterministic": True}
    assert exact.hash() != plain.hash()


@pytest.mark.parametrize("own", [{}, {batch_invariance.VARIABLE: "1", "VLLM_USE_BREAKABLE_CUDAGRAPH": "0"}])
def test_variables_are_set_for_an_engine_and_taken_back_for_the_next(monkeypatch, own):
    """Also what vLLM sets beside ours: it would leave the next engine uncompiled. What the user has set stays."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    names = (batch_invariance.VARIABLE, "VLLM_USE_BREAKABLE_CUDAGRAPH")
    for name in names:
        monkeypatch.setenv(name, own.get(name, ""))
        if not own:
            monkeypatch.delenv(name)
    for _ in range(2):
        batch_invariance.switch(True)
        assert os.environ[batch_invariance.VARIABLE] == "1"
        os.environ["VLLM_USE_BREAKABLE_CUDAGRAPH"] = own.get("VLLM_USE_BREAKABLE_CUDAGRAPH", "1")  # as vLLM does
    batch_invariance.switch(False)
    assert {name: os.environ[name] for name in names if name in os.environ} == own


def test_an_engine_is_not_opened_among_the_other_kinds_kernels(monkeypatch):
    monkeypatch.delenv(batch_invariance.VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, batch_invariance._LATE, raising=False)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    batch_invariance.switch(True)
    monkeypatch.setitem(sys.modules, batch_invariance._LATE, SimpleNamespace(is_batch_invariant=True))
    batch_invariance.switch(True)
    with refuses("deterministic", "False"):
        batch_invariance.switch(False)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    batch_invariance.switch(False)


HEADS = ((32, 64, True), (64, 128, True), (128, 64, True), (96, 128, False), (64, 64, False))


def said_of_heads(pair, rl, base, **settings):
    """What the check says of the pair, were its heads of these sizes."""
    spec = EngineSpec(backend="vllm", **settings)
    found = check_pair(pair, spec)
    for role, size in (("rl", rl), ("base", base)):
        found.configs[role].head_dim = size
    return list(heads_of_two_sizes(found, spec))


@pytest.mark.parametrize(("rl", "base", "unequal"), HEADS)
def test_heads_of_two_sizes_are_refused_where_tritons_attention_runs(peaked_pair, on_a_gpu, rl, base, unequal):
    triton = {"attention_backend": "TRITON_ATTN"}
    assert not said_of_heads(peaked_pair, rl, base, dtype="bfloat16")
    for settings in ({"dtype": "float32"}, {"dtype": "bfloat16", "vllm_args": triton}):
        said = said_of_heads(peaked_pair, rl, base, **settings)
        assert len(said) == unequal
        assert not said or states(said[0], base, rl)


def test_ranks_do_not_fuse_their_sums_where_the_models_widths_differ(peaked_pair):
    """The fused kernel has one workspace a process, which vLLM sizes by the first submodel."""
    own = {"compilation_config": {"mode": 3, "pass_config": {"fuse_norm_quant": True, "fuse_allreduce_rms": True}}}
    for ranks, width, fuses in ((1, 512, True), (2, None, True), (2, 512, False)):
        made = open_engine(peaked_pair, EngineSpec(backend="vllm", tensor_parallel_size=ranks), lazily=True)
        asked = open_engine(
            peaked_pair, EngineSpec(backend="vllm", tensor_parallel_size=ranks, vllm_args=own), lazily=True
        )
        for each in (made, asked):
            each.checkpoints.configs["base"].hidden_size = width or each.checkpoints.configs["rl"].hidden_size
        without = {"pass_config": {"fuse_allreduce_rms": False}}
        assert made.arguments().get("compilation_config") == (None if fuses else without)
        passes = {"fuse_norm_quant": True, "fuse_allreduce_rms": fuses}
        assert asked.arguments()["compilation_config"] == {"mode": 3, "pass_config": passes}
    asked.spec = asked.spec.replace(vllm_args={"compilation_config": 3})  # vLLM's short way to say the mode
    assert asked.arguments()["compilation_config"] == {"mode": 3, "pass_config": {"fuse_allreduce_rms": False}}


def test_arguments_of_vllm_that_can_change_a_token_make_another_record(peaked_pair):
    def record(**given):
        return config(peaked_pair, vllm_args=given)

    plain = record()
    assert "vllm_args" not in plain.engine  # older records keep their hash
    assert record(disable_log_stats=False, enable_prefix_caching=False).hash() == plain.hash()
    rough = record(kv_cache_dtype="fp8", enable_prefix_caching=False)
    assert rough.engine["vllm_args"] == {"kv_cache_dtype": "fp8"}
    assert len({plain.hash(), rough.hash(), record(load_format="dummy").hash()}) == 3
