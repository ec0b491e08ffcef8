"""Memory of a LoRA pair beside the RL model alone and beside two whole models, each in a process of its own.

    python -m benchmarks.lora {single|lora|full} BASE RL

is such a process: it opens vLLM on one thread, eager, with 64 MiB of KV cache, and prints one JSON line. `weights` are
the bytes of what the model holds right after loading, every tensor once; `resident` is the process's memory after the
start, the heap trimmed.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.script import run
from harness.errors import UserError
from harness.spec import EngineSpec, Pair

SETUPS = {"single": "base alone", "lora": "pair, RL an adapter", "full": "pair, RL a whole model"}
KV_CACHE = 64 * 2**20


def bench_lora(
    *, hidden: int = 512, layers: int = 8, rank: int = 16, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Measure on a random pair and a random adapter of its base, of all projections.

    Args:
        hidden: width of the models, a multiple of 64.
        layers: of each model.
        rank: of the adapter's terms.
        say: is told how far the run is.

    Returns:
        A plain object: `bytes` ({kind: {"weights", "resident"}}), `base` and `terms` (bytes of the base model's and of
        the adapter's files), `settings`, `machine`, `date`.

    Raises:
        UserError: vLLM is not installed, or did not start.
    """
    from importlib.util import find_spec

    from benchmarks.random_adapter import random_adapter
    from harness.bench.decode import machine
    from harness.bench.random_pair import random_pair

    if find_spec("vllm") is None:
        raise UserError("bench lora measures vLLM, which is not installed; install the extra [cpu] or [gpu]")
    with tempfile.TemporaryDirectory(prefix="rlvr-dir-bench-") as directory:
        full = random_pair(Path(directory, "full"), vocab=1004, hidden=hidden, layers=layers)
        pairs = {"single": full, "full": full, "lora": random_adapter(Path(directory, "adapter"), full.base, rank=rank)}
        found = {}
        for kind in SETUPS:
            say(f"starting {kind}")
            found[kind] = _measure(kind, pairs[kind])
        sizes = [
            sum(file.stat().st_size for file in Path(place).glob("*.safetensors"))
            for place in (full.base, pairs["lora"].rl)
        ]
    return {
        "bytes": found,
        "base": sizes[0],
        "terms": sizes[1],
        "settings": {"hidden": hidden, "layers": layers, "rank": rank, "kv_cache": KV_CACHE, "dtype": "float32"},
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def _measure(kind: str, pair: Pair) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.lora", kind, pair.base, pair.rl]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        tail = done.stderr.strip().splitlines()
        raise UserError(f"bench: the {kind} engine ended early: {tail[-1] if tail else 'no message'}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def loaded_models(look: Callable[[Any], None]) -> Iterator[None]:
    """Call `look` with every model that vLLM loads inside the `with`, before a backend repacks its weights."""
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    load = DefaultModelLoader.load_weights

    def loading(self: Any, model: Any, model_config: Any) -> None:
        load(self, model, model_config)
        look(model)

    DefaultModelLoader.load_weights = loading
    try:
        yield
    finally:
        DefaultModelLoader.load_weights = load


def weight_bytes(model: Any) -> int:
    """Add up the bytes of a model's parameters and buffers, shared memory once; single numbers are left out."""
    tensors = [t for t in (*model.parameters(), *model.buffers()) if t.numel() > 1]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def _main(kind: str, base: str, rl: str) -> None:
    seen: list[int] = []
    with loaded_models(lambda model: seen.append(weight_bytes(model))):
        engine = _open(kind, base, rl)
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(json.dumps({"weights": seen[0], "resident": pages * os.sysconf("SC_PAGE_SIZE")}))
    del engine


def _open(kind: str, base: str, rl: str) -> Any:
    settings = {"dtype": "float32", "enforce_eager": True, "block_size": 32, "max_num_seqs": 16}
    if kind == "single":
        from vllm import LLM

        return LLM(base, kv_cache_memory_bytes=KV_CACHE, disable_log_stats=True, **settings)
    from harness.decode import open_engine

    spec = EngineSpec(backend="vllm", self_test=False, kv_cache_gib=KV_CACHE / 2**30, **settings)
    return open_engine(Pair(base=base, rl=rl), spec)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SETUPS:
        _main(*sys.argv[1:])
    else:
        run(bench_lora)
