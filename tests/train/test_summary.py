"""The summary over seeds, against numbers worked out by hand."""

import json

import numpy as np
import pytest

from harness.errors import UserError
from harness.stats import pass_sampling_error
from harness.train import load_train
from harness.train.folder import Input, TrainingFolder, write_json
from harness.train.summary import write_summary

STEP = {
    "step": 1, "accuracy": 0.25, "length": 30.0, "entropy": 0.4, "clip_fraction": 0.01, "weight": 1.1,
    "gradient_share": [0.2, 0.2, 0.1, *[0.0] * 6, 0.5], "token_share": [0.1, *[0.0] * 8, 0.9],
    "groups": {"rounds": 2, "kept": 16, "dropped": 5, "empty": 0}, "seconds": 3.0,
}  # fmt: skip


def score(avg):
    return {"t": {"samples": 8, "problems": 10, "avg": avg, "error": 0.1, "pass": avg + 0.1, "tokens": 30.0}}


def training(path, averages, **dapo):
    spec = load_train({"dapo": dapo, "seeds": list(averages), "validation": {"tasks": ["t"]}})
    folder = TrainingFolder(path)
    path.mkdir()
    write_json(folder.base, score(0.3))
    for seed, avg in averages.items():
        one = folder.seed(seed)
        facts = {"accuracy": [0.2, 0.5], "length": [30.0, 33.0], "seconds": 10.0, "reweighting_seconds": 0.05}
        write_json(one.done, {**facts, "scores": score(avg)})
        one.append(STEP)
        one.append({**STEP, "step": 2, "weight": None, "gradient_share": [0.0] * 10, "token_share": [0.0] * 10})
    return folder, spec


