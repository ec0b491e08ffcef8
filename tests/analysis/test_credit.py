"""Credit of tokens: on a pair whose truth is known, after a kill, by both engines, and as a command."""

import json
import os
import signal

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from rlvr_dir.analysis.credit import chosen, credit_statistics
from rlvr_dir.analysis.gated import gated_statistics
from rlvr_dir.cli import app
from rlvr_dir.config import Decoding, EngineSpec, EvalSpec, Sampling
from rlvr_dir.decode import open_engine
from rlvr_dir.errors import UserError
from rlvr_dir.evals.jobs import jobs_of
from rlvr_dir.evals.loop import run_jobs
from rlvr_dir.records import Record, RecordStore
from rlvr_dir.report.credit import credit_chapter
from rlvr_dir.report.rows import drawn
from rlvr_dir.stats import token_difference
from tests.analysis.made_pair import RL_LEFT, V, made_pair
from tests.broken import die_at, in_child
from tests.facts import refuses, states, warns_of

DELTA, ENTROPY = Decoding(mode="replace", tau=-0.1), Decoding(mode="replace", criterion="entropy_base", tau=0.3)
WORTH = 2 * V - 1  # what left is worth more than right


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Ask for an evaluation of the made-up pair on so many problems."""
    folder = tmp_path_factory.mktemp("made")
    pair = made_pair(folder)
    rows = [json.dumps({"id": str(i), "problem": f"p{i}", "answer": "1"}) for i in range(60)]
    (folder / "toy.jsonl").write_text("\n".join(rows))

    # The self-test sees that both models are one but for the head.
    def asked(limit, *decodings, samples=8, backend="transformers"):
        return EvalSpec(
            tasks=(f"toy={folder / 'toy.jsonl'}",), pair=pair, decodings=decodings, limit=limit,
            sampling=Sampling(samples=samples, top_p=1.0, max_tokens=12),
            engine=EngineSpec(backend=backend, self_test=False),
        )  # fmt: skip

    return asked


def holds(row, name, truth):
    return row[f"{name}_low"] <= truth <= row[f"{name}_high"]


def rows_of(found, table, **named):
    return [row for row in found.tables[table] if named.items() <= row.items()]


def test_credit_is_found_where_it_is_and_nowhere_else(made, tmp_path):
    found = credit_statistics(made(60, DELTA, ENTROPY), tmp_path, tokens=40, progress=False)
    label = DELTA.label()
    flagged = [
        rows_of(found, "effects", label=label, kind="flagged", over=over, verdict="any") for over in ("all", "changed")
    ]
    [all_], [changed] = flagged
    assert all_["tokens"] > 200
    assert holds(all_, "effect", RL_LEFT * WORTH)
    assert holds(changed, "effect", WORTH)
    for verdict, sign in (("wrong", 1), ("right", -1)):  # matches are all left, which RL seldom changes
        [match] = rows_of(found, "effects", label=label, kind="matched", over="all", verdict=verdict)
        assert match["tokens"] > 20
        assert match["changed"] / match["tokens"] == pytest.approx(1 - RL_LEFT, abs=0.09)
        assert 0 <= sign * match["effect"] <= match["changed"] / match["tokens"]
    # Base without "right" always goes left, as RL does where it changes the token: RL's left is worth no more.
    [own] = rows_of(found, "effects", label=label, kind="own", over="all", verdict="any")
    assert own["changed"] == own["tokens"] == all_["tokens"]
    assert holds(own, "effect", WORTH)
    [of_all, of_changed] = (
        rows_of(found, "differences", label=label, minus="own", over=o)[0] for o in ("all", "changed")
    )
    assert holds(of_all, "effect", (RL_LEFT - 1) * WORTH)
    assert (of_changed["effect"], of_changed["matter"]) == (0, 0)
    assert of_changed["tokens"] == all_["changed"]
    by = {row["from"]: row for row in rows_of(found, "strata", label=ENTROPY.label(), by="tenth", kind="flagged")}
    assert by.keys() == {0, 2, 4, 6}
    for nothing in (by[0], by[4]):  # fillers, which RL does change, and nothing follows from
        assert nothing["changed"] > 100
        assert (nothing["effect"], nothing["matter"]) == (0, 0)
    assert holds(by[2], "effect", (RL_LEFT - 0.5) * WORTH)
    assert by[2]["effect_low"] > 0
    assert holds(by[6], "effect", 0)  # the answer itself is a draw of one law
    for row in found.tables["check"]:
        assert holds(row, "difference", 0)
        assert row["tokens"] > 200


def test_an_undone_token_has_the_credit_of_the_done_one(made, tmp_path):
    found = credit_statistics(made(60, DELTA), tmp_path, tokens=40, undo=True, progress=False)
    [row] = rows_of(found, "effects", kind="flagged", over="all", verdict="any")
    assert row["tokens"] == row["changed"] > 200
    assert holds(row, "effect", WORTH)
    assert row["effect_low"] > 0
    assert list(credit_chapter(found).sections[0].frame["Changed tokens"]) == [row["tokens"]]
    mirror = Decoding(mode="extrapolate", primary="rl", gamma=-1.0, criterion="delta_logp", side="above", tau=0.1)
    [row] = rows_of(
        credit_statistics(made(60, mirror), tmp_path, tokens=10, noises=0, progress=False),
        "effects", kind="flagged", over="changed", verdict="any",
    )  # fmt: skip
    assert row["changed"] > 100
    assert holds(row, "effect", -WORTH)  # base's right in place of RL's left


def test_matches_are_of_the_same_problem_depth_and_strata(made, tmp_path):
    rule = Decoding(mode="replace", criterion="kl", tau=0.1)
    spec = made(6, Decoding(mode="base"), samples=4)
    with open_engine(spec.pair, spec.engine) as engine:
        [job] = jobs_of(spec, engine, trace=0)
        for _ in run_jobs(engine, [job], RecordStore(tmp_path)):
            pass
        record = job.read(RecordStore(tmp_path))
        for gate, kept in ((rule, ["tenth", "entropy", "size"]), (DELTA, ["tenth", "entropy"])):
            part = chosen(job, record, gate, most=3, noises=0, undo=False, seed=0)
            flagged, matched = (part[part["kind"] == kind] for kind in ("flagged", "matched"))
            assert flagged.groupby("problem").size().max() == 3
            assert flagged["flagged"].all()
            assert not matched["flagged"].any()
            assert not matched.duplicated(["problem", "sample", "at"]).any()
            both = flagged.merge(matched, on=["problem", "match"], suffixes=("", "_of"))
            assert len(both) == len(matched)
            assert all((both[name] == both[f"{name}_of"]).all() for name in [*kept, "right"])
            more = chosen(job, record, gate, most=5, noises=0, undo=False, seed=0)
            held = {(row.problem, row.sample, row.at) for row in more.itertuples()}
            assert {(row.problem, row.sample, row.at) for row in flagged.itertuples()} < held


def test_a_killed_study_goes_on(made, tmp_path, monkeypatch):
    """It dies of -9 half-way through writing its 101st replay."""
    spec, kept, keep = made(8, DELTA, ENTROPY, samples=3), [], Record.keep_replay
    monkeypatch.setattr(
        Record, "keep_replay", lambda self, one: (len(kept) == 100 and die_at(0), keep(self, one), kept.append(one))
    )
    child = in_child(lambda: credit_statistics(spec, tmp_path / "one", tokens=6, progress=False))
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    torn = RecordStore(tmp_path / "one").record("")
    before = [*torn.replays.values()]  # of some the draw and the verdict were written
    assert torn.tail
    monkeypatch.setattr(Record, "keep_replay", lambda self, one: (keep(self, one), kept.append(one)))
    with warns_of("entry"):
        found = credit_statistics(spec, tmp_path / "one", tokens=6, progress=False)
    first = [each for each in kept if each not in before]
    assert len(kept) == len(first) > 50
    kept.clear()
    assert found == credit_statistics(spec, tmp_path / "other", tokens=6, progress=False)
    assert len(kept) == 100 + len(first)


@pytest.mark.vllm
def test_vllm_replays_the_same(made, tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    one, other = (
        credit_statistics(made(6, DELTA, samples=4, backend=name), tmp_path / name, tokens=4, progress=False)
        for name in ("transformers", "vllm")
    )
    assert one.tables == other.tables
    assert one.tables["check"][0]["tokens"] > 10


def test_benchmarks_that_share_their_responses_are_refused(real_data, made, tmp_path):
    shared = {"tasks": ("minerva", "minerva_r1zero"), "data_dir": real_data}
    spec = made(2, Decoding(mode="replace", tau=-0.1)).model_copy(update=shared)
    with refuses("tasks", "minerva_r1zero"):
        credit_statistics(spec, tmp_path, progress=False)


THEIRS = """
task: theirs
dataset_path: json
dataset_kwargs: {data_files: {test: "DATA"}}
test_split: test
output_type: generate_until
doc_to_text: "{{problem}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["."], DRAWING}
metric_list: [{metric: exact_match}]
"""


def beside_theirs(made, folder, drawing):
    """Ask for a task of lm-eval's as well, which draws in its own way where nothing else is said."""
    (folder / "data.jsonl").write_text('{"problem": "p1", "answer": "1"}\n')
    (folder / "theirs.yaml").write_text(THEIRS.replace("DATA", str(folder / "data.jsonl")).replace("DRAWING", drawing))
    spec = made(2, DELTA)
    asked = {"tasks": (*spec.tasks, "theirs"), "include_path": folder, "sampling": Sampling(max_tokens=12)}
    return spec.model_copy(update=asked)


