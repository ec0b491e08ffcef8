"""Trainings in tables: seeds are pooled and never lost, differences are paired by seed, and places name them."""

import json

import numpy as np
import pytest

from rlvr_dir.errors import UserError
from rlvr_dir.report.build import build
from rlvr_dir.results.load_results import read_results
from rlvr_dir.results.trainings import trainings_at
from rlvr_dir.spec import Decoding
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
    with pytest.raises(UserError, match=r"'DAPO' names two results of seed 0 on aime24 .*one.* and .*other"):
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
    assert (
        "chosen by the scores themselves (DAPO: best(aime24))"
        in tables(build(read_results([folder])))["trained"].notes[1]
    )


def test_a_training_that_was_not_validated_is_said_to_have_no_validation(tmp_path, capsys):
    """It was said that trainings are not accepted at all."""
    folder = written(tmp_path / "a", "DAPO", {})
    (folder / "seed-0").mkdir()
    with pytest.raises(UserError, match=r"nothing to read there; accepted: .*, or trainings that were validated"):
        read_results([folder])
    assert capsys.readouterr().err.endswith("a has no validation of seed 0\n")


def test_a_sweep_of_trainings_is_read_from_where_its_trainings_lie(tmp_path, capsys):
    sweep = tmp_path / "sweeps" / "mine"
    sweep.mkdir(parents=True)
    (sweep / "sweep.yaml").write_text("kind: train\n")
    with pytest.raises(UserError, match="is a sweep of trainings without a summary yet"):
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
    with pytest.raises(UserError, match=r"gives one name to several trainings \(DAPO, ppl\)"):
        read_results([f"Mine={sweep}"])
