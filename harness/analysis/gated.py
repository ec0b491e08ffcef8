"""Count where and when a gate redraws, and what follows, in gated decodings, a rollout at a time.

    found = gated_statistics(EvalSpec(tasks=("tiny_medium",), decodings=("replace,tau=-0.1",)), "runs/records")

The result is plain JSON: a report is drawn from it, and nothing has to be decoded again for that.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.traced import as_plain, limited
from harness.errors import UserError
from harness.evals.loop import opened
from harness.evals.traces import rollouts, trace_of, traced
from harness.progress import phase, showing
from harness.records import Row
from harness.spec import Decoding, EvalSpec
from harness.stats import token_mean, token_share

TOKENS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)  # where bins of position begin
TENTHS = 10  # of a response
RUNS = 6  # lengths of runs that are told apart; the last one is "or more"
AFTER = 8  # tokens that follow a changed one


class Gated:
    """The counts of one decoding, by problem: each an array whose last axis is (what is counted, out of how many)."""

    def __init__(self) -> None:
        self.problems: dict[str, dict[str, np.ndarray]] = {}
        self.runs = np.zeros(RUNS, dtype=np.int64)

    def add(self, rollout: Row) -> None:
        """Count one rollout.

        Raises:
            ValueError: it was decoded without a trace.
        """
        trace, replaced, changed = trace_of(rollout), np.asarray(rollout.replaced), np.asarray(rollout.changed)
        n = replaced.size
        at = np.arange(n)
        entropy = trace.fact("entropy_base").astype(float), trace.fact("entropy_rl").astype(float)
        p = [np.exp(trace.fact(f"logp_{who}").astype(float)) for who in ("base", "rl")]
        mine = self.problems.setdefault(rollout.problem, _empty())
        mine["share"] += replaced.sum(), n
        mine["changed"] += changed.sum(), replaced.sum()
        _count(mine["by_token"], np.digitize(at, TOKENS) - 1, replaced)
        _count(mine["by_tenth"], TENTHS * at // max(1, n), replaced)
        for row, hit in enumerate((replaced, ~replaced)):
            for column, value in enumerate(entropy):
                mine["entropy"][row, column] += value[hit].sum(), hit.sum()
        kept = ~changed  # where another token was written, the trace is of the one that was not
        for column, value in enumerate(p):
            mine["kept"][column] += value[kept].sum(), kept.sum()
            for k in range(AFTER):
                follows = at[changed] + k + 1
                follows = follows[follows < n]
                follows = follows[kept[follows]]
                mine["after"][column, k] += value[follows].sum(), follows.size
        self.runs += np.bincount(np.minimum(_runs(replaced), RUNS) - 1, minlength=RUNS)

    def add_all(self, rollouts: Iterable[Row]) -> "Gated":
        """Count many rollouts; return this."""
        for rollout in rollouts:
            self.add(rollout)
        return self

    def shares(self, name: str) -> Any:
        """Return the shares of a count, or means of entropies, as nested lists of estimates with intervals."""
        estimate = token_mean if name == "entropy" else token_share
        table = np.stack([counts[name] for counts in self.problems.values()])  # (problems, ..., 2)

        def each(part: np.ndarray) -> Any:
            if part.ndim == 2:
                return {**as_plain(estimate(part[:, 0], part[:, 1])), "of": int(part[:, 1].sum())}
            return [each(part[:, i]) for i in range(part.shape[1])]

        return each(table)


def _empty() -> dict[str, np.ndarray]:
    shapes = {
        "share": (), "changed": (), "by_token": (len(TOKENS),), "by_tenth": (TENTHS,), "entropy": (2, 2),
        "kept": (2,), "after": (2, AFTER),
    }  # fmt: skip
    return {name: np.zeros((*shape, 2)) for name, shape in shapes.items()}


def _count(table: np.ndarray, places: np.ndarray, hits: np.ndarray) -> None:
    table[:, 0] += np.bincount(places, hits, minlength=len(table))
    table[:, 1] += np.bincount(places, minlength=len(table))


def _runs(flags: np.ndarray) -> np.ndarray:
    """Return the lengths of the runs of True.

    >>> _runs(np.array([True, False, True, True, True, False])).tolist()
    [1, 3]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return edges[1::2] - edges[::2]


def gated_statistics(spec: EvalSpec, records: str | Path, *, progress: bool = True) -> dict[str, Any]:
    """Decode the gated decodings of a spec with traces, and count where they redraw and what follows.

    What the records hold with a trace is not decoded again.

    Raises:
        UserError: no decoding of the spec has a gate, or what `evaluate` refuses.
    """
    gated = tuple(each for each in spec.decodings if each.gated)
    if not gated:
        raise UserError("decodings: none of them has a gate; accepted: replace or extrapolate, as -d replace,tau=-0.1")
    counted: dict[Decoding, Gated] = {}
    with showing(progress), opened(asked := spec.model_copy(update={"decodings": gated})) as engine:
        jobs = traced(asked, records, engine=engine, progress=progress)
        info = engine.info()
    with showing(progress), phase("counting"):
        for job in jobs:
            counted.setdefault(job.decoding, Gated()).add_all(rollouts(job, records))
    return {
        "kind": "gated",
        "pair": info["pair"],
        "tasks": list(dict.fromkeys(job.task for job in jobs)),
        "limited": {job.task: part for job in jobs if (part := limited(job))},
        "sampling": jobs[0].sampling.model_dump(mode="json"),
        "records": [job.record for job in jobs],
        "tokens": list(TOKENS),
        "decodings": [
            {"label": decoding.label(), "decoding": decoding.model_dump(mode="json"), **_found(one)}
            for decoding, one in counted.items()
        ],
    }


def _found(one: Gated) -> Mapping[str, Any]:
    names = ("share", "changed", "by_token", "by_tenth", "entropy", "kept", "after")
    return {
        "problems": len(one.problems),
        "runs": one.runs.tolist(),
        **{name: one.shares(name) for name in names},
    }
