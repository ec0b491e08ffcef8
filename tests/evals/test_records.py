"""Evaluations through the record store: the second decodes nothing, an interrupted one decodes the rest."""

import os
import shutil

import numpy as np
import pytest

from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.errors import UserError
from rlvr_dir.evals.traces import traced
from rlvr_dir.grading import Verdict
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.records import Record, RecordStore
from rlvr_dir.records.commands import list_records, verify_records
from rlvr_dir.records.record import JOURNAL
from rlvr_dir.results.compare import compare, markdown
from rlvr_dir.results.from_records import record_of, result_of_record, show_record
from rlvr_dir.results.load_results import read_results
from rlvr_dir.results.settings import settings_of
from tests.commands import invoke, run
from tests.evals.asked import asked, criterion_values, evaluate
from tests.facts import ROBUST, refuses, states
from tests.records import made

SAMPLING = Sampling(samples=4, max_tokens=12, seed=5)
REPLACE = Decoding(mode="replace", tau=-0.2)


class Counting:
    """An engine that counts what it decodes, and stops after `most`; with an `order` it decodes one by one in it."""

    def __init__(self, engine, most=10**9, order=None):
        self._engine, self.most, self.order, self.decoded = engine, most, order, 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def generate(self, requests, *, progress=False):
        lots = [requests] if self.order is None else [[request] for request in sorted(requests, key=self.order)]
        for rollout in (each for lot in lots for each in self._engine.generate(lot, progress=progress)):
            if self.decoded >= self.most:
                raise KeyboardInterrupt
            self.decoded += 1
            yield rollout


def test_an_interrupted_evaluation_goes_on_and_ends_in_the_same_bytes(engine, data_dir, tmp_path):
    def evaluated(where, most=10**9, limit=3):
        counting = Counting(engine, most)
        arguments = {"limit": limit, "data_dir": data_dir, "records": tmp_path / where, "progress": False}
        try:
            return counting.decoded, evaluate(counting, [REPLACE], ["amc", "aime24"], SAMPLING, **arguments), counting
        except KeyboardInterrupt:
            return counting.decoded, None, counting

    _, whole, counting = evaluated("whole")
    assert counting.decoded == 24
    decoded, result, _ = evaluated("cut", most=7)
    assert (decoded, result) == (7, None)
    _, resumed, counting = evaluated("cut")
    assert counting.decoded == 17
    for one, other in zip(whole, resumed, strict=True):
        assert one.metrics() == other.metrics()
        assert one.provenance["record"] == other.provenance["record"]
        whole_one, cut = (Record(tmp_path / where / one.provenance["record"]).read() for where in ("whole", "cut"))
        assert whole_one.digest() == cut.digest()
    _, again, counting = evaluated("whole")
    assert counting.decoded == 0
    assert [r.metrics() for r in again] == [r.metrics() for r in whole]
    evaluated("whole", limit=4)
    assert {
        len(RecordStore(tmp_path / "whole").read(*name).response_keys)
        for name in RecordStore(tmp_path / "whole").names()
    } == {16}
    unrecorded = evaluate(engine, [REPLACE], ["amc", "aime24"], SAMPLING, limit=3, data_dir=data_dir, progress=False)
    assert [r.metrics() for r in unrecorded] == [r.metrics() for r in whole]


def test_results_of_records_are_those_of_the_evaluation(engine, data_dir, tmp_path):
    arguments = {"limit": 3, "data_dir": data_dir, "records": tmp_path, "progress": False}
    [result, _] = evaluate(engine, [REPLACE, Decoding()], ["amc"], SAMPLING, **arguments)
    name = result.provenance["record"]
    for place in (tmp_path / name, name[:6], name):
        [same] = read_results([place], tmp_path, data_dir=data_dir)
        assert_equal(same, result)
    with refuses("record", "0000000"):
        read_results(["0000000"], tmp_path)
    for store in (tmp_path, tmp_path / "none"):  # what is no beginning of a hash is a mistyped file or folder
        with pytest.raises(UserError, match="results: 'zzz' does not exist"):
            read_results(["zzz"], store)


