"""Comparing finished results: right differences of what is alike, corrected, and refusals; responses as a frame."""

import itertools
import json
import os

import numpy as np
import pandas
import pytest

from rlvr_dir import stats
from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.results import frame
from rlvr_dir.results.compare import (
    compare,
    comparisons,
    contrast_name,
    five_parts,
    markdown,
    other_contrasts,
    problems_needed,
    unmatched_reasons,
)
from rlvr_dir.results.load_results import read_results
from rlvr_dir.results.result import read_any_result
from rlvr_dir.results.settings import settings_of
from rlvr_dir.results.show import warnings
from tests.commands import invoke, refused, run
from tests.facts import refuses, states
from tests.report.made import lm_eval_result
from tests.results.made import made as made_result


def result(decoding, accuracy, task="aime24", seed=0, problems=12, samples=8, noise=0, rl="rl", name="", **other):
    correct = np.random.default_rng(seed).random((problems, samples)) < accuracy
    sampling = {key: other.pop(key) for key in ("temperature", "top_p", "max_tokens") if key in other}
    engine = {"backend": "vllm", "pair": {"base": "base", "rl": rl}}
    return made_result(
        decoding, correct, task=task, sampling=Sampling(samples=samples, seed=noise, **sampling), name=name,
        problem_ids=tuple(f"{task}-{i}" for i in range(problems)), n_replaced=0 * correct,
        provenance={"engine": engine, "grader": "robust", "data": "d" * 16, **other},
    )  # fmt: skip


def made(results, *how, **more):
    return compare(settings_of(results), *how, **more)


def pairs(rows):
    return [(row.result.decoding, row.reference.decoding) for row in rows]


BASE, RL, CONTROL = Decoding(mode="base"), Decoding(mode="rl"), Decoding(mode="replace", tau=-0.3)
EXTRA = Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)


def test_differences_are_paired_and_corrected_over_all_benchmarks():
    results = [
        result(d, a, task, seed)
        for seed, (d, a) in enumerate([(RL, 0.5), (CONTROL, 0.6), (EXTRA, 0.9)])
        for task in ("aime24", "amc")
    ]
    rows = made(results, "rl")
    assert [(r.task, r.result.decoding) for r in rows] == [
        ("aime24", CONTROL), ("aime24", EXTRA), ("amc", CONTROL), ("amc", EXTRA)
    ]  # fmt: skip
    for row in rows:
        assert row.difference == stats.paired_difference(row.result.first.correct, row.reference.first.correct)
    assert [r.holm_p for r in rows] == stats.holm([r.difference.p for r in rows]).tolist()
    assert f"{100 * rows[1].difference.mean:+.2f}" in markdown(rows)


def test_a_reference_is_a_label_a_mode_a_name_or_a_hash():
    results = [result(RL, 0.5), result(CONTROL, 0.6, seed=1), result(EXTRA, 0.7, seed=2)]
    assert {r.reference.decoding for r in made(results, "replace τ-0.3")} == {CONTROL}
    assert {r.reference.decoding for r in made(results, "extrapolate")} == {EXTRA}
    assert {r.reference.decoding for r in made(results, results[1].config_hash[:6])} == {CONTROL}
    trained = [result(RL, 0.5, rl="one", name="DAPO"), result(RL, 0.6, rl="two", name="Ours")]
    [row] = made(trained, "DAPO")
    assert (row.result.label, row.reference.label) == ("rl (Ours)", "rl (DAPO)")


@pytest.mark.parametrize(
    ("results", "against", "words"),
    [
        ([result(RL, 0.5), result(CONTROL, 0.5)], "base", "against base aime24"),
        (
            [result(RL, 0.5, rl="a"), result(RL, 0.5, rl="b"), result(CONTROL, 0.5, rl="c")], "rl",
            "against 2 aime24 τ-0.3",
        ),
        ([result(RL, 0.5)], "rl", "benchmark"),
    ],
)  # fmt: skip
def test_a_reference_that_is_not_there_or_not_the_only_one(results, against, words):
    with refuses(*words.split()):
        made(results, against)


