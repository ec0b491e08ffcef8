"""What is counted of gated decodings, against loops over every token; and the whole command on the tiny pair."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from rlvr_dir.analysis.gated import AFTER, RUNS, TOKENS, Gated
from rlvr_dir.analysis.records import once
from rlvr_dir.decode import Trace
from rlvr_dir.evals.traces import trace_of
from rlvr_dir.records import Row
from tests.commands import refused, run
from tests.facts import states


@pytest.fixture(scope="module")
def gated(made):
    random = np.random.default_rng(0)
    rollouts = []
    for rollout, *_ in made:
        replaced = random.random(len(rollout.token_ids)) < 0.4
        changed = replaced & (random.random(replaced.size) < 0.6)
        rollouts.append(
            Row.make(
                *rollout.key,
                "",
                "stop",
                replaced,
                changed,
                rollout.token_ids,
                (1,),
                rollout.delta_logp,
                trace=rollout.trace,
            )
        )
    return rollouts


def test_every_count_is_that_of_a_loop_over_tokens(gated):
    one = Gated().add_all(gated)
    by_token, by_tenth = np.zeros((len(TOKENS), 2)), np.zeros((10, 2))
    entropy, kept, after = np.zeros((2, 2, 2)), np.zeros((2, 2)), np.zeros((2, AFTER, 2))
    runs = dict.fromkeys(range(1, RUNS + 1), 0)
    for rollout in gated:
        trace, n = Trace(rollout.trace), len(rollout.token_ids)
        run = 0
        for t in range(n):
            hit = bool(rollout.replaced[t])
            bin_ = max(k for k, begin in enumerate(TOKENS) if begin <= t)
            by_token[bin_] += hit, 1
            by_tenth[10 * t // n] += hit, 1
            for column, who in enumerate(("base", "rl")):
                entropy[0 if hit else 1, column] += trace.fact(f"entropy_{who}")[t], 1
                if not rollout.changed[t]:
                    p = np.exp(float(trace.fact(f"logp_{who}")[t]))
                    kept[column] += p, 1
                    for k in range(1, AFTER + 1):
                        if t >= k and rollout.changed[t - k]:
                            after[column, k - 1] += p, 1
            run = run + 1 if hit else 0
            if run and (t + 1 == n or not rollout.replaced[t + 1]):
                runs[min(run, RUNS)] += 1
    assert one.runs.tolist() == list(runs.values())
    sums = {
        "share": np.array([sum(r.replaced.sum() for r in gated), sum(r.replaced.size for r in gated)]),
        "changed": np.array([sum(r.changed.sum() for r in gated), sum(r.replaced.sum() for r in gated)]),
        "other": np.array([sum(trace_of(r).fact("tv_other")[np.asarray(r.replaced)].sum() for r in gated),
                           sum(r.replaced.sum() for r in gated)]),
        "by_token": by_token, "by_tenth": by_tenth, "entropy": entropy, "kept": kept, "after": after,
    }  # fmt: skip
    for name, expected in sums.items():
        got = sum(counts[name] for counts in one.problems.values())
        np.testing.assert_allclose(got, expected, rtol=1e-5, err_msg=name)
    found, of = one.estimate("after", 1, 0)
    assert (found.value, of) == (pytest.approx(after[1, 0, 0] / after[1, 0, 1]), after[1, 0, 1])
    assert found.low < found.value < found.high
    mean, _ = one.estimate("entropy", 1, 0)
    assert mean.value == pytest.approx(entropy[1, 0, 0] / entropy[1, 0, 1])
    assert 1 < mean.low < mean.value < mean.high


def test_responses_that_two_benchmarks_share_are_counted_once():
    """As those to minerva, which minerva_r1zero grades by other answers."""
    jobs = [SimpleNamespace(task=task, record=record) for task, record in (("a", "1/a"), ("b", "1/a"), ("c", "1/c"))]
    assert [job.record for job in once(jobs)] == ["1/a", "1/c"]


def test_the_command_counts_decodes_nothing_twice_and_is_drawn(tmp_path):
    asked = ["analyse", "gated", "--tasks", "tiny_easy", "--limit", "3", "--samples", "2", "--max-tokens", "40"]
    asked += ["--backend", "transformers", "--records", str(tmp_path / "records"), "--out", str(tmp_path)]
    states(refused(*asked, "-d", "rl"), "replace", "extrapolate")
    decodings = ["-d", "rl", "-d", "replace,tau=-0.1", "-d", "extrapolate,criterion=always,gamma=-0.5,window=4:"]
    run(*asked, *decodings)
    found = json.loads((tmp_path / "gated.json").read_text())["tables"]
    assert [one["label"] for one in found["decodings"]] == ["replace τ-0.1", "extrapolate γ-0.5 always @4:"]
    every = found["decodings"][1]
    assert (every["runs_5"], every["runs_6"]) == (0, 6)  # from the fifth token to the end, in each of six responses
    everywhere = [one for one in found["positions"] if one["label"].startswith("extra") and one["by"] == "by_token"]
    assert [one["share"] for one in everywhere[:5]] == [0.0, 0.0, 0.0, 1.0, 1.0]
    held = {path: path.read_bytes() for path in (tmp_path / "records").rglob("*") if path.is_file()}
    run(*asked, *decodings)
    assert {path: path.read_bytes() for path in held if path.name != "lock"}.items() <= held.items()
    run("report", "--analysis", tmp_path / "gated.json", "--out", tmp_path / "report")
    assert "replace τ-0.1" in (tmp_path / "report" / "report.md").read_text()
