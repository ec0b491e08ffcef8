"""What a report says of results: the first page, the control of every extrapolation, its numbers beside ours."""

import numpy as np
import pytest

from rlvr_dir.config import Decoding
from rlvr_dir.report import difference_figures, figures
from rlvr_dir.report.build import build
from rlvr_dir.report.groups import grouped
from rlvr_dir.report.layouts import in_points
from rlvr_dir.report.paper import against_paper
from rlvr_dir.results.compare import OTHERS, PARTS, comparison_kind, comparisons
from rlvr_dir.results.settings import settings_of
from rlvr_dir.results.show import percent
from rlvr_dir.stats import p_value
from tests.facts import refuses, states
from tests.report.made import DAPO, GRID, grid, report, result


def rows_of(results):
    return comparisons(settings_of(results))


def sections(made):
    return {section.name: section for section in made.sections}


def column(section, i):
    return [row[i].text for row in section.cells]


def test_the_first_page_has_the_figure_the_differences_with_controls_and_the_scores():
    made = report()
    [trained] = [row for row in rows_of(grid()) if comparison_kind(row) == "trained"]
    gain = f"{100 * trained.difference.mean:+.1f}"
    states(made.headline, f"{gain} points [", "AIME24 (6 of 30 problems)", f"p {p_value(trained.holm_p)}")
    assert [tile.title for tile in made.tiles][:2] == ["Base", "RL"]
    assert [section.name for section in made.front] == [
        "changed-aime24",
        "changed-amc",
        "main-differences",
        "main-scores",
        "picked",
    ]
    rows = list(zip(*(column(made.front[2], i) for i in (1, 2)), strict=True))
    assert rows[0] == ("rl", "base")
    assert ("extrapolate τ-0.2 γ0.1 on rl", "rl") in rows  # the best of eight gated ways
    assert ("extrapolate τ-0.2 γ0.1 on rl", "replace τ-0.2 on rl") in rows


def test_a_report_whose_rl_wrote_what_base_wrote_begins_with_that():
    ways = [result(Decoding(mode=mode), 0.4, problems=12, samples=4) for mode in ("base", "rl")]
    base, rl = ways[0], ways[0].replace(decoding=ways[1].decoding)
    states(build([base, rl]).headline, "pair check")
    other = rl.n_tokens.copy()
    other[3, 1] += 1
    assert "pair check" not in build([base, rl.replace(n_tokens=other)]).headline


def always(gamma, share):
    """Draws every token from the target; gamma below 0 lies between base and RL."""
    mode = "extrapolate" if gamma else "replace"
    return result(Decoding(mode=mode, criterion="always", gamma=gamma), share, problems=12, samples=16)


def test_extrapolations_stand_against_their_own_gate_and_what_has_no_gate_against_rl():
    control, extra = Decoding(mode="replace", tau=-0.3), Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)
    gated = [result(one, share, problems=40, samples=16) for one, share in ((control, 0.3), (extra, 0.6))]
    [row] = rows_of(gated)
    assert (comparison_kind(row), row.difference.low > 0) == ("against control", True)
    assert row.difference.mean == pytest.approx(gated[1].avg - gated[0].avg)
    swapped = [one.replace(correct=other.correct) for one, other in zip(gated, reversed(gated), strict=True)]
    assert rows_of(swapped)[0].difference.high < 0
    ungated = [always(gamma, 0.4 + 0.2 * gamma) for gamma in (-1.0, -0.5, 0.0, 1.0)]
    made = build([*(result(one, 0.4, problems=12, samples=16) for one in (control, extra)), *ungated])
    gammas = sections(made)["gamma-aime24"].frame
    assert list(gammas["gamma"]) == [-1.0, -0.5, 0.0, 1.0]
    assert (gammas["low"] < gammas["avg"]).all()
    assert figures.against_gamma(settings_of(ungated[:2]), "x", "t") is None


def taken_apart(tau, share, criterion="delta_logp", changed=1):
    """A replacement, its reject, right a tenth less often, and its veto, a fifth more; all change as many tokens."""
    found = []
    for mode, more in (("replace", 0.0), ("reject", -0.1), ("veto", 0.2)):
        one = result(Decoding(mode=mode, tau=tau, criterion=criterion), share + more, problems=30, samples=16)
        found.append(one.replace(n_changed=one.n_tokens * 0 + changed))
    return found


