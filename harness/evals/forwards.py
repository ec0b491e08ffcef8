"""Accuracy against forwards per answer: what two models at once give beside what one model does with as many forwards.

    lots = equal_forwards(settings_of(read_results(["runs/demo"])))
    print(markdown(lots))

An answer is one sample or the majority of several. It costs its tokens times the models that are run for each of them,
so two models with one sample cost as much as one model with two. Power sampling costs every token that its chain drew.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from harness import stats
from harness.errors import UserError
from harness.evals.budgets import lengths, within
from harness.evals.compare import Comparison, comparison_kind, is_lm_eval, unlike
from harness.evals.settings import Setting
from harness.markdown import interval, markdown_table


@dataclass(frozen=True, eq=False)
class Answer:
    """Answer in one way: by a decoding, with the majority of `votes` samples (1: the sample itself)."""

    setting: Setting
    votes: int

    @property
    def models(self) -> int:
        """Return how many models are run for one token."""
        return models_of(self.setting)

    @property
    def cost(self) -> int:
        """Return the forwards that one token of each sample costs: models times votes, rounded up.

        Of power sampling it is what its chains drew for each token that is left.
        """
        return math.ceil(self.models * runs_of(self.setting) - 1e-9) * self.votes

    @property
    def forwards(self) -> float:
        """Return the forwards per answer: the mean number of tokens, times what is run for each, times votes."""
        return self.models * runs_of(self.setting) * self.votes * tokens_of(self.setting)

    @cached_property
    def values(self) -> np.ndarray:
        """Return the accuracies: (problems, samples), or (problems, 1) of a majority, the mean of the seeds."""
        if self.votes == 1:
            return self.setting.values
        tables = [(result.votes, result.correct) for result in self.setting.results]
        seeds = [stats.maj_at_k_per_problem(votes, right, self.votes) for votes, right in tables if votes is not None]
        return np.mean(seeds, axis=0)[:, None]

    @property
    def label(self) -> str:
        """Return the setting's label, with the votes where there are several."""
        return self.setting.label + (f", majority of {self.votes}" if self.votes > 1 else "")

    @property
    def shown(self) -> str:
        """Return the accuracy in percent with its interval."""
        return f"{100 * self.values.mean():.1f} {interval(*stats.score_interval(self.values))}".rstrip()

    def facts(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        low, high = (None if np.isnan(bound) else bound for bound in stats.score_interval(self.values))
        told = {"label": self.setting.label, "votes": self.votes, "models": self.models, "forwards": self.forwards}
        return {**told, "accuracy": float(self.values.mean()), "low": low, "high": high}


@dataclass(frozen=True, eq=False)
class Verdict:
    """The best of several models at once against the best of one model, at `cost` forwards for one token."""

    cost: int
    ones: tuple[Answer, ...]
    others: tuple[Answer, ...]
    difference: stats.BestDifference
    holm_p: float = 1.0

    @property
    def best(self) -> Answer:
        """Return the best answer of several models here."""
        return self.ones[self.difference.one]

    @property
    def baseline(self) -> Answer:
        """Return the best answer of one model here."""
        return self.others[self.difference.other]

    @property
    def sentence(self) -> str:
        """Say whether decoding with several models beats one model; where these problems cannot tell, that."""
        d = self.difference
        name = "extrapolation" if self.best.setting.decoding.gamma > 0 else "decoding with two models"
        what = f"{self.best.setting.benchmark}, {self.cost} forwards a token: "
        points = f"by {100 * abs(d.mean):.1f} points"
        if d.low > 0 and self.holm_p < 0.05:
            said = f"{name} beats the best one-model baseline {points}"
        elif d.high < 0 and self.holm_p < 0.05:
            said = f"{name} does not beat the best one-model baseline, it falls short of it {points}"
        else:
            said = f"it cannot be told whether {name} beats the best one-model baseline ({100 * d.mean:+.1f} points)"
        return (
            f"{what}{said}: {_shown(self.best)} against {_shown(self.baseline)}; simultaneous 95 % interval "
            f"{interval(d.low, d.high, sign=True) or 'not known'} over {d.contrasts} differences, p {self.holm_p:.3g} "
            "(Holm)."
        )

    def facts(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        d = self.difference
        bounds = {name: None if np.isnan(value) else value for name, value in (("low", d.low), ("high", d.high))}
        told = {"cost": self.cost, "best": self.best.label, "baseline": self.baseline.label, "mean": d.mean}
        return {**told, **bounds, "p": d.p, "holm_p": self.holm_p, "contrasts": d.contrasts}


@dataclass(frozen=True, eq=False)
class Lot:
    """The settings of one pair of models on one benchmark, alike in all but how they decode."""

    settings: tuple[Setting, ...]
    verdicts: tuple[Verdict, ...]
    crossing: stats.Crossing | None

    @property
    def benchmark(self) -> str:
        """Return the benchmark, marked where only some of its problems were asked."""
        return self.settings[0].benchmark

    def facts(self) -> dict[str, Any]:
        """Return the table and what follows from it, as plain values."""
        k = self.crossing
        found = None if k is None else {name: getattr(k, name) for name in ("k", "low", "high", "share", "n")}
        return {
            "task": self.settings[0].task,
            "answers": [answer.facts() for setting in self.settings for answer in answers_of(setting)],
            "verdicts": [verdict.facts() for verdict in self.verdicts],
            "crossing": found,
        }


def models_of(setting: Setting) -> int:
    """Return how many models are run for one token of a setting; those of a pair with a third model are three."""
    return setting.decoding.forwards(max(2, len(setting.first.models)))


def tokens_of(setting: Setting) -> float:
    """Return the mean number of tokens a response."""
    return float(np.mean([result.n_tokens.mean() for result in setting.results]))


def tells_lengths(setting: Setting) -> bool:
    """Tell whether the lengths of its responses are known, which those of an imported result may not be."""
    return not any({"n_tokens", "truncated"} & {*result.lacks} for result in setting.results)


def runs_of(setting: Setting) -> float:
    """Return how often a model is run for one token that is left: 1, but for power sampling."""
    drawn = [result.n_tokens if result.n_forwards is None else result.n_forwards for result in setting.results]
    return float(np.mean([each.mean() for each in drawn])) / max(1e-9, tokens_of(setting))


def answers_of(setting: Setting) -> list[Answer]:
    """Return a setting's ways to an answer: one sample, and majorities of 2, 4, ... as far as one seed has samples."""
    votes, most = [1], min(result.samples for result in setting.results)
    if all(result.votes is not None and "votes" not in result.lacks for result in setting.results):
        votes += [2**i for i in range(1, most.bit_length()) if 2**i <= most]
    return [Answer(setting, each) for each in votes]


def equal_forwards(settings: Sequence[Setting], across: Collection[str] = ()) -> list[Lot]:
    """Compare several models at once with one model at equal forwards, lot by lot; p is corrected over all of them.

    With k samples of c models, one model may have one sample, or the majority of the most samples that cost no more
    than c k forwards a token. Settings meet that are of one pair and alike, but for what `across` names.

    Raises:
        UserError: nothing is left that could meet.
    """
    left = [setting for setting in settings if not is_lm_eval(setting) and tells_lengths(setting)]
    lots: list[Lot] = []
    while left:
        first = left[0]
        one = (first.task, first.first.pair, first.first.name)
        lot = [s for s in left if (s.task, s.first.pair, s.first.name) == one and not unlike(s, first, across)]
        told = next((s.first.weights for s in lot if s.first.weights), {})
        lot = [s for s in lot if all(told.get(role, name) == name for role, name in s.first.weights.items())]
        left = [setting for setting in left if all(setting is not each for each in lot)]
        if len({models_of(setting) == 1 for setting in lot}) == 2:
            lots.append(Lot(tuple(lot), tuple(_verdicts(lot)), _crossing(lot)))
    if not lots:
        raise UserError(
            "equal forwards need results of one pair and benchmark that are alike: one of base, rl or expo at least, "
            "and one of replace or extrapolate (--across temperature,top_p lets other samplings meet)"
        )
    verdicts = [verdict for lot in lots for verdict in lot.verdicts]
    corrected = dict(zip(verdicts, stats.holm([verdict.difference.p for verdict in verdicts]), strict=True))
    return [replace(lot, verdicts=tuple(replace(v, holm_p=float(corrected[v])) for v in lot.verdicts)) for lot in lots]


def _verdicts(lot: Sequence[Setting]) -> list[Verdict]:
    """Return the comparisons at 1, 2, 4, ... samples of several models, as far as one model has samples for them."""
    answers = [answer for setting in lot for answer in answers_of(setting)]
    several, single = ([a for a in answers if (a.models > 1) is many] for many in (True, False))
    most, found = max((answer.cost for answer in single if runs_of(answer.setting) == 1), default=0), []
    for votes in sorted({answer.votes for answer in several}):
        ones = [answer for answer in several if answer.votes == votes]
        cost = max(answer.cost for answer in ones)
        if cost > max(most, models_of(ones[0].setting)):  # one sample is compared in any case
            break
        affordable = [each for each in single if each.cost <= cost]
        largest = {id(each.setting): each for each in affordable if each.votes > 1}  # the last has the most votes
        others = [*(each for each in affordable if each.votes == 1), *largest.values()]
        if not others:
            continue
        difference = stats.best_difference([each.values for each in ones], [each.values for each in others])
        found.append(Verdict(cost, tuple(ones), tuple(others), difference))
    return found


def _crossing(lot: Sequence[Setting]) -> stats.Crossing | None:
    """Return where Pass@k of base overtakes that of RL, each alone; None without both, or with one sample."""
    for rl in (each for each in lot if each.decoding.mode == "rl" and models_of(each) == 1):
        for base in (each for each in lot if each.decoding.mode == "base" and not unlike(each, rl)):
            if min(rl.samples, base.samples) > 1:
                return stats.crossing(base.values, rl.values)
    return None


def crossings(rows: Sequence[Comparison]) -> str:
    """Say of each comparison of RL with its base from which k on base's Pass@k is above RL's, a line a benchmark.

    Raises:
        UserError: there is none, or none with two samples a problem.
    """
    pairs = [(row.result, row.reference) for row in rows if comparison_kind(row) == "trained"]
    pairs = [(rl, base) for rl, base in pairs if not is_lm_eval(rl) and min(rl.samples, base.samples) > 1]
    if not pairs:
        raise UserError("a crossing needs RL compared with its base, with two samples a problem at least")
    said = [(rl, base, stats.crossing(base.values, rl.values)) for rl, base in pairs]
    return "\n".join(f"- {rl.benchmark}, {base.label} and {rl.label}: {crossing_sentence(k)}" for rl, base, k in said)


def crossing_sentence(found: stats.Crossing) -> str:
    """Say from which k on base's Pass@k is above RL's."""
    low, high = (f"{k}" if k is not None else f"beyond {found.n}" for k in (found.low, found.high))
    within_n = f"in {100 * found.share:.0f} % of benchmarks drawn from these problems it is within {found.n} samples"
    if found.k is None:
        return f"Pass@k of base is not above RL's at any k up to {found.n}; {within_n}."
    return f"Pass@k of base is above RL's from k = {found.k} on (95 % interval {low} to {high}; {within_n})."


def markdown(lots: Sequence[Lot]) -> str:
    """Write the lots as Markdown: verdicts, accuracy against forwards, token budgets, lengths, and the crossing."""
    parts = []
    for lot in lots:
        parts += [verdict.sentence for verdict in lot.verdicts]
        parts.append(_table(lot))
        parts.append(
            "One sample, and majorities of as many samples as cost so many forwards a token. `forwards` are those of "
            "one sample: its tokens times the models run for each; of power sampling all that its chain drew."
        )
        parts += [within(lot.settings), lengths(lot.settings)]
        parts += [crossing_sentence(lot.crossing)] if lot.crossing else []
    return "\n\n".join(part for part in parts if part)


def _table(lot: Lot) -> str:
    """Return accuracy against forwards: a row a decoding, a column a cost."""
    by = {(id(s), answer.cost): answer for s in lot.settings for answer in answers_of(s)}
    most = max((verdict.cost for verdict in lot.verdicts), default=1)
    costs = sorted({cost for _, cost in by if cost <= most})
    rows = []
    for setting in sorted(lot.settings, key=lambda each: (models_of(each), each.decoding.mode)):
        found = [by.get((id(setting), cost)) for cost in costs]
        one = Answer(setting, 1)
        cells = ["" if answer is None else answer.shown for answer in found]
        rows.append([setting.label, str(one.models), f"{one.forwards:.1f}", *cells])
    head = [lot.benchmark, "models", "forwards", *(f"at {cost} a token" for cost in costs)]
    return markdown_table(head, rows, left=1)


def _shown(answer: Answer) -> str:
    return f"{answer.label} {100 * answer.values.mean():.1f} ({answer.forwards:.0f} forwards an answer)"
