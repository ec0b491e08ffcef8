"""Each number of the chapters of analyses, held to the row of the analysis that it is of: no two of these are alike."""

from itertools import product

import numpy as np
import pytest

from rlvr_dir.analysis.result import Analysis, columns
from rlvr_dir.report.credit import credit_chapter
from rlvr_dir.report.responses import gated_chapter, token_chapter
from rlvr_dir.report.training import training_chapter
from rlvr_dir.stats import Estimate
from tests.facts import states
from tests.report.held import ends, number, printed, rows_of
from tests.report.made import DAPO, tokens

OF = ("problems", "tokens", "changed")  # what effects are counted of
LABELS = ("replace τ-0.1", "replace τ0.2 kl")
FACTS = {"pair": DAPO, "tasks": ["aime24"], "sampling": {"samples": 4}}


@pytest.fixture
def drawn():
    """Numbers of which no two are alike: estimates as three columns, and counts."""
    random, given = np.random.default_rng(0), iter(range(100, 10_000))

    class Drawn:
        def estimates(self, *names, least=0.05):
            made = {}
            for name in names:
                value, below, above = random.uniform(least, 0.8), *random.uniform(0.01, 0.04, 2)
                made[name] = Estimate(value, value - below, value + above)
            return columns(**made)

        def counts(self, *names):
            return {name: next(given) for name in names}

        def number(self):
            return float(random.uniform(0.05, 0.8))

    return Drawn()


def sheets(chapter):
    return {section.name: rows_of(section) for section in chapter.sections}


def column_text(chapter, name, title):
    """The texts of a column of one section, as a page prints them."""
    return printed(next(section for section in chapter.sections if section.name == name), title)


def of(row, name, unit=100):
    """Low, value and high of three columns of a row."""
    return [pytest.approx(unit * row[each]) for each in (f"{name}_low", name, f"{name}_high")]


def credit(drawn, undo=False):
    effects = [
        {"label": label, "kind": kind, "over": over, "verdict": verdict, **drawn.counts(*OF),
         **drawn.estimates("effect", "matter", least=-0.8)}
        for label, kind, over, verdict in product(
            LABELS, ("flagged", "matched", "own"), ("all", "changed"), ("any", "wrong", "right")
        )
    ]  # fmt: skip
    differences = [
        {"label": label, "minus": minus, "over": over, **drawn.counts("tokens"), **drawn.estimates("effect", "matter")}
        for label, minus, over in product(LABELS, ("matched", "own"), ("all", "changed"))
    ]
    strata = [
        {"label": label, "kind": kind, "by": by, "from": at, "sign": "", **drawn.counts(*OF),
         **drawn.estimates("effect", "matter")}
        for label, kind, by, at in product(LABELS, ("flagged", "matched"), ("tenth", "entropy"), range(3))
    ]  # fmt: skip
    signs = [
        {"label": label, "from": at, **drawn.counts(*(f"{n}_{s}" for n in ("tokens", "changed") for s in SIDES)),
         **drawn.estimates("effect", *(f"{n}_{s}" for n in ("effect", "matter") for s in SIDES))}
        for label, at in product(LABELS, (0.1, 0.5))
    ]  # fmt: skip
    check = [
        {"label": label, **drawn.counts("tokens"), **drawn.estimates("paired", "unpaired", "difference"),
         "variance_paired": drawn.number(), "variance_unpaired": drawn.number()}
        for label in LABELS
    ]  # fmt: skip
    tables = {"effects": effects, "differences": differences, "strata": strata, "signs": signs, "check": check}
    context = {**FACTS, "undo": undo, "tokens": 7}
    return Analysis(kind="credit", context=context, tables={name: tuple(rows) for name, rows in tables.items()})


SIDES = ("below", "above")


