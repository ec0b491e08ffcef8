"""List the claims about outcomes: the accuracy of base and RL alone, and where the gain comes from.

The frame is that of `rlvr_dir.responses` for base's and RL's own responses. It has one row per response, with
`decoding`, `task`, `problem`, `family`, `sample`, `correct`, `tokens`, `truncated` and `no_box`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas

from rlvr_dir import stats
from rlvr_dir.audit.claim import COUNT, POINTS, Claim, Frame, Source
from rlvr_dir.stats import Estimate, Labels

MODELS = {"base": "base", "rl": "RL"}


def table(responses: Frame, column: str, decoding: str) -> np.ndarray:
    """Return a column of one decoding's responses, (problems, samples)."""
    return by_problem(responses[responses.decoding == decoding], column)


def by_problem(responses: Frame, column: str) -> np.ndarray:
    """Return a column as (problems, samples), with problems in the order of their names."""
    return responses.pivot(index=["task", "problem"], columns="sample", values=column).to_numpy(float)


def families_of(responses: Frame) -> Labels | None:
    """Return the family of each problem, in the order of `by_problem`; None if no problem has a family."""
    labels = responses.groupby(["task", "problem"]).family.first()
    if labels.isna().all():
        return None
    return [(task, problem if pandas.isna(label) else label) for (task, problem), label in labels.items()]


def score(decoding: str) -> Callable[[Frame], Estimate]:
    """Estimate Avg@k of a decoding."""

    def of(responses: Frame) -> Estimate:
        correct = table(responses, "correct", decoding)
        return Estimate(correct.mean(), *stats.score_interval(correct, families=families_of(responses)))

    return of


def share(column: str, decoding: str) -> Callable[[Frame], Estimate]:
    """Estimate the share of responses for which a column is true."""

    def of(responses: Frame) -> Estimate:
        flags = table(responses, column, decoding)
        return stats.token_share(flags.sum(axis=1), np.full(len(flags), flags.shape[1]), families_of(responses))

    return of


def length(decoding: str) -> Callable[[Frame], Estimate]:
    """Estimate the mean length of responses, in tokens."""

    def of(responses: Frame) -> Estimate:
        tokens = table(responses, "tokens", decoding)
        return stats.token_mean(tokens.sum(axis=1), np.full(len(tokens), tokens.shape[1]), families_of(responses))

    return of


def tokens_per_right(decoding: str) -> Callable[[Frame], Estimate]:
    """Estimate the number of tokens of all responses per correct response."""

    def of(responses: Frame) -> Estimate:
        right, tokens = (table(responses, column, decoding).sum(axis=1) for column in ("correct", "tokens"))
        rate = stats.token_mean(right, tokens, families_of(responses))  # correct responses per token
        if not rate.value:
            return Estimate(None)
        low, high = (1 / end if end and end > 0 else None for end in (rate.high, rate.low))
        return Estimate(1 / rate.value, low, high)

    return of


def calibration_error(decoding: str) -> Callable[[Frame], Estimate]:
    """Estimate the expected calibration error of majority votes, in ten bins of the majority's share of the samples."""

    def of(responses: Frame) -> Estimate:
        votes, right = (table(responses, column, decoding) for column in ("vote", "correct"))
        votes = np.where(np.isnan(votes), -1, votes).astype(int)
        agree = np.array([np.bincount(row + 1, minlength=2)[1:].max() for row in votes]) / votes.shape[1]
        gaps = agree - stats.maj_at_k_per_problem(votes, right, votes.shape[1])
        bins = np.ceil(10 * agree - 1e-9).astype(int)
        return Estimate(np.abs(np.bincount(bins, gaps)).sum() / agree.size)

    return of


def gain(responses: Frame) -> Estimate:
    """Estimate RL's Avg@k minus base's, paired by problem."""
    rl, base = (table(responses, "correct", model) for model in ("rl", "base"))
    difference = stats.paired_difference(rl, base, families=families_of(responses))
    return Estimate(difference.mean, difference.low, difference.high)


def gain_part(number: int) -> Callable[[Frame], Estimate]:
    """Estimate a part of the gain: 0 is more responses with an answer, 1 is more correct ones among those."""

    def of(responses: Frame) -> Estimate:
        sides = []
        for model in MODELS:
            right = table(responses, "correct", model)
            answered = np.maximum(1 - table(responses, "no_box", model), right)
            sides.append((answered.mean(axis=1), right.mean(axis=1)))
        return stats.gain_parts(sides[0], sides[1], families_of(responses))[number]

    return of


def solved(*, base: bool, rl: bool) -> Callable[[Frame], Estimate]:
    """Estimate the share of problems by who solves at least one sample.

    `base` and `rl` are whether base and RL do so in the problems that are counted.
    """

    def of(responses: Frame) -> Estimate:
        hits = [table(responses, "correct", model).any(axis=1) for model in MODELS]
        return _of_problems((hits[0] == base) & (hits[1] == rl), families_of(responses))

    return of


def pass_all(decoding: str) -> Callable[[Frame], Estimate]:
    """Estimate Pass@k, where k is the number of samples."""
    return lambda responses: _of_problems(table(responses, "correct", decoding).any(axis=1), families_of(responses))


def crossing(beyond_chance: bool) -> Callable[[Frame], Estimate]:
    """Return the first k at which base's Pass@k is above RL's.

    With `beyond_chance`, it is the first k at which the difference is significant.
    """

    def of(responses: Frame) -> Estimate:
        base, rl = (table(responses, "correct", model) for model in MODELS)
        found = stats.crossing(base, rl, families=families_of(responses))
        return Estimate(found.k if beyond_chance else found.estimate)

    return of


