"""Evaluations through the record store: the second decodes nothing, an interrupted one decodes the rest."""

from harness.evals import evaluate
from harness.records import RecordStore
from harness.spec import Decoding, Sampling

SAMPLING = Sampling(samples=4, max_tokens=12, seed=5)
REPLACE = Decoding(mode="replace", tau=-0.2)


class Counting:
    """An engine that counts what it decodes, and stops after `most`."""

    def __init__(self, engine, most=10**9):
        self._engine, self.most, self.decoded = engine, most, 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def generate(self, requests, *, progress=False):
        for rollout in self._engine.generate(requests, progress=progress):
            if self.decoded >= self.most:
                raise KeyboardInterrupt
            self.decoded += 1
            yield rollout


def test_an_interrupted_evaluation_goes_on_and_ends_in_the_same_bytes(engine, data_dir, tmp_path):
    def run(where, most=10**9, limit=3):
        counting = Counting(engine, most)
        arguments = {"limit": limit, "data_dir": data_dir, "records": tmp_path / where, "progress": False}
        try:
            return counting.decoded, evaluate(counting, [REPLACE], ["amc", "aime24"], SAMPLING, **arguments), counting
        except KeyboardInterrupt:
            return counting.decoded, None, counting

    _, whole, counting = run("whole")
    assert counting.decoded == 24
    decoded, result, _ = run("cut", most=7)
    assert (decoded, result) == (7, None)
    _, resumed, counting = run("cut")
    assert counting.decoded == 17
    for one, other in zip(whole, resumed, strict=True):
        assert one.metrics() == other.metrics()
        assert one.provenance["record"] == other.provenance["record"]
        paths = [tmp_path / where / one.provenance["record"] / "record.jsonl" for where in ("whole", "cut")]
        assert paths[0].read_bytes() == paths[1].read_bytes()
    _, again, counting = run("whole")
    assert counting.decoded == 0
    assert [r.metrics() for r in again] == [r.metrics() for r in whole]
    run("whole", limit=4)
    assert {
        len(RecordStore(tmp_path / "whole").read(*name).held) for name in RecordStore(tmp_path / "whole").names()
    } == {16}
    unrecorded = evaluate(engine, [REPLACE], ["amc", "aime24"], SAMPLING, limit=3, data_dir=data_dir, progress=False)
    assert [r.metrics() for r in unrecorded] == [r.metrics() for r in whole]