@pytest.mark.parametrize(
    ("what", "other", "label"),
    [
        ("grader", {"grader": "plain"}, "plain"),
        ("grader", {"graded_with": {"code": "8c1f"}}, "8c1f"),
        ("data", {"data": "e" * 16}, "data eeeeee"),
        ("problems", {"problems": 11}, "11 of 30 problems"),
        ("temperature", {"temperature": 0.6}, "T = 0.6"),
        ("top_p", {"top_p": 0.9}, "top-p 0.9"),
        ("max_tokens", {"max_tokens": 100}, "100 tokens"),
    ],
)
@pytest.mark.parametrize("against", [None, "rl"])
def test_only_like_is_compared(what, other, label, against):
    """An audit's reproduction: replace graded by `plain` minus RL graded by `robust` was -27 points, without a word."""
    results = [result(RL, 0.8), result(CONTROL, 0.5, seed=1, **other)]
    with refuses("--across", label, what, what):
        made(results, against)
    [row] = compare(settings_of(results, [what]), against, [what])
    assert pairs([row]) == [(CONTROL, RL)]
    if what != "problems":  # which are then the common ones
        assert row.result.label.startswith(f"{CONTROL.label()} (")
    assert row.difference.n == min(r.correct.shape[0] for r in results)


def test_the_problems_that_a_gain_needs_are_said_where_that_is_asked_for(tmp_path):
    files = [str(one.write(tmp_path)) for one in (result(RL, 0.5), result(CONTROL, 0.5, seed=1))]
    assert "would be needed" not in invoke("compare", *files).output
    told = invoke("compare", *files, "--gain", "2").output
    one, other = (read_results([file])[0].correct for file in reversed(files))
    spread = stats.paired_spread(one, other)
    *_, problems, samples, shown, needed = [cell.strip() for cell in told.splitlines()[-1].strip("| ").split("|")]
    assert (problems, samples) == ("12", "8")
    assert int(needed.replace(",", "")) == stats.problems_needed(0.02, spread, 8)
    assert float(shown) == pytest.approx(100 * stats.detectable_gain(spread, 12, 8), abs=0.05)
    coins = [result(RL, 0.5, samples=1), result(CONTROL, 0.5, seed=1, samples=1)]
    assert problems_needed(made(coins), 0.02).splitlines()[-1].strip("| ").split("|")[-1].strip() == "1"  # the samples
    few = made([result(RL, 0.5, problems=2, samples=2), result(CONTROL, 0.5, seed=1, problems=2, samples=2)])
    assert "| none |" in " ".join(problems_needed(few, 0.02).split())  # not even 100 points
    for gain in ("0", "-1", "100", "nan"):
        assert "percentage points" in refused("compare", *files, "--gain", gain)


def test_the_only_result_of_its_benchmark_is_named():
    settings = settings_of([result(RL, 0.8), result(CONTROL, 0.5), result(RL, 0.7, task="amc")])
    [sentence] = unmatched_reasons(settings, compare(settings))
    assert states(sentence, "'rl'", "amc")


def test_what_is_not_like_the_others_is_left_out_by_name():
    results = [result(RL, 0.8), result(CONTROL, 0.5), result(EXTRA, 0.5, grader="plain")]
    settings = settings_of(results)
    rows = compare(settings)
    assert pairs(rows) == [(CONTROL, RL)]
    [sentence] = unmatched_reasons(settings, rows)
    assert "'extrapolate τ-0.3 γ0.1 (plain)' and those above on aime24 differ in grader" in sentence
    assert not any(setting.label in sentence for setting in settings if setting.decoding != EXTRA)
    assert sentence in markdown(rows, [sentence])
    both = [*results, result(RL, 0.7, grader="plain"), result(CONTROL, 0.4, grader="plain")]
    rows = made(both)
    assert [(row.result.label, row.reference.label) for row in rows] == [
        ("replace τ-0.3 (robust)", "rl (robust)"),
        ("extrapolate τ-0.3 γ0.1 (plain)", "rl (plain)"),
        ("replace τ-0.3 (plain)", "rl (plain)"),
        ("extrapolate τ-0.3 γ0.1 (plain)", "replace τ-0.3 (plain)"),
    ]
    assert pairs(made(both, "rl")) == [(CONTROL, RL), (EXTRA, RL), (CONTROL, RL)]


