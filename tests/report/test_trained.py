"""Trainings in tables: seeds are pooled and never lost, differences are paired by seed, and places name them."""

import json

import numpy as np
import pytest

from rlvr_dir import stats
from rlvr_dir.config import Decoding
from rlvr_dir.report.build import build
from rlvr_dir.results.load_results import read_results
from rlvr_dir.results.trainings import trainings_at
from tests.facts import refuses
from tests.report.held import ends, number, rows_of
from tests.report.made import result

BASE = "Qwen/Qwen2.5-Math-7B"


def of_seed(method, seed, share, task="aime24", name="", problems=30):
    """The RL model of a seed as its training leaves it, and the base's result beside it."""
    pair = {"base": BASE, "rl": f"runs/train/{method}/seed-{seed}/rl"}
    rl = result(
        Decoding(), share, pair=pair, task=task, problems=problems, seed=0, name=name, settings=f"{method}{seed}"
    )
    return [rl, result(Decoding(mode="base"), 0.1, pair=pair, task=task, problems=problems)]


def written(folder, label, shares, task="aime24"):
    """A training's folder as `rlvr-dir train` leaves it, as far as reports read it."""
    folder.mkdir(parents=True)
    (folder / "train.yaml").write_text("{}")
    (folder / "summary.json").write_text(json.dumps({"label": label}))
    for seed, share in shares.items():
        place = folder / f"seed-{seed}" / "results"
        place.mkdir(parents=True)
        for each in of_seed(folder.name, seed, share, task):
            each.write(place)
    return folder


def tables(made):
    return {section.name: section for section in made.sections}


def cells(table, *at):
    return {row[at[0]].text: [row[i].text for i in at[1:]] for row in table.cells}


def test_seeds_of_a_method_are_one_row_with_their_mean_and_all_of_them_count(tmp_path):
    written(tmp_path / "a", "DAPO", {0: 0.3, 1: 0.4, 2: 0.35})
    written(tmp_path / "b", "low_prob α0.2", {0: 0.5, 1: 0.55, 7: 0.9})
    found = read_results([tmp_path / "a", f"Ours={tmp_path / 'b'}"])
    made = build(found)
    table = tables(made)["trained"]
    assert [row[1].text for row in table.cells] == ["Base", "DAPO (3 seeds)", "Ours (3 seeds)"]

    def averages(method):
        mine = [r for r in found if r.decoding.mode == "rl" and r.provenance["training"]["name"] == method]
        return {r.provenance["training"]["seed"]: r.avg for r in mine}

    dapo, ours = averages("DAPO"), averages("Ours")
    assert (list(dapo), list(ours)) == ([0, 1, 2], [0, 1, 7])
    assert [row[2].text for row in table.cells[1:]] == [
        f"{100 * np.mean(list(each.values())):.1f}" for each in (dapo, ours)
    ]
    difference = 100 * (np.mean(list(ours.values())) - np.mean(list(dapo.values())))
    assert table.cells[2][2].small[-1].startswith(f"{difference:+.1f} [")
    rows = [[cell.text for cell in row] for row in tables(made)["trained-differences"].cells]
    assert [row[1:3] for row in rows] == [["DAPO", "Base"], ["Ours", "Base"], ["Ours", "DAPO"]]
    assert rows[2][3] == f"{difference:+.1f}"
    assert [row[4] for row in rows] == ["3", "3", "3"]
    assert any(
        "against DAPO (AIME24, 3 seeds, 95 %, p " in said for chapter in made.chapters for said in chapter.paragraphs
    )
    beside = cells(tables(made)["beside-the-paper"], 0, 1)
    assert beside["AIME24, Qwen2.5-Math-7B, Ours, seed 7, Avg@4"] == ["39.06"]
    assert len(tables(made)["results"].cells) == 12  # nothing is lost: each seed's RL and base


