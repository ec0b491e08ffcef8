"""The paper's numbers beside ours, wherever the paper prints one for the same pair, benchmark and setting."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness import stats
from harness.evals.result import EvalResult
from harness.evals.trainings import called, of_training, run_of
from harness.report import paper
from harness.report.groups import Group
from harness.report.model import Cell, Column, Row, Table
from harness.report.scores import anchor
from harness.report.shapes import Score, title


@dataclass(frozen=True, slots=True)
class Match:
    """A number that the paper prints and the same of one of our results, in percent; `half` its last digit's half."""

    what: str
    theirs: float
    ours: float
    error: float  # ours, of sampling alone
    half: float
    result: EvalResult

    def row(self) -> Row:
        """Write it, and whether the two differ by more than sampling and rounding explain."""
        allowed = 1.96 * 2**0.5 * self.error + self.half
        known = allowed == allowed
        digits = 2 if self.half < 0.05 else 1
        within = "–" if not known else "yes" if abs(self.ours - self.theirs) <= allowed else "no"
        cells = (
            Cell(self.what),
            Cell(f"{self.theirs:.{digits}f}", self.theirs),
            Cell(f"{self.ours:.2f}", self.ours, link=anchor(self.result)),
            Cell(f"{self.ours - self.theirs:+.2f}", self.ours - self.theirs),
            Cell(f"±{allowed:.2f}" if known else "–"),
            Cell(within),
        )
        return Row(cells)


def against_paper(groups: Sequence[Group]) -> Table | None:
    """Set results beside every number that the paper prints for the same pair, benchmark and setting, if any."""
    rows = [match.row() for group in groups for match in _matches(group)]
    if not rows:
        return None
    titles = ("Paper", "Ours", "Difference", "Sampling error of both", "Within?")
    note = (
        "The problems are the same, so the error is that of sampling alone, ours for both: 1.96·√2 standard errors, "
        "and half of the paper's last digit. The paper prints no error of its own. “Replaced” is the mean over "
        "responses of the replaced share of each, as the authors count it: the least noisy of these numbers."
    )
    return Table(
        "beside-the-paper", "The paper's numbers and ours.", (Column("", words=True), *(Column(t) for t in titles)),
        tuple(rows), (note,),
    )  # fmt: skip


def _matches(group: Group) -> list[Match]:
    """List what the paper prints of a group, none twice."""
    found: dict[tuple[str, float, int], Match] = {}
    model = paper.model_of(group.base)
    for r in group.results:
        d = r.decoding
        if r.partial or r.limited:
            continue
        pair = paper.name_of(group.rl, r.name)
        mine = _decoded(pair, r) if pair is not None and r.task in ("aime24", "minerva") else []
        name = called(r) if d.mode == "rl" else "Base"
        if model is not None and d.mode in ("base", "rl") and name:
            for method in [*paper.methods("main"), *paper.methods("reweighting"), *paper.methods("minerva")]:
                theirs = method.scores.get(r.task)
                ours = paper.method_of(name, model).lower()
                if theirs is not None and (method.model, method.name.lower()) == (model, ours):
                    seed = f", seed {run_of(r)}" if of_training(r) and d.mode == "rl" else ""
                    mine += _scored(f"{title(r.task)}, {model}, {method.name}{seed}", theirs, r)
        found |= {(match.what, match.theirs, id(r)): match for match in mine}
    return list(found.values())


def _scored(what: str, theirs: Score, result: EvalResult) -> list[Match]:
    """Return a score of the paper beside ours: Avg, and Pass@k where both have it."""
    avg = f"{what}, Avg@{result.samples}"
    found = [Match(avg, theirs.avg, 100 * result.avg, 100 * result.sampling_error, 0.005, result)]
    if theirs.passed is not None and theirs.k <= result.samples:
        error = 100 * stats.pass_sampling_error(result.correct, theirs.k)
        passed = 100 * result.pass_at(theirs.k)
        found.append(Match(f"{what}, Pass@{theirs.k}", theirs.passed, passed, error, 0.005, result))
    return found


def _decoded(pair: str, result: EvalResult) -> list[Match]:
    """Return what the paper prints for a decoding of one of its pairs: usually a score, with a gate a ratio too."""
    d = result.decoding
    grid, what = paper.grids(result.task).get(pair), f"{title(result.task)}, {d.label()}"
    scores: list[Score] = []
    ratios: list[float] = []
    if d.mode == "rl":
        scores += [grid.rl] if grid is not None and grid.rl else []
    elif d.gated and d.gate == "delta_logp":
        key = (float(d.tau or 0), d.gamma)
        if d.primary == "base" and grid is not None and key in grid.scores:
            scores.append(grid.scores[key])
            ratios += [grid.ratios[key[0]]] if not d.gamma else []  # printed once a threshold: of replacement
        on_rl = paper.on_rl()
        if d.primary == "rl" and pair == "dapo" and result.task == "aime24" and key in on_rl.scores:
            scores.append(on_rl.scores[key])
            ratios.append(on_rl.ratios[key[0]])  # of extrapolation: the paper has nothing else there
    found = [match for score in scores for match in _scored(what, score, result)]
    shares = 100 * result.n_replaced / np.maximum(1, result.n_tokens)
    error = stats.sampling_error(shares)
    return [*found, *(Match(f"{what}, replaced", one, float(shares.mean()), error, 0.05, result) for one in ratios)]
