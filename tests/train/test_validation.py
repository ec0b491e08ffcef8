"""The validation of a training is an evaluation: its rollouts are kept, and what is kept is not decoded again."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import training
from harness.records import RecordStore
from harness.tiny import tiny_pair
from harness.train.spec import load_train

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
    from harness.decode.pair_engine import PairEngine

    asked, generate = [], PairEngine.generate

    def counted(self, requests, **options):
        asked.append(len(requests))
        return generate(self, requests, **options)

    monkeypatch.setattr(PairEngine, "generate", counted)
    return asked


def test_a_validation_is_kept_and_not_decoded_twice(tmp_path, decoded):
    pair, spec = tiny_pair(), load_train(SPEC)
    validate = training.validator(spec, tmp_path / "records", tmp_path / "bases")
    (tmp_path / "results").mkdir()
    first = [validate(pair.base, pair.base, "base", None), validate(pair.base, pair.rl, "rl", tmp_path / "results")]
    assert decoded == [4, 4]
    for store, mode in (("bases", "base"), ("records", "rl")):
        [name] = RecordStore(tmp_path / store).names()
        snapshot = RecordStore(tmp_path / store).read(*name)
        assert (snapshot.finished, len(snapshot.held), snapshot.config.decoding.mode) == (True, 4, mode)
    assert len(list((tmp_path / "results").iterdir())) == 1
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
