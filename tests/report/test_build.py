"""What a report says of results: the verdict, the control of every extrapolation, the paper's number beside ours."""

import numpy as np
import pytest

from harness.errors import UserError
from harness.evals.compare import comparison_kind, comparisons
from harness.evals.settings import settings_of
from harness.report import figures
from harness.report.build import build
from harness.report.groups import grouped, pair_title
from harness.report.lists import provenance
from harness.report.verdict import p_value, verdict
from harness.spec import Decoding
from harness.stats import pooled
from tests.report.made import DAPO, GRID, grid, report, result


def rows_of(results):
    return comparisons(settings_of(results))


def tables(made):
    return {table.name: table for table in made.tables}


def test_the_first_line_has_an_interval_and_claims_no_more():
    made = report()
    assert made.verdict.startswith("RL changed accuracy by ")
    assert "[" in made.verdict
    assert "paired by problem" in made.verdict
    assert ", p " not in made.verdict  # one that is not corrected heads no page
    [said] = [text for text in made.sections[0].paragraphs if text.startswith("Extrapolating changes accuracy by ")]
    assert said.endswith((": a significant gain.", ": a significant loss.", ": inconclusive."))
    assert ", not corrected, 0 of the " in said


def test_the_summary_says_how_many_tokens_each_criterion_had_to_change():
    """Base 0.2, RL 0.8: three criteria, of which one comes as far as RL, by two thresholds."""

    def at(decoding, right, replaced=0, changed=0):
        one = result(decoding, problems=30, samples=10)
        tokens = {"n_tokens": 100, "n_replaced": replaced, "n_changed": changed}
        counts = {name: np.full_like(one.n_tokens, value) for name, value in tokens.items()}
        return one.replace(values={"correct": np.tile(np.arange(10) < right, (30, 1))}, **counts)

    def gate(criterion, tau, *counts):
        return at(Decoding(mode="replace", criterion=criterion, tau=tau), *counts)

    plain = [at(Decoding(mode="base"), 2), at(Decoding(), 8)]
    ways = [
        gate("delta_logp", -0.5, 6, 10, 10), gate("delta_logp", -0.1, 8, 30, 20), gate("delta_logp", -0.05, 9, 50, 40),
        gate("kl", 0.1, 8, 90, 30), gate("random", 0.5, 4, 50, 20),
    ]  # fmt: skip
    [said] = [
        text for text in build([*plain, *ways]).sections[0].paragraphs if text.startswith("Tokens that had to change")
    ]
    assert "(80.0; base 20.0)" in said
    assert "that were run: Δ log p 20.0 % [" in said
    assert "] (of 30.0 % replaced); KL 30.0 % [" in said
    assert said.endswith("Not reached, best: random 40.0 at 20.0 % changed.")
    assert not any("Tokens that had to change" in text for text in build([*plain, *ways[:2]]).sections[0].paragraphs)


def test_the_first_sentence_is_about_results_that_are_alike():
    """An audit's reproduction: replace graded by `plain` minus RL graded by `robust` was the first sentence."""
    control = Decoding(mode="replace", tau=-0.3)
    made = build([result(Decoding(), 0.6, grader="robust"), result(control, 0.3, grader="plain")])
    assert "There is nothing to compare here" in made.verdict
    assert [section.title for section in made.sections[1:]] == [
        "Scores of the DAPO (DAPO-Qwen-32B) (robust)", "Scores of the DAPO (DAPO-Qwen-32B) (plain)", "Every result",
    ]  # fmt: skip
    assert "differences" not in tables(made)
    assert "that are not alike are not compared" in made.sections[0].paragraphs[-1]
    graders = [{"grader": name, "graded_with": {"grader": name}} for name in ("robust", "plain")]
    both = [result(one, **grader) for one in (Decoding(), control) for grader in graders]
    found = tables(build(both))["differences"]
    assert [row.cells[0].text for row in found.rows] == [
        "DAPO (DAPO-Qwen-32B) (robust)", "DAPO (DAPO-Qwen-32B) (plain)"
    ]  # fmt: skip