@pytest.mark.parametrize("undo", [False, True])
def test_effects_of_single_tokens_are_those_of_their_rule_kind_and_verdict(drawn, undo):
    found = credit(drawn, undo)
    chapter = credit_chapter(found)
    shown = sheets(chapter)
    effects = {
        tuple(row[name] for name in ("label", "kind", "over", "verdict")): row for row in found.tables["effects"]
    }
    minus = {tuple(row[name] for name in ("label", "minus", "over")): row for row in found.tables["differences"]}
    assert [row["Rule"] for row in shown["credit"]] == list(LABELS)
    for row in shown["credit"]:
        label = row["Rule"]
        flagged = effects[label, "flagged", "all", "any"]
        assert number(row, f"{'Changed' if undo else 'Flagged'} tokens") == flagged["tokens"]
        assert number(row, "really changed") == flagged["changed"]
        for column, *place in (
            ("Effect", "all", "any"), ("of changed ones", "changed", "any"),
            ("after wrong", "all", "wrong"), ("after right", "all", "right"),
        ):  # fmt: skip
            assert ends(row, column) == of(effects[label, "flagged", *place], "effect")
        other = effects.get((label, "own", "all", "any"))
        assert other is None or ends(row, "Effect of the proposer's other token") == of(other, "effect")
        assert ends(row, "Matter") == of(flagged, "matter")
        assert ends(row, "not flagged") == of(effects[label, "matched", "all", "any"], "matter")
        for column, *place in (
            ("Effect minus a match's", "matched", "all"), ("minus that", "own", "all"),
            ("of changed ones, minus that", "own", "changed"),
        ):  # fmt: skip
            assert ends(row, column) == of(minus[label, *place], "effect")
    depth = [row for row in found.tables["strata"] if (row["kind"], row["by"]) == ("flagged", "tenth")]
    assert len(shown["credit-depth"]) == len(depth) == 6
    for row, one in zip(shown["credit-depth"], depth, strict=True):
        for name in ("effect", "matter"):
            assert [number(row, f"{name}{end}") for end in ("_low", "", "_high")] == of(one, name, 1)
    for row, one in zip(shown["credit-signs"], found.tables["signs"], strict=True):
        assert (row["Rule"], number(row, "|Δ log p| from")) == (one["label"], one["from"])
        for sign, side, space in (("<", "below", ""), (">", "above", " ")):
            assert number(row, f"Tokens, Δ {sign} 0") == one[f"tokens_{side}"]
            assert number(row, f"changed{space}") == one[f"changed_{side}"]
            assert ends(row, f"Effect, Δ {sign} 0") == of(one, f"effect_{side}")
        assert ends(row, "Difference") == of(one, "effect")
    for row, one in zip(shown["credit-check"], found.tables["check"], strict=True):
        assert (row["Rule"], number(row, "Changed tokens")) == (one["label"], one["tokens"])
        for column, name in (("Same noise", "paired"), ("Fresh noise", "unpaired"), ("Difference", "difference")):
            assert ends(row, column) == of(one, name)
        assert number(row, "Variance, same noise") == pytest.approx(one["variance_paired"])
        assert number(row, "fresh noise") == pytest.approx(one["variance_unpaired"])
    for title, name in (("Variance, same noise", "variance_paired"), ("fresh noise", "variance_unpaired")):
        assert column_text(chapter, "credit-check", title) == [f"{one[name]:.3f}" for one in found.tables["check"]]


