"""Shared fixtures: one thread for tiny models, and a peaked random pair that decodes like a real one."""

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

import pytest
import torch

from rlvr_dir.bench.random_pair import random_pair
from rlvr_dir.decode.vllm_pair.start import lasting
from tests.skips import pytest_addoption, pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a shell that runs us in the background; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The files that take minutes, longest first: begun last, one of them would be all that runs.
LONGEST = (
    "decode/test_engine_processes.py", "sweep/test_training.py", "decode/test_vllm_pair.py",
    "bench/test_checklist.py", "bench/test_bench.py", "train/test_run.py", "train/test_dapo.py",
    "policy/test_kernels.py", "checkpoints/test_lora.py",
    "test_cli.py", "train/verl/test_environment.py", "bench/test_benchmarks.py",
    "decode/test_ray_pool.py", "decode/test_families.py",
    "policy/test_fused.py", "checkpoints/test_loading.py", "decode/test_self_test.py",
    "serve/test_ends.py", "serve/test_tokens.py", "serve/test_playground.py", "serve/test_lm_eval.py",
    "serve/test_inspect.py",
    "serve/test_requests.py", "serve/test_chat_template.py",
    "sweep/test_run.py", "decode/test_ray_nodes.py", "lm_eval_model/test_command.py",
    "lm_eval_model/test_front_door.py", "checkpoints/test_context.py", "sweep/test_kills.py",
    "tracking/test_log.py",
)  # fmt: skip

# Files whose tests ask one server (tests/serve/conftest.py): on one process, so that it is started once.
TOGETHER = {
    f"tests/serve/{name}.py": "tests/serve"
    for name in ("test_tokens", "test_playground", "test_lm_eval", "test_inspect")
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out tests by files, and what is TOGETHER as if it were one file."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFiles(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return TOGETHER.get(file, file)

    return ByFiles(config, log)


def pytest_collection_modifyitems(items):
    """Put the longest files first; where processes take files by turns, the short ones fill the end."""
    here = Path(__file__).parent
    ranks = {here / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import all tests as what stays."""
    with lasting():
        return (yield)


@pytest.fixture(scope="session")
def peaked_pair(tmp_path_factory):
    """A `Pair` of random 2-layer models with the entropy and KL of a language model, and its directory."""
    return random_pair(tmp_path_factory.mktemp("peaked"))


@pytest.fixture(scope="session")
def transformers_engine(peaked_pair):
    """The reference engine on the peaked pair."""
    from rlvr_dir.config import EngineSpec
    from rlvr_dir.decode import open_engine

    with open_engine(peaked_pair, EngineSpec(backend="transformers")) as engine:
        yield engine


def vllm_spec(**changes):
    """Engine settings for tests: exact arithmetic, no compilation, prompts prefilled in small chunks."""
    from rlvr_dir.config import EngineSpec

    settings = {
        "backend": "vllm", "dtype": "float32", "enforce_eager": True, "block_size": 32, "kv_cache_gib": 0.25,
        "max_num_seqs": 64, "max_num_batched_tokens": 64,
    }  # fmt: skip
    return EngineSpec(**{**settings, **changes})


@pytest.fixture(scope="module")
def vllm_engine(peaked_pair):
    """The real vLLM on the peaked pair, in this process, with 64-token chunks of prefill."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from rlvr_dir.decode import open_engine

    with open_engine(peaked_pair, vllm_spec()) as engine:
        yield engine


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A folder with a short made-up benchmark under each name."""
    from rlvr_dir.problems.data import SOURCES

    folder = tmp_path_factory.mktemp("data")
    for name, source in SOURCES.items():
        rows = [{"id": f"{name}-{i}", "problem": f"What is {i}+{i}?", "answer": str(2 * i)} for i in range(source.rows)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


@pytest.fixture(scope="session")
def real_data():
    """The folder with the four benchmarks: RLVR_DIR_DATA, or `shared/data` beside the checkout."""
    folder = Path(os.environ.get("RLVR_DIR_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "aime24.jsonl").is_file():
        pytest.skip(
            f"needs the benchmarks' data: set RLVR_DIR_DATA to a folder with aime24.jsonl, ... ({folder} has none)"
        )
    return str(folder)


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, for one file: while it runs, Playwright's event loop is the thread's only one."""
    from tests.chromium import chromium, open_browser

    if chromium() is None:
        pytest.skip("no Chromium: `make browser` brings one")
    with open_browser() as opened:
        yield opened


@pytest.fixture
def visitor(browser):
    """Opens pages for one test, and keeps their complaints and requests."""
    from tests.chromium import Visitor

    visitor = Visitor(browser)
    yield visitor
    visitor.close()


@pytest.fixture
def typed(monkeypatch, capsys):
    """Run `rlvr-dir` in this process as if its words had been typed: exit status, standard output, standard error."""
    from rlvr_dir import cli

    def run(*words, **environment):
        monkeypatch.setattr(sys, "argv", ["rlvr-dir", *map(str, words)])
        monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # which the command changes
        for name, value in {"COLUMNS": "200", **environment}.items():
            monkeypatch.setenv(name, value)
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code or 0, stdout=said.out, stderr=said.err)

    return run