def test_no_column_mixes_problem_sets_and_a_limited_run_is_marked_wherever_it_stands():
    whole = [result(Decoding(mode=mode), problems=30) for mode in ("base", "rl")]
    part = [result(Decoding(mode="replace", tau=-0.3), problems=16), result(Decoding(), problems=16)]
    made = build([*whole, *part])
    first, second = (one.title for one in made.sections if one.title.startswith("Scores"))
    assert first.endswith("(aime24: 30 problems)")
    assert second.endswith("(aime24: 16 of 30 problems)")
    columns = {name: {column.group for column in one.columns} for name, one in tables(made).items()}
    assert columns["main-0"] == {"", "AIME24"}
    assert columns["main-1"] == {"", "AIME24 (16 of 30 problems)"}
    assert [row.cells[1].text for row in tables(made)["differences"].rows] == ["AIME24", "AIME24 (16 of 30 problems)"]
    said = "Only some of the problems were asked (aime24: 16 of 30 problems)."
    assert any(text.endswith(said) for text in made.sections[0].paragraphs)
    assert all(
        row.cells[0].text in ("AIME24, rl, Avg@4", "AIME24, base, Avg@4")
        for row in tables(made)["beside-the-paper"].rows
    )


def test_seeds_are_averaged_within_a_setting_before_settings_are():
    """One setting with three seeds and a gain, two with one seed and none: a row a seed would weigh the gain thrice."""
    taus, results = (-0.1, -0.2, -0.3), []
    for tau in taus:
        control, extra = Decoding(mode="replace", tau=tau), Decoding(mode="extrapolate", tau=tau, gamma=0.1)
        for seed in range(3 if tau == -0.1 else 1):
            results += [result(control, 0.3, seed=seed), result(extra, 0.6 if tau == -0.1 else 0.3, seed=seed)]
    rows = [row for row in rows_of(results) if comparison_kind(row) == "against control"]
    found = pooled(rows)
    assert found.settings == {"aime24": 3}
    gains = [row.difference.mean for row in rows]
    assert gains[1:] == [0.0, 0.0]
    assert found.mean == pytest.approx(gains[0] / 3)
    assert "mean over 3 settings, 95 %" in build(results).verdict


def test_a_sentence_counts_only_what_was_averaged_and_says_what_was_pruned():
    control, more = Decoding(mode="replace", tau=-0.3), Decoding(mode="extrapolate", tau=-0.3, gamma=0.2)
    extra = Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)
    on_amc = [result(one, task="amc") for one in (control, extra)]
    made = build([*(result(one) for one in (control, extra, more)), *on_amc])
    assert "mean over 2 settings on aime24 and 1 settings on amc, 2 benchmarks" in made.verdict
    pruned = {"pruned": {"runs/sweeps/search/results": 5}}
    made = build([result(one, **pruned) for one in (control, extra, more)])
    assert "mean over 2 surviving settings, 5 others were pruned by a search, which favours the mean" in made.verdict


def test_equal_results_are_not_told_apart():
    control, extra = Decoding(mode="replace", tau=-0.3), Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)
    said, _ = verdict(rows_of([result(control), result(extra)]))
    assert "+0.0 points [-45.4, +45.4]" in said  # four problems, no more
    assert said.endswith("inconclusive.")


def test_a_single_result_has_no_verdict():
    assert "nothing to compare" in build([result(Decoding())]).verdict
    with pytest.raises(UserError, match="nothing to report"):
        build([])


def test_every_extrapolation_is_set_against_its_own_gate():
    rows = rows_of(grid())
    controlled = [row for row in rows if comparison_kind(row) == "against control"]
    assert len(controlled) == 5
    assert all(row.reference.decoding == row.result.decoding.control() for row in controlled)
    assert all(row.holm_p >= row.difference.p for row in rows)
    assert {comparison_kind(row) for row in rows} == {"trained", "against rl", "against control"}


def test_extrapolation_minus_rl_stands_beside_extrapolation_minus_its_control():
    drawn = figures.differences(rows_of(grid()))
    by = {kind: [row for row in drawn.data if row[0] == kind] for kind in ("against rl", "against control")}
    assert [row[2] for row in by["against rl"]] == [row[2] for row in by["against control"]]
    assert {row[3] for row in by["against rl"]} == {"rl"}
    assert len(drawn.data) == 10
    assert "points, minus RL" in drawn.svg


def test_a_sweep_on_rl_has_its_figure():
    """Its control and its extrapolation, each at two thresholds; beside ways on base it is a figure of its own."""
    ways = [Decoding(mode="base"), Decoding(mode="rl")]
    for tau in (-0.5, -0.2):
        ways += [Decoding(mode="replace", tau=tau, primary="rl")]
        ways += [Decoding(mode="extrapolate", tau=tau, gamma=0.1, primary="rl")]
    [drawn] = [one for one in build([result(way) for way in ways]).figures if one.name.startswith("ratio")]
    assert {row[0] for row in drawn.data} == {"base", "rl", "Δ log p on RL", "Δ log p, γ = 0.1 on RL"}
    assert len(drawn.data) == 6
    names = [one.name for one in report().figures if one.name.startswith("ratio")]
    assert names == ["ratio-aime24", "ratio-on-rl-aime24", "ratio-amc", "ratio-on-rl-amc"]


