"""The validation of a training is an evaluation: its rollouts are kept, and what is kept is not decoded again."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from rlvr_dir.records import RecordStore
from rlvr_dir.results.load_results import read_results
from rlvr_dir.tiny import tiny_pair
from rlvr_dir.train import training
from rlvr_dir.train.spec import INSTRUCTION, load_train
from tests.facts import refuses

SPEC = {
    "validation": {
        "tasks": ["tiny_easy"],
        "limit": 2,
        "sampling": {"samples": 2, "max_tokens": 24},
        "engine": {"backend": "transformers"},
    }
}


@pytest.fixture
def decoded(monkeypatch):
    """The number of rollouts that each call of an engine is asked for."""
    from rlvr_dir.decode.engine import Engine

    asked, generate = [], Engine.generate

    def counted(self, requests, **options):
        asked.append(len(requests))
        return generate(self, requests, **options)

    monkeypatch.setattr(Engine, "generate", counted)
    return asked


def test_a_validation_is_kept_and_not_decoded_twice(tmp_path, decoded):
    pair, spec = tiny_pair(), load_train(SPEC)
    validate = training.validator(spec, tmp_path / "records", tmp_path / "bases")
    folder = tmp_path / "mine"
    (folder / "seed-0" / "results").mkdir(parents=True)
    (folder / "train.yaml").touch()
    first = [
        validate(pair.base, pair.base, "base", None),
        validate(pair.base, pair.rl, "rl", folder / "seed-0" / "results"),
    ]
    assert decoded == [4, 4]
    for store, mode in (("bases", "base"), ("records", "rl")):
        [name] = RecordStore(tmp_path / store).names()
        snapshot = RecordStore(tmp_path / store).read(*name)
        assert (snapshot.finished, len(snapshot.response_keys), snapshot.config.decoding.mode) == (True, 4, mode)
    kept = {each.decoding.mode: each.avg for each in read_results([folder])}  # base's beside those of RL
    base, rl = (scores["tiny_easy"] for scores in first)
    assert kept == {"base": base["avg"], "rl": rl["avg"]}
    assert (base["limited"], sum(base["right"].values()) / 4) == ("2 of 240 problems", base["avg"])
    other = training.validator(spec, tmp_path / "other", tmp_path / "bases")
    again = [other(pair.base, pair.base, "base", None), validate(pair.base, pair.rl, "rl", None)]
    assert decoded == [4, 4]
    assert again == first


def test_trainings_that_start_together_share_the_validation_of_their_base(tmp_path, decoded):
    base = tiny_pair().base
    both = [training.validator(load_train(SPEC), tmp_path / str(i), tmp_path / "bases") for i in range(2)]
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda validate: validate(base, base, "base", None), both)
    assert one == other
    assert decoded == [4]


def test_on_the_way_only_what_is_watched_is_validated(tmp_path, decoded):
    asked = {**SPEC["validation"], "tasks": ["tiny_easy", "tiny_hard"], "every": 1, "watch": ["tiny_hard"]}
    spec = load_train({"validation": asked})
    pair, validate = tiny_pair(), training.validator(spec, tmp_path / "records")
    assert list(validate(pair.base, pair.rl, "rl", None)) == ["tiny_hard"]
    assert decoded == [4]
    found = training.watched(spec)
    assert {name: len(rows) for name, rows in found.items()} == {"tiny_hard": 2}
    assert found["tiny_hard"][0]["prompt"][0]["content"].endswith("within \\boxed{}.")
    own = {"prompt": "Q: {{problem}}", "examples": [{"problem": "1 + 1", "answer": 2}], "grader": "plain"}
    put = training.watched(load_train({"validation": {**asked, **own}}))["tiny_hard"][0]
    texts = [turn["content"] for turn in put["prompt"]]
    assert texts[:2] == ["Q: 1 + 1", "2"]
    assert texts[2] == found["tiny_hard"][0]["prompt"][0]["content"].replace(INSTRUCTION, "").join(["Q: ", ""])
    assert (found["tiny_hard"][0]["grader"], put["grader"]) == ("robust", "plain")
    wrong = load_train({"validation": {**asked, "watch": ["tiny_medium"]}})
    with refuses("validation.watch", "tiny_medium"):
        training.run(wrong, tmp_path / "out")


def test_a_checkpoint_chosen_by_a_benchmark_that_is_not_validated_is_refused(tmp_path):
    validation = {**SPEC["validation"], "every": 1}
    with refuses("checkpoint", "best(tiny_hard)", "best(tiny_easy)"):
        training.run(load_train({"validation": validation, "checkpoint": "best(tiny_hard)"}), tmp_path / "out")
    assert not (tmp_path / "out").exists()
