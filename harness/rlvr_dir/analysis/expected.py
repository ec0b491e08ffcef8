"""Compute what RL would write in place of base's tokens, from both models' most likely tokens in base's responses."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rlvr_dir.decode.trace import Trace
from rlvr_dir.records import Row
from rlvr_dir.results.replacements import Places, Replacements, ends_of, kinds_of


def expected_replacements(
    read: Callable[[], Iterable[Row]], title: str, share: float, tokenizer: Any = None
) -> Replacements:
    """Return what RL would most likely write at the `share` of base's tokens with the lowest Δ log p.

    Args:
        read: Yields base's own responses, with traces that list the most likely tokens. It is called twice.
        title: A title for these responses.
        share: The share of base's tokens to look at.
        tokenizer: Decodes the tokens for display.

    Raises:
        ValueError: A response has no such trace.
    """
    parts = [_trace(row).fact("delta_logp") for row in read()]
    delta = np.sort(np.concatenate(parts)) if parts else np.zeros(1)
    tau = min(0.0, float(delta[min(len(delta) - 1, round(share * len(delta)))]))
    places, ends, problems = Places(tokenizer), set[int](), set[str]()
    proposals: Counter[int] = Counter()
    for row in read():
        ends |= ends_of([row])
        problems.add(row.problem)
        trace = _trace(row)
        of_row, proposed = trace.fact("delta_logp"), trace.proposed
        (base, base_logp), (rl, rl_logp) = trace.likeliest("base"), trace.likeliest("rl")
        for position in np.flatnonzero(of_row < tau).tolist():
            dropped, written = int(proposed[position]), int(rl[position, 0])
            proposals[dropped] += 1
            if written != dropped:
                of_base = base_logp[position][base[position] == written]  # empty if base does not list it
                nats = float(rl_logp[position, 0] - of_base[0]) if len(of_base) else np.nan
                places.add((dropped, written), row, position, float(of_row[position]), nats, None)
    return Replacements(
        title,
        len(problems),
        None,
        places.frame(),
        kinds_of(proposals, ends, tokenizer) if tokenizer is not None else {},
        len(delta),
        sum(proposals.values()),
        places.total,
        expected=True,
    )


def _trace(row: Row) -> Trace:
    if row.trace is None or not (trace := Trace(row.trace)).top:
        raise ValueError(f"{row.problem} sample {row.sample} has no trace with most likely tokens")
    return trace