def test_what_is_unfinished_or_no_file_hides_no_other_record(engine, data_dir, tmp_path, capsys):
    arguments = {"limit": 2, "data_dir": data_dir, "progress": False}
    evaluate(engine, [REPLACE, Decoding()], ["amc"], SAMPLING, records=tmp_path, **arguments)
    with pytest.raises(KeyboardInterrupt):
        evaluate(Counting(engine, 3), [Decoding(mode="base")], ["amc"], SAMPLING, records=tmp_path, **arguments)
    store = RecordStore(tmp_path)
    [unfinished] = [name for name in store.names() if not store.read(*name).finished]
    assert {result.decoding for result in read_results([tmp_path], data_dir=data_dir)} == {REPLACE, Decoding()}
    assert "/".join(unfinished) in capsys.readouterr().err
    with pytest.raises(UserError, match="has 3 of 8 rollouts"):
        read_results([tmp_path.joinpath(*unfinished)], data_dir=data_dir)  # who names it hears why
    journal = tmp_path.joinpath(*unfinished) / JOURNAL
    journal.write_bytes(b"")
    assert len(read_results([tmp_path], data_dir=data_dir, partial=True)) == 2
    journal.unlink()
    for make in (lambda: journal.symlink_to("/dev/zero"), lambda: os.mkfifo(journal)):
        make()
        assert len(read_results([tmp_path], data_dir=data_dir)) == 2
        assert str(journal) in capsys.readouterr().err
        [row] = [row for row in list_records(tmp_path) if row["record"] == "/".join(unfinished)]
        assert states(*row["damage"], journal)
        assert verify_records(tmp_path)["/".join(unfinished)] == row["damage"]
        journal.unlink()


def test_no_code_is_run_because_a_record_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.yaml").write_text("task: theirs\ndoc_to_text: !function judge.text\n")
    (tmp_path / "judge.py").write_text("raise SystemExit('code was run')")
    with RecordStore(tmp_path / "store").open(made.config(), "theirs.yaml", ["theirs.yaml/0.0"], 1) as record:
        record.add(made.row("theirs.yaml/0.0", 0))
        record.finish()
    with pytest.raises(UserError, match="no code is run because a record names it"):
        read_results([tmp_path / "store"])


@pytest.mark.parametrize(("most", "partial"), [(2, None), (4, "first 1 of 4 samples"), (9, "first 3 of 4 samples")])
def test_a_part_is_refused_unless_asked_for_and_then_marked(engine, data_dir, tmp_path, most, partial):
    """Three problems x four samples, interrupted after `most`: the part is the first samples of the whole."""
    arguments = {"limit": 3, "data_dir": data_dir, "progress": False}

    in_order = Counting(engine, most, order=lambda request: request.sample)
    with pytest.raises(KeyboardInterrupt):
        evaluate(in_order, [REPLACE], ["amc"], SAMPLING, records=tmp_path, **arguments)
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
    [plain] = read_results([part.write(tmp_path)], grader="plain", data_dir=data_dir)
    assert (plain.partial, plain.provenance["grader"]) == (partial, "plain")
    [rl] = evaluate(engine, [Decoding()], ["amc"], SAMPLING, **arguments)
    text = markdown(compare(settings_of([rl, part])))
    assert "partial results are in it" in text.lower()
    assert f"| replace τ-0.2 ({partial})" in text


