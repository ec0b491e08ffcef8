"""Names of weights: which one is known to be missing, or too many, before anything is loaded."""

import pytest

from rlvr_dir.checkpoints.weights import missing_weight, surplus_weight

LAYERS = [f"model.layers.{i}.{part}.weight" for i in range(3) for part in ("attn.q", "mlp.gate_up")]
MADE = [*LAYERS, "model.embed.weight", "model.norm.weight", "lm_head.weight"]
EXPERTS = [f"model.layers.{i}.mlp.experts.{j}.up.weight" for i in range(3) for j in range(2)]


@pytest.mark.parametrize(
    ("held", "missing"),
    [
        (MADE, None),
        ([*MADE, "model.rotary.inv_freq"], None),
        (MADE[2:], LAYERS[0]),
        ([name for name in MADE if name != "model.norm.weight"], "model.norm.weight"),
        ([name.removeprefix("model.") for name in MADE], None),  # mapped when they are loaded
        ([name for name in MADE if "gate_up" not in name] + EXPERTS, None),
        ([name for name in MADE if not name.startswith("lm_head")] + ["output.weight"], None),
    ],
)
def test_a_weight_is_missing_where_its_like_is_held(held, missing):
    assert missing_weight(held, MADE) == missing


@pytest.mark.parametrize(
    ("added", "surplus"),
    [
        ([], None),
        (["model.layers.3.attn.q.weight"], "model.layers.3.attn.q.weight"),
        (["v_head.summary.weight"], "v_head.summary.weight"),  # of a critic
        (["model.layers.0.attn.gate.weight"], "model.layers.0.attn.gate.weight"),
        (["model.layers.0.self_attn.rotary_emb.inv_freq", "transformer.h.0.attn.masked_bias"], None),
        (["mtp.head.weight"], None),  # which the model's class passes over
    ],
)
def test_a_weight_that_no_model_wants_is_too_many(added, surplus):
    assert surplus_weight([*MADE, *added], MADE, ["^mtp"]) == surplus


def test_names_that_loading_maps_are_not_too_many():
    assert surplus_weight([name.removeprefix("model.") for name in MADE], MADE, []) is None
    assert surplus_weight([name for name in MADE if "gate_up" not in name] + EXPERTS, MADE, []) is None
