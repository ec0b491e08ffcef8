"""Compute the token statistics of a pair: base and RL answered the same problems, and both scored every token.

The audit computes them from the responses that it reads, and writes them beside its page as `tokens.json`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rlvr_dir.analysis.records import description_of, drawn_alike, once
from rlvr_dir.analysis.result import Analysis, columns
from rlvr_dir.analysis.selected import selections
from rlvr_dir.analysis.tokens import DELTA_EDGES, PROBABILITY_EDGES, Generation
from rlvr_dir.evals.jobs import Job
from rlvr_dir.evals.traces import rollouts
from rlvr_dir.records import Row
from rlvr_dir.stats import token_share

RATIO = 0.08  # the share of base's tokens that each criterion selects, as in the paper
TOKENS, WORDS = 50, 100  # tokens and words listed
SHARE, LEAST = 1e-4, 5  # a listed word must occur at this share of all tokens, and at least this often


def token_statistics(
    jobs: Sequence[Job],
    records: str | Path,
    tokenizer: Any,
    pair: Mapping[str, Any],
    *,
    selected: float = RATIO,
) -> Analysis:
    """Count the tokens of base's and RL's responses.

    Args:
        jobs: Finished jobs of base and RL, with traces that list the most likely tokens.
        records: The store that has their responses.
        tokenizer: The tokenizer of the pair, from transformers.
        pair: The pair, as plain values (`Engine.info`).
        selected: The share of base's tokens that each criterion selects.

    Raises:
        UserError: The tasks have different sampling settings.
    """
    jobs = once(drawn_alike([*jobs]))

    def read(mode: str) -> Iterator[Row]:
        return (row for job in jobs if job.decoding.mode == mode for row in rollouts(job, records))

    base, rl = Generation("base").add_all(read("base")), Generation("rl").add_all(read("rl"))
    chosen, positions = selections(lambda: read("base"), selected, jobs[0].sampling.top_p)
    least = word_floor(rl.tokens)
    ranges = [f"< {DELTA_EDGES[0]:g}", *(f"{a:g} to {b:g}" for a, b in pairwise(DELTA_EDGES)), f"> {DELTA_EDGES[-1]:g}"]
    tables: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("generations", "histograms", "by_delta", "gradient", "selected")
    }
    for generation in (base, rl):
        label = {"generation": generation.role}
        tables["generations"].append(
            {
                **label,
                "problems": len(generation.problems),
                "tokens": generation.tokens,
                "near_zero": generation.histograms["delta_logp"].near_zero,
            }
        )
        for fact, histogram in generation.histograms.items():
            tables["histograms"] += [{**label, "fact": fact, **row} for row in histogram.rows()]
        table = generation.by_problem(
            "in_bin", generation.problems
        )  # (problems, bins, 3): tokens, sums of p of base and of RL
        for i, name in enumerate(ranges):
            p_base, p_rl = (token_share(table[:, i, column], table[:, i, 0]) for column in (1, 2))
            row = {**label, "delta_logp": name, "tokens": int(table[:, i, 0].sum())}
            tables["by_delta"].append({**row, **columns(p_base=p_base, p_rl=p_rl)})
        table = generation.by_problem("mass", generation.problems)  # (problems, bins, 2): tokens, gradient mass
        whole = table.sum(axis=1)
        for i, (start, end) in enumerate(pairwise(PROBABILITY_EDGES)):
            tokens, mass = (token_share(table[:, i, column], whole[:, column]) for column in (0, 1))
            tables["gradient"].append({**label, "p_from": start, "p_to": end, **columns(tokens=tokens, mass=mass)})
    for selection in chosen:
        for kind, counter in (("picked", selection.picked), ("placed", selection.placed)):
            keys = {
                "criterion": selection.criterion,
                "tau": selection.tau,
                "positions": selection.positions,
                "kind": kind,
            }
            tables["selected"] += [
                {**keys, "rank": rank, "id": token, "token": text(tokenizer, token), "count": float(count)}
                for rank, (token, count) in enumerate(counter.most_common(TOKENS), 1)
            ]
    likelier = [
        {"rank": rank, "token": text(tokenizer, word["id"]), **word}
        for rank, word in enumerate(rl.likelier(least, WORDS), 1)
    ]
    context = {**description_of(jobs, pair), "ratio": selected, "positions": positions, "least": least}
    sections = {**tables, "likelier": likelier}
    return Analysis(kind="tokens", context=context, tables={name: tuple(rows) for name, rows in sections.items()})


def word_floor(tokens: int) -> int:
    """Return how often a word must occur among `tokens` tokens for its mean to be listed.

    >>> word_floor(5_000_000), word_floor(10_000)
    (500, 5)
    """
    return max(LEAST, math.ceil(SHARE * tokens))


def text(tokenizer: Any, token: int) -> str:
    """Return a token as it appears in a response, with its leading space visible."""
    written = tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return written.replace(" ", "␣") if written else str(tokenizer.convert_ids_to_tokens(token))
