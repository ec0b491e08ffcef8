"""The real Inspect opens the logs that we export, and we what it makes of them."""

import pytest

from harness.evals.from_records import result_of_record
from harness.exchange.export import export
from harness.exchange.imported import import_foreign
from harness.exchange.inspect_log import STOPPED
from harness.exchange.material import Target
from harness.records import RecordStore
from tests.exchange.made import HUB, MODES, results
from tests.exchange.real_inspect import needs_inspect, read_log, run

pytestmark = [needs_inspect, pytest.mark.whole(reason="Inspect's environment")]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A result of a gated rule and its log."""
    [one] = results(tmp_path_factory.mktemp("records"), modes=MODES[3:4])
    return one, export([one], "inspect", tmp_path_factory.mktemp("logs"), Target()).files[0]


def test_its_reader_finds_our_numbers_texts_and_verdicts(exported):
    one, file = exported
    log = read_log(file)
    assert (log["status"], log["task"]) == ("success", one.task)
    assert log["model"] == "rlvr-dir/DAPO-Qwen-32B-with-Qwen2.5-32B-extrapolate-tau-0.3-gamma0.1"
    drawn = {name: getattr(one.sampling, name) for name in ("temperature", "top_p", "max_tokens", "seed")}
    assert {name: log["config"][name] for name in drawn} == drawn
    [mean, *_] = log["scores"].values()
    assert mean == pytest.approx({"mean": one.avg, "stderr": one.standard_error})
    rollouts = list(RecordStore(one.provenance["records"]).one(one.provenance["record"]))
    found = {tuple(sample["key"]): sample for sample in log["samples"]}
    assert len(found) == len(log["samples"]) == len(rollouts)
    for rollout in rollouts:
        problem = rollout.problem.rpartition("/")[2]
        sample = found[problem, rollout.sample + 1]
        assert (sample["text"], sample["stopped"]) == (rollout.text, STOPPED[rollout.finish_reason])
        right = one.correct[one.problem_ids.index(problem), rollout.sample]
        assert sample["right"] == ["C" if right else "I"]


def test_what_it_makes_of_our_log_comes_back(exported, tmp_path):
    """Inspect writes our JSON anew as its own `.eval`, a zip; nothing is lost on the way."""
    one, file = exported
    run("log", "convert", file, "--to", "eval", "--output-dir", tmp_path / "logs")
    [log] = (tmp_path / "logs").rglob("*.eval")
    told = import_foreign(tmp_path / "store", [log], base=HUB["base"], rl=HUB["rl"])
    again = result_of_record(RecordStore(tmp_path / "store").one(told["record"]), grader="official")
    assert (again.decoding, again.sampling, again.problem_ids) == (one.decoding, one.sampling, one.problem_ids)
    for name in ("correct", "n_tokens", "n_replaced", "n_changed", "truncated", "no_box", "votes"):
        assert (getattr(again, name) == getattr(one, name)).all(), name
    assert told["lacks"] == ["token_ids", "delta_logp"]
