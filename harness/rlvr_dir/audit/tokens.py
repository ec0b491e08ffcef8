"""List the claims about tokens: how both models score every token of their own responses, read from traces.

A trace has the probabilities of both models at the sampling temperature, before top-p truncates either.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas

from rlvr_dir import stats
from rlvr_dir.audit.claim import NATS, POINTS, Claim, Frame, Source
from rlvr_dir.evals.traces import trace_of
from rlvr_dir.records import Row
from rlvr_dir.stats import Estimate

TOP = 10  # most likely tokens of base that are compared with RL's most likely one
FACTS = ("logp_base", "logp_rl", "entropy_base", "entropy_rl", "kl_rl_base", "kl_base_rl", "js", "delta_logp")
DIVERGENCES, ROUNDING = ["kl_rl_base", "kl_base_rl", "js"], 1e-6  # nats, from float32 on equal models
MASS = ("first_base", "others_base", "first_rl", "others_rl")
COLUMNS = (*FACTS, "place", "position", *MASS, "right", "mark")
OWNERS = {"rl": "RL's answers", "base": "base's answers"}
TENTHS = 10
FORKS = 0.2  # the share of tokens with the highest entropy
TAIL = 0.5  # nats of Δ log p
# Where the tails of the other facts begin, in nats, and their names.
TAILS = {
    "entropy_base": (1.0, "entropy of base"), "entropy_rl": (1.0, "entropy of RL"),
    "kl_rl_base": (0.1, "KL(RL ‖ base)"), "kl_base_rl": (0.1, "KL(base ‖ RL)"),
}  # fmt: skip


def traced_tokens(
    rows: Mapping[str, Iterable[Row]],
    families: Mapping[str, str] | None = None,
    right: Mapping[tuple[str, str, int], bool] | None = None,
    marks: Collection[int] = (),
) -> Frame:
    """Return one row per token of traced responses, with who wrote it (`decoding`) and both models' statistics.

    `place` is the rank of RL's most likely token among base's most likely ones: 0 if both have the same, `TOP` if it is
    not among them. `logp_base`, `logp_rl` and `delta_logp` belong to the written token. A divergence that is no larger
    than rounding is 0. `unit` is the unit of resampling for intervals: the problem, or its family if `families` has
    one. `first_base` is base's probability of its most likely token, and `others_base` that of its next nine together.
    `right` is the verdict on the response, by who wrote it, problem and sample; it is 0.5 if there is none. `mark` is 1
    if the token is one of `marks`.

    Raises:
        ValueError: A response was decoded without a trace.
    """
    labels, tables, families, right = [], [], families or {}, right or {}
    for decoding, row in ((decoding, row) for decoding, of_decoding in rows.items() for row in of_decoding):
        trace = trace_of(row)
        (base, _), (rl, _) = trace.likeliest("base"), trace.likeliest("rl")
        hits = base[:, :TOP] == rl[:, :1]  # (tokens, TOP)
        place = np.where(hits.any(1), hits.argmax(1), TOP).astype(np.float32)
        positions = np.arange(row.n_tokens, dtype=np.float32)
        tops = [np.exp(trace.likeliest(model)[1][:, :TOP]) for model in ("base", "rl")]
        mass = [part for top in tops for part in (top[:, 0], top[:, 1:].sum(1))]
        verdict = np.full_like(positions, right.get((decoding, row.problem, row.sample), 0.5))
        marked = np.isin(trace.proposed, [*marks])
        tables.append(np.column_stack([*map(trace.fact, FACTS), place, positions, *mass, verdict, marked]))
        labels.append((decoding, families.get(row.problem, row.problem), row.sample, row.n_tokens))
    answers = pandas.DataFrame(labels, columns=pandas.Index(["decoding", "unit", "sample", "length"]))
    answers = answers.astype({"decoding": "category", "unit": "category"})
    tokens = pandas.DataFrame(np.concatenate(tables), columns=pandas.Index(COLUMNS))
    tokens[DIVERGENCES] = tokens[DIVERGENCES].where(tokens[DIVERGENCES] > ROUNDING, 0.0)
    return answers.loc[answers.index.repeat(answers.length)].reset_index(drop=True).join(tokens)


# How an estimate is computed from the tokens that one model wrote


def by_unit(tokens: Frame, values: Any) -> np.ndarray:
    """Return the sums of values by problem, or by family: (tokens,) -> (units,)."""
    codes = tokens.unit.cat.codes
    return np.bincount(codes, np.asarray(values, float), minlength=len(tokens.unit.cat.categories))


def counts(tokens: Frame) -> np.ndarray:
    """Count the tokens of each unit."""
    return by_unit(tokens, np.ones(len(tokens)))


def share(of: Callable[[Frame], Any]) -> Callable[[Frame], Estimate]:
    """Estimate the share of tokens for which `of` is true."""
    return lambda tokens: stats.token_share(by_unit(tokens, of(tokens)), counts(tokens))


def mean(fact: str) -> Callable[[Frame], Estimate]:
    """Estimate the mean of a fact over tokens."""
    return lambda tokens: stats.token_mean(by_unit(tokens, tokens[fact]), counts(tokens))


def mean_of_responses(fact: str) -> Callable[[Frame], Estimate]:
    """Estimate the mean over responses of a fact's sum over the response."""
    return lambda tokens: stats.token_mean(by_unit(tokens, tokens[fact]), by_unit(tokens, tokens.position == 0))