def two_references():
    shares = (("base", 0.2), ("rl", 0.6))
    return [result(Decoding(mode=mode), share, problems=30, samples=16) for mode, share in shares]


def test_base_s_own_second_draw_beside_rl_s_decision():
    """Hold reject against a resampling at its gate too, where there is one: on the first page and in a figure."""
    results = [*two_references()]
    for tau, changed in ((-0.3, 1), (-0.1, 2)):
        results += taken_apart(tau, 0.5, changed=changed)
        results.append(result(Decoding(mode="resample", tau=tau), 0.3, problems=30, samples=16))
    found = {
        (row.result.label, row.reference.label): row for row in rows_of(results) if comparison_kind(row) == "own draw"
    }
    assert [*found] == [(f"reject τ{tau}", f"resample τ{tau}") for tau in (-0.3, -0.1)]
    own = [(row.result.label, row.reference.label) for row in rows_of(results) if comparison_kind(row) == "second draw"]
    assert own == [(f"resample τ{tau}", "base") for tau in (-0.3, -0.1)]
    made = build(results)
    [said] = [line for line in made.opening if "reject − resample" in line]
    assert any(in_points(row.difference) in said and row.holm_text in said for row in found.values())
    drawn = [row for row in sections(made)["veto-aime24"].frame.to_dict("records") if "resample" in row["step"]]
    assert [row["difference"] for row in drawn] == pytest.approx([100 * row.difference.mean for row in found.values()])


def test_the_two_steps_of_a_replacement_stand_on_the_first_page_in_the_grid_and_in_a_figure():
    pairs = {tau: taken_apart(tau, share, changed=n) for tau, share, n in ((-0.3, 0.3, 1), (-0.1, 0.6, 2))}
    extra = [
        result(Decoding(mode="extrapolate", tau=-0.1, gamma=gamma), 0.7, problems=30, samples=16)
        for gamma in (0.05, 0.1)
    ]
    base, rl = two_references()
    results = [base, rl, *pairs[-0.3], *pairs[-0.1], *extra]
    steps = {
        (kind, row.result.decoding.tau): row
        for row in rows_of(results)
        if (kind := comparison_kind(row)) in ("token", "decision")
    }
    for tau, (replaced, reject, veto) in pairs.items():
        assert steps["token", tau].difference.mean == pytest.approx(replaced.avg - reject.avg)
        assert steps["decision", tau].difference.mean == pytest.approx(reject.avg - veto.avg)
        assert (steps["token", tau].difference.low > 0, steps["decision", tau].difference.high < 0) == (True, True)
    made = build(results)
    token, decision = steps["token", -0.1], steps["decision", -0.1]
    replaced = token.result
    states(made.headline, percent(replaced.changed_ratio), percent(base.avg), percent(replaced.avg), percent(rl.avg))
    [said] = [line for line in made.opening if "replace − reject" in line]
    states(said, in_points(token.difference), f"p {token.holm_text}")
    [said] = [line for line in made.opening if "reject − veto" in line]
    states(said, in_points(decision.difference), f"p {decision.holm_text}")
    assert any("replace τ-0.1 on AIME24" in line for line in made.opening), "which of the two replacements"
    assert made.reading
    shown = sections(made)
    listed = [*zip(*(column(shown["main-differences"], i) for i in (1, 2)), strict=True)]
    assert {("replace τ-0.1", "reject τ-0.1"), ("reject τ-0.1", "veto τ-0.1")} <= {*listed}
    drawn = shown["veto-aime24"].frame.to_dict("records")
    assert [(row["step"], row["line"], row["tau"]) for row in drawn] == [
        (step, "Δ log p", tau) for step in ("replace minus reject", "reject minus veto") for tau in pairs
    ]
    for row in drawn:
        kind = "token" if row["step"].startswith("replace") else "decision"
        one, (first, second) = steps[kind, row["tau"]], pairs[row["tau"]][kind == "decision" :][:2]
        ends = [100 * each for each in (one.difference.low, one.difference.mean, one.difference.high)]
        assert [row["low"], row["difference"], row["high"]] == pytest.approx(ends)
        assert (row["p"], row["p_holm"]) == (one.difference.p, one.holm_p)
        assert (row["avg"], row["minus_avg"]) == pytest.approx((100 * first.avg, 100 * second.avg))
        assert row["changed_percent"] == pytest.approx(100 * first.n_changed.sum() / first.n_tokens.sum())
    lines = {line: list(part["avg"]) for line, part in shown["changed-aime24"].frame.groupby("line")}
    for i, mode in ((1, "reject"), (2, "veto")):
        assert lines[f"Δ log p, {mode}"] == pytest.approx([100 * each[i].avg for each in pairs.values()])
    assert "Δ log p, γ = 0.1" not in lines  # extrapolations are left out beside replacements
    [row] = [row for row in shown["grid-aime24"].cells if row[0].text == "Base without the flagged token (veto)"]
    assert [cell.value for cell in row[1:]] == [pytest.approx(100 * pairs[-0.1][2].avg)]
    assert difference_figures.two_by_two(rows_of([base, rl, *extra]), "x", "t") is None


