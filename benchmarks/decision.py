"""Measure the cost of Algorithm 1 itself on a CPU at a large vocabulary: time, memory, waits.

python -m benchmarks.decision --rows 16
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import date
from typing import Any

import torch

from benchmarks.kernels import GAMMAS, SHAPES, VOCAB, made_batch, made_rule, stepping
from benchmarks.script import run
from rlvr_dir.bench.decode import machine

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
    """Measure `decide` on random logits, with RL's as base's plus a small step.

    Args:
        rows: Rows of one batch.
        vocab: Columns.
        rounds: Measured rounds, after one to warm up.
        threads: Torch's threads, on a CPU.
        say: Called with the progress.

    Returns:
        A plain object: `ms_a_row` by shape and part: `decision` (a replace rule), `extrapolate`, `both log-softmax`
            (which every decision needs), `full sort` (the simplest way to a nucleus, once); `replaced` shares;
            `memory`, the largest growth of the process over a decision as a multiple of one batch of logits; `paths`,
            see `count_paths`; `machine`, `settings`.
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
    settings = {"rows": rows, "vocab": vocab, "rounds": rounds, "top_p": top_p, "threads": threads}
    return {**found, "settings": settings, "machine": machine(), "date": date.today().isoformat()}


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Make torch's path on a CPU read no value, as on a GPU."""
    from rlvr_dir.policy import nucleus

    before, nucleus.LOOKED_AT = nucleus.LOOKED_AT, set()
    try:
        yield
    finally:
        nucleus.LOOKED_AT = before


def _measure(scale: float, rows: int, vocab: int, rounds: int, top_p: float) -> dict[str, Any]:
    """Measure one shape on a CPU. Its parts take turns, so that a busy machine slows all of them alike."""

    base, rl = made_batch(scale, rows, vocab)
    step = stepping(base, rl, torch.arange(rows))
    rules = {name: made_rule(gamma, rows, top_p) for name, gamma in GAMMAS.items()}
    parts: dict[str, Callable[[], Any]] = {
        "decision": lambda: step(rules["decision"]),
        "extrapolate": lambda: step(rules["extrapolate"]),
        "both log-softmax": lambda: (torch.log_softmax(base, -1), torch.log_softmax(rl, -1)),
        "full sort": lambda: torch.sort(base, dim=-1, descending=True, stable=True),
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for number in range(rounds + 1):
        for name, part in parts.items():
            start = time.process_time()
            part()
            if number:
                times[name].append(1000 * (time.process_time() - start) / rows)
    return {
        "ms_a_row": {name: round(sorted(each)[len(each) // 2], 3) for name, each in times.items()},
        "replaced": round(float(parts["decision"]().replaced.float().mean()), 3),
        "memory": round(growth(parts["decision"]) / (base.numel() * base.element_size()), 1),
    }


def count_paths(vocab: int, rows: int = 4) -> dict[str, dict[str, Any] | None]:
    """Count the operations of one decision, by path and rule, on a CPU.

    Returns:
        For the paths `torch` (a CPU's), `torch dense` (a GPU's) and `fused`, by rule: `operators` that torch
            dispatches, `waits` among them that would wait for a GPU, `launches` of our own kernels, `bytes`, the most
            temporaries at once, per logit of one model, and for `fused` `moved`, the bytes that its kernels load and
            store, per logit of one model. `fused` is None if Triton is not installed.
    """

    step = stepping(*made_batch(SHAPES["peaked"], rows, vocab), torch.arange(rows))
    found: dict[str, dict[str, Any] | None] = {}
    for path, looks in (("torch", nullcontext), ("torch dense", as_on_a_gpu)):
        counts: dict[str, Any] = {}
        found[path] = counts
        for name, gamma in GAMMAS.items():
            rule = made_rule(gamma, rows, 0.7)
            with looks():
                step(rule)  # the first of a batch finds its rows' indices
                watch, held = watched(lambda rule=rule: step(rule)), growth(lambda rule=rule: step(rule))
            counts[name] = {**watch, "launches": 0, "bytes": round(held / (rows * vocab), 1)}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.decision", "--count-fused", str(vocab)]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    found["fused"] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    return found


def _count_fused(vocab: int, rows: int = 2) -> dict[str, Any]:
    """Return the fused path's numbers for `count_paths`, run in Triton's interpreter."""
    from torch.utils._python_dispatch import _disable_current_modes
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder

    from rlvr_dir.decode.plan import DELTA_LIMIT
    from rlvr_dir.decode.vllm_pair import channel
    from rlvr_dir.policy.fused import decide_fused, force

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
    base, rl = made_batch(SHAPES["peaked"], rows, vocab)
    numbers = torch.arange(rows)
    found = {}
    for name, gamma in GAMMAS.items():
        rule, logits = made_rule(gamma, rows, 0.7), rl.clone()
        stepping(base, logits, numbers)(rule, decide_fused)  # the first of a batch makes its tables
        launched.clear()
        held = moved = 0

        def step(rule: Any = rule, logits: Any = logits) -> Any:
            decision = stepping(base, logits, numbers)(rule, decide_fused)
            return force(logits, decision, band=channel.BAND, limit=DELTA_LIMIT, beside=channel.BESIDE)

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
        `operators`: how many, including views and allocations; `waits`: their names, in order.
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


def growth(run: Callable[[], Any]) -> int:
    """Return the most bytes that torch allocates during a call on a CPU, beyond those before it."""
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


def show(found: dict[str, Any]) -> str:
    """Write the results as a table."""
    asked = found["settings"]
    lines = [f"{found['machine']}, {found['date']}; {asked['rows']} rows, vocabulary {asked['vocab']:,}"]
    for shape, parts in found["ms_a_row"].items():
        lines += ["", f"{shape}: {found['replaced'][shape]:.0%} of the rows are redrawn"]
        lines += [f"{name:>18}  {ms:8.3f} ms a row" for name, ms in parts.items()]
        lines += [f"{'memory':>18}  {found['memory'][shape]:8.1f} batches of logits at most, beside the two given"]
    lines += [
        "",
        "Of one decision: operators of torch, those that wait for a GPU, kernels of ours; bytes a logit of one model: "
        "held at most, and loaded and stored by our kernels",
    ]
    for path, rules in found["paths"].items():
        for rule, counts in (rules or {}).items():
            moved = f"{counts['moved']:6.1f} moved" if "moved" in counts else ""
            lines.append(
                f"{path:>18}  {rule:<12}{counts['operators']:4} operators{len(counts['waits']):3} waits"
                f"{counts['launches']:3} launches{counts['bytes']:6.1f} held{moved}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    if "--count-fused" in sys.argv:
        print(json.dumps(_count_fused(int(sys.argv[2]))))
    else:
        run(bench_decision, show)