def test_numbers_of_tokens_are_shares_of_who_wrote_them(drawn):
    made, facts = (
        tokens(["a", "b", "c"]),
        ("delta_logp", "entropy_base", "entropy_rl", "kl", "kl_rl_base", "kl_base_rl"),
    )
    who = ("base", "rl")
    wrote = {one: drawn.counts("problems", "tokens", "near_zero") for one in who}
    counted = {(one, fact, at): drawn.counts("tokens")["tokens"] for one in who for fact in facts for at in (0.0, 1.0)}
    picked = [
        {"criterion": name, "tau": tau, "positions": at, "kind": kind, "rank": i, "token": f"{name}{i}", "count": count}
        for name, tau, at in (("kl", 0.25, 8), ("delta_logp", -0.4, 11))
        for kind in ("picked", "placed")
        for i, count in enumerate((drawn.number(), drawn.number()))
    ]
    likely = [
        {"rank": i, "token": f"t{i}", **drawn.counts("count"), "delta_logp": drawn.number(), "p_base": drawn.number(),
         "p_rl": drawn.number()}
        for i in range(3)
    ]  # fmt: skip
    made = made.model_copy(
        update={
            "context": {**made.context, "positions": 400, "least": 6},
            "tables": {
                **made.tables,
                "generations": tuple({"generation": one, **wrote[one]} for one in who),
                "histograms": tuple(
                    {"generation": one, "fact": fact, "from": at, "to": at + 1, "tokens": count}
                    for (one, fact, at), count in counted.items()
                ),
                "by_delta": tuple(
                    {
                        "generation": one,
                        "delta_logp": f"{i}",
                        "tokens": 10 * (i % 2),
                        **drawn.estimates("p_base", "p_rl"),
                    }
                    for one in who
                    for i in range(4)
                ),
                "gradient": tuple(
                    {"generation": one, "p_from": i / 10, "p_to": (i + 1) / 10, **drawn.estimates("tokens", "mass")}
                    for one in who
                    for i in range(10)
                ),
                "selected": tuple(picked),
                "likelier": tuple(likely),
            },
        }
    )
    chapter = token_chapter(made)
    shown, notes = sheets(chapter), {section.name: " ".join(section.notes) for section in chapter.sections}
    [text] = chapter.paragraphs
    assert f"({wrote['base']['problems']} problems, 4 samples" in text
    assert f"{wrote['base']['tokens']} of base, {wrote['rl']['tokens']} of RL" in text
    for one, whose in zip(who, ("base's", "RL's"), strict=True):
        near = 100 * wrote[one]["near_zero"] / wrote[one]["tokens"]
        assert f"{near:.1f} % of {whose} responses" in notes["histogram-delta"]
    histograms = [*shown["histogram-delta"], *shown["histogram-magnitude"]]
    assert len(histograms) == len(counted)
    for row in histograms:
        share = counted[row["generation"], row["fact"], float(row["from"])] / wrote[row["generation"]]["tokens"]
        assert number(row, "share") == pytest.approx(share)
        assert number(row, "to") == number(row, "from") + 1
    assert {row["fact"] for row in shown["histogram-delta"]} == {"delta_logp"}
    filled = [row for row in made.tables["by_delta"] if row["tokens"]]
    assert filled
    for name, wanted, columns_ in (
        ("probability-by-delta", filled, ("p_base", "p_rl")), ("gradient", made.tables["gradient"], ("tokens", "mass")),
    ):  # fmt: skip
        for row, one in zip(shown[name], wanted, strict=True):
            assert row["generation"] == one["generation"]
            for column in columns_:
                assert [number(row, f"{column}{end}") for end in ("_low", "", "_high")] == of(one, column, 1)
    assert "Fires at KL, mean of both 2.00 %, Δ log p 2.75 %;" in notes["selected"]
    for name, wanted in (("selected", picked), ("likelier", likely)):
        assert len(shown[name]) == len(wanted)
        for row, one in zip(shown[name], wanted, strict=True):
            for column in row:
                same = row[column].lstrip("'") == str(one[column]) or number(row, column) == pytest.approx(one[column])
                assert same, (name, column)
    assert states(notes["likelier"], "6 times", "3 of 3")


def test_where_gates_redraw_is_told_of_their_own_decoding(drawn):
    kinds = [f"entropy_{who}_{kind}" for who in ("base", "rl") for kind in ("redrawn", "kept")]
    decodings = [
        {"label": label, "problems": 30, **drawn.estimates("share", "changed", "other", *kinds), "runs_1": 30 + i,
         "runs_2": 7, "runs_3": 3}
        for i, label in enumerate(LABELS)
    ]  # fmt: skip
    positions = [
        {"label": label, "by": by, "from": at, **drawn.estimates("share"), **drawn.counts("tokens")}
        for label, by, at in product(LABELS, ("by_token", "by_tenth"), range(3))
    ]
    after = [
        {"label": label, "under": who, "after": at, **drawn.estimates("p"), **drawn.counts("tokens"),
         "p_of_all_kept": drawn.number()}
        for label, who, at in product(LABELS, ("base", "RL"), (1, 2))
    ]  # fmt: skip
    tables = {"decodings": tuple(decodings), "positions": tuple(positions), "after": tuple(after)}
    chapter = gated_chapter(Analysis(kind="gated", context=FACTS, tables=tables))
    shown = sheets(chapter)
    ones = [f"{100 * (30 + i) / (40 + i):.1f} %" for i in range(len(decodings))]
    assert column_text(chapter, "gates", "Runs of one") == ones
    assert column_text(chapter, "gates", "by chance") == [f"{100 - 100 * one['share']:.1f} %" for one in decodings]
    for i, (row, one) in enumerate(zip(shown["gates"], decodings, strict=True)):
        assert row["Decoding"] == one["label"]
        assert ends(row, "Redrawn") == of(one, "share")
        assert ends(row, "Changed, of these") == of(one, "changed")
        assert ends(row, "Other tokens differ") == of(one, "other", 1)
        assert ends(row, "Entropy of base, flagged") == of(one, "entropy_base_redrawn", 1)
        assert ends(row, "kept") == of(one, "entropy_base_kept", 1)
        assert number(row, "Runs of one") == pytest.approx(100 * (30 + i) / (40 + i))
        assert number(row, "by chance") == pytest.approx(100 - 100 * one["share"])
    for name, wanted, column in (("gate-positions", positions, "share"), ("gate-after", after, "p")):
        for row, one in zip(shown[name], wanted, strict=True):
            assert row["label"] == one["label"]
            assert [number(row, f"{column}{end}") for end in ("_low", "", "_high")] == of(one, column, 1)