def test_two_results_of_one_seed_under_one_name_are_refused(tmp_path):
    one, other = (written(tmp_path / name, "DAPO", {0: 0.3}) for name in ("one", "other"))
    with refuses("DAPO", "0", "aime24"):
        build(read_results([f"DAPO={one}", f"DAPO={other}"]))
    # Nobody gave them a name, and their labels are the same: their folders tell them apart.
    table = tables(build(read_results([one, other])))["trained"]
    assert [row[1].text for row in table.cells] == ["Base", "one", "other"]


def test_a_base_that_was_made_anew_at_its_place_is_another_base():
    """The last one's score was subtracted from the trainings of both."""

    def trained(method, weights, base):
        how = {
            "pair": {"base": "b", "rl": f"{method}/rl"},
            "problems": 30,
            "weights": {"base": weights},
            "name": method,
        }
        both = ((Decoding(), 0.6), (Decoding(mode="base"), base))
        return [result(one, share, **how, settings=f"{method} {one.mode}") for one, share in both]

    found = [*trained("A", "v1", 0.3), *trained("B", "v2", 0.1)]
    made = tables(build(found))
    assert [row[0].text for row in made["trained"].cells] == ["b (v1)", "", "b (v2)", ""]
    gains = [f"{100 * (rl.avg - base.avg):+.1f}" for rl, base in (found[:2], found[2:])]
    assert [row[3].text for row in made["trained-differences"].cells] == gains


def test_a_checkpoint_that_the_scores_chose_is_said_to_be(tmp_path):
    folder = written(tmp_path / "a", "DAPO", {0: 0.3})
    assert "chosen by" not in str(tables(build(read_results([folder])))["trained"].notes)
    (folder / "train.yaml").write_text("checkpoint: best(aime24)\n")
    assert "(DAPO: best(aime24))" in tables(build(read_results([folder])))["trained"].notes[1]


def test_a_training_that_was_not_validated_is_said_to_have_no_validation(tmp_path, capsys):
    """It was said that trainings are not accepted at all."""
    folder = written(tmp_path / "a", "DAPO", {})
    (folder / "seed-0").mkdir()
    with refuses("trainings"):
        read_results([folder])
    assert capsys.readouterr().err.endswith("a has no validation of seed 0\n")


def test_a_sweep_of_trainings_is_read_from_where_its_trainings_lie(tmp_path, capsys):
    sweep = tmp_path / "sweeps" / "mine"
    sweep.mkdir(parents=True)
    (sweep / "sweep.yaml").write_text("kind: train\n")
    with refuses("trainings"):
        read_results([sweep])
    written(tmp_path / "trainings" / "DAPO-0", "DAPO", {0: 0.3, 1: 0.4, 9: 0.9})
    written(tmp_path / "trainings" / "ppl-1", "ppl α0.01", {0: 0.5})
    entries = [
        {"label": label, "folder": f"x/trainings/{name}"} for label, name in (("DAPO", "DAPO-0"), ("ppl", "ppl-1"))
    ]
    (sweep / "summary.json").write_text(json.dumps({"kind": "train", "seeds": [0, 1], "entries": entries}))
    assert [(each.name, each.seeds) for each in trainings_at(sweep)] == [("DAPO", (0, 1)), ("ppl", (0, 1))]
    table = tables(build(read_results([sweep / "results"])))["trained"]
    assert [row[1].text for row in table.cells] == ["Base", "DAPO (2 seeds)", "ppl"]
    assert "ppl-1 has no validation of seed 1\n" in capsys.readouterr().err
    with refuses("results", "Mine=", "DAPO"):
        read_results([f"Mine={sweep}"])


def differences(made):
    """The rows of the table of differences, by what is subtracted from what."""
    return {(row["Training"], row["minus"]): row for row in rows_of(tables(made)["trained-differences"])}