def quantile(fact: str, share: float) -> Callable[[Frame], Estimate]:
    """Estimate a quantile of a fact over tokens.

    Its interval comes from that of the share of tokens below it (Woodruff).
    """

    def of(tokens: Frame) -> Estimate:
        if not len(values := tokens[fact]):
            return Estimate(None)
        value, *_ = np.quantile(values, [share], method="inverted_cdf")
        below = stats.mass_share(by_unit(tokens, values <= value), counts(tokens))
        if below.value is None or below.low is None or below.high is None:
            return Estimate(value)
        ends = np.clip([share + end - below.value for end in (below.low, below.high)], 0, 1)
        return Estimate(value, *np.quantile(values, ends, method="inverted_cdf"))

    return of


def right_minus_wrong(of: Callable[[Frame], Any]) -> Callable[[Frame], Estimate]:
    """Estimate the share of tokens for which `of` is true, in correct responses minus in wrong ones."""

    def estimate(tokens: Frame) -> Estimate:
        sides = [tokens.right == verdict for verdict in (1, 0)]
        ours, theirs = ((by_unit(tokens, side & of(tokens)), by_unit(tokens, side)) for side in sides)
        return stats.token_difference(ours, theirs)

    return estimate


def js_share(of: Callable[[Frame], Any]) -> Callable[[Frame], Estimate]:
    """Estimate the share of the total JS divergence that lies on the tokens for which `of` is true."""
    return lambda tokens: stats.mass_share(by_unit(tokens, tokens.js * of(tokens)), by_unit(tokens, tokens.js))


def concentration(mass: float) -> Callable[[Frame], Estimate]:
    """Estimate the smallest share of tokens that has the share `mass` of the total JS divergence."""
    return lambda tokens: stats.least_share(tokens.js, tokens.unit.cat.codes, mass)


def among(chosen: Callable[[Frame], Any], of: Callable[[Frame], Any]) -> Callable[[Frame], Estimate]:
    """Estimate the share of the tokens in `chosen` for which `of` is true."""
    return lambda tokens: share(of)(tokens[chosen(tokens)])


def tenth(number: int) -> Callable[[Frame], Any]:
    """Select the tokens in one tenth of each response, counted from 0."""
    return lambda tokens: TENTHS * tokens.position // tokens.length == number


def forks(model: str) -> Callable[[Frame], Any]:
    """Select the 20 % of all tokens with the highest entropy under a model."""
    name = f"entropy_{model}"
    return lambda tokens: tokens[name] >= tokens[name].quantile(1 - FORKS)


def among_both(tokens: Frame) -> Estimate:
    """Estimate how many of the 20 % of tokens with the highest entropy under base are also among those under RL."""
    first, second = forks("base")(tokens), forks("rl")(tokens)
    return stats.token_share(by_unit(tokens, first & second), by_unit(tokens, first))


def logp_difference(traces: Frame) -> Estimate:
    """Estimate how much higher base's log-probability per token is on RL's responses than on its own."""
    sides = [traces[traces.decoding == owner] for owner in ("rl", "base")]
    ours, theirs = ((by_unit(side, side.logp_base), counts(side)) for side in sides)
    return stats.token_difference(ours, theirs)


def tail_ratio(of: Callable[[Frame], Any], more: str, less: str) -> Callable[[Frame], Estimate]:
    """Estimate the share of tokens for which `of` is true in one model's responses, divided by that in the other's."""

    def estimate(traces: Frame) -> Estimate:
        sides = [traces[traces.decoding == owner] for owner in (more, less)]
        ours, theirs = ((by_unit(side, of(side)), counts(side)) for side in sides)
        return stats.share_ratio(ours, theirs)

    return estimate


