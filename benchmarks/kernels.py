"""Check the kernels of Algorithm 1 on a GPU at a large vocabulary, and time them and torch's path.

They are checked against brute force, float64 and torch's path (`benchmarks.fused`). `python -m benchmarks.decision`
measures the cost of a decision on a CPU.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch

VOCAB = 151_936  # Qwen2.5's
# Standard deviations of the logits. A language model's rows are peaked, with a nucleus of a few tokens at top-p 0.7.
# Flat ones, with a nucleus of tens of thousands, are the worst case.
SHAPES = {"peaked": 8.0, "flat": 1.0}
GAMMAS = {"decision": 0.0, "extrapolate": 0.1}  # of a gate on delta log p
GPU_ROWS = (256, 960)


def made_batch(scale: Any, rows: int, vocab: int, dtype: Any = None, device: str = "cpu") -> tuple[Any, Any]:
    """Draw base's logits, of deviation `scale` (a number, or one a row), and RL's near them: (rows, vocab) each."""
    generator = torch.Generator(device).manual_seed(0)
    base = torch.randn(rows, vocab, generator=generator, device=device) * scale
    rl = base + 0.1 * torch.randn(rows, vocab, generator=generator, device=device)
    return base.to(dtype or torch.float32), rl.to(dtype or torch.float32)


def made_rule(gamma: float, rows: int, top_p: float, device: str = "cpu") -> Any:
    from rlvr_dir.policy.gates import gate_of
    from rlvr_dir.policy.rule import Rule, Rules

    gate = gate_of({"criterion": "delta_logp", "tau": -0.05})
    return Rules.compile([Rule(gate, gamma=gamma, top_p=top_p)] * rows, device)


def stepping(base: Any, rl: Any, numbers: Any) -> Callable[..., Any]:
    """Return a function that decides a step of these logits under rules; `path` is `decide` or `decide_fused`."""
    from rlvr_dir.policy.algorithm import decide
    from rlvr_dir.policy.step import Requests

    requests = Requests(numbers, numbers, numbers)
    return lambda rules, path=decide: path({"base": base, "rl": rl}, rules, requests)


def on_gpu(
    *,
    vocab: int = VOCAB,
    rows: tuple[int, ...] = GPU_ROWS,
    top_p: float = 0.7,
    rounds: int = 20,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Check the fused path on this machine's GPU, then time it and the torch path.

    Args:
        rows: Batch sizes, one measurement each.
        rounds: Measured rounds, after two to warm up.

    Returns:
        `device`; `right`, whether every check passed; `checks`, a list of `check`'s numbers and of what does not depend
            on the batch; `speed`, a list with a row for each number of rows, type, shape and rule: milliseconds of the
            torch path, of the fused path with `force`, and of the fused path replayed as a CUDA graph (the GPU alone);
            for both paths bytes of temporaries per logit, waits; microseconds of each kernel.
    """

    checks = []
    for dtype, n, padded in ((torch.float32, 256, 64), (torch.bfloat16, 256, 0), (torch.float32, 960, 0)):
        say(f"checks: {n} rows, {dtype}")
        checks.append(kernels_right(n, vocab, padded, dtype, "cuda"))
        say(str(checks[-1]))
    speed = []
    for n in rows:
        for dtype in (torch.float32, torch.bfloat16):
            mixed = {"one flat row in 64": 8.0 - 7.0 * (torch.arange(n, device="cuda") % 64 == 0)[:, None]}
            for shape, scale in (SHAPES | mixed).items():
                for name, gamma in GAMMAS.items():
                    speed.append(
                        {"rows": n, "dtype": str(dtype), "shape": shape, "rule": name}
                        | _gpu_speed(
                            made_batch(scale, n, vocab, dtype, "cuda"), made_rule(gamma, n, top_p, "cuda"), rounds
                        )
                    )
                    say(str(speed[-1]))
    return {
        "device": torch.cuda.get_device_name(),
        "right": all(each["right"] for each in checks),
        "checks": checks,
        "speed": speed,
    }


def kernels_right(n: int, vocab: int, padded: int, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Decide n mixed rows by the kernels and return `check`'s figures, and whether all of them are `right`."""
    from benchmarks.fused import NATS, check, mixed_batch, outcome

    batch = mixed_batch(n, vocab, seed=n, padded=padded, dtype=dtype, device=device)
    whole = outcome(batch)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()
    alone = all(_same(outcome(batch.take(part)), whole, part) for part in (list(range(n)), order, order[:7]))
    found = check(batch, whole)
    right = found["inexact"] == found["unexplained"] == 0 and found["mass"] <= 1 and found["nats"] <= NATS and alone
    return {"dtype": str(dtype), **found, "independent_of_batch": alone, "right": right}


def _same(got: Any, whole: Any, part: list[int]) -> bool:
    """Return whether rows decided alone, or in another order, are bit for bit the same as in the whole batch."""
    from benchmarks.fused import DECIDED

    pairs = [(getattr(got.decision, name), getattr(whole.decision, name)[part]) for name in DECIDED]
    pairs += [(got.statistics, whole.statistics[part]), (got.mass, whole.mass[part])]
    return all(bool(ours.equal(theirs)) for ours, theirs in pairs)


def _gpu_speed(logits: tuple[Any, Any], rule: Any, rounds: int) -> dict[str, Any]:

    from rlvr_dir.decode.plan import DELTA_LIMIT
    from rlvr_dir.decode.vllm_pair import channel
    from rlvr_dir.policy.fused import decide_fused, force

    base, rl = logits
    keys = torch.arange(len(rl), device="cuda")
    scratch, step = rl.clone(), stepping(base, rl, keys)

    def torch_path() -> Any:
        return step(rule)

    def fused_path() -> Any:
        decision = step(rule, decide_fused)
        force(scratch, decision, band=channel.BAND, limit=DELTA_LIMIT, beside=channel.BESIDE)
        return decision

    found: dict[str, Any] = {"replaced": round(float(fused_path().replaced.float().mean()), 3)}
    for name, path in (("torch", torch_path), ("fused", fused_path)):
        path()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = path()
        torch.cuda.synchronize()
        held = torch.cuda.max_memory_allocated() - before
        del result
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            path()
            torch.cuda.set_sync_debug_mode("default")
        found[f"{name}_ms"] = _median_ms(path, rounds if name == "fused" else max(3, rounds // 4))
        found[f"{name}_bytes"] = round(held / rl.numel(), 2)
        found[f"{name}_waits"] = len(waits)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fused_path()
    found["fused_graph_ms"] = _median_ms(graph.replay, rounds)
    found["kernels_us"] = _kernel_times(fused_path)
    return found


def _median_ms(run: Callable[[], Any], rounds: int) -> float:
    times = []
    for number in range(rounds + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if number >= 2:
            times.append(start.elapsed_time(end))
    return round(sorted(times)[len(times) // 2], 4)


def _kernel_times(run: Callable[[], Any]) -> dict[str, float]:
    """Return the GPU's microseconds in each kernel of one call; empty if the profiler does not know them."""
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            run()
        events = recorded.key_averages()
        return {
            each.key: round(each.device_time_total, 1)
            for each in events
            if each.device_time_total and not each.cpu_time_total
        }
    except (RuntimeError, AttributeError):
        return {}