def of_method(found, name):
    mode = "base" if name == "Base" else "rl"
    named = [r for r in found if r.decoding.mode == mode and (name == "Base" or r.name.split(" seed")[0] == name)]
    return {i: r.correct.astype(float) for i, r in enumerate(named[:1] if name == "Base" else named)}


def test_one_training_against_one_is_of_these_two_models(tmp_path):
    places = [written(tmp_path / name, name, {0: share}) for name, share in (("DAPO", 0.3), ("Ours", 0.5))]
    found = read_results([f"{place.name}={place}" for place in places])
    made = build(found)
    row = differences(made)["Ours", "DAPO"]
    d = stats.paired_difference(of_method(found, "Ours")[0], of_method(found, "DAPO")[0])
    assert ends(row, "Difference") == pytest.approx([100 * d.low, 100 * d.mean, 100 * d.high])
    assert {each["Over"] for each in differences(made).values()} == {"of these two models"}
    [said] = [text for chapter in made.chapters for text in chapter.paragraphs if text.startswith("Ours changes")]
    assert "against DAPO (AIME24, of these two models, 95 %, p " in said
    assert "so no p over seeds can be had" in tables(made)["trained-differences"].notes[0]
    assert "One training minus one is of these two models" in tables(made)["trained"].notes[0]


def test_other_trainings_say_how_seeds_vary(tmp_path):
    shares = {"DAPO": {0: 0.3}, "Ours": {0: 0.5}, "PPL": {0: 0.3, 1: 0.42, 2: 0.36}}
    places = [written(tmp_path / name, name, by_seed) for name, by_seed in shares.items()]
    found = read_results([f"{place.name}={place}" for place in places])
    made = build(found)
    seeds = [x.mean() for x in of_method(found, "PPL").values()]
    assert len(seeds) == 3
    for (training, minus), factor in {("Ours", "DAPO"): np.sqrt(2), ("Ours", "Base"): 1.0}.items():
        row = differences(made)[training, minus]
        first, other = (of_method(found, name)[0] for name in (training, minus))
        d = stats.paired_difference(first, other)
        low, high, p = stats.combined(d.mean, [(d.error, 29), (factor * np.std(seeds, ddof=1), 2)])
        assert ends(row, "Difference")[0] == pytest.approx(100 * max(low, -1))
        assert ends(row, "Difference")[2] == pytest.approx(100 * min(high, 1))
        assert number(row, "p") == pytest.approx(max(p, stats.sign_flip_p(first.mean(axis=1) - other.mean(axis=1))))
        assert row["Over"] == "problems and seeds"
    [said] = [text for chapter in made.chapters for text in chapter.paragraphs if text.startswith("Ours changes")]
    assert "(AIME24, one training each, seeds as they vary in the others, 95 %, p " in said


def test_trainings_on_a_benchmark_with_families_are_over_these():
    own = tuple(str(i // 5) for i in range(30))
    found = [
        one.replace(families=own, name=method if one.decoding.mode == "rl" else "")
        for method, share in (("DAPO", 0.3), ("Ours", 0.5))
        for seed in (0, 1)
        for one in of_seed(method, seed, share + 0.02 * seed, name=method)
    ]
    made = build(found)
    row = differences(made)["Ours", "DAPO"]
    runs = [of_method(found, name) for name in ("Ours", "DAPO")]
    d = stats.difference_over_runs([tuple(runs)], families=[own])
    assert ends(row, "Difference") == pytest.approx([100 * d.low, 100 * d.mean, 100 * d.high])
    assert row["Benchmark"] == "AIME24 (over 6 families)"
    table = tables(made)["trained"]
    assert "Few families: aime24 (over 6 families). There 95 % intervals cover" in table.notes[0]
    score = stats.score_over_runs([runs[0]], families=[own])
    [cell] = [cells_[2] for cells_ in table.cells if cells_[1].text.startswith("Ours")]
    assert cell.interval == pytest.approx((100 * score.low, 100 * score.high))
