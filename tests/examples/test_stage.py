"""Kinds of pairs: gains and differences are those of the pairs' tables, matched shares lie on straight lines."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.stage.chapter import ALONE, CELLS, MIXED, TITLES, pairs_chapter
from examples.stage.kinds import GAIN, nearest_of, pair_statistics
from examples.stage.pairs import INTERACTION, PATH, STEPS, OnePair
from rlvr_dir.analysis.result import Analysis
from rlvr_dir.config import Decoding
from rlvr_dir.decode.trace import Trace
from rlvr_dir.stats import difference_over_runs, holm, paired_difference
from tests.audit.made import row as row_of
from tests.facts import refuses, states
from tests.report.made import result

PROBLEMS, SAMPLES = 12, 4
# Criterion, threshold, flagged and changed tokens of 100, and how often it is right.
RULES = (
    ("delta_logp", -0.5, 1, 1, 0.6),
    ("delta_logp", -0.1, 4, 3, 0.8),
    ("kl", 0.5, 1, 0, 0.4),
    ("kl", 0.1, 5, 2, 0.7),
)


def one(pair, decoding, right, flagged=0, changed=0, **how):
    made = result(
        decoding,
        problems=PROBLEMS,
        samples=SAMPLES,
        pair={"base": f"/{pair}/base", "rl": f"/{pair}/rl"},
        weights={"base": how.pop("base", f"base of {pair}"), "rl": f"rl of {pair}"},
        **how,
    )
    correct = np.random.default_rng([*pair.encode(), int(100 * right)]).random((PROBLEMS, SAMPLES)) < right
    tokens = np.full((PROBLEMS, SAMPLES), 100)
    return made.replace(
        correct=correct, n_tokens=tokens, n_replaced=tokens // 100 * flagged,
        n_changed=tokens // 100 * changed,
    )  # fmt: skip


CONTROLS = {
    "resample": (None, "base", 0.28), "base, base": ("base", "base", 0.27), "RL, base": ("rl", "base", 0.25),
    "RL, RL": ("rl", "rl", 0.31), "base, RL": ("base", "rl", 0.26), "gate, base": ("gate", "base", 0.2),
    "gate, RL": ("gate", "rl", 0.22), "coin, base": (0.75, "base", 0.24),
}  # fmt: skip


def pair(name, gain=1.0, rules=RULES, controls=tuple(CONTROLS), **how):
    """Make all results of a pair; `gain` scales what replacing adds to base's 0.3."""
    found = [one(name, Decoding(mode=mode), right, **how) for mode, right in (("base", 0.3), ("rl", 0.3 + 0.5 * gain))]
    for criterion, tau, flagged, changed, right in rules:
        decoding = Decoding(mode="replace", criterion=criterion, tau=tau)
        found.append(one(name, decoding, 0.3 + gain * (right - 0.3), flagged, changed, **how))
        for control in controls:
            *cell, level = CONTROLS[control]
            share = flagged if cell[0] == "gate" else changed
            found.append(one(name, decoding.cell(*cell), level + gain * (right - 0.3), flagged, share, **how))
    return found


def kind(name, **how):
    return [each for seed in (1, 2, 3) for each in pair(f"{name}{seed}", base=f"base {seed}", **how)]


def right(results, rl, criterion=None, tau=None, mode="replace"):
    """Right answers by pair, as the results hold them."""
    if mode in ("base", "rl"):
        decoding = Decoding(mode=mode)
    else:
        decoding = Decoding(mode="replace", criterion=criterion, tau=tau)
    decoding = decoding.cell(*CONTROLS[mode][:2]) if mode in CONTROLS else decoding
    return {each.pair: each.correct for each in results if each.decoding == decoding}


@pytest.fixture(scope="module")
def kinds():
    return {"RL": kind("rl"), "noise": kind("noise", gain=0.0)}


def row(found, table, **where):
    (only,) = [each for each in found.tables[table] if all(each[name] == value for name, value in where.items())]
    return only