def test_what_a_large_limit_left_is_no_part_of_what_a_smaller_one_finished(engine, data_dir, tmp_path):
    """`eval --limit 6`, interrupted when the short responses were there, then `--limit 2`; then compare."""

    def long(request):
        return request.problem in ("amc/amc-0", "amc/amc-3")

    one, store = SAMPLING.replace(samples=1), tmp_path / "records"
    arguments = {"data_dir": data_dir, "records": store, "progress": False}
    for decoding in (REPLACE, Decoding()):
        with pytest.raises(KeyboardInterrupt):
            evaluate(Counting(engine, 4, order=long), [decoding], ["amc"], one, limit=6, **arguments)
    for name in RecordStore(store).names():
        with pytest.raises(UserError, match="has 4 of 6 rollouts"):
            result_of_record(RecordStore(store).read(*name), data_dir=data_dir)
    finished = evaluate(engine, [REPLACE, Decoding()], ["amc"], one, limit=2, **arguments)
    for whole in finished:
        snapshot = record_of(whole)
        assert len(snapshot.response_keys) == 5
        assert_equal(result_of_record(snapshot, data_dir=data_dir), whole)
        assert show_record(store, snapshot.name)["scores"][ROBUST]["problems"] == 2
    asked = [str(store), "--data-dir", data_dir]
    done = invoke("compare", *asked)
    assert "| amc (2 of 83 problems) | replace τ-0.2 |" in done.output, done.output


def test_verdicts_by_other_versions_are_shown_as_they_are_and_given_again_by_eval(engine, data_dir, tmp_path):
    arguments = {"limit": 2, "data_dir": data_dir, "records": tmp_path, "progress": False}
    [result] = evaluate(engine, [REPLACE], ["amc"], SAMPLING, **arguments)
    record = record_of(result)
    with record.lock():
        rows = [(row, record.verdicts(ROBUST)[row.key].gold, Verdict("correct", "7")) for row in record]
        record.judge(ROBUST, rows)
        record.note(graded_with={ROBUST: {"grader": ROBUST, "sympy": "0.1"}})
    [shown] = read_results([record.folder])
    assert (shown.avg, shown.provenance["graded_with"]["sympy"]) == (1.0, "0.1")
    [again] = evaluate(engine, [REPLACE], ["amc"], SAMPLING, **arguments)
    assert_equal(again, result)
    assert_equal(read_results([record.folder])[0], result)


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


ARRAYS = ("correct", "n_tokens", "n_replaced", "n_changed", "truncated", "no_box", "ungraded", "votes")


def assert_equal(one, other):
    """Every number and the hash of what was asked; speed and the names of places are not numbers of a result."""
    assert (one.config_hash, one.problem_ids) == (other.config_hash, other.problem_ids)
    for name in ARRAYS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_a_result_is_made_again_to_the_last_number_whatever_else_its_record_holds(engine, data_dir, tmp_path):
    """4 problems x 2 samples, then 2 x 4: the record holds both, and no rectangle holds all of it."""
    arguments = {"data_dir": data_dir, "records": tmp_path / "records", "progress": False}
    [wide] = evaluate(engine, [REPLACE], ["aime24"], SAMPLING.replace(samples=2), limit=4, **arguments)
    [deep] = evaluate(engine, [REPLACE], ["aime24"], SAMPLING, limit=2, **arguments)
    snapshot = record_of(wide)
    assert snapshot.name == record_of(deep).name
    assert_equal(result_of_record(snapshot, data_dir=data_dir), deep)  # the latest
    for each in (wide, deep):
        again = result_of_record(snapshot, data_dir=data_dir, problems=each.problem_ids, samples=each.samples)
        assert_equal(again, each)
    with pytest.raises(UserError, match="has 12 of 16 rollouts"):
        result_of_record(snapshot, data_dir=data_dir, problems=wide.problem_ids, samples=4)


def test_a_result_file_of_another_grader_is_graded_again_or_refused(engine, data_dir, tmp_path):
    arguments = {"limit": 2, "data_dir": data_dir, "progress": False}
    [kept] = evaluate(engine, [REPLACE], ["amc"], SAMPLING, records=tmp_path / "records", **arguments)
    [plain] = evaluate(engine, [REPLACE], ["amc"], SAMPLING, records=tmp_path / "records", grader="plain", **arguments)
    file = kept.write(tmp_path)
    for place in (file, tmp_path):
        [same] = read_results([place], grader="robust", data_dir=data_dir)
        [other] = read_results([place], grader="plain", data_dir=data_dir)
        assert_equal(same, kept)
        assert_equal(other, plain)
        assert other.provenance["grader"] == "plain"
    shutil.rmtree(tmp_path / "records")
    assert_equal(read_results([file])[0], kept)
    with refuses(ROBUST, "plain"):
        read_results([file], grader="plain")


