"""Summaries and figures of sweeps: every way is drawn, what cannot be said is left out, leads are corrected once."""

from types import SimpleNamespace

import pytest

from rlvr_dir.config import parse
from rlvr_dir.config.sweep import SweepSpec
from rlvr_dir.report.sweep import CompleteTrial, DecodingSummary, TrainingSummary, against
from rlvr_dir.results.compare import comparisons
from rlvr_dir.results.settings import settings_of
from tests.report.made import GAMMAS, GRID, TAUS, grid

SPEC = {
    "name": "made",
    "pair": "dapo-32b",
    "tasks": ["aime24"],
    "sampling": {"samples": 4},
    "parameters": {"decode.tau": {"values": list(TAUS)}, "decode.gamma": {"values": [0.0, *GAMMAS]}},
}


def made(results, references=2, **changes):
    points = [None if i < references else {"pair": "dapo-32b"} for i in range(len(results))]
    entries = [
        CompleteTrial("dapo-32b", i, points[i], r.label, (r,), {"avg_at_4": r.avg}) for i, r in enumerate(results)
    ]
    return DecodingSummary(
        spec=parse(SweepSpec, {**SPEC, **changes}),
        entries=entries,
        comparisons=comparisons(settings_of(results)),
        best=[max(entries[references:], key=lambda entry: entry.metrics["avg_at_4"])],
        states={"complete": len(entries) - references, "failed": 3},
        results=lambda: results,
    )


def test_the_verdict_names_the_controls_and_over_how_many_comparisons_it_was_corrected():
    summary = made(grid()[:-2])
    [said] = summary.verdicts
    assert said.startswith(f"dapo-32b: best of {len(GRID) - 4} on these problems: extrapolate τ-0.3 γ0.1, avg_at_4 ")
    assert said.count(f"Holm over {len(summary.comparisons)}: ") == 2
    assert len(summary.plain()["comparisons"]) == len(summary.comparisons)


def test_where_rl_is_the_best_point_its_lead_is_over_base():
    [said] = made(grid()[:2], references=1).verdicts
    assert "best of 1 on these problems: rl" in said
    assert "against base (" in said


def test_a_length_is_no_percentage():
    summary = made(grid()[:-2], metric={"name": "mean_tokens", "goal": "minimize"})
    for entry in summary.entries:
        entry.metrics["mean_tokens"] = 123.456
    [said] = summary.verdicts
    assert ", mean_tokens 123.5; " in said


def seed(number, avg):
    right = {str(i): round(avg * 40) // 5 + (i < round(avg * 40) % 5) for i in range(5)}  # 5 problems x 8 samples
    scores = {"tiny_easy": {"avg": avg, "pass": avg, "tokens": 20.0, "samples": 8, "problems": 5, "right": right}}
    return SimpleNamespace(seed=number, scores=scores, outcome={"seconds": 60.0, "machine": "one"})


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_trainings_are_paired_by_problem_and_seed(seeds):
    metrics = ({"avg_at_8": 0.5}, {"avg_at_8": 0.6})
    plain = CompleteTrial("t", 0, None, "DAPO", tuple(seed(i, 0.5 + i / 10) for i in range(seeds)), metrics[0])
    better = CompleteTrial("t", 1, {}, "ours", tuple(seed(i, 0.6 + i / 8) for i in range(seeds)), metrics[1])
    summary = TrainingSummary(
        spec=SimpleNamespace(name="t", size=lambda: "1 point", metric=SimpleNamespace(name="avg_at_8"), pairs=["t"]),
        entries=[plain, better],
        reference=plain,
        comparisons=against(plain, [plain, better]),
        best=[better],
        states={"complete": 1},
        base={},
        samples=8,
        seeds=range(seeds),
        training="3 steps",
    )
    [row] = summary.comparisons
    assert row.difference.mean == pytest.approx(sum(0.1 + i / 40 for i in range(seeds)) / seeds)
    assert row.difference.n == 5
    [said] = summary.verdicts
    assert said.startswith("Best of 1 on these seeds and problems: ours, avg_at_8 60.00; +1")
    assert "95 %" in said
    [figure] = summary.figures()
    lines = summary.summary_lines()
    assert lines[0] == {1: "and plain DAPO, 1 seed each"}.get(seeds, f"and plain DAPO, {seeds} seeds each")
    over = "problems and seeds" if seeds > 1 else "problems, of these very models"
    assert f"intervals over {over};" in lines[-1]
    assert figure.title.endswith(f"intervals over {over}")
    assert figure.frame["difference"][0] == pytest.approx(100 * row.difference.mean)