def test_gains_and_placebos_are_differences_over_problems_and_pairs(kinds, tmp_path):
    found = Analysis.read(pair_statistics(kinds, [0.015]).write(tmp_path))
    assert found.context["pairs"] == {"RL": 3, "noise": 3}
    gain = {"kind": "RL", "criterion": "kl", "point": 1}, [("RL", "kl", 0.1), ("RL", None, None)]
    for table, name, where, sides in (
        ("rules", "gain", *gain),
        ("rules_pass", "gain", *gain),
        (
            "placebos",
            "difference",
            {"criterion": "delta_logp", "point": 0, "step": GAIN},
            [("RL", "delta_logp", -0.5), ("noise", "delta_logp", -0.5)],
        ),
        ("against", "difference", {"kind": "RL", "criterion": "kl", "at": "flagged", "point": 1},
         [("RL", "delta_logp", -0.1), ("RL", "kl", 0.1)]),
    ):  # fmt: skip
        runs = []
        for of, criterion, tau in sides:
            each = right(kinds[of], of, criterion, tau, "replace" if criterion else "base")
            each = {pair: x.max(axis=1, keepdims=True) for pair, x in each.items()} if "pass" in table else each
            runs.append(dict(enumerate(each.values())))
        by_hand = difference_over_runs([(runs[0], runs[1])])
        mine = row(found, table, **where)
        assert (mine[name], mine[f"{name}_low"], mine[f"{name}_high"], mine["p"]) == pytest.approx(
            (by_hand.mean, by_hand.low, by_hand.high, by_hand.p)
        )
        assert mine["holm_p"] >= mine["p"]
    flagged = row(found, "rules", kind="noise", criterion="delta_logp", point=1)
    assert (flagged["flagged"], flagged["changed"]) == pytest.approx((0.04, 0.03))
    [against] = [each for each in pairs_chapter(found).sections if each.name == "kinds-against"]
    assert [cell.text for cell in against.cells[1]][1:4] == ["flagged", "5.00 %", "4.00 %"]


def test_each_point_is_taken_apart_by_its_own_controls(kinds):
    """By the threshold, not by the order; what was not decoded has no row."""
    found = pair_statistics(kinds, [0.015])
    for step, (criterion, tau, point) in product(
        STEPS, (("delta_logp", -0.5, 0), ("delta_logp", -0.1, 1), ("kl", 0.1, 1))
    ):
        sides = [right(kinds["RL"], "RL", criterion, tau, mode=mode) for mode in STEPS[step]]
        one_side, other_side = (dict(enumerate(side.values())) for side in sides)
        by_hand = difference_over_runs([(one_side, other_side)])
        mine = row(found, "controls", kind="RL", criterion=criterion, point=point, step=step)
        assert mine["difference"] == pytest.approx(by_hand.mean)
        assert (mine["difference_low"], mine["difference_high"]) == pytest.approx((by_hand.low, by_hand.high))
    steps = [*STEPS, INTERACTION]
    assert {each["step"] for each in found.tables["controls"]} == {*steps}
    for step in steps:  # a column of its table is a family
        column = [each for each in found.tables["controls"] if (each["kind"], each["step"]) == ("RL", step)]
        assert [each["holm_p"] for each in column] == pytest.approx(holm([each["p"] for each in column]))
    shown = {each.name: each for each in pairs_chapter(found).sections}
    assert [len(shown[f"kinds-{TITLES[step][0]}"].cells) for step in steps] == [4] * len(steps)
    fewer = pair_statistics({"RL": kind("RL", controls=["RL, base", "RL, RL"])})  # base decided nowhere
    assert {each["step"] for each in fewer.tables["controls"]} == {"token", "cut of RL", "token and cut", "over RL"}
    assert all(each["resample"] is None for each in fewer.tables["cells"])


