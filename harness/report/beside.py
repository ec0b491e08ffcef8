"""The paper's numbers beside ours, wherever the paper prints one for the same pair, benchmark and setting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness import stats
from harness.errors import UserError
from harness.evals.result import EvalResult
from harness.evals.trainings import called, of_training, run_of
from harness.report import paper
from harness.report.groups import Group
from harness.report.known import Known, like_models, like_pairs, model_known, pair_known
from harness.report.model import Cell, Column, Row, Section, Table
from harness.report.scores import anchor
from harness.report.shapes import Score, title
from harness.spec import Sampling

PAPER = Sampling()  # how the paper draws is what we take where nothing is said
DECODED = ("aime24", "minerva")  # benchmarks of which the paper prints decodings of its pairs


@dataclass(frozen=True, slots=True)
class Match:
    """A number that the paper prints and the same of one of our results, in percent; `half` its last digit's half."""

    what: str
    theirs: float
    ours: float
    error: float  # ours, of sampling alone
    half: float
    result: EvalResult
    unsure: tuple[str, ...] = ()  # why it is taken for the paper's, where neither a name nor a place says so

    def row(self) -> Row:
        """Write it, and whether the two differ by more than sampling and rounding explain."""
        allowed = 1.96 * 2**0.5 * self.error + self.half
        known = allowed == allowed
        digits = 2 if self.half < 0.05 else 1
        within = "–" if not known else "yes" if abs(self.ours - self.theirs) <= allowed else "no"
        cells = (
            Cell(f"{self.what} †" if self.unsure else self.what),
            Cell(f"{self.theirs:.{digits}f}", self.theirs),
            Cell(f"{self.ours:.2f}", self.ours, link=anchor(self.result)),
            Cell(f"{self.ours - self.theirs:+.2f}", self.ours - self.theirs),
            Cell(f"±{allowed:.2f}" if known else "–"),
            Cell(within),
        )
        return Row(cells)


def against_paper(groups: Sequence[Group], base: str | None = None) -> Section | None:
    """Set results beside every number that the paper prints for the same pair, benchmark and setting, if any.

    Args:
        groups: of all results.
        base: what the paper calls the base of the groups, whatever its place.

    Raises:
        UserError: the paper has no such base, or the groups have several.
    """
    bases = dict.fromkeys(group.base for group in groups)
    if base is not None and model_known("", base) and len(bases) > 1:
        raise UserError(
            f"paper_base={base!r} names one base, and these results have {len(bases)} ({', '.join(bases)}); accepted: "
            "results of one"
        )
    models = {place: model_known(place, base) for place in bases}
    every = [match for group in groups for match in _matches(group, models[group.base])]
    matches = [match for match in every if not _drawn_otherwise(match.result)]
    said = tuple(dict.fromkeys(text for group in groups for text in _hints(group, models[group.base])))
    if others := dict.fromkeys(words for match in every if (words := _drawn_otherwise(match.result))):
        said += (
            f"Results that are drawn otherwise ({'; '.join(others)}) do not stand beside the paper's, which are drawn "
            f"at {PAPER.words}.",
        )
    if not matches:
        return Section("Beside the paper", said) if said else None
    titles = ("Paper", "Ours", "Difference", "Sampling error of both", "Within?")
    notes = [
        "The problems are the same, so the error is that of sampling alone, ours for both: 1.96·√2 standard errors, "
        "and half of the paper's last digit. The paper prints no error of its own. “Replaced” is the mean over "
        "responses of the replaced share of each, as the authors count it: the least noisy of these numbers. "
        "Pass@k has no verdict: its sampling error is not known well enough near 0."
    ]
    if unsure := dict.fromkeys(text for match in matches for text in match.unsure):
        notes.append(
            f"† {'; '.join(unsure)}. A model that was trained further says the same: `NAME=PLACE` or `--paper-base` "
            "tell for certain."
        )
    table = Table(
        "beside-the-paper", "The paper's numbers and ours.", (Column("", words=True), *(Column(t) for t in titles)),
        tuple(match.row() for match in matches), tuple(notes),
    )  # fmt: skip
    return Section("Beside the paper", said, (table,))


