"""The checklist for machines where the engine has not run yet: steps of their own, failures as findings."""

import json

import pytest

from harness.bench import checklist
from harness.decode.checkpoints import read_checkpoints
from harness.errors import UserError
from harness.spec import Pair


def test_a_step_runs_in_a_process_of_its_own():
    found = checklist._apart("decision", Pair(base="x", rl="x"), {"rows": 4}, {})
    assert found["ok"] is None
    assert found["device"] == "cpu"
    assert found["ms_a_batch"] > 0
    assert json.loads(json.dumps(found)) == found


@pytest.mark.vllm
def test_a_step_that_fails_is_a_finding(tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    nowhere = str(tmp_path / "nothing")
    found = checklist._apart("shuffle", Pair(base=nowhere, rl=nowhere), {}, {})
    assert found["ok"] is False
    assert "nothing" in found["error"]


def test_shapes_are_those_of_the_models_with_a_whole_vocabulary(tmp_path):
    pair = checklist.write_shape(tmp_path, "tiny")
    found = read_checkpoints(pair)
    assert found.vocab_size == checklist.VOCAB
    assert found.config.num_hidden_layers == checklist.SHAPES["tiny"][1]


def test_an_unknown_shape_is_refused():
    with pytest.raises(UserError, match="shape='70b' is not known; accepted: tiny"):
        checklist.run_checklist(shapes=("70b",))