def test_a_single_pair_has_intervals_over_problems_alone(kinds):
    """They are those of the paired difference of the two models' problems."""
    one = {name: [each for each in results if each.pair == results[0].pair] for name, results in kinds.items()}
    with refuses():
        pair_statistics(one)
    found = pair_statistics(one, one_pair=True)
    by_mode = {
        each.decoding.mode: each.correct.astype(float) for each in one["RL"] if each.decoding.mode in ("rl", "base")
    }
    expected, gain = paired_difference(by_mode["rl"], by_mode["base"]), row(found, "kinds", kind="RL")
    assert (gain["gain"], gain["gain_low"], gain["gain_high"]) == pytest.approx(
        (expected.mean, expected.low, expected.high)
    )
    assert any(note.startswith(ALONE) for section in pairs_chapter(found).sections for note in section.notes)


def test_divergences_are_compared_with_entropies_point_by_point():
    rules = (("kl", 0.5, 2, 1, 0.4), ("kl", 0.1, 5, 2, 0.7), ("entropy_base", 1.5, 2, 1, 0.35),
             ("entropy_base", 0.8, 5, 2, 0.5), ("entropy_rl", 0.8, 5, 2, 0.5))  # fmt: skip
    of = kind("rl", rules=rules)
    found = pair_statistics({"RL": of})
    assert len(found.tables["divergences"]) == 2  # the entropy of RL has one point
    runs = [dict(enumerate(right(of, "", *gate).values())) for gate in (("kl", 0.1), ("entropy_base", 0.8))]
    by_hand = difference_over_runs([(runs[0], runs[1])])
    mine = row(found, "divergences", criterion="kl", minus="entropy_base", point=1)
    assert (mine["difference"], mine["difference_low"]) == pytest.approx((by_hand.mean, by_hand.low))
    [shown] = [each for each in pairs_chapter(found).sections if each.name == "kinds-divergences"]
    assert [cell.text for cell in shown.cells[1]][:4] == ["KL", "entropy of base", "flagged", "5.00 %"]


def test_one_copy_is_compared_with_every_model_of_its_base():
    """Repeat its answers beside each model, as base's are, so that the interval is over the models and the problems."""
    steps = [each for seed in (1, 2, 3) for each in pair(f"rl{seed}", base="one base")]
    copies = pair("copy", base="one base", gain=0.5)
    found = pair_statistics({"RL": steps, "copy": copies}, one_pair=True)
    for step, (first, second) in STEPS.items():
        sides = [[right(of, "", "kl", 0.1, mode=mode) for mode in (first, second)] for of in (steps, copies)]
        runs, beside = ([x.astype(float) - other[key] for key, x in one.items()] for one, other in sides)
        by_hand = difference_over_runs([(dict(enumerate(runs)), dict.fromkeys(range(3), beside[0]))])
        mine = row(found, "placebos", kind="copy", criterion="kl", point=1, step=step)
        assert (mine["difference"], mine["difference_low"]) == pytest.approx((by_hand.mean, by_hand.low))
    assert any(note.startswith(MIXED) for section in pairs_chapter(found).sections for note in section.notes)
    other = pair_statistics({"RL": steps, "copy": pair("copy", base="another base")}, one_pair=True)
    assert not other.tables["placebos"]


def test_the_path_of_five_steps_leads_from_base_to_the_replacement(kinds):
    found = pair_statistics(kinds)
    for rule in found.tables["rules"]:
        at = {name: rule[name] for name in ("kind", "criterion", "point")}
        parts = [row(found, "controls", **at, step=step)["difference"] for step in PATH]
        assert sum(parts) == pytest.approx(rule["gain"])
        rate, choice, decision, token, first, last, both = (
            row(found, "controls", **at, step=step)["difference"]
            for step in ("rate", "choice", "decision", "token", "token first", "decision last", INTERACTION)
        )
        assert rate + choice == pytest.approx(decision)
        assert (both, decision + token) == (pytest.approx(token - first), pytest.approx(first + last))


