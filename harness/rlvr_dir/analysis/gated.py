"""Count where a gate flags tokens and what follows them, in gated decodings, one rollout at a time.

found = gated_statistics(EvalSpec(tasks=("tiny_medium",), decodings=("replace,tau=-0.1",)), "runs/records")
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_dir.analysis.records import TracedRecords
from rlvr_dir.analysis.result import Analysis, columns
from rlvr_dir.config import EvalSpec
from rlvr_dir.errors import UserError
from rlvr_dir.evals.traces import trace_of
from rlvr_dir.progress import phase, showing
from rlvr_dir.records import Row
from rlvr_dir.stats import Estimate, token_mean, token_share

TOKENS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)  # where bins of position begin
TENTHS = 10  # parts of a response
RUNS = 6  # run lengths that are counted separately; the last one means "or more"
AFTER = 8  # tokens that follow a changed one
# For each problem: arrays whose last axis is (count, total).
SHAPES: dict[str, tuple[int, ...]] = {
    "share": (), "changed": (), "other": (), "by_token": (len(TOKENS),), "by_tenth": (TENTHS,), "entropy": (2, 2),
    "kept": (2,), "after": (2, AFTER),
}  # fmt: skip


class Gated:
    """Hold the counts of one decoding, by problem."""

    def __init__(self) -> None:
        self.problems: dict[str, dict[str, np.ndarray]] = {}
        self.runs = np.zeros(RUNS, dtype=np.int64)

    def add(self, rollout: Row) -> None:
        """Count one rollout.

        Raises:
            ValueError: It was decoded without a trace.
        """
        trace, replaced, changed = trace_of(rollout), np.asarray(rollout.replaced), np.asarray(rollout.changed)
        n = replaced.size
        at = np.arange(n)
        entropy = trace.fact("entropy_base").astype(float), trace.fact("entropy_rl").astype(float)
        p = [np.exp(trace.fact(f"logp_{model}").astype(float)) for model in ("base", "rl")]
        counts = self.problems.setdefault(
            rollout.problem, {name: np.zeros((*shape, 2)) for name, shape in SHAPES.items()}
        )
        counts["share"] += replaced.sum(), n
        counts["changed"] += changed.sum(), replaced.sum()
        counts["other"] += trace.fact("tv_other")[replaced].sum(), replaced.sum()
        for name, places in (("by_token", np.digitize(at, TOKENS) - 1), ("by_tenth", TENTHS * at // max(1, n))):
            counts[name][:, 0] += np.bincount(places, replaced, minlength=len(counts[name]))
            counts[name][:, 1] += np.bincount(places, minlength=len(counts[name]))
        for row, hit in enumerate((replaced, ~replaced)):
            for column, value in enumerate(entropy):
                counts["entropy"][row, column] += value[hit].sum(), hit.sum()
        kept = ~changed  # at a changed token, the trace describes the proposed token
        for column, value in enumerate(p):
            counts["kept"][column] += value[kept].sum(), kept.sum()
            for k in range(AFTER):
                follows = at[changed] + k + 1
                follows = follows[follows < n]
                follows = follows[kept[follows]]
                counts["after"][column, k] += value[follows].sum(), follows.size
        edges = np.flatnonzero(np.diff(np.concatenate([[0], replaced.astype(np.int8), [0]])))
        lengths = edges[1::2] - edges[::2]  # lengths of the runs of flagged tokens
        self.runs += np.bincount(np.minimum(lengths, RUNS) - 1, minlength=RUNS)

    def add_all(self, rollouts: Iterable[Row]) -> "Gated":
        """Count many rollouts; return this object."""
        for rollout in rollouts:
            self.add(rollout)
        return self

    def estimate(self, name: str, *place: int) -> tuple[Estimate, int]:
        """Return a share, or a mean of entropies or variations, with its interval, and its number of tokens."""
        table = np.stack([counts[name][place] for counts in self.problems.values()])  # (problems, 2)
        return (token_mean if name in ("entropy", "other") else token_share)(table[:, 0], table[:, 1]), int(
            table[:, 1].sum()
        )


def gated_statistics(spec: EvalSpec, records: str | Path, *, progress: bool = True) -> Analysis:
    """Decode the gated decodings of `spec` with traces; count where tokens are flagged and what follows.

    Responses that are cached with a trace are not generated again.

    Raises:
        UserError: No decoding of `spec` has a gate, or `evaluate` refuses the spec.
    """
    gated = tuple(decoding for decoding in spec.decodings if decoding.gated)
    if not gated:
        raise UserError(
            "has no gate",
            argument="decodings",
            value=", ".join(decoding.label() for decoding in spec.decodings),
            accepted="at least one gated decoding (`replace` or `extrapolate`), such as `replace,tau=-0.1`",
        )
    traced = TracedRecords(spec.model_copy(update={"decodings": gated}), records, progress=progress)
    tables: dict[str, list[dict[str, Any]]] = {"decodings": [], "positions": [], "after": []}
    for decoding, parts in traced.by_decoding().items():
        label, statistics = {"label": decoding.label()}, Gated()
        with showing(progress), phase("counting"):
            for part in parts:
                statistics.add_all(part)
        estimates = {name: statistics.estimate(name)[0] for name in ("share", "changed", "other")}
        for row, kind in enumerate(("redrawn", "kept")):
            estimates |= {
                f"entropy_{model}_{kind}": statistics.estimate("entropy", row, i)[0]
                for i, model in enumerate(("base", "rl"))
            }
        runs = {f"runs_{length}": count for length, count in enumerate(statistics.runs.tolist(), 1)}
        rule = {"criterion": decoding.criterion, "tau": decoding.tau, "gamma": decoding.gamma}
        tables["decodings"].append(
            {**label, **rule, "problems": len(statistics.problems), **columns(**estimates), **runs}
        )
        for by, starts in (("by_token", TOKENS), ("by_tenth", range(TENTHS))):
            for i, start in enumerate(starts):
                share, of = statistics.estimate(by, i)
                if of:
                    tables["positions"].append({**label, "by": by, "from": start, **columns(share=share), "tokens": of})
        for i, model in enumerate(("base", "RL")):
            usual = statistics.estimate("kept", i)[0].value
            for k in range(AFTER):
                p, of = statistics.estimate("after", i, k)
                row = {**label, "under": model, "after": k + 1, **columns(p=p), "tokens": of, "p_of_all_kept": usual}
                tables["after"].append(row)
    plain = {name: tuple(rows) for name, rows in tables.items()}
    return Analysis(kind="gated", context=traced.description, tables=plain)
