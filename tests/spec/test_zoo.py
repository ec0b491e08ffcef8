"""The zoo and the checkpoints of trainings: its file is whole, names work wherever a pair is named, and mistakes."""

import pytest
from transformers import AutoConfig

from harness.decode.memory import ModelShape
from harness.errors import UserError
from harness.spec import Pair, find_pair, load_eval, parse, preset, zoo
from harness.spec.pair import pair_of
from harness.spec.published import KNOWN
from harness.spec.trajectory import trajectory_of
from harness.spec.zoo import ZooPair
from harness.sweep.specs import load

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
        with pytest.raises(
            UserError, match=f"{fact} is not known of rl='Open-Reasoner-Zero/Open-Reasoner-Zero-7B', so"
        ):
            parse(ZooPair, ORZ | {fact: value})
        assert parse(ZooPair, ORZ | {fact: value, "unverified": [fact]}).unverified == (fact,)


@pytest.mark.parametrize("name", zoo())
def test_sizes_context_and_vocabulary_are_those_of_the_configuration_that_is_known(name):
    pair = zoo()[name]
    if pair.base not in KNOWN:
        assert "size" in pair.unverified
        return
    kind, fields = KNOWN[pair.base]
    sizes = ModelShape.of(AutoConfig.for_model(kind, **fields))
    assert round(sizes.parameters / 1e9, 1) == pair.size
    assert kind == pair.type
    assert (pair.context or [None])[0] in (None, sizes.context)
    assert (pair.vocabulary or [None])[0] in (None, sizes.vocab)


def test_a_checkpoint_of_a_trajectory_is_named_behind_an_at():
    whole = preset("nemotron-1.5b")
    assert (whole.rl, whole.rl_revision) == ("nvidia/Nemotron-Research-Reasoning-Qwen-1.5B", None)
    assert preset("nemotron-1.5b@brorl") == whole.replace(rl_revision="brorl")
    assert preset("orz-7b@1eae6d1").rl_revision == "1eae6d1", "any revision of the repository"
    step = preset("rlvr-math-1.5b@700")
    assert (step.rl.rpartition("-")[2], step.rl_revision) == ("700", None), "a repository of its own"
    for nobody in ("orz-7b@", "nobody@700", "", None):
        assert preset(nobody) is None
    with pytest.raises(UserError, match=r"pair='orz7b' is not known; .*did you mean 'orz-7b'"):
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


def test_a_pair_that_lists_its_checkpoints_is_a_trajectory():
    tiny = trajectory_of()
    assert [each.name for each in tiny] == ["tiny@2", "tiny@4", "tiny@6", "tiny@8"]
    assert tiny == trajectory_of([], {"pair": "tiny"}) == trajectory_of([each.name for each in tiny])
    assert [each.step for each in tiny] == [2, 4, 6, 8]
    listed = trajectory_of([], {"pair": "rlvr-math-1.5b"})
    assert [each.name for each in listed] == ["rlvr-math-1.5b@700", "rlvr-math-1.5b@800"]
    assert listed[1].pair.rl.endswith("step-800")


def test_checkpoints_are_folders_or_revisions_with_a_base(tmp_path):
    (tmp_path / "run@1" / "step-4").mkdir(parents=True)
    folder = str(tmp_path / "run@1" / "step-4")
    found = trajectory_of(["org/run@step_2", folder], {"base": "org/base", "base_revision": "v1"})
    assert [each.step for each in found] == [2, 4]
    assert found[0].pair == Pair(base="org/base", base_revision="v1", rl="org/run", rl_revision="step_2")
    assert found[1].pair == Pair(base="org/base", base_revision="v1", rl=folder)
    named = trajectory_of(["org/a", "org/b"], {"base": "org/base"}, steps=[10, 30])
    assert [(each.name, each.step) for each in named] == [("a", 10), ("b", 30)]
    alike = trajectory_of(["run/2/actor", "run/4/actor"], {"base": "org/base"}, steps=[2, 4])
    assert [each.name for each in alike] == ["run/2/actor", "run/4/actor"], "not actor twice"


@pytest.mark.parametrize(
    ("names", "options", "steps", "said"),
    [
        ([], {"pair": "orz-7b"}, None, r"pair='orz-7b' lists no checkpoints by step; accepted: pair=tiny or rlvr-math"),
        ([], {"base": "org/base"}, None, r"base='org/base' lists no checkpoints"),
        (["org/a@1"], {}, None, r"checkpoint 'org/a@1' has no base: give --base BASE"),
        (["org/Qwen-1.5B"], {"base": "b"}, None, r"does not end in its step \(as in step-400\); give --steps"),
        (["tiny@4", "tiny@2"], {}, None, r"steps=4, 2 do not rise from above 0"),
        (["tiny@4", "tiny@6"], {}, [1], r"are 1 numbers for 2 checkpoints"),
        (["tiny@2", "rlvr-math-1.5b@700"], {}, None, r"they have two bases, 'tiny@base' and 'deepseek"),
        (["tiny@2"], {"pair": "orz-7b"}, None, r"pair='orz-7b' has no effect where checkpoints are named"),
        (["tiny@2"], {"base": "b"}, None, r"base='b' is not that of 'tiny@2', 'tiny@base'; leave it out"),
        (["tiny@2"], {"pair": "tiny", "base": "b"}, None, r"pair='tiny' and base='b' name two pairs"),
    ],
)
def test_what_is_no_trajectory_is_one_sentence(names, options, steps, said):
    with pytest.raises(UserError, match=said):
        trajectory_of(names, options, steps)


def test_a_sweep_takes_the_checkpoints_of_a_training_one_by_one():
    sweep = {
        "name": "steps", "tasks": ["aime24"], "decode": {"mode": "replace"}, "method": "grid",
        "pair": {"base": "org/base", "rl": ["org/run@step_100", "org/run@step_200"]},
        "parameters": {"decode.tau": {"values": [-0.3]}}, "metric": {"name": "avg_at_32", "goal": "maximize"},
    }  # fmt: skip
    found = load(sweep).pairs
    assert list(found) == ["org/run@step_100", "org/run@step_200"]
    assert found["org/run@step_200"] == Pair(base="org/base", rl="org/run", rl_revision="step_200")