def test_a_step_of_one_kind_less_that_of_another_is_paired_by_problem_and_pair(kinds):
    found = pair_statistics(kinds)
    for step, (one, other) in STEPS.items():
        sides = [[right(kinds[of], of, "kl", 0.1, mode=mode) for mode in (one, other)] for of in ("RL", "noise")]
        runs = [
            dict(enumerate(x.astype(float) - y for x, y in zip(*(each.values() for each in side), strict=True)))
            for side in sides
        ]
        by_hand = difference_over_runs([(runs[0], runs[1])])
        mine = row(found, "placebos", kind="noise", criterion="kl", point=1, step=step)
        assert (mine["difference"], mine["difference_low"]) == pytest.approx((by_hand.mean, by_hand.low))


def test_every_problem_of_every_decoding_is_told(kinds):
    """Whoever reads the table can make each accuracy, and so each interval, again."""
    problems = pair_statistics(kinds).tables["problems"]
    of_rl = [each for each in problems if each["kind"] == "RL"]
    assert len(of_rl) == 3 * (2 + len(RULES) * (1 + len(CONTROLS)))
    [told] = [each for each in of_rl if (each["pair"], each["criterion"], each["point"], each["decoding"]) == (
        "base 2", "kl", 1, "RL, base")]  # fmt: skip
    mine = right(kinds["RL"], "RL", "kl", 0.1, mode="RL, base")["/rl2/base", "/rl2/rl"]
    assert [int(count) for count in told["right"].split()] == mine.sum(axis=1).tolist()


def test_the_nearest_is_nearest_on_the_problems_that_are_left(tmp_path):
    """Of the first problems another would be nearest."""
    for name, first, rest in (("target", 0.0, 0.5), ("a", 0.0, 0.75), ("b", 1.0, 0.5)):
        made = one(name, Decoding(mode="rl"), 0.5)
        correct = np.zeros((PROBLEMS, SAMPLES), bool)
        correct[:6, : int(first * SAMPLES)] = correct[6:, : int(rest * SAMPLES)] = True
        (tmp_path / name).mkdir()
        made.replace(correct=correct).write(tmp_path / name)
    places = [tmp_path / "a", tmp_path / "b"]
    assert nearest_of(tmp_path / "target", places, 6) == places[1]
    assert nearest_of(tmp_path / "target", places, 0) == places[0]


def test_intervals_are_over_families_where_the_results_name_them(kinds):
    """Six problems each of two families count as two, of which no sign can be told."""
    families = tuple("ab"[i % 2] for i in range(PROBLEMS))
    found = pair_statistics({name: [each.replace(families=families) for each in of] for name, of in kinds.items()})
    assert found.context["families"] == 2
    plain = pair_statistics(kinds)
    for mine, without in zip(found.tables["controls"], plain.tables["controls"], strict=True):
        assert mine["difference"] == without["difference"]
        assert mine["p"] >= 0.5  # all signs of two families
    assert "2 families" in pairs_chapter(found).paragraphs[0]


def test_pair_by_pair_the_cells_are_the_results(kinds):
    [section] = [each for each in pairs_chapter(pair_statistics(kinds)).sections if each.name == "kinds-cells"]
    cells = section.frame[section.frame.kind == "RL"]
    assert len(cells) == 3 * len(RULES)
    modes = list(CELLS)
    assert {*modes} <= {*cells.columns}
    for criterion, tau, flagged, *_ in RULES:
        of_gate = cells[(cells.criterion == criterion) & (cells.flagged == flagged / 100)]
        for mode in modes:
            where = () if mode in ("base", "rl") else (criterion, tau)
            of_pairs = [each.mean() for each in right(kinds["RL"], "RL", *where, mode=mode).values()]
            assert list(of_gate[mode]) == pytest.approx(of_pairs), (criterion, tau, mode)
    assert section.svg.count(">RL, base<") == 2  # a panel a kind
    assert "it flags 4.0 %" in section.title  # the gate of delta log p next to 5 %
    others_first = {
        kind: sorted(results, key=lambda one: one.decoding.criterion != "kl") for kind, results in kinds.items()
    }
    [same] = [each for each in pairs_chapter(pair_statistics(others_first)).sections if each.name == "kinds-cells"]
    assert same.frame["criterion"].iloc[0] == "kl"
    assert same.title == section.title