@pytest.mark.parametrize("statistics", [credit_statistics, gated_statistics])
def test_tasks_that_draw_in_ways_of_their_own_are_refused(statistics, made, tmp_path):
    with pytest.raises(UserError) as error:
        statistics(beside_theirs(made, tmp_path, "do_sample: false"), tmp_path / "records", progress=False)
    assert error.value.argument == "sampling"
    assert states(error.value, "theirs", "toy")
    assert not (tmp_path / "records").exists()


def test_tasks_may_have_samples_of_their_own(made, tmp_path):
    spec = beside_theirs(made, tmp_path, "do_sample: true, temperature: 1.0, top_p: 0.7")
    assert drawn(gated_statistics(spec, tmp_path / "records", progress=False)) == "1 or 32 samples, T = 1, top-p 0.7"


def test_the_command_tells_the_price_decodes_nothing_twice_and_is_drawn(tmp_path):
    def run(*command):
        done = CliRunner().invoke(app, list(command), catch_exceptions=False)
        return done.exit_code, done.output

    asked = ["analyse", "credit", "--tasks", "tiny_easy", "--limit", "6", "--samples", "2", "--max-tokens", "60"]
    asked += ["--tokens", "3", "--backend", "transformers", "--records", str(tmp_path / "records")]
    asked += ["--out", str(tmp_path)]
    with refuses("decodings", "extrapolate"):
        run(*asked, "-d", "rl")
    code, said = run(*asked, "--dry-run")
    assert code == 0
    assert "12 responses are to be decoded first, of at most 60 tokens each; then at most" in said
    with refuses("criterion", "coupling"):
        run(*asked, "-d", "replace,criterion=coupling")
    code, said = run(*asked)
    assert code == 0, said
    with refuses("decodings", "tiny_easy"):
        run(*asked, "-d", "replace,tau=-99")
    code, said = run(*asked, "-d", "replace,tau=-99", "-d", "replace,tau=-0.1")
    assert code == 0
    assert "replace τ-99 flags no token" in said
    held = {path: path.read_bytes() for path in (tmp_path / "records").rglob("*") if path.is_file()}
    assert "0 tokens to draw, then about 0 replays" in run(*asked, "--dry-run")[1]
    assert run(*asked)[0] == 0
    assert {path: path.read_bytes() for path in held if path.name != "lock"}.items() <= held.items()
    run("report", "--analysis", str(tmp_path / "credit.json"), "--out", str(tmp_path / "report"))
    assert "Does this token matter? tiny pair" in (tmp_path / "report" / "report.md").read_text()


def test_the_difference_of_two_means_is_that_of_a_paired_t_test():
    random = np.random.default_rng(0)
    a, b, ones = random.normal(size=12), random.normal(size=12), np.ones(12)
    test = stats.ttest_rel(a, b).confidence_interval()
    found = token_difference((a, ones), (b, ones))
    assert (found.low, found.value, found.high) == pytest.approx((test.low, (a - b).mean(), test.high))
    twice = token_difference((2 * a, 2 * ones), (b, ones))
    assert twice.value == pytest.approx(found.value)
    assert token_difference((a, ones), (b, 0 * ones)).value is None