def test_common_problems_are_compared_where_that_is_asked_for():
    whole, part = result(RL, 0.8, problems=30), result(CONTROL, 0.5, seed=1)
    assert (whole.limited, part.benchmark) == (None, "aime24 (12 of 30 problems)")
    rows = compare(settings_of([whole, part], ["problems"]), across=["problems"])
    assert rows[0].difference == stats.paired_difference(part.correct, whole.correct[:12])
    assert "| aime24 (12 of 30 problems) |" in markdown(rows)
    with refuses("across", "problems"):
        settings_of([whole, part.replace(problem_ids=tuple("abcdefghijkl"))], ["problems"])
    with refuses("across", "problem", "problems"):
        settings_of([whole], ["problem"])


def test_seeds_of_a_setting_are_one_and_its_first_samples_do_not_count_twice():
    seeds = [result(CONTROL, 0.5, seed=i, noise=i) for i in range(3)]
    rows = made([result(RL, 0.4, seed=9), *seeds, first_samples(seeds[0], 2)])
    [row] = rows
    assert row.result.seeds == (0, 1, 2)
    assert row.result.samples == 24
    assert row.result.avg == pytest.approx(np.mean([one.avg for one in seeds]))
    assert "mean of all seeds that its setting has (of 0, 1, 2)" in markdown(rows)


def test_other_weights_at_the_same_place_are_no_seed_and_no_reference():
    """A model that was trained anew under its old name: its results met those of the old one."""
    old, new = ({"weights": {"base": "weights:b", "rl": f"weights:{name}"}, "shared": "s" * 16} for name in "on")
    seeds = [result(RL, 0.1, seed=1, noise=0, settings="0" * 16, **old), result(RL, 0.9, seed=2, noise=1, **new)]
    assert sorted(one.seeds for one in settings_of(seeds)) == [(0,), (1,)]
    assert len({one.label for one in settings_of(seeds)}) == 2
    base, gated = result(BASE, 0.1, seed=3, **old), result(CONTROL, 0.9, seed=4, noise=1, **new)
    rows = made([*seeds, base, gated])
    assert [row.reference.first.provenance["weights"] for row in rows if row.result.decoding == CONTROL] == [
        new["weights"]
    ]
    assert len([row for row in rows if row.reference.decoding == BASE]) == 2  # base does not depend on RL's weights
    assert [row.reference.seeds for row in made([*seeds, gated], "rl") if row.result.decoding == CONTROL] == [(1,)]
    sentence = "rl"
    with refuses(*sentence.split()):
        made([seeds[0], gated])
    settings = settings_of([seeds[0], base, gated])
    assert any(sentence in note for note in unmatched_reasons(settings, compare(settings)))


def test_another_chat_template_or_engine_argument_is_no_seed_of_a_setting():
    one, other = ({"weights": {"rl": "weights:a"}, "shared": name * 16} for name in "ab")
    results = [result(RL, 0.1, **one), result(RL, 0.9, seed=2, noise=1, **other), result(CONTROL, 0.9, noise=1, **one)]
    assert [one.seeds for one in settings_of(results)] == [(0,), (1,), (1,)]
    [row] = [row for row in made(results) if row.result.decoding == CONTROL]
    assert row.reference.first.provenance["shared"] == "a" * 16


def first_samples(one, n):
    names = ("n_tokens", "n_replaced", "n_changed", "truncated", "no_box", "ungraded")
    tables = {name: getattr(one, name)[:, :n] for name in names}
    return one.replace(sampling=one.sampling.replace(samples=n), correct=one.correct[:, :n], **tables)


def test_a_pair_and_its_reverse_are_one_comparison_in_any_order():
    """Without RL and with the extrapolation first, both signs were tested, and Holm's p doubled."""
    scores = {BASE: 0.3, CONTROL: 0.5, EXTRA: 0.6}
    for order in itertools.permutations(scores):
        rows = made([result(one, scores[one]) for one in order])
        compared = [frozenset((row.result.decoding, row.reference.decoding)) for row in rows]
        assert len(compared) == len(set(compared))
        assert (EXTRA, CONTROL) in [(row.result.decoding, row.reference.decoding) for row in rows]
    [row] = made([result(one, scores[one]) for one in (EXTRA, CONTROL)])
    assert row.holm_p == row.difference.p


