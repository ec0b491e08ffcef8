"""What a report says of results: the paper's claims, the control of every extrapolation, its numbers beside ours."""

import numpy as np
import pytest

from harness.errors import UserError
from harness.evals.compare import comparison_kind, comparisons
from harness.evals.settings import settings_of
from harness.report import figures
from harness.report.build import build
from harness.report.claims import CLAIMS, claims
from harness.report.groups import grouped
from harness.report.paper import against_paper
from harness.spec import Decoding
from harness.stats import pooled
from tests.report.made import DAPO, GRID, grid, report, result


def rows_of(results):
    return comparisons(settings_of(results))


def sections(made):
    return {section.name: section for section in made.sections}


def column(section, i):
    return [row[i].text for row in section.cells]


def judged(results):
    return {one.claim: one for one in claims(rows_of(results))}


def at(decoding, right, replaced=0, changed=0):
    """Thirty problems of which ten samples each are right so often, of a hundred tokens so many changed."""
    one = result(decoding, problems=30, samples=10)
    tokens = {"n_tokens": 100, "n_replaced": replaced, "n_changed": changed}
    counts = {name: np.full_like(one.n_tokens, value) for name, value in tokens.items()}
    return one.replace(values={"correct": np.tile(np.arange(10) < right, (30, 1))}, **counts)


def gate(criterion, tau, *counts):
    return at(Decoding(mode="replace", criterion=criterion, tau=tau), *counts)


PLAIN = [at(Decoding(mode="base"), 2), at(Decoding(), 8)]
DIRECTION = [gate("delta_logp", -0.5, 6, 10, 10), gate("delta_logp", -0.1, 8, 30, 20)]


def test_the_first_page_answers_what_the_paper_claims():
    made = report()
    assert made.verdict.startswith("RL changed accuracy by ")
    assert ", p " not in made.verdict  # one that is not corrected heads no page
    assert [section.name for section in made.front] == ["changed-aime24", "findings", "main-scores", "picked"]
    assert column(made.front[1], 0) == list(CLAIMS)


@pytest.mark.parametrize(
    ("ways", "reaches", "fewer"),
    [
        ([*DIRECTION, gate("kl", 0.1, 8, 90, 30)], "confirmed", "inconclusive"),  # it may do with fewer
        ([*DIRECTION, gate("kl", 0.2, 6, 80, 25), gate("kl", 0.1, 8, 90, 30)], "confirmed", "confirmed"),
        ([*DIRECTION, gate("kl", 0.2, 6, 80, 20), gate("kl", 0.1, 8, 90, 30)], "confirmed", "inconclusive"),
        ([*DIRECTION, gate("kl", 0.1, 8, 90, 3)], "confirmed", "contradicted"),
        ([*DIRECTION, gate("entropy_base", 1.0, 4, 90, 30)], "confirmed", "confirmed"),
        ([DIRECTION[0], gate("kl", 0.1, 8, 90, 30)], "contradicted", "inconclusive"),
        ([*DIRECTION, gate("delta_logp", -0.01, 8, 50, 40), gate("kl", 0.2, 6, 80, 25)], "confirmed", "confirmed"),
        ([*DIRECTION, gate("kl", 0.2, 6, 80, 25), gate("entropy_rl", 1.0, 8, 90, 30)], "confirmed", "inconclusive"),
        ([*DIRECTION, gate("kl", 0.1, 8, 90, 3), gate("entropy_rl", 1.0, 6, 90, 30)], "confirmed", "contradicted"),
        (DIRECTION, "confirmed", "not tested"),
        ([], "not tested", "not tested"),
    ],
)  # fmt: skip
def test_claims_are_judged_by_the_tokens_that_had_to_change(ways, reaches, fewer):
    """Base 0.2, RL 0.8; every problem has the same accuracy, so intervals are as short as they can be."""
    found = judged([*PLAIN, *ways])
    assert (found[CLAIMS[1]].verdict, found[CLAIMS[2]].verdict) == (reaches, fewer)
    if reaches == "confirmed":
        assert "(RL 80.0, base 20.0): 20.0 % [" in found[CLAIMS[1]].found
        assert "changed, which keeps 100 [85, 115] % of the gain" in found[CLAIMS[1]].found


