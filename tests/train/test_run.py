"""A whole training: what it leaves behind, and that an interrupted one ends with the very same weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_dir.checkpoints.adapter import trained_on
from rlvr_dir.checkpoints.rewrite import whole as whole_rl
from rlvr_dir.config import Pair
from rlvr_dir.tiny import tiny_pair
from rlvr_dir.tiny.problems import rl_problems
from rlvr_dir.train import TrainingSource, load_train, run_training
from rlvr_dir.train.folder import MARK, SeedFolder
from rlvr_dir.train.summary import taught_nothing
from tests.commands import invoke, run
from tests.facts import refuses

# 8 problems, 4 a step: an epoch has 2 steps, and a run of 5 goes through three orders of them.
SPEC = {
    "dapo": {
        "steps": 5, "prompts": 4, "samples": 8, "minibatches": 2, "max_response_tokens": 40, "learning_rate": 1e-4,
        "method": "low_prob", "top_p": 0.98, "warmup_updates": 3,
    },
    "validation": {"tasks": ["made_up"], "every": 2},
}  # fmt: skip
SCORE = {"samples": 4, "problems": 2, "avg": 0.5, "error": 0.1, "pass": 0.75, "tokens": 30.0, "truncated": 0.0}


def source(validate=None):
    return TrainingSource(tiny_pair().base, lambda seed: rl_problems(seed, 8), validate)


def quiet(text):
    pass


def weights(folder):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def same(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


def without_times(records):
    return [{k: v for k, v in record.items() if "seconds" not in k} for record in records]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out, asked = tmp_path_factory.mktemp("train") / "whole", []

    def validate(base, rl, mode, folder):
        torch.rand(7)  # a validation that draws
        AutoModelForCausalLM.from_pretrained(rl)
        asked.append((mode, Path(rl).name))
        return {"made_up": {**SCORE, "avg": 0.5 if mode == "base" else 0.75}}

    summary = run_training(load_train(SPEC), out, source(validate), say=quiet)
    return out, summary, asked


def test_what_a_training_leaves(uninterrupted):
    out, summary, asked = uninterrupted
    seed = SeedFolder(out / "seed-0")
    assert asked == [("base", "base"), ("rl", "validation"), ("rl", "validation"), ("rl", "rl")]
    assert sorted(path.name for path in seed.path.iterdir()) == ["done.json", "log.jsonl", "pair.json", "results", "rl"]
    pair = Pair.of_folder(seed.path)
    assert (pair.base, pair.rl) == (tiny_pair().base, str(seed.rl.resolve()))
    assert len(AutoTokenizer.from_pretrained(pair.rl)) == len(AutoTokenizer.from_pretrained(pair.base))
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in seed.rl.iterdir())
    assert summary.benchmarks["made_up"]["avg"].gain["mean"] == pytest.approx(0.25)


def test_the_log_has_a_line_a_step(uninterrupted):
    records = SeedFolder(uninterrupted[0] / "seed-0").records()
    steps = [record for record in records if "validation" not in record]
    assert [record["step"] for record in steps] == [1, 2, 3, 4, 5]
    assert [record["step"] for record in records if "validation" in record] == [2, 4, 5]
    for record in steps:
        assert 0 <= record["accuracy"] == record["reward"] <= 1
        assert 1 < record["weight"] < 1.2
        assert sum(record["gradient_share"]) == pytest.approx(1, abs=1e-4)
        assert 0 < record["reweighting_seconds"] < record["seconds"]
        groups = record["groups"]
        assert groups["kept"] + groups["empty"] == 4
    assert [round(record["learning_rate"] * 1e4, 3) for record in steps[:3]] == [0.333, 1.0, 1.0]


def test_another_training_in_its_folder_is_refused(uninterrupted):
    other = {**SPEC, "dapo": {**SPEC["dapo"], "alpha": 0.5}}
    with refuses("dapo.alpha", "0.5", "0.2"):
        run_training(load_train(other), uninterrupted[0], source(), say=quiet)


def test_an_interrupted_training_goes_on_to_the_same_weights(uninterrupted, tmp_path):
    """Stopped in the second of three epochs, then moved; the other run was validated, this one is not: none of it may
    matter. Moved again when it is done, its pair still opens."""

    def stop(base, rl, mode, folder):
        if mode == "base":
            return {"made_up": SCORE}
        raise KeyboardInterrupt

    spec, told = load_train({**SPEC, "validation": {"tasks": ["made_up"], "every": 4}}), []
    with pytest.raises(KeyboardInterrupt):
        run_training(
            spec, tmp_path / "begun", source(stop), say=quiet, on_record=lambda seed, record: told.append(record)
        )
    moved = (tmp_path / "begun").rename(tmp_path / "moved")
    seed = SeedFolder(moved / "seed-0")
    assert seed.last_checkpoint()[0] == 3  # the fourth step's line is in the log, its checkpoint is not
    assert seed.records() == told
    assert len(told) == 4
    with seed.log.open("a") as log:
        log.write('{"step": 4, "accu')  # as a kill leaves it
    (seed.checkpoints / "checkpoint-8").mkdir()  # begun, never marked
    said = []
    run_training(spec, moved, source(lambda *_: {"made_up": SCORE}), say=said.append)
    assert "seed 0: resuming after step 3" in said
    assert same(weights(seed.rl), weights(uninterrupted[0] / "seed-0" / "rl"))
    whole, this = (
        without_times(record for record in folder.records() if "validation" not in record)
        for folder in (SeedFolder(uninterrupted[0] / "seed-0"), seed)
    )
    assert whole == this
    place = moved.rename(tmp_path / "done") / "seed-0"
    pair = Pair.of_folder(place)
    assert (pair.base, pair.rl) == (tiny_pair().base, str(place / "rl"))
    assert SeedFolder(place).outcome()


@pytest.mark.whole(reason="trainings of its own")
def test_the_trained_model_can_be_the_best_checkpoint_or_a_step(tmp_path):
    """The best of three by their scores is the second, also after an interruption; its weights are that step's."""
    scores, asked = [0.2, 0.9, 0.9], []

    def validate(base, rl, mode, folder):
        if mode == "base":
            return {"made_up": SCORE}
        asked.append(Path(rl).relative_to(tmp_path / "best" / "seed-0").as_posix())
        if len(asked) == 3:
            raise KeyboardInterrupt
        return {"made_up": {**SCORE, "avg": scores[0] if len(asked) == 1 else 0.9}}

    dapo = {**SPEC["dapo"], "steps": 3}
    best = {"dapo": dapo, "validation": {"tasks": ["made_up"], "every": 1}, "checkpoint": "best(made_up)"}
    with pytest.raises(KeyboardInterrupt):
        run_training(load_train(best), tmp_path / "best", source(validate), say=quiet)
    seed = SeedFolder(tmp_path / "best" / "seed-0")
    assert sorted(path.name for path in seed.chosen.iterdir()) == ["2", "3"]
    run_training(load_train(best), tmp_path / "best", source(validate), say=quiet)
    assert asked == ["validation", "validation", "chosen/3", "chosen/3", "rl"]
    assert json.loads(seed.choice.read_text()) == {"checkpoint": "best(made_up)", "step": 2}
    assert (seed.outcome()["step"], seed.chosen.exists()) == (2, False)
    assert [record["step"] for record in seed.records() if "validation" in record] == [1, 2, 3]
    run_training(load_train({"dapo": dapo, "checkpoint": 2}), tmp_path / "two", source(), say=quiet)
    run_training(load_train({"dapo": dapo}), tmp_path / "last", source(), say=quiet)
    two, last = (weights(tmp_path / name / "seed-0" / "rl") for name in ("two", "last"))
    assert same(weights(seed.rl), two)
    assert not same(two, last)


