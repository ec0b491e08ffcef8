"""Cost of Algorithm 1 itself at a large vocabulary, beside what must be paid anyway: time, memory, operators, waits.

    rlvr-dir bench decision
    python -m harness.bench.decision         # the same, where only torch and Triton are installed

On a GPU the fused path is timed beside the torch path, and first checked against brute force, float64 and the torch
path (`harness.bench.fused`); on a CPU its launches are counted in Triton's interpreter.
"""

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import date
from typing import Any

import torch

from harness.bench.decode import machine

VOCAB = 151_936  # Qwen2.5's
# Standard deviations of the logits. A language model's rows are peaked: a nucleus of some tokens at top-p 0.7. Flat
# ones, with a nucleus of tens of thousands, are the worst case.
SHAPES = {"peaked": 8.0, "flat": 1.0}
GAMMAS = {"decision": 0.0, "extrapolate": 0.1}  # of a gate on delta log p
GPU_ROWS = (256, 960)

# Operators that wait for a GPU, or copy something to it
WAITS = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "unique", "equal", "lift_fresh")


def bench_decision(
    *,
    rows: int = 16,
    vocab: int = VOCAB,
    rounds: int = 5,
    top_p: float = 0.7,
    threads: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure `decide` on made-up logits, RL's being base's and a small step.

    Args:
        rows: of one batch. vocab: columns. rounds: measured, after one that warms up.
        threads: of torch, on a CPU.
        say: is told how far the run is.

    Returns:
        A plain object: `ms_a_row` by shape and part: `decision` (a replace rule), `extrapolate`, `both log-softmax`
        (no decision can do without), `full sort` (the plain way to a nucleus, once); `replaced` shares; `memory`, the
        largest growth of the process over a decision as a multiple of one batch of logits; `paths`, see `count_paths`;
        `gpu`, see `on_gpu`, or None; `machine`, `settings`.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found: dict[str, Any] = {"ms_a_row": {}, "replaced": {}, "memory": {}}
    try:
        for shape, scale in SHAPES.items():
            say(shape)
            for name, value in _measure(scale, rows, vocab, rounds, top_p).items():
                found[name][shape] = value
        say("operators and waits")
        found["paths"] = count_paths(vocab)
    finally:
        torch.set_num_threads(before)
    found["gpu"] = on_gpu(vocab=vocab, top_p=top_p, say=say) if torch.cuda.is_available() else None
    settings = {"rows": rows, "vocab": vocab, "rounds": rounds, "top_p": top_p, "threads": threads}
    return {**found, "settings": settings, "machine": machine(), "date": date.today().isoformat()}


def _batch(scale: Any, rows: int, vocab: int, dtype: Any = None, device: str = "cpu") -> tuple[Any, Any]:
    """Draw base's logits, of deviation `scale` (a number, or one a row), and RL's near them: (rows, vocab) each."""
    generator = torch.Generator(device).manual_seed(0)
    base = torch.randn(rows, vocab, generator=generator, device=device) * scale
    rl = base + 0.1 * torch.randn(rows, vocab, generator=generator, device=device)
    return base.to(dtype or torch.float32), rl.to(dtype or torch.float32)


def _rule(gamma: float, rows: int, top_p: float, device: str = "cpu") -> Any:
    from harness.policy.gates import gate_of
    from harness.policy.rule import Rule, Rules
    from harness.policy.truncations import TopP

    gate = gate_of({"criterion": "delta_logp", "tau": -0.05})
    return Rules.compile([Rule(gate, gamma=gamma, truncation=TopP(top_p=top_p))] * rows, device)


def _steps(base: Any, rl: Any, numbers: Any) -> Callable[..., Any]:
    """Return a function that decides a step of these logits under rules; `path` is `decide` or `decide_fused`."""
    from harness.policy.algorithm import decide
    from harness.policy.step import Requests

    requests = Requests(numbers, numbers, numbers)
    return lambda rules, path=decide: path({"base": base, "rl": rl}, rules, requests)


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Let torch's path on a CPU look at no value, as on a GPU."""
    from harness.policy import nucleus

    before, nucleus.LOOKED_AT = nucleus.LOOKED_AT, set()
    try:
        yield
    finally:
        nucleus.LOOKED_AT = before


def _measure(scale: float, rows: int, vocab: int, rounds: int, top_p: float) -> dict[str, Any]:
    """Measure one shape on a CPU; its parts take turns, so that a busy machine slows all of them alike."""

    base, rl = _batch(scale, rows, vocab)
    step = _steps(base, rl, torch.arange(rows))
    rules = {name: _rule(gamma, rows, top_p) for name, gamma in GAMMAS.items()}
    parts: dict[str, Callable[[], Any]] = {
        "decision": lambda: step(rules["decision"]),
        "extrapolate": lambda: step(rules["extrapolate"]),
        "both log-softmax": lambda: (torch.log_softmax(base, -1), torch.log_softmax(rl, -1)),
        "full sort": lambda: torch.sort(base, dim=-1, descending=True, stable=True),
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for number in range(rounds + 1):
        for name, run in parts.items():
            start = time.process_time()
            run()
            if number:
                times[name].append(1000 * (time.process_time() - start) / rows)
    return {
        "ms_a_row": {name: round(sorted(each)[len(each) // 2], 3) for name, each in times.items()},
        "replaced": round(float(parts["decision"]().replaced.float().mean()), 3),
        "memory": round(_growth(parts["decision"]) / (base.numel() * base.element_size()), 1),
    }


def count_paths(vocab: int, rows: int = 4) -> dict[str, dict[str, Any] | None]:
    """Count what one decision asks of the machine, by path and rule, on a CPU.

    Returns:
        For the paths `torch` (a CPU's), `torch dense` (a GPU's) and `fused`, by rule: `operators` that torch
        dispatches, `waits` among them that would wait for a GPU, `launches` of kernels of our own, `bytes`, the
        temporaries that are held at most, a logit of one model, and for `fused` `moved`, the bytes that its kernels
        load and store, a logit of one model. `fused` is None where Triton is not installed.
    """

    step = _steps(*_batch(SHAPES["peaked"], rows, vocab), torch.arange(rows))
    found: dict[str, dict[str, Any] | None] = {}
    for path, looks in (("torch", nullcontext), ("torch dense", as_on_a_gpu)):
        counts: dict[str, Any] = {}
        found[path] = counts
        for name, gamma in GAMMAS.items():
            rule = _rule(gamma, rows, 0.7)
            with looks():
                step(rule)  # the first of a batch finds its rows' indices
                watch, held = watched(lambda rule=rule: step(rule)), _growth(lambda rule=rule: step(rule))
            counts[name] = {**watch, "launches": 0, "bytes": round(held / (rows * vocab), 1)}
    command = [sys.executable, "-W", "ignore", "-m", "harness.bench.decision", "--count-fused", str(vocab)]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    found["fused"] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    return found


def _count_fused(vocab: int, rows: int = 2) -> dict[str, Any]:
    """Return the fused path's figures for `count_paths`: run where Triton interprets its kernels."""
    from torch.utils._python_dispatch import _disable_current_modes
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder

    from harness.policy.fused import decide_fused, force

    launched: list[str] = []
    held = moved = 0
    empty, launch = torch.empty, InterpretedFunction.run
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def counted_empty(*args: Any, **kwargs: Any) -> Any:  # nothing of a decision is given back before its end
        nonlocal held
        made = empty(*args, **kwargs)
        held += made.nbytes
        return made

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        launched.append(self.fn.__name__)
        with _disable_current_modes():  # what the interpreter does is no operator of ours
            return launch(self, *args, **kwargs)

    def counted_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        nonlocal moved
        loaded = load(self, pointers, mask, *rest)
        moved += int(mask.data.sum()) * loaded.data.itemsize
        return loaded

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        nonlocal moved
        moved += int(mask.data.sum()) * value.data.itemsize
        return store(self, pointers, value, mask, *rest)

    torch.empty, InterpretedFunction.run = counted_empty, counted
    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = counted_load, counted_store
    base, rl = _batch(SHAPES["peaked"], rows, vocab)
    numbers = torch.arange(rows)
    found = {}
    for name, gamma in GAMMAS.items():
        rule, logits = _rule(gamma, rows, 0.7), rl.clone()
        _steps(base, logits, numbers)(rule, decide_fused)  # the first of a batch makes its tables
        launched.clear()
        held = moved = 0

        def step(rule: Any = rule, logits: Any = logits) -> Any:
            decision = _steps(base, logits, numbers)(rule, decide_fused)
            return force(logits, decision, band=64.0, limit=30.0)

        watch = watched(step)
        found[name] = {
            **watch,
            "launches": len(launched),
            "bytes": round(held / base.numel(), 1),
            "moved": round(moved / base.numel(), 1),
        }
    return found


def watched(run: Callable[[], Any]) -> dict[str, Any]:
    """Count the operators that torch dispatches in a call, and name those that wait for a GPU (or copy to it).

    Returns:
        `operators`: how many, views and allocations included; `waits`: their names, in order.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    operators: list[str] = []
    waits: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.name().removeprefix("aten::").split(".")[0]
            operators.append(name)
            by_mask = name in ("index", "index_put", "index_put_") and any(
                each is not None and each.dtype == torch.bool for each in args[1]
            )
            if by_mask or name in WAITS:
                waits.append(name)
            return func(*args, **(kwargs or {}))

    with Watch():
        run()
    return {"operators": len(operators), "waits": waits}


def _growth(run: Callable[[], Any]) -> int:
    """Return the bytes that torch holds at most during a call on a CPU, beyond what it held before."""
    from torch.profiler import ProfilerActivity, profile

    quiet, error = os.open(os.devnull, os.O_WRONLY), os.dup(2)
    os.dup2(quiet, 2)  # the profiler greets and takes leave on standard error
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            run()
    finally:
        os.dup2(error, 2)
        os.close(error)
        os.close(quiet)
    held = most = 0
    profiler: Any = recorded.profiler  # torch says None, which it is before the call alone, and leaves out `nbytes`
    for event in sorted(profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def on_gpu(
    *,
    vocab: int = VOCAB,
    rows: tuple[int, ...] = GPU_ROWS,
    top_p: float = 0.7,
    rounds: int = 20,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Check the fused path on this machine's GPU, then time it beside the torch path.

    Args:
        rows: of a batch, one measurement each. rounds: measured, after two that warm up.

    Returns:
        `device`; `right`, whether every check held; `checks`, a list of `check`'s figures and of what does not depend
        on the batch; `speed`, a list, a row for each number of rows, type, shape and rule: milliseconds of the torch
        path, of the fused path with `force`, and of the fused path replayed as a CUDA graph (the GPU alone); of both
        paths bytes of temporaries a logit, waits; microseconds of each kernel.
    """

    from harness.bench.fused import NATS, check, mixed_batch, outcome

    checks = []
    for dtype, n, padded in ((torch.float32, 256, 64), (torch.bfloat16, 256, 0), (torch.float32, 960, 0)):
        say(f"checks: {n} rows, {dtype}")
        batch = mixed_batch(n, vocab, seed=n, padded=padded, dtype=dtype, device="cuda")
        whole = outcome(batch)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()
        alone = all(_same(outcome(batch.take(part)), whole, part) for part in (list(range(n)), order, order[:7]))
        found = check(batch, whole)
        right = found["inexact"] == found["unexplained"] == 0 and found["mass"] <= 1 and found["nats"] <= NATS and alone
        checks.append({"dtype": str(dtype), **found, "independent_of_batch": alone, "right": right})
        say(str(checks[-1]))
        del batch, whole
    speed = []
    for n in rows:
        for dtype in (torch.float32, torch.bfloat16):
            mixed = {"one flat row in 64": 8.0 - 7.0 * (torch.arange(n, device="cuda") % 64 == 0)[:, None]}
            for shape, scale in (SHAPES | mixed).items():
                for name, gamma in GAMMAS.items():
                    speed.append(
                        {"rows": n, "dtype": str(dtype), "shape": shape, "rule": name}
                        | _gpu_speed(_batch(scale, n, vocab, dtype, "cuda"), _rule(gamma, n, top_p, "cuda"), rounds)
                    )
                    say(str(speed[-1]))
    return {
        "device": torch.cuda.get_device_name(),
        "right": all(each["right"] for each in checks),
        "checks": checks,
        "speed": speed,
    }


def _same(got: Any, whole: Any, part: list[int]) -> bool:
    """Tell whether rows decided alone, or in another order, are bit for bit what they were in the whole batch."""
    names = ("token", "proposed", "replaced", "delta_logp")
    pairs = [(getattr(got.decision, name), getattr(whole.decision, name)[part]) for name in names]
    pairs += [(got.statistics, whole.statistics[part]), (got.mass, whole.mass[part])]
    return all(bool(ours.equal(theirs)) for ours, theirs in pairs)


def _gpu_speed(logits: tuple[Any, Any], rule: Any, rounds: int) -> dict[str, Any]:

    from harness.policy.fused import decide_fused, force

    base, rl = logits
    keys = torch.arange(len(rl), device="cuda")
    scratch, step = rl.clone(), _steps(base, rl, keys)

    def torch_path() -> Any:
        return step(rule)

    def fused_path() -> Any:
        decision = step(rule, decide_fused)
        force(scratch, decision, band=64.0, limit=30.0)
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
    """Return the GPU's microseconds in each kernel of one call; empty where the profiler cannot say."""
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


if __name__ == "__main__":
    if "--count-fused" in sys.argv:
        print(json.dumps(_count_fused(int(sys.argv[2]))))
    else:
        measured = bench_decision(say=lambda text: print(text, file=sys.stderr, flush=True))
        print(json.dumps(measured))
        sys.exit(0 if measured["gpu"] is None or measured["gpu"]["right"] else 1)