def test_pooling_averages_settings_before_it_counts_problems():
    rows = [row for row in rows_of(grid()) if comparison_kind(row) == "against control"]
    found = pooled(rows)
    assert found.settings == {"aime24": 5}
    assert found.mean == pytest.approx(sum(row.difference.mean for row in rows) / 5)
    assert pooled([]) is None


def test_other_problems_or_samplings_are_never_mixed():
    assert rows_of([result(GRID[0], ids=tuple("abcdef")), result(GRID[1])]) == []
    groups = grouped([result(GRID[0]), result(GRID[1], pair={"base": "b", "rl": "r"})])
    assert [group.pair for group in groups] == ["DAPO (DAPO-Qwen-32B)", "r"]


def test_other_weights_at_the_same_place_have_a_section_of_their_own():
    """One grid had cells of a model and of what was trained anew at its place."""
    old, new = ({"base": "weights:b", "rl": f"weights:{name}"} for name in ("0e27", "d08e"))
    results = [result(GRID[1], weights=old, shared="s"), result(GRID[1], seed=1, weights=new, shared="s")]
    results += [result(GRID[2], weights=new, shared="s"), result(GRID[0], seed=2, weights={"base": "weights:b"})]
    found = grouped([*results, result(GRID[3], seed=3)])
    assert [group.pair for group in found] == [f"DAPO (DAPO-Qwen-32B) (rl weights {name})" for name in ("0e27", "d08e")]
    assert [len(group.results) for group in found] == [3, 2]
    assert [group.pair for group in grouped(results[1:3])] == ["DAPO (DAPO-Qwen-32B)"]


def test_the_number_of_examples_tells_sections_apart():
    """Two sections had one name, and compare said that the data differ: it is the same, put with other examples."""
    plain, shown = result(GRID[1], examples=0), result(GRID[1], data="e" * 16, examples=2)
    name = "DAPO (DAPO-Qwen-32B)"
    sizes = [group.pair for group in grouped([plain, shown])]
    assert sizes == [f"{name} (aime24: 6 of 30 problems, {words})" for words in ("no examples", "2 examples")]
    assert [setting.label for setting in settings_of([plain, shown])] == ["rl (no examples)", "rl (2 examples)"]
    assert ("shown before each problem", "2 examples") in provenance(shown, grouped([shown])[0], {}).facts
    other = result(GRID[1], data="f" * 16, examples=2, grader="robust-3")
    third = result(GRID[1], data="d" * 16, examples=2)
    assert [group.pair for group in grouped([other, shown, third])][1:] == [
        f"{name} (plain; aime24: 6 of 30 problems, 2 examples, data {digit * 6})" for digit in "ed"
    ]
    told = [result(GRID[0]), plain]  # an older result does not say how many: equal data, equal examples
    assert [setting.label for setting in settings_of(told)] == ["base", "rl"]


def test_grid_and_on_rl_have_their_controls():
    found = tables(report())
    assert [row.cells[0].text for row in found["grid-aime24"].rows] == [
        "replaced", "changed", "Replace with π_RL (γ = 0)", "Extrapolate, γ = 0.05", "Extrapolate, γ = 0.1",
    ]  # fmt: skip
    assert all(len(cell.small) == 2 for cell in found["grid-aime24"].rows[3].cells[1:])
    assert [row.cells[0].text for row in found["on-rl-aime24"].rows] == [
        "replaced", "changed", "The gate alone (γ = 0)", "Extrapolate, γ = 0.1", "γ = 0.1 minus the gate alone",
    ]  # fmt: skip


def test_the_paper_is_beside_us_where_it_has_the_row():
    table = tables(report(samples=32, problems=30))["beside-the-paper"]
    rows = {row.cells[0].text: row for row in table.rows}
    assert rows["AIME24, extrapolate τ-0.3 γ0.05, Avg@32"].cells[1].text == "55.42"
    assert rows["AIME24, rl, Avg@32"].cells[1].text == "52.60"
    replaced = [cell.text for cell in rows["AIME24, replace τ-0.3, replaced"].cells[1:4]]
    assert replaced == ["11.4", "11.11", "-0.29"], "one token of nine in each response"
    assert {row.cells[-1].text for row in table.rows} <= {"yes", "no"}
    assert not [name for name in rows if name.startswith("AMC")]