# The entries


def of_owners(
    name: str,
    sentence: str,
    how: str,
    estimate: Callable[[Frame], Estimate],
    *,
    owners: Sequence[str] = tuple(OWNERS),
    sources: Sequence[Source] = (),
    base_sources: Sequence[Source] = (),
    **shown: Any,
) -> list[Claim]:
    """Return a claim about RL's responses and one about base's, each with its sources."""

    def of(owner: str) -> Callable[[Frame], Estimate]:
        return lambda traces: estimate(traces[traces.decoding == owner])

    cited = {"rl": tuple(sources), "base": tuple(base_sources)}
    return [
        Claim(f"tokens/{name}/{owner}", "traces", f"{sentence}, {OWNERS[owner]}", how, of(owner), cited[owner], **shown)
        for owner in owners
    ]


URIAL = "2312.01552", "§2.1–2.2, Fig. 3", "Llama-2-7b and -chat, greedy"
SELECTION = "2605.06241", "abstract", "several families"
SPARSE = Source("2603.22446", "abstract", "", "“a small fraction”")
RAZOR = Source("2509.04259", "§4")
FORKING = Source("2506.01939")
PAPER = "2603.22117", "§3.1", "UniReason and two more"
TIMES: dict[str, Any] = {"unit": 1.0, "suffix": " times", "digits": 2}
HALF = "Ratio of two shares of positions, with half a position added to each."
OF_JS = "Share of the total JS of these responses."
OF_POSITIONS = "Share of positions."
NEEDED = "Share of positions, in order of decreasing JS; the last one counts in part."

