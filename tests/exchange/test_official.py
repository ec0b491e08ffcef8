"""The authors' result files: their numbers, ours beside them, and files that contradict themselves."""

import json

import numpy as np
import pytest

from harness import stats
from harness.errors import UserError
from harness.exchange.imported import import_foreign
from harness.exchange.official import read_official
from harness.records import RecordStore
from tests.exchange.fixture_official import FOLDER, notebook, write


def test_import_gives_the_notebooks_plain_means_and_our_verdicts_beside_theirs(tmp_path):
    found = import_foreign(tmp_path / "store", [write(tmp_path)])
    theirs, plain = found["scores"]["official"], notebook()
    assert theirs["avg@4"] == plain["accs"] == 0.5
    assert found["counts"]["mean_tokens"] == plain["lengths"]
    assert found["counts"]["replacement_ratio_per_response"] == plain["resample_rates"]
    assert found["counts"]["replacement_ratio"] == 8 / 55
    assert found["counts"]["changed_ratio"] == 4 / 55  # only the odd positions became another token
    assert found["agreement"]["plain"] == {"both": 4, "neither": 3, "only official": 0, "only plain": 1}
    assert found["scores"]["plain"]["avg@4"] == 5 / 8
    assert theirs["avg@4_se_seeds"] == 0.0  # two of four right under either seed
    assert theirs["pass@2"] == stats.pass_at_k([[1, 0, 1, 1], [0, 1, 0, 0]], 2)
    assert found["remarks"] == ["seeds 0, 1: the authors' notebook takes seeds 0 to 7 only"]


def test_an_import_keeps_settings_keys_and_seeds_and_is_the_same_twice(tmp_path):
    run, store = write(tmp_path), RecordStore(tmp_path / "store")
    name = import_foreign(store.folder, [run], graders=())["record"]
    record = store.one(name)
    source = record.config.source
    assert record.config.kind == "imported"
    expected = {"folder": FOLDER, "dataset": "aime24", "w0": -0.05, "criterion": "neg_logp", "tau": -0.3, "n": 2}
    assert expected.items() <= source.items()
    rollouts = {one.key: one for one in record}
    assert rollouts["aime24/1", 3].text == "no box"  # seed 1, second response
    assert np.flatnonzero(rollouts["aime24/1", 1].replaced).tolist() == [0, 1, 2]
    assert np.flatnonzero(rollouts["aime24/1", 1].changed).tolist() == [1]
    assert rollouts["aime24/0", 0].token_ids is None
    assert import_foreign(store.folder, [run], graders=())["record"] == name
    assert store.one(name).digest() == record.digest()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p: p[0].pop("accs"), "accs is missing"),
        (lambda p: p[0]["accs"].pop(), "different lengths"),
        (lambda p: p.pop(), "other problems"),
        (lambda p: p[0].update(gt="69"), "other problems"),
        (lambda p: [p[0][name].pop() for name in p[0] if isinstance(p[0][name], list)], "does not have 2 responses"),
        (lambda p: p[0]["resample_rates"].__setitem__(0, 0.9), "tells a ratio of 0.9"),
        (
            lambda p: p[0]["resample_infos"][0].__setitem__("70", {"original": 7, "resampled": 8}),
            "flags position 70 of 5",
        ),
    ],
)
def test_official_files_that_contradict_themselves_are_refused(tmp_path, change, sentence):
    path = write(tmp_path) / "seed1.json"
    problems = json.loads(path.read_text())
    change(problems)
    path.write_text(json.dumps(problems))
    with pytest.raises(UserError, match=sentence):
        read_official(path.parent)


def test_official_folders_that_are_none_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no seed<number>\.json"):
        read_official(tmp_path)
    renamed = write(tmp_path).rename(tmp_path / "renamed")
    for how, sentence in (({}, "which benchmark"), ({"task": "aime24"}, "how it was decoded")):
        with pytest.raises(UserError, match=sentence):
            import_foreign(tmp_path / "store", [renamed], **how)
    run = read_official(renamed, task="aime24")
    assert {(each.problem, each.gold) for each in run.responses} == {("0", ("68",)), ("1", ("204",))}
