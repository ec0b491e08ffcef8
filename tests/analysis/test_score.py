"""Scores of given texts: every number from the logits, what explains log-probabilities, resuming, the page."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas
import pytest
import torch

import rlvr_dir
from rlvr_dir.analysis.score import score
from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import Decoding, EngineSpec, Pair, Sampling
from rlvr_dir.decode import Request, open_engine
from rlvr_dir.decode.transformers_pair import TransformersPair
from rlvr_dir.report.scored import lines, page
from rlvr_dir.report.write import write
from rlvr_dir.tiny import tiny_pair
from tests.facts import refuses, states

ENGINE = {"backend": "transformers"}
HOSTILE = "</script><img src=x onerror=alert(1)>"


def place(step):
    return resolve(Pair(base=f"tiny@{step}", rl=f"tiny@{step}")).rl


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory):
    """By (step, temperature, top-p): what the tiny RL model of a step wrote, with its log-probabilities."""
    problems = [f"Ann has {20 + i} pens a gets {i} b sees 3 how many ?" for i in range(40)]

    def make(step, temperature=1.0, top_p=1.0, n=40):
        pair = tiny_pair().replace(rl=place(step))
        sampling, decoding = Sampling(max_tokens=48, temperature=temperature, top_p=top_p), Decoding(mode="rl")
        with open_engine(pair, EngineSpec(**ENGINE)) as engine:
            prompts = [engine.chat_prompt([{"role": "user", "content": problem}]) for problem in problems[:n]]
            requests = [
                Request(p, f"t/{i}", decoding=decoding, sampling=sampling, trace=0) for i, p in enumerate(prompts)
            ]
            return [
                {"prompt_ids": [*one.prompt_token_ids], "completion_ids": [*one.token_ids],
                 "logprobs": one.trace.fact("logp_rl").tolist()}
                for one in engine.generate(requests)
            ]  # fmt: skip

    return {key: make(*key) for key in ((4, 1.0, 1.0), (8, 0.8, 1.0), (4, 1.0, 0.7))}


def written(folder, rows):
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scored(folder, rows, **options):
    return score(tiny_pair(), written(folder, rows), out=folder / "scored", engine=ENGINE, **options)


def test_every_number_is_that_of_the_logits(rollouts, tmp_path):
    rows = rollouts[4, 1.0, 1.0][:6]
    rows[:3] = [{**row, "completion_mask": [i % 3 > 0 for i in range(len(row["completion_ids"]))]} for row in rows[:3]]
    scores = scored(tmp_path, [*rows, {"text": "so 45"}])
    lb, lr, tokens, kept = [], [], [], []
    with open_engine(tiny_pair(), EngineSpec(**ENGINE)) as engine:
        for text in scores.texts:
            both = engine.logits([*text.before, *text.tokens])
            at = slice(len(text.before) - 1, -1)
            for each, logits in zip((lb, lr), both, strict=True):
                each.append(logits[at, : engine.checkpoints.shared].double().log_softmax(1))
            tokens += text.tokens
            kept.append(text.counted)
    base, rl, y, counted = torch.cat(lb), torch.cat(lr), torch.tensor(tokens)[:, None], np.concatenate(kept)

    def mean(values):
        return float(values[torch.from_numpy(counted)].double().mean())

    p, q, mid = base.exp(), rl.exp(), ((base.exp() + rl.exp()) / 2).log()
    delta = (rl - base).gather(1, y)[:, 0].abs()
    wanted = {
        "kl_rl_base": mean((q * (rl - base)).sum(1)), "kl_base_rl": mean((p * (base - rl)).sum(1)),
        "js": mean((p * (base - mid) + q * (rl - mid)).sum(1) / 2), "abs_delta_logp": mean(delta),
        "beyond_0.1": mean(delta > 0.1), "beyond_1": mean(delta > 1), "same_top": mean(base.argmax(1) == rl.argmax(1)),
        "max_delta_logp": float(delta[torch.from_numpy(counted)].max()),
        "perplexity_base": np.exp(mean(-base.gather(1, y)[:, 0])),
        "perplexity_rl": np.exp(mean(-rl.gather(1, y)[:, 0])),
    }  # fmt: skip
    for name, value in wanted.items():
        assert scores.numbers[name].value.value == pytest.approx(value, rel=1e-3, abs=1e-5), name
    assert scores.tokens == counted.sum() < len(tokens)
    frame = scores.frame()
    assert frame.counted.tolist() == counted.tolist()
    assert frame.token.tolist() == tokens
    known = frame.logp_rollout.notna()
    file = [p for row, of_text in zip(rows, kept, strict=False) for p in np.array(row["logprobs"])[of_text]]
    assert np.allclose(frame.logp_rollout[known], file)
    own = rlvr_dir.tokens(tmp_path / "scored")
    assert own.logp_rl.tolist() == frame.logp_rl.tolist()


@pytest.mark.parametrize(
    ("key", "change", "explained"),
    [
        ((8, 0.8, 1.0), {"temperature": 0.8}, None),
        ((8, 0.8, 1.0), {}, ("rl", (0.8, 1.0), 0)),  # a wrong temperature
        ((4, 1.0, 1.0), {"candidates": {"step 4": 4}}, ("step 4", (1.0, 1.0), 0)),  # stale weights
        ((4, 1.0, 1.0), {"candidates": {"step 4": 4}, "writer": "step 4"}, None),
        ((8, 0.8, 1.0), {"temperature": 0.8, "moved": 1}, ("rl", (0.8, 1.0), 1)),
        ((8, 0.8, 1.0), {"temperature": 0.8, "moved": -1}, ("rl", (0.8, 1.0), -1)),
    ],
)
def test_what_is_wrong_with_log_probabilities_is_named(rollouts, tmp_path, key, change, explained):
    change = dict(change)
    moved = change.pop("moved", 0)
    if "candidates" in change:
        change["candidates"] = {name: place(step) for name, step in change["candidates"].items()}
    rows = [{**row, "logprobs": np.roll(row["logprobs"], -moved).tolist()} for row in rollouts[key]]
    scores = scored(tmp_path, rows, **change)
    fit, off = scores.explanation, scores.numbers["off_spread"].value.value
    assert (None if fit is None else fit[1:]) == explained
    if explained is None:
        assert off < 1e-3
        assert scores.numbers["off_ratio"].value.value == 0
    else:
        assert off > 0.01
        assert fit.distance < 1e-4 or moved  # the numbers at the ends were another text's
        states(" ".join(lines(scores)), explained[0], f"{explained[1][0]:g}")


def test_stale_weights_are_found_by_who_wrote(rollouts, tmp_path):
    options = {"candidates": {"step 4": place(4), "step 6": place(6)}, "top_p": 0.7}
    verdict = scored(tmp_path, rollouts[4, 1.0, 0.7], **options).verdict
    assert (verdict.kind, verdict.name, verdict.own) == ("wrote", "step 4", 0)
    assert 0 < verdict.tokens < sum(len(row["completion_ids"]) for row in rollouts[4, 1.0, 0.7])
    other = scored(tmp_path, rollouts[4, 1.0, 0.7], candidates={"step 4": place(4)}, top_p=1.0).verdict
    assert (other.kind, other.setting) == ("neither", (1.0, 0.7))


RUN = """
import sys, time
from rlvr_dir.decode.transformers_pair import TransformersPair
read = TransformersPair.read_given
def slowly(self, texts, scoring):
    for place, table in read(self, texts, scoring):
        yield place, table
        print("scored", flush=True)
        time.sleep(0.05)