CLAIMS: tuple[Claim, ...] = (
    *of_owners("same_top", "Both models have the same most likely token", OF_POSITIONS,
        share(lambda tokens: tokens.place == 0),
        sources=(Source(*URIAL, "77.7 %"), Source(*SELECTION, "all but 1–3 %"))),
    *of_owners("second_or_third", "RL's most likely token is base's second or third", OF_POSITIONS,
        share(lambda tokens: tokens.place.between(1, 2)), owners=("rl",), sources=(Source(*URIAL, "14.5 %"),)),
    *of_owners("later", "RL's most likely token is not among base's first three", OF_POSITIONS,
        share(lambda tokens: tokens.place > 2), owners=("rl",), sources=(Source(*URIAL, "7.8 %"),)),
    *(claim for k in (5, 10) for claim in of_owners(f"in_top_{k}",
        f"Where the most likely tokens differ, RL's is in base's top {k}", "Share of the positions where they differ.",
        among(lambda tokens: tokens.place > 0, lambda tokens, k=k: tokens.place < k),
        owners=("rl",), sources=(Source(*SELECTION, "“always”"),) if k == 5 else ())),
    *of_owners("js", "Jensen–Shannon divergence (JS) of the two models", "Mean over positions.", mean("js"), **NATS),
    *of_owners("js_above", "JS above 0.1 nats", OF_POSITIONS, share(lambda tokens: tokens.js > 0.1), sources=(SPARSE,)),
    *of_owners("js_half", "Fewest positions that contain half of the JS", NEEDED, concentration(0.5),
        sources=(Source("2603.22446"),)),
    *of_owners("js_ninety", "Fewest positions that contain 90 % of the JS", NEEDED, concentration(0.9)),
    *of_owners("js_first", "JS in the first tenth of each response", OF_JS, js_share(tenth(0)),
        sources=(Source("2603.22446"),)),
    *of_owners("js_last", "JS in the last tenth of each response", OF_JS, js_share(tenth(TENTHS - 1)),
        sources=(Source("2603.22446"),)),
    *of_owners("js_forks", "JS on the 20 % of positions where base's entropy is highest", OF_JS,
        js_share(forks("base")),
        sources=(FORKING,)),
    *of_owners("forks", "Overlap of the 20 % highest-entropy positions of base and RL", "Share of base's positions.",
        among_both, sources=(Source("2506.01939", "Table 1", "Qwen3-14B, after RLVR", "86.67 %"),)),
    *of_owners("kl_rl_base", "KL(RL ‖ base)", "Mean over positions, each cut at 30 nats.", mean("kl_rl_base"), **NATS),
    *of_owners("kl_base_rl", "KL(base ‖ RL)", "Mean over positions, each cut at 30 nats.", mean("kl_base_rl"),
        base_sources=(RAZOR,), **NATS),
    *(claim for q, words in ((0.5, "Median"), (0.999, "99.9 % quantile"), (1, "Maximum"))
        for claim in of_owners(f"kld_{100 * q:g}", f"{words} of KL(base ‖ RL)",
            "Over positions, each cut at 30 nats, as llama.cpp prints it for a quantised model."
            + " It has no interval." * (q == 1),
            quantile("kl_base_rl", q) if q < 1 else lambda tokens: Estimate(float(tokens.kl_base_rl.max())),
            **NATS)),
    *of_owners("kl_marks", "KL(RL ‖ base) at end-of-text and template tokens",
        "Mean over the positions where a special token was written.",
        lambda tokens: mean("kl_rl_base")(tokens[tokens.mark == 1]), **NATS),
    *of_owners("kl_marks_share", "Share of KL(RL ‖ base) at end-of-text and template tokens",
        "Share of the sum over all positions.", lambda tokens: stats.mass_share(
            by_unit(tokens, tokens.kl_rl_base * tokens.mark), by_unit(tokens, tokens.kl_rl_base))),
    *(claim for model, name in (("base", "base"), ("rl", "RL"))
        for part, words in (("first", "most likely token"), ("others", "tokens of ranks 2 to 10"))
        for claim in of_owners(f"{part}_{model}", f"Probability of {name}'s {words}", "Mean over positions.",
            mean(f"{part}_{model}"), sources=(Source("2510.14807"),))),
    *of_owners("boosted", "Tokens that RL made more likely: in correct minus in wrong responses",
        "Share of positions with Δ log p above 0.", right_minus_wrong(lambda tokens: tokens.delta_logp > 0),
        sources=(Source("2605.08666", "abstract", "", "“remarkably similar”"),), **POINTS),
    *of_owners("answer_kl_rl_base", "KL(RL ‖ base) of a whole response", "Sum over positions, mean over responses.",
        mean_of_responses("kl_rl_base"), owners=("rl",), **{**NATS, "digits": 3}),
    *of_owners("answer_kl_base_rl", "KL(base ‖ RL) of a whole response", "Sum over positions, mean over responses.",
        mean_of_responses("kl_base_rl"), owners=("base",), base_sources=(RAZOR,), **{**NATS, "digits": 3}),
    *of_owners("entropy_base", "Entropy of base", "Mean over positions.", mean("entropy_base"), **NATS),
    *of_owners("entropy_rl", "Entropy of RL", "Mean over positions.", mean("entropy_rl"),
        sources=(Source("2505.22617", "abstract", "", "“dropped sharply”"),), **NATS),
    *of_owners("logp_base", "log p under base of the tokens written", "Mean; perplexity is exp of its negative.",
        mean("logp_base"), sources=(Source("2504.13837", "§4.1, Fig. 6"),), **NATS),
    Claim("tokens/logp_difference", "traces", "log p under base: RL's responses minus base's own",
        "Difference of the means over tokens.", logp_difference, (Source("2504.13837", "§4.1, Fig. 6"),),
        **NATS, signed=True),
    *of_owners("less_likely", f"Δ log p below −{TAIL:g} nats", OF_POSITIONS,
        share(lambda tokens: tokens.delta_logp < -TAIL), digits=2),
    *of_owners("likelier", f"Δ log p above {TAIL:g} nats", OF_POSITIONS, share(lambda tokens: tokens.delta_logp > TAIL),
        digits=2),
    Claim("tokens/tail/less_likely", "traces", f"Δ log p below −{TAIL:g} nats: base's responses over RL's", HALF,
        tail_ratio(lambda tokens: tokens.delta_logp < -TAIL, "base", "rl"), (Source(*PAPER, "“two distinct tails”"),),
        **TIMES),
    Claim("tokens/tail/likelier", "traces", f"Δ log p above {TAIL:g} nats: RL's responses over base's", HALF,
        tail_ratio(lambda tokens: tokens.delta_logp > TAIL, "rl", "base"), (Source(*PAPER, "“two distinct tails”"),),
        **TIMES),
    *(Claim(f"tokens/tail/{fact}", "traces", f"{words} above {edge:g} nats: base's responses over RL's", HALF,
        tail_ratio(lambda tokens, fact=fact, edge=edge: tokens[fact] > edge, "base", "rl"),
        (Source(*PAPER, "“nearly identical”"),), **TIMES) for fact, (edge, words) in TAILS.items()),
)  # fmt: skip