def test_what_reaches_rl_surely_keeps_half_of_its_gain():
    """RL gains 10 points: with 30 problems a score like RL's may still be base's, and one beneath it is."""
    base, rl = at(Decoding(mode="base"), 2), at(Decoding(), 3)
    same, less = gate("delta_logp", -0.1, 3, 30, 20), gate("delta_logp", -0.5, 1, 10, 10)
    for ways, verdict in (([same], "inconclusive"), ([less], "contradicted"), ([less, same], "inconclusive")):
        one = judged([base, rl, *ways])[CLAIMS[1]]
        assert (one.verdict, "): not reached" in one.found) == (verdict, True)
    more = judged([*PLAIN, gate("delta_logp", -0.1, 9, 30, 20)])[CLAIMS[1]].found
    assert "which keeps 117 [" in more  # 70 of 60 points
    assert judged([at(Decoding(mode="base"), 8), rl, same])[CLAIMS[1]].verdict == "not tested"  # nothing to reach


def always(gamma, share):
    """Draws every token from the target; gamma below 0 lies between base and RL."""
    mode = "extrapolate" if gamma else "replace"
    return result(Decoding(mode=mode, criterion="always", gamma=gamma), share, problems=12, samples=16)


def test_extrapolations_are_judged_against_their_own_gate_and_what_has_no_gate_by_itself():
    control, extra = Decoding(mode="replace", tau=-0.3), Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)
    equal = judged([result(control), result(extra)])[CLAIMS[3]]
    assert "+0.0 points [-45.4, +45.4]" in equal.found
    assert equal.verdict == "inconclusive"
    gated = [result(one, share, problems=40, samples=16) for one, share in ((control, 0.3), (extra, 0.6))]
    assert judged(gated)[CLAIMS[3]].verdict == "confirmed"
    swapped = [one.replace(values=other.values) for one, other in zip(gated, reversed(gated), strict=True)]
    assert judged(swapped)[CLAIMS[3]].verdict == "contradicted"
    ungated = [always(gamma, 0.4 + 0.2 * gamma) for gamma in (-1.0, -0.5, 0.0, 1.0)]
    found = list(judged([*gated, *ungated]).values())
    gain = 100 * (ungated[3].avg - ungated[2].avg)
    assert found[3] == judged(gated)[CLAIMS[3]]
    assert f"It changes accuracy by +{gain:.1f} points [" in found[-1].found
    made = build([*(result(one, 0.4, problems=12, samples=16) for one in (control, extra)), *ungated])
    gammas = sections(made)["gamma-aime24"].frame
    assert list(gammas["gamma"]) == [-1.0, -0.5, 0.0, 1.0]
    assert (gammas["low"] < gammas["avg"]).all()
    assert figures.against_gamma(settings_of(ungated[:2]), "x", "t") is None


def test_results_that_are_not_alike_never_meet():
    """An audit's reproduction: replace graded by `plain` minus RL graded by `robust` was the first sentence."""
    control = Decoding(mode="replace", tau=-0.3)
    made = build([result(Decoding(), 0.6, grader="robust"), result(control, 0.3, grader="plain")])
    assert "nothing to compare" in made.verdict
    name = "DAPO (DAPO-Qwen-32B)"
    assert "differences" not in sections(made)
    assert made.chapters[0].paragraphs[-1].endswith(f"{name} (robust); {name} (plain).")
    graders = [{"grader": each, "graded_with": {"grader": each}} for each in ("robust", "plain")]
    found = build([result(one, **grader) for one in (Decoding(), control) for grader in graders])
    assert column(sections(found)["differences"], 0) == [f"{name} (robust)", f"{name} (plain)"]
    assert rows_of([result(GRID[0], ids=tuple("abcdef")), result(GRID[1])]) == []
    other = build([*grid(), *grid(pair={"base": "b", "rl": "r"})])
    assert other.verdict.startswith("DAPO (DAPO-Qwen-32B): RL changed accuracy by ")
    assert sum(text.startswith("r: RL changed") for text in column(sections(other)["findings"], 1)) == 1
    with pytest.raises(UserError, match="nothing to report"):
        build([])