def test_no_two_lines_of_a_figure_look_alike():
    """|Δ log p| and the same where Δ log p < 0 were both violet squares."""
    gates = [
        {"criterion": criterion, "sign": sign, "tau": -0.1 if criterion == "delta_logp" else 0.1}
        for criterion in ("delta_logp", "abs_delta_logp", "kl", "entropy_base", "random")
        for sign in (None, "negative")[: 1 + (criterion in ("abs_delta_logp", "kl"))]
    ]
    settings = settings_of([result(Decoding(mode="replace", **gate)) for gate in gates])
    looks = [figures.look_of(of[0].decoding, i) for i, _, of in figures.ways_of(settings)]
    assert len({(look["color"], look["marker"]) for look in looks}) == len(looks) == len(gates)


def test_controls_of_other_criteria_and_on_rl_stay_out_of_the_main_figure():
    on_rl = [
        result(Decoding(mode=mode, tau=-0.1, primary="rl", gamma=0.0), 0.6, problems=30, samples=16)
        for mode in ("replace", "veto")
    ]
    shown = sections(build([*two_references(), *taken_apart(-0.1, 0.5), *taken_apart(0.2, 0.4, "kl"), *on_rl]))
    lines = {"Δ log p", "Δ log p, reject", "Δ log p, veto", "KL", "base", "rl"}
    assert set(shown["changed-aime24"].frame["line"]) == lines
    assert set(shown["veto-aime24"].frame["line"]) == {"Δ log p", "KL"}


def test_results_that_are_not_alike_never_meet():
    """An audit's reproduction: replace graded by `plain` minus RL graded by `robust` was the first sentence."""
    control = Decoding(mode="replace", tau=-0.3)
    made = build([result(Decoding(), 0.6, grader="robust"), result(control, 0.3, grader="plain")])
    assert "nothing to compare" in made.headline
    name = "DAPO (DAPO-Qwen-32B)"
    assert not {"differences", "main-differences"} & sections(made).keys()
    assert made.chapters[0].paragraphs[-1].endswith(f"{name} (robust); {name} (plain).")
    graders = [{"grader": each, "graded_with": {"grader": each}} for each in ("robust", "plain")]
    found = build([result(one, **grader) for one in (Decoding(), control) for grader in graders])
    assert column(sections(found)["differences"], 0) == [f"{name} (robust)", f"{name} (plain)"]
    assert rows_of([result(GRID[0], ids=tuple("abcdef")), result(GRID[1])]) == []
    other = build([*grid(), *grid(pair={"base": "b", "rl": "r"})])
    assert other.headline.startswith("DAPO (DAPO-Qwen-32B): ")
    assert other.opening[0].startswith("r: ")
    with refuses("nothing"):
        build([])