def _drawn_otherwise(result: EvalResult) -> str:
    """Say how a result was drawn if the paper did it otherwise; what it does not tell counts as alike."""
    sampling, words = result.sampling, []
    if "temperature" not in result.lacks and sampling.temperature != PAPER.temperature:
        words.append("greedy" if sampling.greedy else f"T = {sampling.temperature:g}")
    if "top_p" not in result.lacks and sampling.truncation != PAPER.truncation and not sampling.greedy:
        words.append(sampling.truncation.words)
    return ", ".join(words)


def _hints(group: Group, model: Known | None) -> list[str]:
    """Say which of the paper's a group may be by the sizes of its folders, where nothing tells that it is."""
    whole = [r for r in group.results if not (r.partial or r.limited)]
    found = []
    untold = any(r.task in DECODED and pair_known(group.base, group.rl, r.name) is None for r in whole)
    if untold and (names := like_pairs(group.rl)):
        found.append(
            f"{group.pair} has the sizes of {' and '.join(names)}. Which model it is cannot be told from its files; if "
            f"it is the paper's, {' or '.join(f'`{name}=PLACE`' for name in names)} sets the paper's numbers beside it."
        )
    trained = [r for r in whole if r.task in (*paper.TASKS, "minerva") and r.decoding.mode in ("base", "rl")]
    if trained and model is None and (names := like_models(group.base)):
        found.append(
            f"The base of {group.pair} has the sizes of {' and '.join(names)}. Which model it is cannot be told from "
            f"its files; if it is the paper's, `--paper-base {names[0]}` sets the paper's numbers beside it."
        )
    return found


def _matches(group: Group, base: Known | None) -> list[Match]:
    """List what the paper prints of a group, none twice; `base` is what the paper calls its base."""
    found: dict[tuple[str, float, int], Match] = {}
    pairs = {name: pair_known(group.base, group.rl, name) for name in {r.name for r in group.results}}
    for r in group.results:
        d = r.decoding
        if r.partial or r.limited:
            continue
        mine: list[Match] = []
        if (pair := pairs[r.name]) is not None and r.task in DECODED:
            mine += [replace(match, unsure=pair.unsure) for match in _decoded(pair.name, r)]
        name = called(r) if d.mode == "rl" else "Base"
        if base is not None and d.mode in ("base", "rl") and name:
            for method in [*paper.methods("main"), *paper.methods("reweighting"), *paper.methods("minerva")]:
                theirs = method.scores.get(r.task)
                ours = paper.method_of(name, base.name).lower()
                if theirs is not None and (method.model, method.name.lower()) == (base.name, ours):
                    seed = f", seed {run_of(r)}" if of_training(r) and d.mode == "rl" else ""
                    scored = _scored(f"{title(r.task)}, {base.name}, {method.name}{seed}", theirs, r)
                    mine += [replace(match, unsure=base.unsure) for match in scored]
        found |= {(match.what, match.theirs, id(r)): match for match in mine}
    return list(found.values())


def _scored(what: str, theirs: Score, result: EvalResult) -> list[Match]:
    """Return a score of the paper beside ours: Avg, and Pass@k where both have it."""
    short = result.sampling.max_tokens
    what += f", at most {short:,} tokens" if short < PAPER.max_tokens and "max_tokens" not in result.lacks else ""
    avg = f"{what}, Avg@{result.samples}"
    found = [Match(avg, theirs.avg, 100 * result.avg, 100 * result.sampling_error, 0.005, result)]
    if theirs.passed is not None and theirs.k <= result.samples:
        passed, unknown = 100 * result.pass_at(theirs.k), float("nan")  # its sampling error is too short near 0
        found.append(Match(f"{what}, Pass@{theirs.k}", theirs.passed, passed, unknown, 0.005, result))
    return found


def _decoded(pair: str, result: EvalResult) -> list[Match]:
    """Return what the paper prints for a decoding of one of its pairs: usually a score, with a gate a ratio too."""
    d = result.decoding
    grid, what = paper.grids(result.task).get(pair), f"{title(result.task)}, {d.label()}"
    scores: list[Score] = []
    ratios: list[float] = []
    if d.mode == "rl":
        scores += [grid.rl] if grid is not None and grid.rl else []
    elif d.gated and d.criterion == "delta_logp":
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