def test_validations_and_choices_of_checkpoints_are_those_of_their_method(drawn):
    methods, whose = ("DAPO", "Ours"), {"benchmark": "aime24", "samples": 4, "drawn": "T = 1"}
    runs = [
        {**whose, "method": method, "run": run, "step": step, "avg": drawn.number()}
        for method, run, step in product(methods, (1, 2), (0, 10, 20))
    ]
    means = [
        {**whose, "method": method, "runs": 2, "step": step, **drawn.estimates("avg")}
        for method, step in product(methods, (0, 10, 20))
    ]
    ways = ("last", "last_mean", "best", "elsewhere")
    choices = [
        {**whose, "method": method, "runs": 2, **{name: drawn.number() for name in ways}, "averaged": 3,
         "validations": 9, "last_step": 20, "first_best_step": 10, "last_best_step": 10 * i}
        for i, method in enumerate(methods, 1)
    ]  # fmt: skip
    curves = [
        {"curve": what, "method": method, "run": run, "step": float(step), "value": drawn.number()}
        for what, method, run, step in product(("rollout_accuracy", "entropy", "length"), methods, (1, 2), (1, 2))
    ]
    mass = [
        {"method": method, "p_from": i / 4, "p_to": (i + 1) / 4, "token_share": drawn.number(),
         "gradient_share": drawn.number()}
        for method, i in product(methods, range(4))
    ]  # fmt: skip
    tables = {"curves": curves, "runs": runs, "means": means, "choices": choices, "gradient": mass}
    context = {"step": None, "rollout_top_p": {}, "learned_from": []}
    found = Analysis(kind="training", context=context, tables={name: tuple(rows) for name, rows in tables.items()})
    shown = sheets(training_chapter(found))
    for row, one in zip(shown["validation"], [*runs, *means], strict=True):
        assert (row["method"], row["run"], number(row, "step")) == (
            one["method"], str(one.get("run", "mean")), one["step"],
        )  # fmt: skip
        assert number(row, "avg") == pytest.approx(one["avg"])
        if "run" not in one:
            assert [number(row, end) for end in ("low", "avg", "high")] == of(one, "avg", 1)
    for i, (row, one) in enumerate(zip(shown["choosing"], choices, strict=True), 1):
        assert (row["Benchmark"], row["Method"]) == ("AIME24, Avg@4", f"{one['method']} (2 seeds)")
        for column, name in (
            ("Last", "last"), ("Mean of last", "last_mean"), ("Best of N", "best"), ("Chosen elsewhere", "elsewhere"),
        ):  # fmt: skip
            assert number(row, column) == pytest.approx(100 * one[name])
        assert number(row, "Choosing is worth") == pytest.approx(100 * (one["best"] - one["elsewhere"]))
        assert (row["Last: beside"], row["Mean of last: beside"]) == ("step 20", "of 3")
        assert row["Best of N: beside"] == f"of 9, {'step 10' if i == 1 else 'steps 10–20'}"
    for name, wanted, columns_ in (("training", curves, ["value"]), ("training-gradient", mass, ["token_share", "gradient_share"])):  # noqa: E501  # fmt: skip
        for row, one in zip(shown[name], wanted, strict=True):
            assert row["method"] == one["method"]
            assert [number(row, column) for column in columns_] == [pytest.approx(one[column]) for column in columns_]