def test_checkpoints_can_be_rarer_and_kept(tmp_path):
    dapo = {**SPEC["dapo"], "steps": 3}
    run_training(
        load_train({"dapo": dapo, "checkpoint_every": 2, "keep_checkpoints": True}), tmp_path, source(), say=quiet
    )
    kept = tmp_path / "seed-0" / "checkpoints" / "checkpoint-4"
    assert json.loads((kept / MARK).read_text())["step"] == 2
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    assert weights(kept)


def test_too_few_problems_are_refused_before_anything_loads(tmp_path):
    with refuses("dapo.prompts", "16", "8"):
        run_training(load_train({}), tmp_path / "none", source(), say=quiet)
    assert not (tmp_path / "none").exists()


@pytest.mark.whole(reason="trainings of its own")
def test_adapters_are_trained_saved_as_such_or_merged_and_gone_on_with(tmp_path):
    """Low-rank adapters on every projection: adapters come out, the same ones after an interruption."""
    pytest.importorskip("peft", reason="peft is not installed")

    def stop(base, rl, mode, folder):
        if mode == "rl":
            assert trained_on(rl) is not None
            raise KeyboardInterrupt
        return {"made_up": SCORE}

    def go_on(*_):
        return {"made_up": SCORE}

    asked = {**SPEC, "dapo": {**SPEC["dapo"], "steps": 3}, "lora": {"rank": 4}}
    with pytest.raises(KeyboardInterrupt):
        run_training(load_train(asked), tmp_path / "killed", source(stop), say=quiet)
    said = []
    run_training(load_train(asked), tmp_path / "killed", source(go_on), say=said.append)
    assert "seed 0: resuming after step 1" in said
    merged = {**asked, "lora": {"rank": 4, "merge": True}}
    run_training(load_train(merged), tmp_path / "whole", source(go_on), say=quiet)
    adapter, whole = (tmp_path / name / "seed-0" / "rl" for name in ("killed", "whole"))
    assert not list(adapter.glob("model*"))
    base = AutoModelForCausalLM.from_pretrained(tiny_pair().base).state_dict()
    with whole_rl(Pair(base=tiny_pair().base, rl=str(adapter))) as pair:
        decoded = AutoModelForCausalLM.from_pretrained(pair.rl).state_dict()
    changed = set()
    for name, weight in weights(whole).items():
        torch.testing.assert_close(decoded[name], weight, rtol=0, atol=1e-7)
        changed |= set() if torch.equal(weight, base[name]) else {name}
    assert changed
    assert all("_proj." in name for name in changed)
    asked = ["--tasks", "tiny_easy", "--limit", "1", "--samples", "1", "--max-tokens", "8", "--backend", "transformers"]
    out = ["--no-track", "--out", str(tmp_path / "eval")]
    run("eval", "--pair", tmp_path / "killed" / "seed-0", *asked, *out)


