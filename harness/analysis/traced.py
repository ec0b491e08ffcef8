"""Token statistics of a pair: base and RL answer the same problems, both score every token, everything is counted.

    found = token_statistics(EvalSpec(tasks=("tiny_medium",)), "runs/records")

The result is plain JSON: a report is drawn from it, and nothing has to be decoded again for that.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.histogram import as_json
from harness.analysis.selected import Selection, selections
from harness.analysis.tokens import DELTA_EDGES, PROBABILITY_EDGES, TAILS, Generation
from harness.errors import UserError
from harness.evals.loop import Job, opened
from harness.evals.traces import rollouts, traced
from harness.progress import phase, showing
from harness.records import Row
from harness.spec import Decoding, EvalSpec, Sampling
from harness.stats import Share, share_ratio, token_share

TOP = 10  # likeliest tokens listed a position
RATIO = 0.08  # of base's tokens that each criterion picks, as in the paper
TOKENS, WORDS = 50, 100  # tokens and words listed
SHARE, LEAST = (
    1e-4,
    5,
)  # of all tokens, and at least: how often a word must have been met


def token_statistics(
    spec: EvalSpec, records: str | Path, *, selected: float = RATIO, progress: bool = True
) -> dict[str, Any]:
    """Decode base and RL, and nothing else of a spec, with traces, and count their tokens.

    What the records hold is not decoded again.

    Raises:
        UserError: what `evaluate` refuses, or responses that are not drawn by top-p: a trace does not list all tokens
            that other truncations keep.
    """
    _check_nucleus(spec.sampling)
    both = spec.model_copy(update={"decodings": (Decoding(mode="base"), Decoding(mode="rl"))})
    with showing(progress), opened(spec) as engine:
        jobs = traced(both, records, engine=engine, top=TOP, progress=progress)
        tokenizer, info = engine.tokenizer, engine.info()
    _check_nucleus(jobs[0].sampling)

    def read(mode: str) -> Iterator[Row]:
        for job in jobs:
            if job.decoding.mode == mode:
                yield from rollouts(job, records)

    with showing(progress), phase("counting"):
        base, rl = Generation("base").add_all(read("base")), Generation("rl").add_all(read("rl"))
        chosen, positions = selections(lambda: read("base"), selected, jobs[0].sampling.top_p)
    drawn = jobs[0].sampling
    least = word_floor(sum(problem.tokens for problem in rl.problems.values()))
    return {
        "kind": "tokens",
        "pair": info["pair"],
        "tasks": list(dict.fromkeys(job.task for job in jobs)),
        "limited": {job.task: part for job in jobs if (part := limited(job))},
        "sampling": drawn.model_dump(mode="json"),
        "records": [job.record for job in jobs],
        "generations": {one.who: _generation(one) for one in (base, rl)},
        "tails": _tails(base, rl),
        "by_delta": {"edges": list(DELTA_EDGES), **{one.who: _by_delta(one) for one in (base, rl)}},
        "gradient": {"edges": list(PROBABILITY_EDGES), **{one.who: _gradient(one) for one in (base, rl)}},
        "selected": {
            "ratio": selected,
            "positions": positions,
            "criteria": [_selection(one, tokenizer) for one in chosen],
        },
        "least": least,
        "likelier": [{**one, "token": text(tokenizer, one["id"])} for one in rl.likelier(least, WORDS)],
    }


def _check_nucleus(sampling: Sampling | None) -> None:
    if sampling is not None and not sampling.by_nucleus:
        raise UserError(f"{sampling.truncation.words} is refused for statistics of tokens; accepted: top_p")


def word_floor(tokens: int) -> int:
    """Return how often a word must have been met among so many tokens for its mean to be listed.

    >>> word_floor(5_000_000), word_floor(10_000)
    (500, 5)
    """
    return max(LEAST, math.ceil(SHARE * tokens))


def limited(job: Job) -> str | None:
    """Return of what the problems of a job are a part (`16 of 83 problems`); None where it has all."""
    asked, whole = len({request.problem for request in job.requests}), job.benchmark.problems
    return f"{asked} of {whole} problems" if whole and asked != whole else None


def text(tokenizer: Any, token: int) -> str:
    """Write a token as it stands in a response, its leading space shown."""
    written = tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return written.replace(" ", "␣") if written else str(tokenizer.convert_ids_to_tokens(token))


def _generation(one: Generation) -> dict[str, Any]:
    return {
        "problems": len(one.problems),
        "tokens": sum(problem.tokens for problem in one.problems.values()),
        "histograms": {name: as_json({"counted": histogram}) for name, histogram in one.histograms.items()},
    }


def _tails(base: Generation, rl: Generation) -> list[dict[str, Any]]:
    """Return each tail's share in both generations, and the greater over the smaller, with intervals over problems."""
    order = list(dict.fromkeys([*base.problems, *rl.problems]))
    counts = {one.who: (one.by_problem("tails", order), one.by_problem("tokens", order)) for one in (base, rl)}
    rows = []
    for i, (fact, side, edge) in enumerate(TAILS):
        hits = {who: (tails[:, i], tokens) for who, (tails, tokens) in counts.items()}
        shares = {who: token_share(*one) for who, one in hits.items()}
        more, less = sorted(hits, key=lambda who: -shares[who].value)
        rows.append(
            {
                "fact": fact, "side": side, "edge": edge, "more": more,
                **{who: as_plain(one) for who, one in shares.items()},
                "ratio": as_plain(share_ratio(hits[more], hits[less])),
            }
        )  # fmt: skip
    return rows


def _by_delta(one: Generation) -> list[dict[str, Any]]:
    """Count tokens and average the probabilities, base's and RL's, in each bin of delta log p."""
    table = one.by_problem("in_bin", one.problems)  # (problems, bins, 3)
    return [
        {
            "tokens": int(table[:, i, 0].sum()),
            "p_base": as_plain(token_share(table[:, i, 1], table[:, i, 0])),
            "p_rl": as_plain(token_share(table[:, i, 2], table[:, i, 0])),
        }
        for i in range(table.shape[1])
    ]


def _gradient(one: Generation) -> list[dict[str, Any]]:
    """Return the shares of tokens and of gradient mass in each bin of the generating policy's probability."""
    table = one.by_problem("mass", one.problems)  # (problems, bins, 2)
    whole = table.sum(axis=1)
    return [
        {
            "tokens": as_plain(token_share(table[:, i, 0], whole[:, 0])),
            "mass": as_plain(token_share(table[:, i, 1], whole[:, 1])),
        }
        for i in range(table.shape[1])
    ]


def _selection(one: Selection, tokenizer: Any) -> dict[str, Any]:
    def listed(counter: Any) -> list[dict[str, Any]]:
        return [{"id": i, "token": text(tokenizer, i), "count": float(n)} for i, n in counter.most_common(TOKENS)]

    return {
        "criterion": one.criterion,
        "tau": one.tau,
        "positions": one.positions,
        "picked": listed(one.picked),
        "placed": listed(one.placed),
    }


def as_plain(one: Share) -> dict[str, float | None]:
    """Keep only finite numbers: what is not known is None."""
    return {
        name: None if value is None or not np.isfinite(value) else float(value)
        for name, value in (("value", one.value), ("low", one.low), ("high", one.high))
    }