def test_how_far_the_models_are_apart_where_a_gate_flags():
    """By hand from both models' log-probabilities: without base's token, over the tokens below the threshold."""
    random = torch.Generator().manual_seed(2)
    logits = 2 * torch.randn(2, 9, 12, generator=random)
    proposed = logits[0].argmax(1)
    made, base, rl, _ = row_of("p", 0, logits[0], logits[1], proposed)
    way = Decoding(mode="replace", criterion="delta_logp", tau=-1.0)
    assert made.trace is not None
    pair = OnePair(traces=[Trace(made.trace)])
    pair.gates["delta_logp"].append((0.1, way))
    expected = []
    for b, r, y in zip(base, rl, proposed.tolist(), strict=True):
        if r[y] - b[y] < -1:
            p, q = (np.delete(np.exp(x), y) / np.delete(np.exp(x), y).sum() for x in (b, r))
            expected.append(np.abs(p - q).sum() / 2)
    assert 0 < len(expected) < 9
    assert pair.apart("delta_logp", 0) == pytest.approx(np.mean(expected), abs=1e-5)


def test_the_table_says_how_far_they_are_apart(kinds, monkeypatch):
    assert all(row.get("apart") is None for row in pair_statistics(kinds).tables["controls"]), "no traces, no number"
    monkeypatch.setattr(OnePair, "apart", lambda pair, criterion, i: 0.02 + 0.01 * i)
    [section] = [each for each in pairs_chapter(pair_statistics(kinds)).sections if each.name == "kinds-token"]
    assert {text for cells in section.cells for cell in cells for text in cell.small if "apart" in text} == {
        "apart 0.020", "apart 0.030",
    }  # fmt: skip
    assert "below 0.05 they write nearly the same" in section.notes[0]


def test_a_gate_without_a_threshold_has_no_veto(kinds):
    """The coupling says itself what is redrawn: asking for its veto ended the comparison of all pairs."""
    coupling = Decoding(mode="replace", criterion="coupling")
    more = {
        name: [
            *results,
            *(one(f"{name.lower()}{seed}", coupling, 0.6, 2, 2, base=f"base {seed}") for seed in (1, 2, 3)),
        ]
        for name, results in kinds.items()
    }
    found = pair_statistics(more, [0.015])
    against = {row["criterion"] for row in found.tables["against"] if row["at"] == "changed"}
    assert against == {"kl"}  # coupling has one point, and a line from base to it would lie far below its gain
    controls = found.tables["controls"]
    assert {row["step"] for row in controls if row["criterion"] == "coupling"} == {"over RL"}  # which needs no control
    controls = [row for row in controls if row["step"] != "over RL"]
    assert {row["criterion"] for row in controls} == {criterion for criterion, *_ in RULES}


def test_equal_changed_shares_lie_on_straight_lines_from_base(kinds):
    share = 0.015
    mine = row(pair_statistics(kinds, [share]), "against", kind="RL", at="changed", criterion="kl")
    means = []
    for criterion, shares in (("delta_logp", (0.0, 0.01, 0.03)), ("kl", (0.0, 0.0, 0.02))):
        taus = [tau for name, tau, *_ in RULES if name == criterion]
        levels = [right(kinds["RL"], "RL", None, None, "base"), *(right(kinds["RL"], "RL", criterion, t) for t in taus)]
        means.append(np.mean([np.interp(share, shares, [level[p].mean() for level in levels]) for p in levels[0]]))
    assert mine["difference"] == pytest.approx(means[0] - means[1])
    beyond = pair_statistics(kinds, [0.025]).tables["against"]
    assert [each["at"] for each in beyond] == ["flagged"] * 4  # kl never changes that many


