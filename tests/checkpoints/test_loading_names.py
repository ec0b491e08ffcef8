"""Names of weights: which one is known to be missing, or too many, before anything is loaded."""

import pytest

from rlvr_dir.checkpoints.weights import missing_weight, surplus_layer

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


def test_a_layer_is_too_many_where_the_model_has_others_of_its_kind():
    assert surplus_layer(MADE, MADE) is None
    assert surplus_layer([*MADE, "model.layers.3.attn.q.weight"], MADE) == "model.layers.3.attn.q.weight"
    assert surplus_layer([*MADE, "mtp.layers.0.head.weight"], MADE) is None