def rank_name(rank: int, rescale: bool) -> str:
    """Return the name of the model that is base plus the part of ΔW with rank `rank`."""
    return f"rank {rank}" + " rescaled" * rescale


def rank_claim(rank: int, rescale: bool) -> Claim:
    """Return the claim about the share of RL's gain that the model of a rank reaches."""
    name = rank_name(rank, rescale)

    def of(responses: Frame) -> Estimate:
        if name not in set(responses.decoding):
            return Estimate(None)
        right = [table(responses, "correct", model) for model in (name, "base", "rl")]
        means, families = [each.mean(axis=1) for each in right], families_of(responses)
        return stats.share_of_gain(*means, samples=right[0].shape[1], families=families)

    how = (
        "0 % is base's accuracy, 100 % RL's. Every matrix, embeddings too; vectors (norms, biases) are RL's. The model "
        "is written and decoded in float32, because rounded to a narrower type its change would have full rank."
    )
    sentence = f"Share of RL's gain with only a rank-{rank} part of ΔW" + ", rescaled to the norm of ΔW" * rescale
    sources = (Source("2510.00553", "abstract", "8 models, rescaled", "over 99 %"),) if rank == 1 and rescale else ()
    return Claim(f"outcomes/{name.replace(' ', '/')}", "scores", sentence, how, of, sources, of_gain=True)


def _of_problems(hits: Any, families: Labels | None) -> Estimate:
    """Estimate the share of problems for which `hits`, (problems,), is true."""
    return Estimate(hits.mean(), *stats.score_interval(hits[:, None].astype(float), families=families))


LIMIT = "2504.13837"
CROSSING = Source(LIMIT, "abstract", "several families", "“when k is large”")
COVERED = LIMIT, "Table 2", "AIME24, k = 1024"
PROBLEMS = "Share of problems with at least one correct response among {k} samples: Pass@{k}."
NONE = "A dash means: at no k up to {k}."
CLAIMS: tuple[Claim, ...] = (
    *(Claim(f"outcomes/avg/{model}", "scores", f"Responses of {name} that are correct",
        "Avg@{k}: the mean over all samples.",
        score(model)) for model, name in MODELS.items()),
    Claim("outcomes/gain", "scores", "RL's gain", "Avg of RL minus that of base, paired by problem.", gain, **POINTS),
    Claim("outcomes/gain/answers", "scores", "Part of the gain: more responses contain an answer",
        "Change in the share of responses with an answer, times the mean accuracy among them: (a₁ − a₀)(q₀ + q₁)/2. "
        "The two parts sum to the gain before rounding.",
        gain_part(0), **POINTS),
    Claim("outcomes/gain/right", "scores", "Part of the gain: more of the answers are correct",
        "Change in the accuracy among responses with an answer, times their mean share: (q₁ − q₀)(a₀ + a₁)/2.",
        gain_part(1), **POINTS),
    *(Claim(f"outcomes/no_answer/{model}", "scores", f"Responses of {name} without an answer", "Share of responses.",
        share("no_box", model)) for model, name in MODELS.items()),
    *(Claim(f"outcomes/truncated/{model}", "scores", f"Responses of {name} cut at the token limit",
        "Share of responses.", share("truncated", model)) for model, name in MODELS.items()),
    *(Claim(f"outcomes/tokens/{model}", "scores", f"Length of {name}'s responses", "Mean, tokens.", length(model),
        unit=1.0, suffix=" tokens") for model, name in MODELS.items()),
    *(Claim(f"outcomes/tokens_per_right/{model}", "scores", f"Tokens that {name} writes for each correct response",
        "All tokens of all responses, over the number of correct ones.", tokens_per_right(model),
        unit=1.0, suffix=" tokens", digits=0) for model, name in MODELS.items()),
    *(Claim(f"outcomes/calibration_error/{model}", "scores", f"Calibration error of majority votes of {name}",
        "Expected calibration error: the share of the {k} samples that agree with the majority, against how often it "
        "is right, in ten bins of that share. It is too large with few problems, so it has no interval.",
        calibration_error(model),
        (Source("2509.21882"), Source("2601.13284")) if model == "rl" else ()) for model, name in MODELS.items()),
    *(Claim(f"outcomes/pass/{model}", "scores", f"Problems that {name} solves in {{k}} samples (Pass@{{k}})", PROBLEMS,
        pass_all(model)) for model, name in MODELS.items()),
    Claim("outcomes/solved/base", "scores", "Problems that only base solves in {k} samples", PROBLEMS,
        solved(base=True, rl=False), (Source(*COVERED, "13.3 %"),)),
    Claim("outcomes/solved/rl", "scores", "Problems that only RL solves in {k} samples", PROBLEMS,
        solved(base=False, rl=True), (Source(*COVERED, "0 %"),)),
    Claim("outcomes/crossing", "scores", "k* from which base's Pass@k is significantly above RL's",
        f"The smallest such k, from lower bounds that hold for all k simultaneously. {NONE}",
        crossing(True), (CROSSING,), **COUNT),
    Claim("outcomes/crossing/estimate", "scores", "Smallest k at which base's Pass@k exceeds RL's in this sample",
        f"Chance alone produces such a k more often than not. {NONE}", crossing(False), **COUNT),
)  # fmt: skip
