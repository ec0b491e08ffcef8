"""The floor beside a computation of its own: base in two types and in two batches, on the same responses."""

import numpy as np
import pytest
import torch

from rlvr_dir.audit.floor import floors, spreads
from rlvr_dir.audit.tokens import CLAIMS
from rlvr_dir.config import EngineSpec
from rlvr_dir.decode import open_engine
from rlvr_dir.records import Row
from rlvr_dir.records.store import stored_spreads
from tests.decode.requests import make_requests

ENGINE = EngineSpec(backend="transformers", dtype="float32")
OTHER, BATCH = "same weights, bfloat16", "same weights, batch of 8"


@pytest.fixture(scope="module")
def rows(peaked_pair):
    with open_engine(peaked_pair, ENGINE) as engine:
        return [Row.from_rollout(rollout) for rollout in engine.generate(make_requests(5, samples=2, max_tokens=9))]


def test_two_types_are_told_apart_and_two_batches_hardly(peaked_pair, rows):
    found = floors(peaked_pair, "float32", "cpu", {"rl": rows[:5], "base": rows[5:]}, temperature=0.7)
    assert [*found] == [OTHER, BATCH]
    scores = []
    for dtype in ("float32", "bfloat16"):
        with open_engine(peaked_pair, ENGINE.model_copy(update={"dtype": dtype})) as engine:
            logits = [engine.logits([*row.prompt_token_ids, *row.token_ids])[0] for row in rows]  # pyright: ignore
        known = engine.checkpoints.vocab_size  # of the output layer, which is padded
        of_base = [each[len(row.prompt_token_ids) - 1 : -1, :known] for each, row in zip(logits, rows, strict=True)]
        scores.append(torch.log_softmax(torch.cat(of_base).double() / 0.7, -1).numpy())
    own, other = scores
    tokens = np.concatenate([row.token_ids for row in rows])
    written = np.arange(len(tokens)), tokens
    frame, divergence = found[OTHER], (np.exp(other) * (other - own)).sum(1)
    # In bfloat16 the last bits depend on the kernel, so of single tokens no more than their likeness is known.
    assert frame.kl_rl_base.mean() == pytest.approx(divergence.mean(), rel=0.1)
    assert np.corrcoef(frame.delta_logp, (other - own)[written])[0, 1] > 0.95
    assert frame.logp_base.to_numpy() == pytest.approx(own[written], abs=1e-5)
    assert frame.delta_logp.abs().max() > 1e-3 > found[BATCH].delta_logp.abs().max()
    zeros = [
        claim.estimate(found[BATCH]).value for claim in CLAIMS if claim.name.startswith(("tokens/kl", "tokens/js"))
    ]
    assert {value for value in zeros if value is not None} == {0.0}


def test_a_spread_is_twice_the_root_mean_square_where_it_is_largest(peaked_pair, rows):
    found = floors(peaked_pair, "float32", "cpu", {"rl": rows}, temperature=1.0)
    by_hand = 2 * np.sqrt(np.mean(found[OTHER].delta_logp.to_numpy(float) ** 2))
    assert spreads(found.values())["delta_logp"] == pytest.approx(by_hand, rel=1e-4)


def test_without_an_audit_no_floor_is_known(tmp_path):
    assert stored_spreads(tmp_path / "records") == {}
