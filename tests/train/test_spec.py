"""A training that cannot work is refused in one sentence, before anything loads."""

import json

import pytest
import yaml

from examples.tiny.recipe import TINY_DAPO
from rlvr_dir.errors import UserError
from rlvr_dir.train import DapoSettings, TrainSpec, load_train
from rlvr_dir.train.data import read_problems
from rlvr_dir.train.folder import TrainingFolder
from rlvr_dir.train.spec import Validation, check_machine, plain
from rlvr_dir.train.training import plan_training
from tests.facts import refuses, states


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"dapo": {"prompts": 3, "samples": 5}}, "minibatches 4"),
        ({"dapo": {"overlong_buffer": 500}}, "overlong_buffer=500"),
        ({"dapo": {"alpha": 0.1}}, "alpha=0.1"),
        (
            {"dapo": {"prompts": 4, "samples": 4, "minibatches": 4, "accumulation": 3}},
            "accumulation=12",
        ),
        ({"dapo": {"samples": 1}}, "dapo.samples=1"),
        ({"dapo": {"learning_rte": 1e-4}}, "learning_rte learning_rate"),
        ({"dapo": {"top_p": 0}}, "dapo.top_p=0"),
        ({"dapo": {"method": "lowprob"}}, "dapo.method lowprob low_prob"),
        ({"dapo": {"method": "dominate", "alpha": 1.5}}, "alpha=1.5"),
        ({"dapo": {"method": "ppl", "pi_source": "current"}}, "pi_source current"),
        ({"dapo": {"method": "low_prob", "ppl_scope": "group"}}, "ppl_scope group"),
        ({"dapo": {"grader": "strict"}}, "dapo.grader strict"),
        ({"dapo": {"seed": 1}}, "dapo.seed=1"),
        ({"dapo": {"top_pp": 1}}, "top_pp dapo top_p"),
        ({"dapo": {"top_p": 1.5}}, "dapo.top_p 1.5"),
        ({"dapo": 3}, "dapo=3"),
        ({"seed": [1]}, "seed training seeds"),
        ({"seeds": [1, 1]}, "seeds="),
        ({"seeds": [-1]}, "seeds [-1]"),
        ({"base": "/nope"}, "base /nope"),
        ({"base": "Qwen/Qwen2.5-Math-7B"}, "data tiny"),
        ({"validation": {"every": 2}}, "validation.every=2"),
        ({"validation": {"sampling": {"samples": 0}}}, "validation.sampling.samples 0"),
        ({"checkpoint": "bset(a)"}, "checkpoint='bset(a)'"),
        ({"checkpoint": 99}, "checkpoint=99"),
        ({"checkpoint": "best(a)", "validation": {"tasks": ["a"]}}, "validation.every"),
        ({"vllm": {"mode": "server"}}, "vllm.mode server"),
        ({"lora": {}, "dapo": {"beta": 0.1}}, "beta=0.1"),
        ([1], "training mapping"),
    ],
)
def test_mistakes_are_named(data, message):
    with pytest.raises(UserError) as caught:
        load_train(data)
    states(caught.value, *message.split())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"vllm": {}}, "vllm GPU"),
        ({"device": "cuda"}, "device cuda"),
        ({"bf16": True}, "bf16 True"),
        ({"lora": {"rank": 4}}, "lora.rank 4"),
    ],
)
def test_what_the_machine_lacks_is_named(data, message, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "peft" else True)
    with refuses(*message.split()):
        check_machine(load_train(data))


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refuses("WORLD_SIZE", "2"):
        check_machine(TrainSpec())


def test_plain_values_are_read_back():
    data = {
        "seeds": [1, 2], "dapo": {"method": "dominate"}, "lora": {"rank": 8}, "vllm": {}, "base": "b",
        "data": "d.jsonl",
        "validation": {"tasks": "tiny_easy, tiny_hard", "sampling": {"samples": 4}},
    }  # fmt: skip
    spec = load_train(data)
    assert spec.validation.tasks == ("tiny_easy", "tiny_hard")
    assert (spec.validation.sampling.samples, spec.validation.sampling.top_p) == (4, 0.7)
    assert spec.dapo.clip_high == 0.24
    assert load_train(yaml.safe_load(yaml.safe_dump(plain(spec)))) == spec


def test_problems_from_a_file(tmp_path):
    file = tmp_path / "problems.jsonl"
    rows = [{"problem": "1 + 1?", "answer": 2}, {"prompt": "Say 3.", "answer": "3"}]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert read_problems(file, load_train({"instruction": "\nThink."})) == [
        {"prompt": [{"role": "user", "content": "1 + 1?\nThink."}], "answer": "2"},
        {"prompt": "Say 3.", "answer": "3"},
    ]


