"""Cost of Algorithm 1 itself: milliseconds a row of logits at a large vocabulary, beside what must be paid anyway."""

import os
import time
from collections.abc import Callable
from datetime import date
from typing import Any

from harness.bench.decode import machine

VOCAB = 151_936  # Qwen2.5's
# Standard deviations of the logits. A language model's rows are peaked: a nucleus of some tokens at top-p 0.7. Flat
# ones, with a nucleus of tens of thousands, are the worst case.
SHAPES = {"peaked": 8.0, "flat": 1.0}


def bench_decision(
    *,
    rows: int = 16,
    vocab: int = VOCAB,
    rounds: int = 5,
    top_p: float = 0.7,
    threads: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures `decide` on made-up logits, RL's being base's and a small step.

    Args:
        rows: of one batch. vocab: columns. rounds: measured, after one that warms up.
        threads: of torch.
        say: is told how far the run is.

    Returns:
        A plain object: `ms_a_row` by shape and part: `decision` (a replace rule), `extrapolate`, `both log-softmax`
        (no decision can do without), `full sort` (the plain way to a nucleus, once); `replaced` shares; `memory`, the
        largest growth of the process over a decision as a multiple of one batch of logits; `machine`, `settings`.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found: dict[str, Any] = {"ms_a_row": {}, "replaced": {}, "memory": {}}
    try:
        for shape, scale in SHAPES.items():
            say(shape)
            for name, value in _measure(scale, rows, vocab, rounds, top_p).items():
                found[name][shape] = value
    finally:
        torch.set_num_threads(before)
    settings = {"rows": rows, "vocab": vocab, "rounds": rounds, "top_p": top_p, "threads": threads}
    return {**found, "settings": settings, "machine": machine(), "date": date.today().isoformat()}


def _measure(scale: float, rows: int, vocab: int, rounds: int, top_p: float) -> dict[str, Any]:
    """One shape: its parts take turns, so that a busy machine slows all of them alike."""
    import torch

    from harness.policy import Noise, Rule, RuleRow, decide

    generator = torch.Generator().manual_seed(0)
    base = torch.randn(rows, vocab, generator=generator) * scale
    rl = base + 0.1 * torch.randn(rows, vocab, generator=generator)
    noise = Noise.at(torch.arange(rows), torch.arange(rows))

    def rule(gamma: float) -> Rule:
        return Rule([RuleRow(gate="delta_logp", tau=-0.05, gamma=gamma, top_p=top_p)] * rows)

    replace, extrapolate = rule(0.0), rule(0.1)
    parts: dict[str, Callable[[], Any]] = {
        "decision": lambda: decide(base, rl, replace, noise),
        "extrapolate": lambda: decide(base, rl, extrapolate, noise),
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


def _growth(run: Callable[[], Any]) -> int:
    """Bytes that torch holds at most during a call, beyond what it held before."""
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
    for event in sorted(recorded.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most
