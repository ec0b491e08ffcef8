"""The tokens that RL would write in place of base's, against a plain count."""

from collections import Counter

import numpy as np
import pytest

from rlvr_dir.analysis.expected import expected_replacements
from rlvr_dir.policy.trace import FACTS, columns
from rlvr_dir.records import Row
from tests.results.replaced import ROWS, tokenizer


def test_what_rl_would_write_in_place_of_bases_least_likely_tokens():
    """Of 8 tokens of each response the quarter with the lowest Δ log p is flagged, against a plain count."""
    rng, rows, top = np.random.default_rng(0), [], 3
    expected, flagged = Counter(), 0
    for i in range(6):
        table = np.zeros((8, columns(top)), np.float32)
        ids = rng.integers(3, 6, 8)
        delta = np.arange(8) - 1.5  # two of eight are below the third lowest
        table[:, FACTS.index("logp_base")], table[:, FACTS.index("logp_rl")] = -3, -3 + delta
        table[:, FACTS.index("proposed")] = ids
        of_rl = np.stack([rng.permutation([3, 4, 5]) for _ in ids])
        for j in range(top):
            at = len(FACTS) + 4 * j
            table[:, at], table[:, at + 1] = 3 + j, -1.0 - j  # base lists all three, in order
            table[:, at + 2], table[:, at + 3] = of_rl[:, j], -0.5 * (j + 1)
        rows.append(
            Row.make(f"t/p{i // 2}", i % 2, "", "stop", np.zeros(8), np.zeros(8), ids, (1,), delta, trace=table)
        )
        flagged += 2
        for at in (0, 1):
            if ids[at] != of_rl[at, 0]:
                expected[int(ids[at]), int(of_rl[at, 0])] += 1
    found = expected_replacements(lambda: rows, "made", 0.25, tokenizer())
    assert (found.tokens, found.flagged, found.changed) == (48, flagged, expected.total())
    assert {(row["proposed"], row["written"]): row["times"] for row in found.frame.to_dict("records")} == expected
    for row in found.frame.to_dict("records"):
        assert row["delta_logp_written"] == pytest.approx(-0.5 + 1 + (row["written"] - 3))
        assert row["right"] is None
    with pytest.raises(ValueError, match="no trace"):
        expected_replacements(lambda: ROWS, "made", 0.25)
