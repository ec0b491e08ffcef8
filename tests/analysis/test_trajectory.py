"""A training by step on the tiny pair: every number against a loop, the command, and what a second start finds done."""

import pytest
import torch

from harness.analysis import trajectory
from harness.analysis.result import Analysis
from harness.decode import open_engine
from harness.errors import UserError
from harness.evals.places import read_results
from harness.records import RecordStore
from harness.report.training import trajectory_chapter
from harness.spec import EngineSpec, find_pair
from harness.tiny import checkpoints
from tests.commands import invoke, run
from tests.decode.test_loading import of_two_vocabularies

DRAWN = ["--limit", "3", "--samples", "3", "--max-tokens", "60", "--backend", "transformers"]
NAMES = ("tiny@2", "tiny@8")


def follow(path, *more):
    records = ["--records", str(path / "records"), "--out", str(path / "out")]
    run("analyse", "trajectory", *NAMES, "--tasks", "tiny_easy", *DRAWN, "--texts", "2", *records, *more)
    return Analysis.read(path / "out" / "trajectory.json")


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    path = tmp_path_factory.mktemp("followed")
    return path, follow(path)


def test_scores_are_those_of_eval_and_base_comes_first(followed, tmp_path):
    tables = followed[1].tables
    assert [each["checkpoint"] for each in tables["scores"]] == ["base", *NAMES]
    for each in tables["scores"]:
        name, out = each["checkpoint"], tmp_path / each["checkpoint"]
        mode = ["--mode", "base", "--pair", "tiny"] if name == "base" else ["--mode", "rl", "--pair", name]
        places = ["--records", str(out / "records"), "--out", str(out)]
        run("eval", "--tasks", "tiny_easy", *DRAWN, *mode, "--no-track", *places)
        (result,) = read_results([str(out)])
        assert each["accuracy"] == pytest.approx(float(result.correct.mean()))
    pairs = [(each["label"], each["minus"]) for each in tables["differences"]]
    assert pairs == [("tiny@2", "base"), ("tiny@8", "base"), ("tiny@8", "tiny@2")]
    by_label = {each["checkpoint"]: each["accuracy"] for each in tables["scores"]}
    for each in tables["differences"]:
        assert each["difference"] == pytest.approx(by_label[each["label"]] - by_label[each["minus"]])


def test_every_sum_is_that_of_a_loop_over_tokens(followed):
    path, found = followed
    store = RecordStore(path / "records")
    texts = {}
    for who, record in zip(("base", "rl"), found.facts["records"], strict=True):
        snapshot = store.read(*record.split("/"))
        texts[who] = [snapshot.rows[key] for key in snapshot.held if key[1] < 2]
        [extent] = [row for row in found.tables["texts"] if row["writer"] == who]
        assert extent["tokens"] == sum(len(each.token_ids) for each in texts[who])
    for name in NAMES:
        engine = open_engine(checkpoints(find_pair(name)), EngineSpec(backend="transformers"))
        for who, rollouts in texts.items():
            below = above = n = 0
            delta = forward = entropy = 0.0
            for rollout in rollouts:
                prompt = rollout.prompt_token_ids
                base, rl = (torch.log_softmax(x, -1).double() for x in engine.logits([*prompt, *rollout.token_ids]))
                for t, token in enumerate(rollout.token_ids):
                    lb, lr = base[len(prompt) - 1 + t], rl[len(prompt) - 1 + t]
                    d = float(lr[token] - lb[token])
                    n, delta, below, above = n + 1, delta + d, below + (d < -0.1), above + (d > 0.1)
                    forward += float((lr.exp() * (lr - lb)).sum())
                    entropy -= float((lr.exp() * lr).sum())
            [told] = [row for row in found.tables["checkpoints"] if (row["checkpoint"], row["writer"]) == (name, who)]
            sums = {"delta_logp": delta, "below": below, "above": above, "kl_rl_base": forward}
            assert {each: told[each] for each in sums} == pytest.approx({k: x / n for k, x in sums.items()}, abs=1e-5)
            assert told["entropy_rl"] == pytest.approx(entropy / n, abs=1e-4)
            assert told["kl"] == pytest.approx((told["kl_rl_base"] + told["kl_base_rl"]) / 2)
        engine.close()


