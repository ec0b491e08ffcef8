"""Evaluations through the record store: the second decodes nothing, an interrupted one decodes the rest."""

import numpy as np
import pytest

from harness.errors import UserError
from harness.evals.compare import compare, markdown, read_results, settings_of
from harness.evals.from_records import result_of_record
from harness.records import RecordStore
from harness.records.verdicts import read_verdicts, write_verdicts
from harness.spec import CRITERIA, Decoding, Sampling
from tests.evals.asked import criterion_values, evaluate

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


def test_results_of_records_are_those_of_the_evaluation(engine, data_dir, tmp_path):
    arguments = {"limit": 3, "data_dir": data_dir, "records": tmp_path, "progress": False}
    results = evaluate(engine, [REPLACE, Decoding()], ["amc"], SAMPLING, **arguments)
    read = {r.decoding: r for r in read_results([tmp_path], data_dir=data_dir)}
    for result in results:
        assert read[result.decoding].metrics() == result.metrics()
        assert read[result.decoding].problem_ids == result.problem_ids
        assert read[result.decoding].config_hash == result.config_hash
        name = result.provenance["record"]
        for place in (tmp_path / name, name[:6], name):
            [same] = read_results([place], tmp_path, data_dir=data_dir)
            assert same.config_hash == result.config_hash
    graded = read_results([results[0].provenance["record"]], tmp_path, data_dir=data_dir, grader="plain")
    assert graded[0].provenance["grader"] == "plain"
    with pytest.raises(UserError, match="is not in"):
        read_results(["zzz"], tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        read_results(["zzz"], tmp_path / "none")


@pytest.mark.parametrize(("most", "partial"), [(2, None), (4, "first 1 of 4 samples"), (9, "first 3 of 4 samples")])
def test_a_part_is_refused_unless_asked_for_and_then_marked(engine, data_dir, tmp_path, most, partial):
    """Three problems x four samples, interrupted after `most`: the part is the first samples of the whole."""
    arguments = {"limit": 3, "data_dir": data_dir, "progress": False}

    class InOrder(Counting):
        """Rollouts as they were asked for."""

        def generate(self, requests, *, progress=False):
            for request in requests:
                yield from super().generate([request])

    with pytest.raises(KeyboardInterrupt):
        evaluate(InOrder(engine, most), [REPLACE], ["amc"], SAMPLING, records=tmp_path, **arguments)
    [name] = RecordStore(tmp_path).names()
    snapshot = RecordStore(tmp_path).read(*name)
    with pytest.raises(UserError, match=f"has {most} of 12 rollouts"):
        result_of_record(snapshot, data_dir=data_dir)
    if partial is None:
        with pytest.raises(UserError, match="no sample yet of 1 of 3 problems"):
            result_of_record(snapshot, data_dir=data_dir, partial=True)
        return
    part = result_of_record(snapshot, data_dir=data_dir, partial=True)
    [whole] = evaluate(engine, [REPLACE], ["amc"], SAMPLING, **arguments)
    k = part.samples
    assert part.partial == partial
    assert partial in part.label
    assert (part.n_tokens == whole.n_tokens[:, :k]).all()
    assert (part.correct == whole.correct[:, :k]).all()
    assert part.config_hash != whole.config_hash
    [rl] = evaluate(engine, [Decoding()], ["amc"], SAMPLING, **arguments)
    text = markdown(compare(settings_of([rl, part])))
    assert "partial results are in it" in text.lower()
    assert f"| replace τ-0.2 ({partial})" in text


def test_an_imported_run_compares_with_ours(tmp_path):
    from harness.records.commands import import_official
    from tests.records.fixture_official import write

    found = import_official(tmp_path / "store", write(tmp_path))
    for grader in ("official", "plain", "robust"):
        [result] = read_results([found["record"]], tmp_path / "store", grader=grader)
        assert result.decoding == Decoding(mode="extrapolate", tau=-0.3, gamma=0.05)
        assert result.avg == found["scores"][grader]["avg@4"]
        assert result.metrics()["replacement_ratio"] == found["counts"]["replacement_ratio"]


def test_stored_verdicts_of_other_code_are_not_believed(engine, data_dir, tmp_path):
    """Another grader's code gave them: they are graded again."""
    arguments = {"limit": 2, "data_dir": data_dir, "records": tmp_path, "progress": False}
    [result] = evaluate(engine, [REPLACE], ["amc"], SAMPLING, **arguments)
    folder = tmp_path / result.provenance["record"]
    rows = read_verdicts(folder, "robust")
    head = {"config": "x", "graded_with": "other"}
    write_verdicts(folder, "robust", head, [{**row, "kind": "correct"} for row in rows.values()])
    [again] = read_results([folder], data_dir=data_dir)
    assert again.avg == result.avg


def test_criterion_values_of_one_recorded_generation(engine, data_dir, tmp_path):
    """They are what the gates look at: a threshold between two of them replaces exactly the positions beyond it."""
    counting = Counting(engine)
    arguments = {"limit": 3, "data_dir": data_dir, "progress": False}
    evaluate(counting, [Decoding(mode="base")], ["amc"], SAMPLING, records=tmp_path, **arguments)
    values = criterion_values(counting, ["amc"], tmp_path, SAMPLING, **arguments)
    assert counting.decoded == 24  # the record had no traces
    again = criterion_values(counting, ["amc"], tmp_path, SAMPLING, **arguments)
    assert counting.decoded == 24
    [base] = evaluate(counting, [Decoding(mode="base")], ["amc"], SAMPLING, records=tmp_path, **arguments)
    assert counting.decoded == 24
    assert set(values) == set(CRITERIA) - {"random"}
    for name, row in values.items():
        assert row.shape == (base.n_tokens.sum(),)
        assert (row == again[name]).all()
    assert np.allclose(values["kl"], (values["kl_rl_base"] + values["kl_base_rl"]) / 2)
    tau = float(np.median(values["entropy_base"]))
    gated = Decoding(mode="replace", criterion="entropy_base", tau=tau)
    [replaced] = evaluate(engine, [gated], ["amc"], SAMPLING.replace(max_tokens=1), **arguments)
    # the first token of each response is proposed by base in both
    starts = np.cumsum([0, *base.n_tokens.T.ravel()[:-1]])
    assert replaced.n_replaced.T.ravel().tolist() == (values["entropy_base"][starts] > tau).astype(int).tolist()