def test_a_named_training_method_finds_its_row():
    math = {"base": "Qwen/Qwen2.5-Math-7B", "rl": "mine/low-prob"}
    made = build([result(Decoding(), pair=math, problems=30, name="Ours")])
    [row] = tables(made)["beside-the-paper"].rows
    assert (row.cells[0].text, row.cells[1].text) == ("AIME24, Qwen2.5-Math-7B, Ours, Avg@4", "39.06")


def test_what_is_drawn_otherwise_is_not_beside_the_paper():
    """Greedy RL was set beside the paper's Avg@32 at T = 1, as the same setting."""
    usual = result(GRID[1], samples=32, problems=30)
    for how in ({"temperature": 0.6}, {"top_p": 0.95}, {"min_p": 0.1, "top_p": 1.0}):
        other = usual.replace(sampling=usual.sampling.replace(**how))
        made = build([other])
        assert "beside-the-paper" not in tables(made)
        [section] = [each for each in made.sections if each.title == "Beside the paper"]
        assert "which are drawn at T = 1, top-p 0.7" in section.paragraphs[-1]
    short = usual.replace(sampling=usual.sampling.replace(max_tokens=4096))
    [row] = tables(build([short]))["beside-the-paper"].rows
    assert row.cells[0].text == "AIME24, rl, at most 4,096 tokens, Avg@32"


def test_pass_at_16_is_beside_the_papers_too():
    local = {"base": "/models/Qwen2.5-Math-7B", "rl": "/runs/DAPO/rl"}
    one = result(Decoding(), pair=local, problems=30, samples=32, name="DAPO")
    rows = {row.cells[0].text: row.cells for row in tables(build([one]))["beside-the-paper"].rows}
    cells = rows["AIME24, Qwen2.5-Math-7B, DAPO, Pass@16"]
    assert [cell.text for cell in cells[1:3]] == ["54.09", f"{100 * one.pass_at(16):.2f}"]
    assert [cell.text for cell in cells[4:]] == ["–", "–"]  # its sampling error near 0 is not known well enough


def test_every_number_leads_to_its_source():
    made = report()
    anchors = {f"#{source.anchor}" for source in made.sources}
    links = {cell.link for table in made.tables for row in table.rows for cell in row.cells if cell.link}
    assert links <= anchors
    assert len(made.sources) == 2 * len(GRID)
    assert ("command", "rlvr-dir eval --tasks aime24") in made.sources[0].facts


def test_many_settings_are_represented_by_the_best_and_that_is_said():
    table = tables(report())["main-scores"]
    assert [row.cells[1].text for row in table.rows][:2] == ["Base", "RL"]
    assert all(row.cells[1].text.endswith("†") for row in table.rows[2:])
    assert any("picked on these data" in note for note in table.notes)


def test_names_of_pairs():
    assert pair_title(DAPO["rl"]) == "DAPO (DAPO-Qwen-32B)"
    assert pair_title("some/where/tiny/weights/rl") == "tiny pair"
    assert pair_title("work/my-pair/rl") == "my-pair"
    assert p_value(0.0) == "< 0.001"


def test_trained_models_stand_side_by_side():
    """Two RL models of one base, under the names the reader gave them: the paper's main table."""
    entries = []
    for name, share in (("DAPO", 0.4), ("Ours", 0.6)):
        pair = {"base": "Qwen/Qwen2.5-Math-7B", "rl": f"mine/{name}"}
        entries.append(result(Decoding(mode="base"), 0.2, pair=pair))
        entries.append(result(Decoding(), share, pair=pair, name=name))
    table = tables(build(entries))["trained"]
    assert [row.cells[1].text for row in table.rows] == ["Base", "DAPO", "Ours"]
    assert table.rows[0].cells[0].text == "Qwen2.5-Math-7B"
    assert [len(row.cells[2].small) for row in table.rows] == [1, 1, 2]
    assert table.rows[2].cells[2].mark == "best"


def test_pairs_are_never_pooled():
    other = {"base": "b", "rl": "r"}
    made = build([*grid(), *grid(pair=other)])
    assert made.verdict.startswith("DAPO (DAPO-Qwen-32B): RL changed accuracy by ")
    assert any(text.startswith("r: RL changed") for text in made.sections[0].paragraphs)


def test_fewer_samples_of_the_same_decoding_are_not_counted_twice_and_no_table_mixes_them_up():
    few = [result(decoding, 0.3, samples=2) for decoding in GRID[:3]]
    more = grid()
    found = build([*few, *more])
    alone = build(more)
    assert found.verdict == alone.verdict
    main, grid_of_all = (tables(found)[name] for name in ("main-scores", "grid-aime24"))
    assert [column.title for column in main.columns][2:] == ["Avg@4", "Pass@2"]
    base = next(row for row in main.rows if row.cells[1].text == "Base")
    assert base.cells[2].text == f"{100 * more[0].avg:.2f}"
    assert "Avg@4" in grid_of_all.caption


