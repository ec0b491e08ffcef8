"""How the checkpoints of a training are named, and what is refused in a sentence."""

import pytest

from harness.errors import UserError
from harness.spec import Pair
from harness.spec.trajectory import trajectory_of
from harness.sweep.specs import load


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