TransformersPair.read_given = slowly
from rlvr_dir.cli import main
main()
"""


def test_a_killed_run_resumes_and_a_finished_one_scores_nothing(rollouts, tmp_path, monkeypatch):
    path = written(tmp_path, rollouts[4, 1.0, 1.0])
    words = ["score", path, "--who", "--backend", "transformers", "--out", tmp_path / "scored"]
    with subprocess.Popen([sys.executable, "-c", RUN, *map(str, words)], stdout=subprocess.PIPE, text=True) as process:
        for _ in range(9):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    read, asked = TransformersPair.read_given, []

    def counting(self, texts, scoring):
        asked.append(len(texts))
        return read(self, texts, scoring)

    monkeypatch.setattr(TransformersPair, "read_given", counting)
    first = scored(tmp_path, rollouts[4, 1.0, 1.0], candidates={})
    assert len(asked) == 1
    assert 25 <= asked[0] <= 40 - 8
    again = scored(tmp_path, rollouts[4, 1.0, 1.0], candidates={})
    assert len(asked) == 1
    assert again.numbers == first.numbers
    assert again.verdict == first.verdict
    whole = score(tiny_pair(), path, out=tmp_path / "other", engine=ENGINE, candidates={})
    assert whole.frame().equals(first.frame().assign(record=whole.frame().record))
    with (tmp_path / "texts.jsonl").open("a") as file:  # another file is another record
        file.write('{"text": "so 45"}\n')
    score(tiny_pair(), path, out=tmp_path / "scored", engine=ENGINE)
    assert asked[-1] == 41


def test_the_command_answers_first_and_writes_what_it_says(rollouts, tmp_path, typed):
    path = written(tmp_path, rollouts[4, 1.0, 0.7])
    out = tmp_path / "scored"
    done = typed(
        "score", path, "--candidate", f"step-4={place(4)}", "--top-p", 0.7, "--backend", "transformers", "--out", out
    )
    assert done.returncode == 0, done.stderr
    states(done.stdout.splitlines()[0], "step-4", "0.7")
    written_numbers = json.loads((out / "score.json").read_text())
    assert written_numbers["facts"]["who"]["name"] == "step-4"
    assert {row["name"] for row in written_numbers["tables"]["numbers"]} >= {"kl_rl_base", "off_ratio"}
    frame = pandas.read_parquet(out / "tokens.parquet")
    assert len(frame) == sum(len(row["completion_ids"]) for row in rollouts[4, 1.0, 0.7])
    assert {"text", "token", "logp_base", "logp_rl", "js", "logp_rollout"} <= {*frame.columns}
    assert (out / "report.html").stat().st_size > 10_000


def test_hostile_text_stays_text(tmp_path):
    rows = [{"prompt": HOSTILE, "response": f"so {HOSTILE} 45"}, {"text": "so \u202e 45 \x1b[31m"}]
    scores = scored(tmp_path, rows, candidates={})
    whole = write(page(scores), tmp_path / "page").read_text()
    assert HOSTILE not in whole
    assert "\x1b" not in whole
    assert "\u202e" not in whole


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"writer": "step 9"}, ("writer", "step 9", "base, rl")),
        ({"candidates": {"rl": "x"}}, ("candidate", "rl")),
        ({"candidates": {"a": "/nowhere/at/all"}}, ("rl", "/nowhere/at/all")),
        ({"top_p": 1.5}, ("top_p", 1.5)),
        ({"temperature": -1}, ("temperature", -1)),
    ],
)
def test_what_cannot_be_meant_is_refused_before_a_model_loads(tmp_path, monkeypatch, options, facts):
    monkeypatch.setattr(TransformersPair, "load", lambda _: pytest.fail("a model was loaded"))
    with refuses(*facts):
        scored(tmp_path, [{"text": "so 45"}], **options)


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("score", "a", "b"), (2,)), (("score", "a", "b", "c", "--pair", "tiny"), ("--pair",)),
        (("score", "a", "--candidate", "x"), ("--candidate", "NAME=DIR")),
        (("analyse", "texts", "a", "--out", "b"), ("rlvr-dir score",)),
        (("score", "nowhere.jsonl"), ("nowhere.jsonl",)), (("score", "a", "--top-p", "0"), ("--top-p",)),
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_meant_is_one_sentence(typed, tmp_path, words, facts):
    done = typed(*words, *(("--out", tmp_path / "scored") if words[0] == "score" else ()))
    assert done.returncode == 2
    states(done.stderr, *facts)
    assert "Traceback" not in done.stderr


def test_likelihoods_that_nobody_asked_for_are_not_computed(tmp_path):
    scores = scored(tmp_path, [{"text": "so 45"}])
    assert scores.verdict is None
    assert not scores.likelihoods
    assert not (tmp_path / "scored" / "likelihoods").exists()