def test_without_a_reference_rl_is_it_and_extrapolation_meets_its_control():
    results = [result(EXTRA, 0.9), result(RL, 0.5, seed=1), result(CONTROL, 0.6, seed=2), result(BASE, 0.1, seed=3)]
    assert pairs(made(results)) == [(EXTRA, RL), (RL, BASE), (CONTROL, RL), (EXTRA, CONTROL)]
    assert pairs(made([results[2], results[0]])) == [(EXTRA, CONTROL)]
    assert pairs(made([results[3], results[2], results[0]])) == [(CONTROL, BASE), (EXTRA, BASE), (EXTRA, CONTROL)]
    assert pairs(comparisons(settings_of([results[3], results[2]]))) == []


def test_pairs_of_models_keep_to_themselves_but_where_there_is_nothing_else():
    one = [result(RL, 0.5, rl="work/one/rl"), result(CONTROL, 0.6, rl="work/one/rl")]
    other = [result(RL, 0.5, rl="work/two/rl"), result(CONTROL, 0.6, rl="work/two/rl")]
    rows = made([*one, *other])
    assert [(row.result.label, row.reference.label) for row in rows] == [
        ("replace τ-0.3 (one)", "rl (one)"), ("replace τ-0.3 (two)", "rl (two)")
    ]  # fmt: skip
    [row] = made([one[0], other[0]])
    assert (row.result.label, row.reference.label) == ("rl (two)", "rl (one)")


def test_one_result_under_two_names_is_told_of(tmp_path, capsys):
    """It doubled the comparisons that Holm's correction counts, unsaid; base is shared by all that name it."""
    for folder in "ab":
        (tmp_path / folder).mkdir()
    result(RL, 0.5).write(tmp_path / "a")
    result(BASE, 0.2).write(tmp_path / "a")
    result(BASE, 0.2, rl="other").write(tmp_path / "b")
    assert len(read_results([f"X={tmp_path}/a", f"Y={tmp_path}/b", tmp_path / "a"])) == 5
    assert capsys.readouterr().err.endswith("each is compared as if it were another: X, no name\n")
    read_results([f"X={tmp_path}/a", f"Y={tmp_path}/b"])
    assert capsys.readouterr().err == ""


def test_of_one_setting_graded_twice_the_newer_counts(tmp_path):
    old = result(RL, 0.5).replace(provenance={"grader": "robust", "graded_with": {"grader": "robust", "code": "1"}})
    new = result(RL, 0.6).replace(provenance={"grader": "robust", "graded_with": {"grader": "robust", "code": "2"}})
    other = old.replace(provenance={"grader": "plain", "graded_with": {"grader": "plain", "code": "1"}})
    for i, one in enumerate((old, other, new)):
        path = one.write(tmp_path)
        os.utime(path, (i, i))
    read = read_results([tmp_path])
    assert [r.provenance["graded_with"]["code"] for r in read] == ["1", "2"]
    assert read[1].avg == new.avg


def test_reading_files_and_folders(tmp_path, capsys):
    written = [result(RL, 0.5), result(CONTROL, 0.6, seed=1)]
    for i, one in enumerate(written):
        (tmp_path / f"{i}.json").write_text(one.to_json())
    (tmp_path / "other.json").write_text("{}")
    read = read_results([tmp_path])
    assert [r.decoding for r in read] == [RL, CONTROL]
    assert all((a.correct == b.correct).all() for a, b in zip(read, written, strict=True))
    assert f"left out: {tmp_path}/other.json: task is missing in the result" in capsys.readouterr().err
    with refuses("other.json"):
        read_results([tmp_path / "other.json"])
    with refuses("exist"):
        read_results([tmp_path / "none"])


def test_a_sweeps_folder_is_its_results(tmp_path):
    (tmp_path / "results").mkdir()
    result(RL, 0.5).write(tmp_path / "results")
    for place in (tmp_path, tmp_path / "results"):
        [read] = read_results([place])
        assert read.config_hash == result(RL, 0.5).config_hash


def cut(one, context, tokens):
    """A result whose first two responses the context ended after so many tokens."""
    flags, counts = one.truncated.copy(), one.n_tokens.copy()
    flags[0, :2], counts[0, :2] = True, tokens
    engine = one.provenance["engine"] | {"max_model_len": context}
    return one.replace(truncated=flags, n_tokens=counts, provenance=one.provenance | {"engine": engine})