def test_no_column_mixes_problem_sets_and_a_limited_run_is_marked_wherever_it_stands():
    whole = [result(Decoding(mode=mode), problems=30) for mode in ("base", "rl")]
    part = [result(Decoding(mode="replace", tau=-0.3), problems=16), result(Decoding(), problems=16)]
    made = build([*whole, *part])
    groups = {name: {one.group for one in section.columns} for name, section in sections(made).items()}
    assert groups["main-0"] == {"", "AIME24"}
    assert groups["main-1"] == {"", "AIME24 (16 of 30 problems)"}
    assert column(sections(made)["differences"], 1) == ["AIME24", "AIME24 (16 of 30 problems)"]
    assert any("(aime24: 16 of 30 problems)" in sentence for sentence in made.chapters[0].paragraphs)
    assert set(column(sections(made)["beside-the-paper"], 0)) == {"AIME24, rl, Avg@4"}


def test_seeds_are_averaged_within_a_setting_and_a_setting_is_one_row():
    """One setting with three seeds and a gain, two with one seed and none: a row a seed would weigh the gain thrice."""
    results = []
    for tau in (-0.1, -0.2, -0.3):
        control, extra = Decoding(mode="replace", tau=tau), Decoding(mode="extrapolate", tau=tau, gamma=0.1)
        for seed in range(3 if tau == -0.1 else 1):
            results += [result(control, 0.3, seed=seed), result(extra, 0.6 if tau == -0.1 else 0.3, seed=seed)]
    rows = [row for row in rows_of(results) if comparison_kind(row) == "against control"]
    assert [(len(row.result.seeds), len(row.reference.seeds)) for row in rows] == [(3, 3), (1, 1), (1, 1)]
    several = [one for one in results if one.decoding.tau == -0.1]
    seeds = [one.avg - other.avg for other, one in zip(several[::2], several[1::2], strict=True)]
    assert [row.difference.mean for row in rows] == [pytest.approx(np.mean(seeds)), 0.0, 0.0]
    shown = sections(build(results))
    assert len((shown.get("differences") or shown["main-differences"]).cells) == 3


def test_a_cell_of_the_heat_map_is_of_all_seeds():
    """It was the first seed's score alone."""
    plain = [*grid(), *grid(seed=1)]
    heat = sections(build(plain))["heat-aime24"].frame
    scores = {(one.decoding.tau, one.decoding.gamma): 100 * one.avg for one in settings_of(plain[2:-2])}
    for row in heat.to_dict("records"):
        assert row["avg"] == pytest.approx(scores[row["tau"], row["gamma"]])


def test_a_difference_without_an_interval_does_not_name_its_level():
    made = [build([result(Decoding(mode=mode), problems=n) for mode in ("base", "rl")]) for n in (1, 2)]
    lines = [" ".join([one.headline, *one.opening]) for one in made]
    assert ["95 %" in line for line in lines] == [False, True]
    assert ["Holm p" in line for line in lines] == [False, True]


def test_a_name_that_the_user_gave_heads_its_pair_and_each_source_names_its_record():
    results = [one.replace(name="Mine") for one in grid()]
    made = build(results)
    assert any(section.title.endswith(", Mine.") for section in made.sections)
    records = {source.anchor: dict(source.details)["record"] for source in made.sources}
    assert records == {f"r-{one.config_hash}": one.provenance["record"] for one in results}


# Beside the paper


def beside_the_paper(results, base=None):
    [table] = against_paper(results, base).sections
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.cells}


def test_the_paper_is_beside_us_where_it_has_the_row():
    other = result(Decoding(mode="replace", tau=-0.9), samples=32, problems=272, task="minerva")
    rows = beside_the_paper([*grid(samples=32, problems=30), *grid(samples=32, problems=30, task="amc"), other])
    error = 196 * other.sampling_error * 5**0.5  # of the paper's 8 samples and of our 32
    assert rows["Minerva, replace τ-0.9, Avg@32"][3] == f"±{error + 0.005:.2f}"
    assert rows["AIME24, extrapolate τ-0.3 γ0.05, Avg@32"][0] == "55.42"
    assert rows["AIME24, rl, Avg@32"][0] == "52.60"
    assert rows["AIME24, extrapolate τ-0.2 γ0.1 on rl, Avg@32"][0] == "55.31"
    assert rows["AIME24, replace τ-0.3, replaced"][:3] == ["11.4", "11.11", "-0.29"], "one token of nine in each"
    assert not [name for name in rows if name.startswith("AMC")]
    local = {"base": "/models/base", "rl": "/runs/DAPO/rl"}
    one = result(Decoding(), pair=local, problems=30, samples=32, name="DAPO")
    rows = beside_the_paper([one], "qwen2.5-math-7b")
    assert rows["AIME24, Qwen2.5-Math-7B, DAPO, Avg@32"][0] == "35.73"
    assert rows["AIME24, Qwen2.5-Math-7B, DAPO, Pass@16"] == [
        "54.09", f"{100 * one.pass_at(16):.2f}", f"{100 * one.pass_at(16) - 54.09:+.2f}", "–", "–"
    ]  # fmt: skip


