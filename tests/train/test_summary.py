"""The summary over seeds, against numbers worked out by hand."""

import numpy as np
import pytest

from rlvr_dir import stats
from rlvr_dir.stats import avg_at_k, pass_at_k
from rlvr_dir.train import load_train
from rlvr_dir.train.folder import TrainingFolder, write_json
from rlvr_dir.train.schemas import Input, SummaryFile
from rlvr_dir.train.summary import text, validation_scores, write_summary
from tests.facts import refuses

STEP = {
    "step": 1, "accuracy": 0.25, "length": 30.0, "entropy": 0.4, "clip_fraction": 0.01, "weight": 1.1,
    "gradient_share": [0.2, 0.2, 0.1, *[0.0] * 6, 0.5], "token_share": [0.1, *[0.0] * 8, 0.9],
    "groups": {"rounds": 2, "kept": 16, "dropped": 5, "empty": 0}, "seconds": 3.0,
}  # fmt: skip


def score(*right):
    """Scores of problems that have so many right samples of 8."""
    samples = [[1] * one + [0] * (8 - one) for one in right]
    facts = {"avg": avg_at_k(samples), "pass": pass_at_k(samples, 4), "right": dict(zip("abcdef", right, strict=False))}
    return {"t": {"samples": 8, "problems": len(right), "error": 0.1, "tokens": 30.0, **facts}}


BASE = (2, 0, 4, 1, 3, 2)


def training(path, trained, **dapo):
    spec = load_train({"dapo": dapo, "seeds": list(trained), "validation": {"tasks": ["t"]}})
    folder = TrainingFolder(path)
    path.mkdir()
    write_json(folder.base, score(*BASE))
    for seed, right in trained.items():
        one = folder.seed(seed)
        facts = {"accuracy": [0.2, 0.5], "length": [30.0, 33.0], "seconds": 10.0, "reweighting_seconds": 0.05}
        write_json(one.done, {**facts, "scores": score(*right)})
        one.append(STEP)
        one.append({**STEP, "step": 2, "weight": None, "gradient_share": [0.0] * 10, "token_share": [0.0] * 10})
    return folder, spec