def rows(text):
    """The cells of all tables, without their heads."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    rules = [i for i, line in enumerate(lines) if set("".join(line)) <= set(":-")]
    return [line for i, line in enumerate(lines) if i not in rules and i + 1 not in rules]


def test_three_seeds_paired_with_another_training(tmp_path):
    write_summary(*training(tmp_path / "dapo", {0: 0.5, 1: 0.6, 2: 0.4}))
    folder, spec = training(tmp_path / "ours", {0: 0.52, 1: 0.63, 2: 0.47, 3: 0.9}, method="low_prob")
    before = json.loads((tmp_path / "dapo" / "summary.json").read_text())
    del before["training"]["validation"]["watch"]  # as a version before 2026-11-22 wrote it
    write_json(tmp_path / "dapo" / "summary.json", before)
    found = write_summary(folder, spec, tmp_path / "dapo")
    row = found["benchmarks"]["t"]["avg"]
    assert row["mean"] == pytest.approx(0.63)
    assert row["gain"]["mean"] == pytest.approx(0.33)
    against = row["against"]
    assert against["seeds"] == ["0", "1", "2"]
    assert against["mean"] == pytest.approx(0.04)  # .02, .03, .07
    # sd = .026458, error = .015275, t(.975, 2) = 4.3027
    assert against["interval"] == pytest.approx([0.04 - 0.065724, 0.04 + 0.065724], abs=1e-4)
    assert against["p"] == 0.25
    text = (folder.path / "summary.md").read_text()
    assert text.startswith("# ours: low_prob α0.2 from tiny, ")
    first, second, *seeds = rows(text)
    assert first == [
        "t (10 problems)",
        "Avg@8",
        "30.0",
        "63.0 [32.4, 93.6]",
        "+33.0 [2.4, 63.6]",
        "+4.0 [-2.6, 10.6]",
        "0.25",
        "0.50",
    ]
    assert second[1] == "Pass@4"  # its difference is the same, so Holm doubles both p values
    assert against["holm_p"] == 0.5
    assert seeds[0][:7] == [
        "0", "0.200 → 0.500", "30.0 → 33.0", "0.400 → 0.400", "1.00%", "1.100", "50% (10% of tokens)"
    ]  # fmt: skip
    assert "Reweighting took 0.50 % of the time" in text
    assert json.loads((folder.path / "summary.json").read_text())["label"] == "low_prob α0.2"


def test_a_training_that_was_validated_on_other_problems_is_refused(tmp_path):
    folder, spec = training(tmp_path / "ours", {0: 0.5})
    other, _ = training(tmp_path / "dapo", {0: 0.5})
    write_summary(other, spec)
    for each, digest in ((folder, "aa"), (other, "bb")):
        held = Input("held.jsonl", digest, judges=True)
        each.settle(spec, {"data": Input("train.jsonl", digest, judges=False), "validation.tasks t": held})
    with pytest.raises(UserError, match=r"other content of held.jsonl \(validation.tasks t: bb, here aa\)"):
        write_summary(folder, spec, other.path)


def test_a_single_seed_has_no_interval(tmp_path):
    folder, spec = training(tmp_path / "one", {0: 0.5})
    found = write_summary(folder, spec)
    assert found["benchmarks"]["t"]["avg"]["interval"] is None
    assert rows((folder.path / "summary.md").read_text())[0] == ["t (10 problems)", "Avg@8", "30.0", "50.0", "+20.0"]


def test_the_gain_over_base_has_an_interval_over_problems(tmp_path):
    """Six problems x 8 samples, two seeds: differences of 2, 3, 1, 4, 2 and 3 eighths on average."""
    folder, spec = training(tmp_path / "one", {0: 0.5, 1: 0.5})

    def counted(file, *right):
        scores = json.loads(file.read_text())
        mine = scores.get("scores", scores)["t"]
        mine |= {"right": dict(zip("abcdef", right, strict=True)), "avg": sum(right) / 48, "limited": "6 of 9 problems"}
        write_json(file, scores)

    counted(folder.base, 2, 0, 4, 1, 3, 2)
    counted(folder.seed(0).done, 4, 2, 6, 4, 5, 5)
    counted(folder.seed(1).done, 4, 4, 4, 6, 5, 5)
    found = write_summary(folder, spec)
    over = found["benchmarks"]["t"]["avg"]["over_problems"]
    assert over["mean"] == pytest.approx(found["benchmarks"]["t"]["avg"]["gain"]["mean"]) == pytest.approx(15 / 48)
    # sd = .131101, error = .053522, t(.975, 5) = 2.5706
    assert over["interval"] == pytest.approx([0.3125 - 0.137582, 0.3125 + 0.137582], abs=1e-4)
    assert (over["p"], over["n"]) == (2 / 64, 6)
    # over seeds: sd .029463 / sqrt 2 and base's sampling error .062002, together .065408; 33.9 degrees of freedom
    gain = found["benchmarks"]["t"]["avg"]["gain"]
    assert gain["interval"] == pytest.approx([0.3125 - 0.13295, 0.3125 + 0.13295], abs=1e-4)
    assert gain["p"] == 0.5  # by the signs of two seeds; by t, with base's error, less than 0.001
    of_pass = found["benchmarks"]["t"]["pass"]["gain"]
    right = np.array([2, 0, 4, 1, 3, 2])
    assert of_pass["of_base"] == pytest.approx(pass_sampling_error(np.arange(8) < right[:, None], 4))
    assert of_pass["interval"][1] - of_pass["mean"] > 2 * of_pass["of_base"]  # which Pass@4 was without
    assert [one["holm_p"] for one in (gain, of_pass)] == [1.0, 1.0]
    assert "in the intervals of trained - base." in (folder.path / "summary.md").read_text()
    first, second, *_ = rows((folder.path / "summary.md").read_text())
    assert (first[0], first[2], first[5:]) == ("t (6 of 9 problems)", "25.0", ["[+17.5, +45.0]", "0.031"])
    assert second[5:] == ["", ""]


def test_what_cannot_be_compared_is_refused(tmp_path):
    mine = training(tmp_path / "mine", {0: 0.5})
    with pytest.raises(UserError, match=r"has no summary.json"):
        write_summary(*mine, tmp_path / "none")
    write_summary(*training(tmp_path / "other", {1: 0.5}))
    with pytest.raises(UserError, match="has none of these seeds: 0"):
        write_summary(*mine, tmp_path / "other")
    folder, _ = training(tmp_path / "long", {0: 0.5})
    longer = load_train({"validation": {"tasks": ["t"], "limit": 5}})
    write_summary(folder, longer)
    with pytest.raises(UserError, match="was validated in another way"):
        write_summary(*mine, folder.path)
