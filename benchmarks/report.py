"""Measure the time of a report on many results, and of only reading them, in one run."""

import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.script import run
from rlvr_dir.bench.decode import machine
from rlvr_dir.config import Decoding, Sampling

TAUS, GAMMAS = (-0.5, -0.4, -0.3, -0.2, -0.1), (0.0, 0.05, 0.1)
BENCHMARKS = {"aime24": 30, "aime25": 30, "amc": 83, "minerva": 272}  # problems


def bench_report(
    *, samples: int = 32, rounds: int = 3, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Read, build and write the report of the paper's main study: 17 decodings of four benchmarks.

    Args:
        samples: Samples per problem.
        rounds: Measured rounds, after one to warm up.
        say: Called with the progress.

    Returns:
        A plain object: `seconds` (medians) to `read` the results, to `build` and to `write` the report; `build_to_read`
            and `write_to_read`; `results`, `page` (bytes of report.html), `machine`, `settings`.
    """
    from rlvr_dir.report.build import build
    from rlvr_dir.report.write import write
    from rlvr_dir.results import EvalResult

    size = 0
    seconds: dict[str, list[float]] = {"read": [], "build": [], "write": []}
    with tempfile.TemporaryDirectory(prefix="rlvr-dir-bench-") as scratch:
        folder = Path(scratch)
        (folder / "results").mkdir()
        files = [result.write(folder / "results") for result in _results(samples)]
        for number in range(rounds + 1):
            say(f"round {number} of {rounds}" if number else "warming up")
            began = time.perf_counter()
            results = [EvalResult.from_json(file.read_text()) for file in files]
            read = time.perf_counter()
            report = build(results)
            built = time.perf_counter()
            page = write(report, folder / "report")
            wrote, size = time.perf_counter(), page.stat().st_size
            if number:
                for name, spent in zip(seconds, (read - began, built - read, wrote - built), strict=True):
                    seconds[name].append(spent)
    median = {name: round(statistics.median(each), 3) for name, each in seconds.items()}
    return {
        "seconds": median,
        "build_to_read": round(median["build"] / median["read"], 2),
        "write_to_read": round(median["write"] / median["read"], 2),
        "limit": "every figure in the report is made of what was read: reading is the least",
        "results": len(files),
        "page": size,
        "settings": {"samples": samples, "rounds": rounds, "benchmarks": BENCHMARKS},
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def _results(samples: int) -> list[Any]:
    """Generate results: each problem has its own difficulty, each decoding its own strength."""
    from rlvr_dir.results import EvalResult

    gated = [
        Decoding(mode="extrapolate" if gamma else "replace", tau=tau, gamma=gamma) for tau in TAUS for gamma in GAMMAS
    ]
    found = []
    for index, decoding in enumerate((Decoding(mode="base"), Decoding(mode="rl"), *gated)):
        for task, problems in BENCHMARKS.items():
            random = np.random.default_rng([index, problems])
            right = random.random((problems, samples)) < np.linspace(0.1, 0.9, problems)[:, None]
            zero = np.zeros((problems, samples), int)
            found.append(
                EvalResult(
                    task=task,
                    decoding=decoding,
                    sampling=Sampling(samples=samples),
                    problem_ids=tuple(f"{task}-{i:03}" for i in range(problems)),
                    correct=right,
                    n_tokens=zero + 900,
                    n_replaced=zero + 9 * decoding.gated,
                    n_changed=zero,
                    truncated=zero,
                    no_box=zero,
                    ungraded=zero,
                    votes=zero,
                    provenance={"engine": {"pair": {"base": "made-up/base", "rl": "made-up/rl"}}, "settings": "0" * 16},
                )
            )
    return found


if __name__ == "__main__":
    run(bench_report)