def test_result_files_are_made_again_by_a_command(engine, data_dir, tmp_path):
    results = evaluate(engine, [REPLACE], ["amc", "aime24"], SAMPLING, limit=2, data_dir=data_dir, records=tmp_path)
    out, store = str(tmp_path / "out"), str(tmp_path)
    done = run("records", "results", "--store", store, "--out", out, "--data-dir", data_dir)
    read = {result.task: result for result in read_results([out])}
    for result in results:
        assert_equal(read[result.task], result)
    for name, _ in RecordStore(tmp_path).names():
        for folder in (tmp_path / name).iterdir():
            torn = next(iter(Record(folder).read())).payload()
            (folder / JOURNAL).write_bytes((folder / JOURNAL).read_bytes().replace(torn, b""))
    done = invoke("records", "results", "--store", store, "--out", out, "--data-dir", data_dir)
    assert done.exit_code == 1
    assert done.stderr.count("of 8 rollouts, and an average of them would be of the short ones") == 2


def test_a_record_is_graded_again_and_each_changed_answer_is_printed(engine, data_dir, tmp_path):
    """The verdicts of the first version stay where they are, and are what the new ones are compared with."""
    store = tmp_path / "records"
    with pytest.raises(KeyboardInterrupt):
        evaluate(Counting(engine, 7), [REPLACE], ["amc"], SAMPLING, limit=2, data_dir=data_dir, records=store)
    [name] = RecordStore(store).names()
    record = RecordStore(store).read(*name)
    golds = {f"amc/{key}": gold for key, gold in find_benchmark("amc", str(data_dir)).golds.items()}
    right = record.grade(golds)
    first = min(right)
    kinds = {key: verdict.kind for key, verdict in right.items()}
    old = {**kinds, first: "correct" if kinds[first] != "correct" else "wrong"}
    with record.lock():
        record.judge("robust", [(row, golds[row.problem], Verdict(old[row.key])) for row in record])
    command = ["records", "grade", "--store", str(store), "--data-dir", str(data_dir)]
    told = run(*command)
    changed, total = told.output.splitlines()
    assert f"{first[0]} sample {first[1]}: {old[first]} -> {kinds[first]}  gold " in changed
    assert f"{len(kinds)} graded by {ROBUST}, 1 changed, 0 for the first time" in total
    record.read()
    assert {key: one.kind for key, one in record.verdicts(ROBUST).items()} == kinds
    assert {key: one.kind for key, one in record.verdicts("robust").items()} == old
    assert ", 0 changed, 0 for" in invoke(*command).output


def test_named_problems_alone_are_decoded_with_their_traces(engine, data_dir, tmp_path):
    """`view --problem` decoded the first ones, and then said that the named one was not there."""
    counting, names = Counting(engine), [*find_benchmark("amc", data_dir).golds]
    spec = asked([REPLACE, "rl"], ["amc", "aime24"], Sampling(samples=2, max_tokens=8), data_dir=data_dir)
    jobs = traced(spec, tmp_path, engine=counting, problems=[names[2]], progress=False, inspect_only=True)
    assert counting.decoded == 4
    assert {request.problem for job in jobs for request in job.requests} == {f"amc/{names[2]}"}
    with refuses("problem", "nosuch"):
        traced(spec, tmp_path, engine=counting, problems=["nosuch"], progress=False)
    with refuses("task", "nosuch"):
        traced(spec.model_copy(update={"tasks": ("nosuch",)}), tmp_path, engine=counting, progress=False)
    assert counting.decoded == 4