def test_placebos_are_compared_on_the_same_bases_alone(kinds):
    other = [each for seed in (7, 8) for each in pair(f"plain{seed}", rules=RULES[:2])]
    found = pair_statistics({**kinds, "plain": other})
    assert {each["kind"] for each in found.tables["placebos"]} == {"noise"}
    assert {each["kind"] for each in found.tables["rules"]} == {"RL", "noise", "plain"}
    names = [section.name for section in pairs_chapter(found).sections]
    assert names == [
        "kinds",
        "kinds-pass",
        "kinds-gain",
        "kinds-rules",
        "kinds-rules-pass",
        "kinds-against",
        *(f"kinds-{name}" for name, _ in TITLES.values()),
        "kinds-cells",
        "kinds-placebos",
        *(f"kinds-placebos-{name}" for name, _ in TITLES.values() if name != INTERACTION),
    ]
    fewer = pair_statistics({"RL": kinds["RL"], "noise": kind("noise", gain=0.0, rules=RULES[1:])})
    assert {each["criterion"] for each in fewer.tables["placebos"]} == {"kl"}  # the first of two is not the only one
    alone = pairs_chapter(pair_statistics({"RL": kinds["RL"]}))
    assert [section.name for section in alone.sections] == names[: names.index("kinds-placebos")]


def test_what_does_not_fit_together_is_refused(kinds):
    last = pair("c")[-1]
    other = last.replace(provenance={**last.provenance, "settings": "0" * 16})  # of another engine, say
    kept = {**last.provenance, "weights": {"base": "base of c", "rl": "rl of c, trained again"}}
    for given, words in (
        ({"RL": pair("only")}, "RL 1"),
        ({"RL": [*pair("a"), *pair("b", rules=RULES[:3])]}, "decoded"),
        ({"RL": [*pair("a"), *pair("b")[1:]]}, "decoded"),
        ({"RL": [*kinds["RL"], *pair("c", task="amc")]}, "benchmark"),
        ({"RL": [*kinds["RL"], *pair("c", grader="robust")]}, "differ"),
        ({"RL": [*kinds["RL"], *pair("c", seed=1)]}, "differ"),
        ({"RL": [*kinds["RL"], *pair("c"), other]}, "given"),
        ({"RL": [*pair("b"), *pair("c")[:-1], last.replace(provenance=kept)]}, "/c/rl"),
    ):
        with refuses(*words.split()):
            pair_statistics(given)


def test_what_two_sweeps_of_a_pair_have_in_common_counts_once(kinds):
    again = {name: [*results, *results[:3]] for name, results in kinds.items()}
    assert pair_statistics(again).tables == pair_statistics(kinds).tables


def test_the_script_compares_kinds_and_reports_on_them(kinds, tmp_path):
    places = {}  # of each pair, in a folder of its own
    for name, results in kinds.items():
        for each in results:
            folder = tmp_path / each.pair[1].strip("/")
            folder.mkdir(parents=True, exist_ok=True)
            places[f"{name}={folder}"] = each.write(folder)
    root = Path(__file__).parents[2]

    def stage(*words):
        return subprocess.run(
            [sys.executable, "-m", "examples.stage", *map(str, words)], cwd=root, capture_output=True, text=True
        )

    out = tmp_path / "analysis"
    done = stage("pairs", *places, "--changed", "0.015", "--out", out)
    assert done.returncode == 0, done.stderr
    by_hand = pair_statistics(kinds, [0.015]).model_dump(mode="json", by_alias=True)
    assert json.loads((out / "pairs.json").read_text()) == by_hand
    done = stage("report", "--analysis", out, "--out", tmp_path / "report")
    assert done.returncode == 0, done.stderr
    assert "What each criterion gains over base." in (tmp_path / "report/report.md").read_text()
    states(stage("pairs", "RL").stderr, "error: ", "RL", "KIND=PLACE")