def test_a_side_that_its_context_ended_earlier_is_told_of():
    base, rl = result(BASE, 0.2), result(RL, 0.8, seed=1)
    most = base.sampling.max_tokens
    text = markdown(made([cut(base, 4096, 4000), cut(rl, 32768, most)]))
    assert "\nNot the same room: responses on aime24 (12 of 30 problems) that the context ended before" in text
    assert "rl 0 of 96, context 32,768; base 2 of 96, context 4,096. One --max-model-len" in text
    assert "same room" not in markdown(made([cut(base, 4096, 4000), cut(rl, 4096, 4000)]))  # cut alike
    assert "same room" not in markdown(made([cut(base, 4096, most), cut(rl, 32768, most)]))  # by max_tokens
    untold = [cut(one, None, 4000) for one in (base, rl)]
    assert "rl 2 of 96; base 2 of 96. One" in markdown(made(untold))


def test_half_without_an_answer_or_cut_is_warned_of():
    one = result(Decoding(mode="rl"), 0.0)
    half = np.arange(one.correct.size).reshape(one.correct.shape) % 2 == 0
    assert warnings([one.replace(no_box=half & False)]) == []
    [box] = warnings([one.replace(no_box=half)])
    [cut] = warnings([one.replace(truncated=half)])
    assert "50% (rl on aime24 (12 of 30 problems))" in box
    assert "--examples" in box
    assert "--max-tokens" in cut
    assert json.loads(one.to_json())["metrics"]["avg@8"] == 0
    many = [result(Decoding(mode="replace", tau=-i), 0.0).replace(no_box=half) for i in range(1, 7)]
    [box] = warnings([*many, one.replace(no_box=half | True)])
    assert box.startswith("warning: 100% (rl on aime24 (12 of 30 problems)), 50% (replace τ-1 on aime24")
    assert states(box, "4 further results")


GATED = Decoding(mode="extrapolate", tau=-0.3, gamma=0.1, primary="rl")


def test_grouped_by_setting_it_gives_the_numbers_of_comparisons():
    tau = Decoding(mode="replace", tau=-0.1)
    found = [result(Decoding(mode="rl"), 0.7, noise=seed, seed=seed) for seed in (0, 1)]
    found += [result(each, 0.5, noise=seed, seed=7 + seed) for each in (GATED, tau) for seed in (0, 1)]
    rows = compare(settings_of(found))
    by = frame(found).groupby(["setting", "problem"], sort=False)["correct"].mean()
    assert len(rows) == 2
    for row in rows:
        assert (by[row.result.label] - by[row.reference.label]).mean() == pytest.approx(row.difference.mean, abs=1e-12)


def test_of_one_seed_the_result_with_the_most_samples_has_the_setting():
    few = result(GATED, 0.4, samples=2)
    rows = frame([few, result(GATED, 0.4)])
    assert rows.groupby("config_hash")["setting"].count().to_dict()[few.config_hash] == 0


def test_what_a_result_does_not_say_is_missing():
    rows = frame([result(Decoding(mode="rl"), 0.5).replace(no_box=None), result(GATED, 0.5)])
    assert rows["no_box"].isna().tolist() == [True] * 96 + [False] * 96
    assert frame([]).empty


def test_a_task_of_lm_evals_is_left_out_by_name_and_refused_alone(tmp_path, capsys):
    other = lm_eval_result("squad", Decoding(mode="rl")).write(tmp_path)
    result(RL, 0.5).write(tmp_path)
    [read] = read_results([tmp_path])
    assert read.task == "aime24"
    states(capsys.readouterr().err, other, "squad")
    with refuses("task", "squad", "lm-eval"):
        read_results([other])
    assert read_any_result(other).scores == {"f1": 0.5, "f1_stderr": 0.1}


def test_the_command_writes_what_python_gives(tmp_path):
    (tmp_path / "results").mkdir()
    for each in (result(Decoding(mode="rl"), 0.7), result(GATED, 0.4, seed=1)):
        each.write(tmp_path / "results")
    asked = ["table", str(tmp_path / "results"), "--csv", str(tmp_path / "all.csv")]
    run(*asked)
    rows = pandas.read_csv(tmp_path / "all.csv")
    expected = frame(read_results([tmp_path / "results"]))
    assert list(rows.columns) == list(expected.columns)
    assert (
        rows.groupby("decoding")["correct"].mean().to_dict() == expected.groupby("decoding")["correct"].mean().to_dict()
    )