def test_extrapolated_logits_are_compared_at_the_tokens_of_the_text(followed):
    """At all of them: there are fewer than 2,000."""
    path, found = followed
    rows = found.tables["extrapolated"]
    assert {(one["early"], one["late"], one["real"], one["gamma"]) for one in rows} == {("base", *NAMES, 3.0)}
    assert rows[0]["positions"] == sum(each["tokens"] for each in found.tables["texts"])
    two, eight = (open_engine(checkpoints(find_pair(name)), EngineSpec(backend="transformers")) for name in NAMES)
    stay = miss = 0.0
    for record in found.facts["records"]:
        snapshot = RecordStore(path / "records").read(*record.split("/"))
        for key in snapshot.held:
            if key[1] < 2:
                rollout = snapshot.rows[key]
                ids, n = [*rollout.prompt_token_ids, *rollout.token_ids], len(rollout.prompt_token_ids)
                base, late = (each[n - 1 : -1].double() for each in two.logits(ids))
                real = eight.logits(ids)[1][n - 1 : -1].double()
                base, late, real = (each - each.mean(1, keepdim=True) for each in (base, late, real))
                stay += float((real - late).square().sum())
                miss += float((real - (late + 3 * (late - base))).square().sum())
    for engine in (two, eight):
        engine.close()
    [one] = [row for row in rows if (row["over"], row["what"]) == ("all", "explained")]
    assert one["value"] == pytest.approx(1 - miss / stay, abs=1e-4)


def test_an_interrupted_command_goes_on_with_the_checkpoint_it_was_at(followed, tmp_path, monkeypatch):
    scored, sums = [], trajectory._sums

    def interrupted(pair, *rest):
        scored.append(pair.rl)
        if len(scored) == 2:
            raise KeyboardInterrupt
        return sums(pair, *rest)

    monkeypatch.setattr(trajectory, "_sums", interrupted)
    options = ["--records", str(followed[0] / "records"), "--out", str(tmp_path / "out")]
    asked = ["analyse", "trajectory", *NAMES, "--tasks", "tiny_easy", *DRAWN, "--texts", "2", *options]
    assert invoke(*asked).exit_code != 0
    run(*asked)
    assert [place.rsplit("/", 1)[1] for place in scored] == ["step-2", "rl", "rl"]
    assert Analysis.read(tmp_path / "out" / "trajectory.json") == followed[1]
    monkeypatch.setattr(trajectory, "_sums", None)
    run(*asked)
    refused = invoke(*asked, "--tau", "0").exception
    assert isinstance(refused, UserError)
    assert "--tau 0" in str(refused)


def test_the_report_draws_it(followed, tmp_path):
    run("report", "--analysis", str(followed[0] / "out" / "trajectory.json"), "--out", str(tmp_path))
    page = (tmp_path / "report.md").read_text()
    weights = {row["since"]: row for row in followed[1].tables["weights"] if row["checkpoint"] == NAMES[1]}
    drawn = trajectory_chapter(followed[1]).sections[0].frame
    [last] = drawn[(drawn["what"] == "weights norm") & (drawn["of"] == "since the checkpoint before")]["value"]
    assert last == weights["before"]["difference"] / weights["base"]["norm"]
    assert "2 checkpoints of one training, on tiny\\_easy (3 of 240 problems)" in page
    assert "base, tiny@2 → tiny@8" in (tmp_path / "figures" / "extrapolated.csv").read_text()


def test_responses_with_tokens_that_base_does_not_know_are_left_out(tmp_path):
    """The command crashed at the first of them."""
    pair = of_two_vocabularies(tmp_path)
    places = ["--base", pair.base, "--records", tmp_path / "records", "--out", tmp_path / "out"]
    with pytest.warns(UserWarning, match="only rl has 4 tokens"):
        told = run("analyse", "trajectory", pair.rl, "--steps", "8", "--tasks", "tiny_easy", *DRAWN, *places)
    texts = {row["writer"]: row for row in Analysis.read(tmp_path / "out/trajectory.json").tables["texts"]}
    assert texts["base"]["responses"] == 9
    assert texts["rl"]["responses"] < 9
    assert f"{9 - texts['rl']['responses']} responses of RL have tokens that base does not know" in told.output