def test_answers_that_no_response_can_match_are_named_before_a_training(tmp_path, capsys):
    file = tmp_path / "problems.jsonl"
    rows = [{"problem": "a", "answer": answer} for answer in ("2", r"\frac{1}{2}", r"\frac{1}{", r"{3")]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert len(read_problems(file, TrainSpec())) == 4
    said = capsys.readouterr().err
    states(said, "warning", "2 of 4", "dapo.grader", r"line 3, '\\frac{1}{'")
    file.write_text("\n".join(map(json.dumps, rows[2:])))
    with refuses("data", "2"):
        read_problems(file, TrainSpec())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"problem": "a"}', "2 answer problem"),
        ('{"problem": "a", "answer": null}', "2"),
        ('{"answer": "a"}', "2"),
        ("{", "2 JSON"),
        ("[]", "2 answer"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    file = tmp_path / "problems.jsonl"
    file.write_text(f'{{"problem": "a", "answer": "b"}}\n{line}\n')
    with refuses(*message.split()):
        read_problems(file, TrainSpec())
    with refuses("data", "none"):
        read_problems(tmp_path / "none", TrainSpec())


def test_the_tiny_default_is_how_the_shipped_model_was_trained(tmp_path):
    from rlvr_dir.cli.train import read

    file = tmp_path / "x.yaml"
    file.write_text("seeds: [0, 1]\ndapo: {method: low_prob, alpha: 0.5}\n")
    assert read(None, {}, []).dapo == TINY_DAPO
    changed = read(file, {"dapo.alpha": 0.1}, ["dapo.samples=8", "checkpoint_every=2"])
    assert (changed.dapo.steps, changed.dapo.alpha, changed.dapo.samples) == (TINY_DAPO.steps, 0.1, 8)
    assert (changed.seeds, changed.checkpoint_every) == ((0, 1), 2)
    assert changed.validation.tasks == ("tiny_medium",)
    assert read(None, {"validation.tasks": []}, []).validation.tasks == ()
    other = {"base": "some/model", "data": "x.jsonl"}
    assert read(None, other, []).dapo.steps == 16


def test_the_command_refuses_quickly_and_prints_its_training(typed):
    refused = typed("train", "--alpha", "0.2")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("error: --alpha 0.2 ")
    for words, option in {("--steps", "0"): "--steps 0", ("--rollout-top-p", "2"): "--rollout-top-p 2.0"}.items():
        assert typed("train", *words).stderr.splitlines()[-1].startswith(f"error: {option} ")
    states(typed("train", "--set", "dapo.steps=0").stderr, "error: dapo.steps=0 ")
    shown = typed("train", "--method", "ppl", "--seeds", "0,1", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    data = yaml.safe_load(shown.stdout)
    assert (data["dapo"]["alpha"], data["seeds"], data.pop("out")) == (0.01, [0, 1], "runs/train/ppl-0.01")
    assert load_train(data).dapo.method == "ppl"


def test_a_dry_run_opens_the_data_and_measures_time_on_steps_that_are_done(tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text('{"problem": "1 + 1", "answer": "2"}\n' * 3)
    spec = load_train({"base": "some/model", "data": str(few)})
    with refuses("dapo.prompts", "few.jsonl", "3"):
        plan_training(spec, tmp_path)
    with refuses("data", "no.jsonl"):
        plan_training(load_train({"base": "some/model", "data": str(tmp_path / "no.jsonl")}), tmp_path)
    few.write_text('{"problem": "1 + 1", "answer": "2"}\n' * 16)
    folder = TrainingFolder(tmp_path).seed(0)
    folder.path.mkdir()
    for step in (1, 2):
        measured = dict.fromkeys(("accuracy", "length", "entropy", "clip_fraction", "weight"), 1.0)
        folder.append({"step": step, "seconds": 30.0 * step, "groups": None, **measured})
    folder.append({"step": 2, "validation": {}})
    plan = plan_training(spec.replace(dapo={**spec.dapo.model_dump(), "dynamic_sampling": False}), tmp_path)
    [row] = plan.rows  # two of its sixteen steps are done
    assert (row.responses, row.cached, row.missing) == (16 * 256, 2 * 256, 14 * 256)
    assert row.most == row.missing * spec.dapo.max_response_tokens
    states(plan.text(), "45.0 s", "14 of 16", "10:30", f"{row.missing:,} of {row.responses:,}", f"{row.most:,}")
    filled = plan_training(spec, tmp_path).rows[0]  # dynamic sampling may need as many rounds for each step
    assert filled.responses == spec.dapo.max_generation_rounds * row.responses


def test_a_validation_may_be_drawn_otherwise_and_keeps_the_other_defaults():
    sampling = Validation(sampling={"top_p": 0.1}).sampling
    assert (sampling.top_p, sampling.samples, sampling.max_tokens) == (0.1, 8, 1024)
    assert {"temperature", "samples"} <= Validation(sampling={"seed": 1}).sampling.model_fields_set


@pytest.mark.parametrize(
    ("method", "alpha", "clip_high"),
    [("none", 0.0, 0.28), ("low_prob", 0.2, 0.28), ("dominate", 0.1, 0.24), ("ppl", 0.01, 0.28)],
)
def test_a_method_brings_the_papers_alpha_and_clip(method, alpha, clip_high):
    given = DapoSettings(method=method)
    assert (given.alpha, given.clip_high) == (alpha, clip_high)
    assert DapoSettings().replace(method=method) == given == given.replace(steps=16)
    assert DapoSettings(method="dominate").replace(method=method) == given
    assert given.hash() == DapoSettings(method=method, alpha=alpha, clip_high=clip_high).hash()


def test_what_is_given_stays():
    given = DapoSettings(method="dominate", alpha=0, clip_high=0.28)
    assert (given.alpha, given.clip_high) == (0, 0.28)
    assert given.replace(seed=3).clip_high == 0.28