def test_a_column_of_several_numbers_of_samples_says_which_number_has_how_many():
    found = build([result(GRID[0], 0.3, samples=2), *grid()[1:]])
    main = tables(found)["main-scores"]
    assert main.columns[2].title == "Avg"
    smalls = {row.cells[1].text: row.cells[2].small[0] for row in main.rows}
    assert smalls["Base"] == "@2"
    assert smalls["RL"] == "@4"


def always(gamma, share):
    """Draws every token from the target; gamma below 0 lies between base and RL."""
    mode = "extrapolate" if gamma else "replace"
    return result(Decoding(mode=mode, criterion="always", gamma=gamma), share, problems=12, samples=16)


def test_what_goes_back_towards_base_is_no_extrapolation_and_what_has_no_gate_is_said_apart():
    gate = [
        result(Decoding(mode="replace", tau=-0.3), 0.4, problems=12, samples=16),
        result(Decoding(mode="extrapolate", tau=-0.3, gamma=0.1), 0.4, problems=12, samples=16),
    ]
    ungated = [always(gamma, 0.4 + 0.2 * gamma) for gamma in (-1.0, -0.5, 0.0, 1.0)]
    made = build([*gate, *ungated])
    assert made.verdict.startswith("Extrapolating changes accuracy by +0.0 points")
    [said] = [text for text in made.sections[0].paragraphs if "without a gate" in text]
    gain = 100 * (ungated[3].avg - ungated[2].avg)
    assert said.startswith(f"Extrapolating every token, without a gate, changes accuracy by +{gain:.1f} points [")
    assert "against RL itself (γ\u00a0=\u00a00; 95 %" in said
    drawn = next(figure for figure in made.figures if figure.name == "differences")
    assert {row[2] for row in drawn.data} == {"extrapolate τ-0.3 γ0.1", "extrapolate γ1 always"}
    gammas = next(figure for figure in made.figures if figure.name == "gamma-aime24")
    assert [row[1] for row in gammas.data] == [-1.0, -0.5, 0.0, 1.0]
    assert all(low < avg < high for _, _, avg, low, high, _ in gammas.data)
    assert figures.against_gamma(settings_of(ungated[:2]), "x", "t") is None


def test_more_gates_than_a_figure_can_hold_are_in_two_the_papers_first():
    ways = ["delta_logp", "kl", "kl_rl_base", "kl_base_rl", "entropy_base", "entropy_rl", "random", "coupling"]
    controls = ["abs_delta_logp", "nll_rl", "js", "always"]

    def of(criterion):
        free = criterion in ("coupling", "always")
        return result(Decoding(mode="replace", criterion=criterion, tau=None if free else 0.1), 0.5)

    plain = [result(Decoding(mode=mode)) for mode in ("base", "rl")]
    few, many = ({f.name: {row[0] for row in f.data} for f in build([*plain, *map(of, names)]).figures}
                 for names in (ways, ways + controls))  # fmt: skip
    assert [name for name in few if name.startswith(("ratio", "changed"))] == ["changed-aime24", "ratio-aime24"]
    assert [name for name in many if name.startswith("ratio")] == ["ratio-aime24", "ratio-controls-aime24"]
    assert many["changed-aime24"] == many["ratio-aime24"] == few["ratio-aime24"] | {"|Δ log p|"}
    assert many["ratio-controls-aime24"] == {
        "base",
        "rl",
        "Δ log p",
        "coupling",
        "|Δ log p|",
        "−log p of RL",
        "Jensen–Shannon",
    }  # fmt: skip, and none that replaces every token


def test_a_change_on_another_model_is_not_taken_for_the_papers_pair():
    """By no place of the three, not even where the target is the paper's own RL model."""
    for target in ("Qwen/Qwen2.5-72B", DAPO["rl"], f"/models/{DAPO['rl'].rpartition('/')[2]}"):
        results = [result(one, pair={**DAPO, "recipient": target}) for one in GRID]
        made = build([*results, result(Decoding())])
        assert "beside-the-paper" not in tables(build(results))
        titles = {section.title for section in made.sections if section.title.startswith("Scores")}
        assert titles == {
            "Scores of the DAPO (DAPO-Qwen-32B)", f"Scores of the DAPO-Qwen-32B (on {target.rpartition('/')[2]})"
        }  # fmt: skip