def test_a_training_that_kept_no_group_says_so_loudly(tmp_path):
    """No answer is ever right: no group has an advantage, and nothing is learned."""
    said, problems = [], [{**row, "answer": "123456"} for row in rl_problems(0, 8)]
    spec = load_train({"dapo": {**SPEC["dapo"], "steps": 1, "max_response_tokens": 4}, "validation": {"tasks": []}})
    run_training(spec, tmp_path, TrainingSource(tiny_pair().base, lambda seed: problems, None), say=said.append)
    sentence = taught_nothing(1, 1)
    assert f"warning: seed 0: {sentence}" in said
    assert sum(line.startswith("warning: seed 0: ") for line in said) == 2  # the other: the weights equal base's
    assert f"\nSeed 0: {sentence}" in (tmp_path / "summary.md").read_text()


def test_a_base_of_two_sets_of_weights_is_refused_before_it_is_trained(tmp_path):
    base = shutil.copytree(tiny_pair().base, tmp_path / "base")
    for number in (1, 2):
        shutil.copy(base / "model.safetensors", base / f"model-0000{number}-of-00002.safetensors")
    source = TrainingSource(str(base), lambda seed: rl_problems(0, 8), None)
    with refuses("base", "model.safetensors", "2"):
        run_training(load_train({**SPEC, "validation": {"tasks": []}}), tmp_path / "out", source)
    assert not (tmp_path / "out").exists()


def test_the_command_ends_with_an_error_where_every_step_taught_nothing(tmp_path):
    """It ended as any other, and a script went on with the base for a trained model."""
    data = tmp_path / "wrong.jsonl"
    rows = [{"problem": f"Ann has {i} pens .", "answer": "123456"} for i in range(8)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {**SPEC["dapo"], "steps": 1, "max_response_tokens": 4}
    changes = [word for name, value in settings.items() for word in ("--set", f"dapo.{name}={json.dumps(value)}")]
    command = ["train", "--data", data, "--validate", "none", "--no-track", "--out", tmp_path / "out", *changes]
    for _ in range(2):  # the second finds all of it done
        done = invoke(*command)
        assert done.exit_code == 1, (done.output, done.exception)
        assert f"error: seed 0: {taught_nothing(1, 1)}" in done.output
    assert (tmp_path / "out/seed-0/rl/config.json").is_file()
