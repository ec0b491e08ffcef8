"""A sweep says which τ lies within the floor that an audit has measured on the same base, in the same type."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rlvr_dir.config import Decoding, parse
from rlvr_dir.records.store import SPREADS
from rlvr_dir.sweep.decoding import DecodingObjective


def trial(decoding, weights="weights:abc", dtype="float32") -> Any:
    result = {"provenance": {"weights": {"base": weights}}, "engine": {"dtype": dtype}}
    return SimpleNamespace(results=[SimpleNamespace(**result, decoding=parse(Decoding, decoding))])


@pytest.mark.parametrize(
    ("made", "within"),
    [
        (trial({"mode": "replace", "tau": -0.003}), True),
        (trial({"mode": "replace", "tau": -0.004}), False),
        (trial({"mode": "replace", "criterion": "js", "tau": 0.0001}), True),
        (trial({"mode": "replace", "criterion": "entropy_base", "tau": 0.0001}), None),
        (trial({"mode": "rl"}), None),
        (trial({"mode": "replace", "tau": -0.003}, weights="weights:other"), None),
        (trial({"mode": "replace", "tau": -0.003}, dtype="bfloat16"), None),
    ],
)
def test_a_threshold_is_compared_with_the_floor_of_its_criterion(tmp_path, made, within):
    objective = cast(Any, SimpleNamespace(store=tmp_path / "records"))
    assert DecodingObjective._within_floor(objective, made) is None, "no audit has measured it"
    spread = {"weights:abc float32": {"delta_logp": 0.0034, "js": 0.001}}
    (tmp_path / SPREADS).write_text(json.dumps(spread))
    assert DecodingObjective._within_floor(objective, made) is within
