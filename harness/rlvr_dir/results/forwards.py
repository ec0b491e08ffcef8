"""Compare accuracy by forward passes per answer: two models at once, and one model with as many forward passes.

    groups = equal_forwards(settings_of(read_results(["runs/demo"])))
    print(markdown(groups))

An answer is one sample, or the majority of several. Its cost is its tokens times the models that run for each of them.
So two models with one sample cost as much as one model with two samples of the same length. The tables also have the
accuracy within a number of tokens, and paired differences of length and truncation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rlvr_dir import stats
from rlvr_dir.errors import UserError
from rlvr_dir.markdown import interval, markdown_table
from rlvr_dir.results.compare import Comparison, comparison_kind, comparisons, matching_groups, unlike
from rlvr_dir.results.matching import conflicting_weights
from rlvr_dir.results.settings import Setting

BUDGET_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  # of all responses are no longer than a budget


@dataclass(frozen=True, eq=False)
class Answer:
    """Represent a way to answer: a decoding, with the majority of `votes` samples (1: the sample itself)."""

    setting: Setting
    votes: int

    @property
    def models(self) -> int:
        """Return how many models run for one token."""
        return models_of(self.setting)

    @cached_property
    def tokens(self) -> float:
        """Return the mean number of tokens per response."""
        return float(self.setting.all("n_tokens").mean())

    @property
    def forwards(self) -> float:
        """Return the forward passes per answer: the mean number of tokens, times models, times votes."""
        return self.models * self.votes * self.tokens

    @cached_property
    def values(self) -> np.ndarray:
        """Return the accuracies: (problems, samples), or (problems, 1) for a majority, as the mean of the seeds."""
        if self.votes == 1:
            return self.setting.values
        tables = [(result.votes, result.correct) for result in self.setting.results]
        seeds = [stats.maj_at_k_per_problem(votes, right, self.votes) for votes, right in tables if votes is not None]
        return np.mean(seeds, axis=0)[:, None]

    @property
    def label(self) -> str:
        """Return the setting's label, with the number of votes if there are several."""
        return self.setting.label + (f", majority of {self.votes}" if self.votes > 1 else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        plain = {"label": self.setting.label, "votes": self.votes, "models": self.models, "forwards": self.forwards}
        ends = stats.score_interval(self.values, families=self.setting.families)
        return {**plain, "accuracy": float(self.values.mean()), **_bounds(*ends)}


@dataclass(frozen=True, eq=False)
class BestComparison:
    """Compare the best of several models at once with the best of one model with no more forward passes per answer.

    All of `ones` have `votes` votes. It is `starved` if one model has too few samples for half as many forward passes.
    """

    votes: int
    ones: tuple[Answer, ...]
    others: tuple[Answer, ...]
    difference: stats.BestDifference
    starved: bool = False
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
        """Return whether decoding with several models beats one model, or that these problems cannot decide it."""
        d, setting = self.difference, self.best.setting
        name = "extrapolation" if setting.decoding.gamma > 0 else "decoding with two models"
        points = f"by {100 * abs(d.mean):.1f} points"
        if self.starved:
            most = max(answer.forwards for answer in self.others)
            sentence = (
                f"no equal forwards: one model has samples for {most:.0f} an answer at most, so whether {name} beats "
                f"it is not known ({100 * d.mean:+.1f} points)"
            )
        elif d.low > 0 and self.holm_p < 0.05:
            sentence = f"{name} beats the best one-model baseline {points}"
        elif d.high < 0 and self.holm_p < 0.05:
            sentence = f"{name} does not beat the best one-model baseline, it falls short of it {points}"
        else:
            sentence = f"inconclusive whether {name} beats the best one-model baseline ({100 * d.mean:+.1f} points)"
        sides = [
            f"{answer.label} {100 * answer.values.mean():.1f} ({answer.forwards:.0f} forwards an answer)"
            for answer in (self.best, self.baseline)
        ]
        return (
            f"{setting.benchmark}, {self.best.forwards:.0f} forwards an answer: {sentence}: {' against '.join(sides)}; "
            "simultaneous 95 % "
            f"interval {interval(d.low, d.high, sign=True) or 'not known'} over {d.contrasts} differences, "
            f"p {self.holm_p:.3g} (Holm)."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        d = self.difference
        plain = {"votes": self.votes, "best": self.best.label, "baseline": self.baseline.label, "mean": d.mean}
        plain |= {"forwards": [self.best.forwards, self.baseline.forwards], "starved": self.starved}
        return {**plain, **_bounds(d.low, d.high), "p": d.p, "holm_p": self.holm_p, "contrasts": d.contrasts}


@dataclass(frozen=True, eq=False)
class MatchedGroup:
    """Group the settings of one pair of models on one benchmark that differ only in their decoding."""

    settings: tuple[Setting, ...]
    verdicts: tuple[BestComparison, ...]
    crossing: stats.Crossing | None

    def to_dict(self) -> dict[str, Any]:
        """Return the table and the conclusions from it, as plain values."""
        k = self.crossing
        return {
            "task": self.settings[0].task,
            "answers": [answer.to_dict() for setting in self.settings for answer in answers_of(setting)],
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "crossing": k and {name: getattr(k, name) for name in ("k", "estimate", "n")},
        }


def _bounds(low: float, high: float) -> dict[str, float | None]:
    return {name: None if np.isnan(value) else value for name, value in (("low", low), ("high", high))}


def models_of(setting: Setting) -> int:
    """Return how many models run for one token of a setting; a pair with a third model has three."""
    return setting.decoding.forwards(max(2, len(setting.first.models)))


def answers_of(setting: Setting) -> list[Answer]:
    """Return a setting's ways to answer: one sample, and majorities of 2, 4, ... as far as one seed has samples."""
    most = min(result.samples for result in setting.results)
    if any(result.votes is None for result in setting.results):
        most = 1
    return [Answer(setting, 2**i) for i in range(most.bit_length())]


def equal_forwards(settings: Sequence[Setting], across: Collection[str] = ()) -> list[MatchedGroup]:
    """Compare several models with one model at equal forward passes, group by group. p is corrected over all groups.

    An answer by several models is compared with one sample of each setting of one model, and with the majority of as
    many of its samples as cost no more forward passes per answer (tokens times models times votes). Settings are
    grouped if they have the same pair and match, except in `across`.

    Raises:
        UserError: Nothing can be compared.
    """
    by: dict[Any, list[Setting]] = {}
    for setting in settings:
        by.setdefault((setting.task, setting.first.pair, setting.first.name), []).append(setting)
    groups: list[MatchedGroup] = []
    for group in [group for pair in by.values() for group in matching_groups(pair, across)]:
        weights = next((s.first.weights for s in group if s.first.weights), {})
        group = [s for s in group if not conflicting_weights(weights, s.first.weights)]
        if len({models_of(setting) == 1 for setting in group}) == 2:
            groups.append(MatchedGroup(tuple(group), tuple(_verdicts(group)), _crossing(group)))
    if not groups:
        raise UserError(
            "No results can be compared at equal forwards",
            accepted="results of one pair and benchmark that differ in nothing else: at least one of base or rl, and "
            "at least one of replace or extrapolate",
            hint="--across temperature,top_p also compares settings that are sampled differently.",
        )
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    corrected = dict(zip(verdicts, stats.holm([verdict.difference.p for verdict in verdicts]), strict=True))
    return [
        replace(group, verdicts=tuple(replace(v, holm_p=float(corrected[v])) for v in group.verdicts))
        for group in groups
    ]


def _verdicts(settings: Sequence[Setting]) -> list[BestComparison]:
    """Return the comparisons at 1, 2, 4, ... samples of several models, as far as one model has samples for them."""
    answers = [answer for setting in settings for answer in answers_of(setting)]
    several, single = ([a for a in answers if (a.models > 1) is many] for many in (True, False))
    most, comparisons = max((answer.forwards for answer in single), default=0.0), []
    for votes in sorted({answer.votes for answer in several}):
        pair_answers = [answer for answer in several if answer.votes == votes]
        starved = 2 * most <= max(answer.forwards for answer in pair_answers)
        if votes > 1 and starved:  # one sample is always compared
            break
        met = np.array(
            [[other.votes == 1 or other is best for other, best in _largest(single, answer)] for answer in pair_answers]
        )
        places = np.flatnonzero(met.any(axis=0))
        others = [single[place] for place in places]
        difference = stats.best_difference(
            [answer.values for answer in pair_answers],
            [other.values for other in others],
            meets=met[:, places],
            families=stats.common_families(setting.families for setting in settings),
        )
        comparisons.append(BestComparison(votes, tuple(pair_answers), tuple(others), difference, starved))
    return comparisons


def _largest(single: Sequence[Answer], pair_answer: Answer) -> list[tuple[Answer, Answer | None]]:
    """Pair each of one model's settings with its largest number of votes that costs no more than several models."""
    # the last one has the most votes
    most = {id(answer.setting): answer for answer in single if answer.forwards <= pair_answer.forwards}
    return [(answer, most.get(id(answer.setting))) for answer in single]


def _crossing(settings: Sequence[Setting]) -> stats.Crossing | None:
    """Return where Pass@k of base exceeds that of RL, each alone; None without both, or with one sample."""
    rls = [
        setting
        for setting in settings
        if setting.decoding.mode == "rl" and models_of(setting) == 1 and setting.samples > 1
    ]
    bases = [setting for setting in settings if setting.decoding.mode == "base" and setting.samples > 1]
    return next((_crossed(rl, base) for rl in rls for base in bases if not unlike(base, rl)), None)


def _crossed(rl: Setting, base: Setting) -> stats.Crossing:
    families = stats.common_families([base.families, rl.families])
    return stats.crossing(base.values, rl.values, families=families)


def crossings(rows: Sequence[Comparison]) -> str:
    """Return a line per benchmark that says from which k base's Pass@k exceeds RL's.

    Raises:
        UserError: There is no such comparison, or none with two samples per problem.
    """
    pairs = [(row.result, row.reference) for row in rows if comparison_kind(row) == "trained"]
    pairs = [(rl, base) for rl, base in pairs if min(rl.samples, base.samples) > 1]
    if not pairs:
        raise UserError(
            "There is no crossing to compute",
            accepted="RL compared with its base, with at least two samples per problem",
        )
    crossed = [(rl, base, _crossed(rl, base)) for rl, base in pairs]
    return "\n".join(
        f"- {rl.benchmark}, {base.label} and {rl.label}: {crossing_sentence(k)}" for rl, base, k in crossed
    )


def crossing_sentence(crossing: stats.Crossing) -> str:
    """Describe from which k base's Pass@k is significantly above RL's. It may fall below again."""
    estimate = f"the estimate is first above at k = {crossing.estimate}"
    if crossing.k is not None:
        of_all = f"95 % lower bounds of all k up to {crossing.n} together"
        first = f"at k = {crossing.k}, the first that chance does not explain"
        return f"Pass@k of base is above RL's {first} ({of_all}; {estimate})."
    chance = f"; {estimate}, which chance alone may do" if crossing.estimate else ""
    return f"Pass@k of base is not found above RL's at any k up to {crossing.n}{chance}."


def markdown(groups: Sequence[MatchedGroup]) -> str:
    """Return the groups as Markdown: verdicts, accuracy by forward passes, token budgets, lengths, and the crossing."""
    note = (
        "`forwards` are those of an answer of one sample: its tokens times the models run for each. A majority costs "
        "them for each of its samples."
    )
    parts: list[str] = []
    for group in groups:
        parts += [*(verdict.sentence for verdict in group.verdicts), _table(group), note]
        parts += [within(group.settings), lengths(group.settings)]
        parts += [crossing_sentence(group.crossing)] if group.crossing else []
    return "\n\n".join(filter(None, parts))


def _table(group: MatchedGroup) -> str:
    """Return accuracy by forward passes: a row per decoding, and a column per number of votes that is compared
    anywhere."""
    votes_shown = {answer.votes for verdict in group.verdicts for answer in (*verdict.ones, *verdict.others)}
    votes = sorted(votes_shown or {1})
    rows = []
    for setting in sorted(group.settings, key=lambda setting: (models_of(setting), setting.decoding.mode)):
        values, own = {answer.votes: answer.values for answer in answers_of(setting)}, setting.families
        ends = {k: interval(*stats.score_interval(values[k], families=own)) for k in votes if k in values}
        cells = [f"{100 * values[k].mean():.1f} {ends[k]}".rstrip() if k in values else "" for k in votes]
        answer = Answer(setting, 1)
        rows.append([setting.label, str(answer.models), f"{answer.forwards:.1f}", *cells])
    head = [
        group.settings[0].benchmark,
        "models",
        "forwards",
        *("one sample" if k == 1 else f"majority of {k}" for k in votes),
    ]
    return markdown_table(head, rows, left=1)


def correct_within(setting: Setting, tokens: int) -> np.ndarray:
    """Return which responses are right and no longer than `tokens`: (problems, samples of all seeds)."""
    return setting.all("correct") & (setting.all("n_tokens") <= tokens)


def budgets(settings: Sequence[Setting]) -> list[int]:
    """Return the token budgets to show: quantiles (`BUDGET_SHARES`) of the lengths of all responses."""
    tokens = np.concatenate([setting.all("n_tokens").ravel() for setting in settings])
    return sorted({int(length) for length in np.quantile(tokens, BUDGET_SHARES, method="higher")})


def within(settings: Sequence[Setting]) -> str:
    """Return a table of the accuracy within a budget of tokens: a row per setting, a column per budget."""
    columns = budgets(settings)
    rows = [
        [setting.label, *(f"{100 * correct_within(setting, most).mean():.1f}" for most in columns)]
        for setting in settings
    ]
    return markdown_table(["answered rightly within", *(f"{tokens:,} tokens" for tokens in columns)], rows, left=1)


def lengths(settings: Sequence[Setting]) -> str:
    """Return a table of paired differences of length and truncation, for the default pairs of `compare`.

    p is corrected over both halves of the table together (Holm). It is empty if nothing can be paired.
    """
    pairs = [(row.result, row.reference) for row in comparisons(settings)]
    both = [
        [(a.all(name).astype(float), b.all(name).astype(float)) for a, b in pairs] for name in ("n_tokens", "truncated")
    ]
    families = [stats.common_families([a.families, b.families]) for a, b in pairs]
    alike = [*zip(both[0], both[1], families, strict=True)]
    tokens = [stats.paired_difference(a.mean(axis=1), b.mean(axis=1), families=own) for (a, b), _, own in alike]
    cut = [stats.paired_difference(a, b, families=own) for _, (a, b), own in alike]
    corrected = stats.holm([difference.p for difference in (*tokens, *cut)])
    p = [f"{p_value:.3g}" for p_value in corrected]
    rows = []
    for i, ((result, other), t, c) in enumerate(zip(pairs, tokens, cut, strict=True)):
        row = [result.label, other.label, f"{t.mean:+.1f}", interval(t.low, t.high, sign=True, unit=1), p[i]]
        rows.append([*row, f"{100 * c.mean:+.1f}", interval(c.low, c.high, sign=True), p[len(pairs) + i]])
    head = ["decoding", "minus", "tokens", "95 % interval", "p (Holm)", "cut, points", "95 % interval", "p (Holm)"]
    return markdown_table(head, rows, left=2) if rows else ""
