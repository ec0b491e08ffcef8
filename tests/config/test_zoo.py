"""The zoo and the checkpoints of trainings: its file is whole, names work wherever a pair is named, and mistakes."""

import pytest
from transformers import AutoConfig

from rlvr_dir.checkpoints.memory import ModelShape
from rlvr_dir.config import Pair, find_pair, load_eval, parse, preset, zoo
from rlvr_dir.config.checkpoints import checkpoints_of
from rlvr_dir.config.pair import pair_of
from rlvr_dir.config.published import PUBLISHED
from rlvr_dir.config.zoo import ZooPair
from rlvr_dir.sweep.specs import load
from tests.facts import refuses

ORZ = {
    "base": "Qwen/Qwen2.5-7B", "rl": "Open-Reasoner-Zero/Open-Reasoner-Zero-7B", "method": "PPO", "size": 7.6,
    "type": "qwen2", "licence": "mit", "context": [131072, 131072], "vocabulary": [152064, 152064],
    "precision": ["bfloat16", "bfloat16"], "template": [True, True],
}  # fmt: skip


def test_the_zoo_is_one_place_with_the_papers_pairs_first():
    assert list(zoo())[:3] == ["dapo-32b", "orz-32b", "unireason-14b"]
    assert len(zoo()) >= 20
    assert len({(pair.base, pair.rl) for pair in zoo().values()}) == len(zoo()), "no pair has two names"


@pytest.mark.parametrize("fact", ["licence", "context", "vocabulary", "precision", "template"])
def test_what_is_not_known_has_to_be_marked(fact):
    assert parse(ZooPair, ORZ).unverified == ()
    for value in (None, [None, ORZ[fact][1]]) if isinstance(ORZ[fact], list) else (None,):
        with refuses("rl", "Open-Reasoner-Zero/Open-Reasoner-Zero-7B", fact):
            parse(ZooPair, ORZ | {fact: value})
        assert parse(ZooPair, ORZ | {fact: value, "unverified": [fact]}).unverified == (fact,)


@pytest.mark.parametrize("name", zoo())
def test_sizes_context_and_vocabulary_are_those_of_the_configuration_that_is_known(name):
    pair = zoo()[name]
    if pair.base not in PUBLISHED:
        assert "size" in pair.unverified
        return
    kind, fields = PUBLISHED[pair.base]
    sizes = ModelShape.of(AutoConfig.for_model(kind, **fields))
    assert round(sizes.parameters / 1e9, 1) == pair.size
    assert kind == pair.type
    assert (pair.context or [None])[0] in (None, sizes.context)
    assert (pair.vocabulary or [None])[0] in (None, sizes.vocab)


def test_a_checkpoint_of_a_training_is_named_behind_an_at():
    whole = preset("nemotron-1.5b")
    assert (whole.rl, whole.rl_revision) == ("nvidia/Nemotron-Research-Reasoning-Qwen-1.5B", None)
    assert preset("nemotron-1.5b@brorl") == whole.replace(rl_revision="brorl")
    assert preset("orz-7b@1eae6d1").rl_revision == "1eae6d1", "any revision of the repository"
    step = preset("rlvr-math-1.5b@700")
    assert (step.rl.rpartition("-")[2], step.rl_revision) == ("700", None), "a repository of its own"
    for nobody in ("orz-7b@", "nobody@700", "", None):
        assert preset(nobody) is None
    with refuses("pair", "orz7b", "orz-7b"):
        find_pair("orz7b")


def test_names_work_wherever_a_pair_is_named():
    named = "nemotron-1.5b@brorl"
    pair = preset(named)
    assert pair_of({"pair": named}) == pair
    assert pair_of({"pair": "nemotron-1.5b", "revision": "brorl"}) == pair
    assert load_eval({"tasks": ["aime24"], "pair": named}).pair == pair
    sweep = {
        "name": "steps", "tasks": ["aime24"], "decode": {"mode": "replace"}, "method": "grid",
        "pair": ["rlvr-math-1.5b@700", "rlvr-math-1.5b@800"], "parameters": {"decode.tau": {"values": [-0.3]}},
        "metric": {"name": "avg_at_32", "goal": "maximize"},
    }  # fmt: skip
    found = load(sweep)
    assert list(found.pair) == sweep["pair"]
    assert [each.rl[-3:] for each in found.pairs.values()] == ["700", "800"]


def test_checkpoints_are_named_presets_folders_or_revisions_with_a_base(tmp_path):
    """Take names without a step, which were refused with an option that no command has."""
    assert checkpoints_of(["tiny@2", "tiny@8"]) == [(name, preset(name)) for name in ("tiny@2", "tiny@8")]
    (tmp_path / "run@1" / "step-4").mkdir(parents=True)
    folder = str(tmp_path / "run@1" / "step-4")
    pairs = dict(checkpoints_of(["org/run@step_2", folder], {"base": "org/base", "base_revision": "v1"}))
    assert list(pairs.values()) == [
        Pair(base="org/base", base_revision="v1", rl="org/run", rl_revision="step_2"),
        Pair(base="org/base", base_revision="v1", rl=folder),
    ]
    assert [name for name, _ in checkpoints_of(["org/b", "org/a"], {"base": "org/base"})] == ["b", "a"]
    names = ["run/2/actor", "run/4/actor"]
    assert [name for name, _ in checkpoints_of(names, {"base": "org/base"})] == names, "not actor twice"


@pytest.mark.parametrize(
    ("names", "options", "sentence"),
    [
        ([], {"base": "org/base"}, "rl []"),
        (["org/a@1"], {}, "base org/a@1 BASE"),
        (["tiny@2", "rlvr-math-1.5b@700"], {}, "tiny@base"),
        (["tiny@2"], {"pair": "orz-7b"}, "pair orz-7b"),
        (["tiny@2"], {"base": "b"}, "base tiny@2 tiny@base"),
    ],
)
def test_what_is_no_training_is_one_sentence(names, options, sentence):
    with refuses(*sentence.split()):
        checkpoints_of(names, options)


def test_a_sweep_takes_the_checkpoints_of_a_training_one_by_one():
    sweep = {
        "name": "steps", "tasks": ["aime24"], "decode": {"mode": "replace"}, "method": "grid",
        "pair": {"base": "org/base", "rl": ["org/run@step_100", "org/run@step_200"]},
        "parameters": {"decode.tau": {"values": [-0.3]}}, "metric": {"name": "avg_at_32", "goal": "maximize"},
    }  # fmt: skip
    found = load(sweep).pairs
    assert list(found) == ["org/run@step_100", "org/run@step_200"]
    assert found["org/run@step_200"] == Pair(base="org/base", rl="org/run", rl_revision="step_200")