def test_a_place_that_holds_nothing_is_named(tmp_path, capsys):
    (tmp_path / "one").mkdir()
    (tmp_path / "none").mkdir()
    result(RL, 0.8).write(tmp_path / "one")
    assert len(read_results([tmp_path / "one", f"Theirs={tmp_path / 'none'}"])) == 1
    assert f"left out, nothing to read there: Theirs={tmp_path / 'none'}" in capsys.readouterr().err
    with refuses("nothing"):
        read_results([tmp_path / "none"])


def test_the_five_parts_of_a_replacement_lead_from_base_to_it_and_add_up():
    gate = Decoding(mode="replace", tau=-0.3)
    cells = [gate, gate.cell("rl", "rl"), gate.cell("rl", "base"), gate.cell("base", "base"), gate.cell(None, "base")]
    results = [result(each, 0.3 + 0.1 * i, noise=i) for i, each in enumerate((*cells[::-1], RL))]
    base = result(BASE, 0.2, noise=9)
    [parts] = five_parts(made([*results, base, result(gate.replace(tau=-0.5), 0.4)]))
    assert [*parts] == ["second draw", "cut of own", "decision", "token", "cut of other"]
    steps = [(row.result.decoding, row.reference.decoding) for row in parts.values()]
    assert steps == [*zip(cells[::-1], [base.decoding, *cells[::-1]], strict=False)]
    whole = next(one.avg for one in results if one.decoding == gate) - base.avg
    assert sum(row.difference.mean for row in parts.values()) == pytest.approx(whole)
    assert five_parts(made([*results[1:], base])) == []


def test_the_other_order_the_interaction_and_the_coin_are_paired_by_problem():
    """By hand, from the right answers: the other order has the same sum, and the coin's two parts are the decision."""
    gate = Decoding(mode="replace", tau=-0.3)
    names = ("replace", "other other", "other own", "own own", "resample", "own other", "coin", "base")
    cells = [gate, gate.cell("rl", "rl"), gate.cell("rl", "base"), gate.cell("base", "base"), gate.cell(None, "base"),
             gate.cell("base", "rl"), gate.cell(0.75, "base"), BASE]  # fmt: skip
    results = dict(zip(names, (result(each, 0.3 + 0.05 * i, noise=i) for i, each in enumerate(cells)), strict=True))
    rows = made([*results.values(), result(RL, 0.8, noise=11)])
    [parts] = five_parts(rows)
    found = other_contrasts(parts, rows)
    right = {name: each.correct.mean(axis=1) for name, each in results.items()}
    by_hand = {
        "token first": right["own other"] - right["own own"],
        "decision last": right["other other"] - right["own other"],
        "interaction": right["other other"] - right["other own"] - right["own other"] + right["own own"],
        "rate": right["coin"] - right["own own"],
        "choice": right["other own"] - right["coin"],
    }
    for name, differences in by_hand.items():
        d = found[name].difference
        assert d.mean == pytest.approx(differences.mean())
        assert d.error == pytest.approx(differences.std(ddof=1) / np.sqrt(differences.size))
    assert [found[name].holm_p for name in by_hand] == pytest.approx(
        stats.holm([found[n].difference.p for n in by_hand])
    )
    fewer = made([each for name, each in results.items() if name not in ("own other", "coin")])
    assert other_contrasts(five_parts(fewer)[0], fewer) == {}


def test_a_decoding_with_a_decider_is_compared_with_what_it_differs_from_in_one_thing():
    gate = Decoding(mode="replace", tau=-0.3)
    results = [result(each, 0.5, noise=i) for i, each in enumerate((RL, gate.cell("base", "rl"), gate.cell(0.8, "base"),
               gate.cell("base", "base"), gate.cell("rl", "rl")))]  # fmt: skip
    named = {(row.result.decoding, row.reference.decoding): contrast_name(row) for row in made(results)}
    assert {key: name for key, name in named.items() if name} == {
        (gate.cell("base", "rl"), gate.cell("base", "base")): "token first",
        (gate.cell(0.8, "base"), gate.cell("base", "base")): "rate",
        (gate.cell("rl", "rl"), gate.cell("base", "rl")): "decision last",
    }
