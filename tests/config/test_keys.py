"""Read back what `rlvr-dir keys` prints: it is a file of the kind that says the defaults."""

import pytest
import yaml

from rlvr_dir.config import EvalSpec, load_eval
from rlvr_dir.config.keys import keys
from rlvr_dir.config.sweep import SweepSpec
from rlvr_dir.sweep.specs import TrainingSweep
from rlvr_dir.train.spec import TrainSpec, load_train
from tests.commands import refused, run

GIVEN = {"name": "x", "tasks": ["tiny_easy"], "parameters": {"decode.tau": {"values": [-0.1]}}}


def read(text):
    return {name: value for name, value in yaml.safe_load(text).items() if value is not None}


@pytest.mark.parametrize(("kind", "load", "spec"), [("eval", load_eval, EvalSpec), ("train", load_train, TrainSpec)])
def test_what_is_printed_is_the_default(kind, load, spec):
    done = run("keys", kind)
    assert load(read(done.stdout)) == spec()


def test_what_a_method_implies_is_left_to_it_in_the_file_that_is_printed():
    """`alpha: 0.0` was printed: the file with another method in it trained plain DAPO."""
    plain = yaml.safe_load("\n".join(keys(TrainSpec)))
    for method in ("low_prob", "dominate", "ppl"):
        plain["dapo"]["method"] = method
        assert load_train(plain).dapo == load_train({"dapo": {"method": method}}).dapo
    assert yaml.safe_load("\n".join(keys(EvalSpec)))["decodings"] == "rl"


@pytest.mark.parametrize("spec", [SweepSpec, TrainingSweep])
def test_a_sweep_lacks_only_what_has_to_be_given(spec):
    lines = list(keys(spec))
    missing = {line.partition(":")[0] for line in lines if "# Required." in line and line[0] not in " #"}
    assert missing == {name for name, info in spec.model_fields.items() if info.is_required()}
    given = read("\n".join(lines))
    assert not missing & given.keys()
    if spec is SweepSpec:
        assert spec.model_validate({**given, **GIVEN}) == spec.model_validate(GIVEN)


@pytest.mark.parametrize("spec", [EvalSpec, SweepSpec, TrainSpec, TrainingSweep])
def test_every_key_says_what_it_means(spec):
    untold = [line for line in keys(spec) if "#" not in line.lstrip("# ") and not line.endswith(":")]
    assert untold == []


def test_another_kind_is_refused_with_the_nearest():
    assert "'sweep'" in refused("keys", "sweeps")