def test_no_column_mixes_problem_sets_and_a_limited_run_is_marked_wherever_it_stands():
    whole = [result(Decoding(mode=mode), problems=30) for mode in ("base", "rl")]
    part = [result(Decoding(mode="replace", tau=-0.3), problems=16), result(Decoding(), problems=16)]
    made = build([*whole, *part])
    groups = {name: {one.group for one in section.columns} for name, section in sections(made).items()}
    assert groups["main-0"] == {"", "AIME24"}
    assert groups["main-1"] == {"", "AIME24 (16 of 30 problems)"}
    assert column(sections(made)["differences"], 1) == ["AIME24", "AIME24 (16 of 30 problems)"]
    said = "Only some of the problems were asked (aime24: 16 of 30 problems)."
    assert said in made.chapters[0].paragraphs
    assert set(column(sections(made)["beside-the-paper"], 0)) == {"AIME24, rl, Avg@4"}


def test_seeds_are_averaged_within_a_setting_before_settings_are():
    """One setting with three seeds and a gain, two with one seed and none: a row a seed would weigh the gain thrice."""
    results = []
    for tau in (-0.1, -0.2, -0.3):
        control, extra = Decoding(mode="replace", tau=tau), Decoding(mode="extrapolate", tau=tau, gamma=0.1)
        for seed in range(3 if tau == -0.1 else 1):
            results += [result(control, 0.3, seed=seed), result(extra, 0.6 if tau == -0.1 else 0.3, seed=seed)]
    rows = [row for row in rows_of(results) if comparison_kind(row) == "against control"]
    found, gains = pooled(rows), [row.difference.mean for row in rows]
    assert (found.settings, gains[1:]) == ({"aime24": 3}, [0.0, 0.0])
    assert found.mean == pytest.approx(gains[0] / 3)
    assert "mean over 3 settings, 0 of the 3" in judged(results)[CLAIMS[3]].found
    assert pooled([]) is None


def test_a_cell_of_the_heat_map_is_of_all_seeds_and_of_the_plain_target():
    """It was the first seed's score alone; a guarded target's stood in the place of the plain one's."""
    plain = [*grid(), *grid(seed=1)]
    guarded = [
        result(one.replace(plausibility=0.1), 0.1) for one in GRID if (one.mode, one.primary) == ("extrapolate", "base")
    ]
    heat = sections(build([*guarded, *plain]))["heat-aime24"].frame
    scores = {(one.decoding.tau, one.decoding.gamma): 100 * one.avg for one in settings_of(plain[2:-2])}
    for row in heat.to_dict("records"):
        assert row["avg"] == pytest.approx(scores[row["tau"], row["gamma"]])


def test_a_difference_without_an_interval_does_not_name_its_level():
    said = [judged([result(Decoding(mode=mode), problems=n) for mode in ("base", "rl")])[CLAIMS[0]] for n in (1, 2)]
    assert ["95 %" in one.found for one in said] == [False, True]


def test_a_sentence_counts_only_what_was_averaged():
    control, more = Decoding(mode="replace", tau=-0.3), Decoding(mode="extrapolate", tau=-0.3, gamma=0.2)
    extra = Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)
    three = [result(one) for one in (control, extra, more)]
    found = judged([*three, *(result(one, task="amc") for one in (control, extra))])[CLAIMS[3]].found
    assert "mean over 2 settings on aime24 and 1 setting on amc, 2 benchmarks" in found


# Beside the paper


def beside_the_paper(results, base=None):
    [table] = against_paper(results, base).sections
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.cells}


def test_the_paper_is_beside_us_where_it_has_the_row():
    more = [
        result(Decoding(mode="extrapolate", tau=-0.3, gamma=0.05, plausibility=0.1), samples=32, problems=30),
        other := result(Decoding(mode="replace", tau=-0.9), samples=32, problems=272, task="minerva"),
    ]
    rows = beside_the_paper([*grid(samples=32, problems=30), *grid(samples=32, problems=30, task="amc"), *more])
    assert not [name for name in rows if "p≥0.1" in name]
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
    for how in ({"temperature": 0.6}, {"top_p": 0.95}, {"min_p": 0.1, "top_p": 1.0}):
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