def rows(text):
    """The cells of all tables, without their heads."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    rules = [i for i, line in enumerate(lines) if set("".join(line)) <= set(":-")]
    return [line for i, line in enumerate(lines) if i not in rules and i + 1 not in rules]


PLAIN = {0: (4, 2, 6, 4, 5, 5), 1: (4, 4, 4, 6, 5, 5), 2: (3, 3, 6, 5, 4, 6)}
OURS = {0: (5, 2, 6, 5, 5, 6), 1: (5, 4, 6, 6, 5, 6), 2: (4, 4, 6, 5, 4, 8), 3: (8, 8, 8, 8, 8, 8)}


def test_a_summary_says_that_its_checkpoints_were_chosen_by_its_scores(tmp_path):
    folder, spec = training(tmp_path / "best", PLAIN)
    spec = spec.model_copy(update={"checkpoint": "best(t)"})
    write_summary(folder, spec)
    assert "chosen by these very scores, best(t)" in (folder.path / "summary.md").read_text()


def test_three_seeds_paired_with_another_training(tmp_path):
    write_summary(*training(tmp_path / "dapo", PLAIN))
    folder, spec = training(tmp_path / "ours", OURS, method="low_prob")
    found = write_summary(folder, spec, tmp_path / "dapo")
    row = found.benchmarks["t"]["avg"]
    assert row.mean == pytest.approx(np.mean(list(OURS.values())) / 8)
    assert row.gain["mean"] == pytest.approx(row.mean - np.mean(BASE) / 8)
    against = row.against
    assert against["seeds"] == ["0", "1", "2"]  # of the other; all four of this one count
    assert against["mean"] == pytest.approx(row.mean - np.mean(list(PLAIN.values())) / 8)
    written = (folder.path / "summary.md").read_text()
    assert "it has seeds 0, 1, 2, and all of both count." in written
    assert "chosen by" not in written
    first, _, *seeds = rows(written)
    low, high = row.low, row.high
    assert (first[0], first[1], first[2]) == ("t (6 problems)", "Avg@8", "25.0")
    assert first[3] == f"{100 * row.mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    assert seeds[0][:7] == [
        "0", "0.200 → 0.500", "30.0 → 33.0", "0.400 → 0.400", "1.00%", "1.100", "50% (10% of tokens)"
    ]  # fmt: skip


def test_a_summary_is_read_by_the_class_that_wrote_it_and_says_the_same(tmp_path):
    write_summary(*training(tmp_path / "dapo", PLAIN))
    folder, spec = training(tmp_path / "ours", OURS, method="low_prob")
    summary = write_summary(folder, spec, tmp_path / "dapo")
    again = SummaryFile.from_file(folder.path / "summary.json")
    assert again == summary
    assert (folder.path / "summary.md").read_text() == f"# {text(again)}\n"
    assert not {"**", "# ", "\\", "&"} & {line[:2] for line in text(again).splitlines()}


def test_p_and_interval_of_three_seeds_agree_and_are_those_of_reports(tmp_path):
    """A gain of 4 to 6 of 8 in every problem and seed: by the signs of three seeds p could not be below 0.25."""
    folder, spec = training(tmp_path / "ours", {0: (7, 5, 8, 7, 8, 7), 1: (7, 6, 8, 6, 8, 7), 2: (6, 5, 8, 7, 8, 8)})
    gain = write_summary(folder, spec).benchmarks["t"]["avg"].gain
    assert gain["low"] > 0
    assert gain["p"] < 0.05
    base = stats.samples_of(BASE, 8)
    runs = {
        seed: stats.samples_of(list(folder.seed(seed).outcome()["scores"]["t"]["right"].values()), 8)
        for seed in range(3)
    }
    same = stats.difference_over_runs([(runs, dict.fromkeys(runs, base))])  # what report and compare print
    assert (gain["mean"], gain["p"], gain["low"], gain["high"]) == (same.mean, same.p, same.low, same.high)


def test_a_training_that_was_validated_on_other_problems_is_refused(tmp_path):
    folder, spec = training(tmp_path / "ours", {0: BASE})
    other, _ = training(tmp_path / "dapo", {0: BASE})
    write_summary(other, spec)
    for each, digest in ((folder, "aa"), (other, "bb")):
        held = Input(file="held.jsonl", digest=digest, judges=True)
        each.create_or_verify(
            spec, {"data": Input(file="train.jsonl", digest=digest, judges=False), "validation.tasks t": held}
        )
    with refuses("against", "held.jsonl", "validation.tasks"):
        write_summary(folder, spec, other.path)


def test_without_scores_by_problem_there_is_no_interval(tmp_path):
    folder, spec = training(tmp_path / "one", {0: (4, 2, 6, 4, 5, 5), 1: (4, 4, 4, 6, 5, 5)})
    bare = {name: value for name, value in score(*BASE)["t"].items() if name != "right"}
    write_json(folder.base, {"t": bare})
    row = write_summary(folder, spec).benchmarks["t"]["avg"]
    assert (row.gain["low"], row.gain["p"]) == (None, None)
    assert rows((folder.path / "summary.md").read_text())[0][4:] == ["+31.2", ""]


def test_what_cannot_be_compared_is_refused(tmp_path):
    mine = training(tmp_path / "mine", {0: BASE})
    with refuses("against", "summary.json"):
        write_summary(*mine, tmp_path / "none")
    folder, _ = training(tmp_path / "long", {0: BASE})
    longer = load_train({"validation": {"tasks": ["t"], "limit": 5}})
    write_summary(folder, longer)
    with refuses("against", "validated"):
        write_summary(*mine, folder.path)


def test_a_validation_of_problems_in_families_is_over_these():
    own = dict(zip("badcef", ("x", "y", "x", "z", "z", "z"), strict=True))  # in another order than `right`
    base, trained = score(*BASE), score(8, 7, 6, 5, 4, 3)
    plain = validation_scores("ours", {0: trained, 1: score(6, 7, 6, 5, 4, 3)}, base=base)
    for scores in (base, trained):
        scores["t"]["families"] = own
    named = validation_scores("ours", {0: trained, 1: score(6, 7, 6, 5, 4, 3)}, base=base)  # of an older seed none
    assert named.runs["t"].families == ("y", "x", "z", "x", "z", "z")
    [(result, reference)] = named.beside_base()
    found = result.minus(reference)
    families = [("y", "x", "z", "x", "z", "z")]
    assert found == stats.difference_over_runs([(result.runs, reference.runs)], families=families)
    assert (found.families, found.over) == (3, "3 families and seeds")
    [(result, reference)] = plain.beside_base()
    assert result.minus(reference).families == 0
    assert found.error > result.minus(reference).error
    assert named.mean() == stats.score_over_runs([named.runs["t"].runs], families=families)
    with refuses("families"):
        validation_scores("ours", {0: {"t": trained["t"] | {"families": {"a": "x"}}}})