def test_what_is_drawn_otherwise_is_not_beside_the_paper():
    """Greedy RL was set beside the paper's Avg@32 at T = 1, as the same setting."""
    usual = result(GRID[1], samples=32, problems=30)
    for how in ({"temperature": 0.6}, {"top_p": 0.95}):
        chapter = against_paper([usual.replace(sampling=usual.sampling.replace(**how))])
        assert "which are drawn at T = 1, top-p 0.7" in chapter.paragraphs[-1]
        assert not chapter.sections
    short = usual.replace(sampling=usual.sampling.replace(max_tokens=4096))
    assert next(iter(beside_the_paper([short]))) == "AIME24, rl, at most 4,096 tokens, Avg@32"


@pytest.mark.parametrize("target", ["Qwen/Qwen2.5-72B", DAPO["rl"]])
def test_a_change_on_another_model_is_not_taken_for_the_papers_pair(target):
    """By no place of the three, not even where the target is the paper's own RL model."""
    results = [result(one, pair={**DAPO, "recipient": target}, problems=30) for one in GRID]
    assert against_paper(results) is None
    assert against_paper([result(one, problems=30) for one in GRID]) is not None
    assert [group.pair for group in grouped(results)] == [f"DAPO-Qwen-32B (on {target.rpartition('/')[2]})"]


def test_an_average_stands_only_in_a_row_that_has_every_benchmark():
    """Else it is of other benchmarks than the rows beside it: 58.5 of four sets stood over 54.0 of three."""
    base, rl = Decoding(mode="base"), Decoding(mode="rl")
    some = [result(each, task=task, problems=30) for each in (base, rl) for task in ("aime24", "amc")]
    gated = [
        result(Decoding(mode="replace", tau=-0.3), task=task, problems=30) for task in ("aime24", "amc", "minerva")
    ]
    section = sections(build([*some, *gated]))["main-scores"]
    averages = [row[-2].text for row in section.cells]
    assert averages[:2] == ["–", "–"]
    assert averages[2] == f"{100 * np.mean([one.avg for one in gated]):.1f}"


def test_a_report_with_all_cells_of_a_gate_prints_five_parts_that_add_up():
    gate = Decoding(mode="replace", tau=-0.3)
    cells = [gate.cell(decider, writer) for decider, writer in
             ((None, "base"), ("base", "base"), ("rl", "base"), ("rl", "rl"), (None, "rl"))]  # fmt: skip
    results = [result(each, 0.2 + 0.1 * i) for i, each in enumerate((Decoding(mode="base"), *cells))]
    assert "parts" not in sections(build(results[:-1]))
    [*parts, whole] = [row[-1].value for row in sections(build(results))["parts"].cells]
    assert sum(parts) == pytest.approx(whole)
    assert whole == pytest.approx(100 * (results[-1].avg - results[0].avg))
    more = [result(gate.cell("base", "rl"), 0.35), result(gate.cell(0.75, "base"), 0.45)]
    rows = sections(build([*results, *more]))["parts"].cells
    values = {row[1].text: row[2].value for row in rows}
    assert [row[1].text for row in rows[6:]] == [*OTHERS.values()]
    first, last, both, rate, choice = (values[words] for words in OTHERS.values())
    decision, token = (values[PARTS[name]] for name in ("decision", "token"))
    assert (rate + choice, first + last, token - first) == pytest.approx((decision, decision + token, both))
