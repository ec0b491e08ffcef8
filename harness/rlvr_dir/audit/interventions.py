"""List the claims about interventions: how few tokens carry RL's gain, what flags them, and which model writes them.

Every criterion flags the same shares of the proposing model's tokens. The thresholds come from these models' own
responses (`rlvr_dir.sweep.matched`), and each setting is decoded anew. The frame is that of `rlvr_dir.responses` with
two more columns: `way`, the way of intervening, and `share`, the requested share of flagged tokens. Base and RL alone
are ways, too.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas

from rlvr_dir import stats
from rlvr_dir.audit.claim import POINTS, Claim, Frame, Source
from rlvr_dir.audit.outcomes import by_problem, families_of
from rlvr_dir.config import Decoding, parse
from rlvr_dir.policy.gates import Gate
from rlvr_dir.stats import Estimate
from rlvr_dir.sweep.matched import tau_for
from rlvr_dir.sweep.taus import gate_of

SHARES = (0.005, 0.01, 0.02, 0.05, 0.1)  # shares of tokens that are flagged
AT = 0.05  # the share at which rows compare ways
CRITERIA = {
    "delta_logp": "low Δ log p", "js": "high JS", "entropy_base": "high entropy of base", "random": "chance",
    "delta_logp above": "high Δ log p",
}  # fmt: skip
CHOSEN = ("delta_logp", "js", "entropy_base")  # in base's responses; random flags are their placebo
IN_RL = ("delta_logp above", "js", "random")  # in RL's responses


def _way(mode: str, criterion: str, primary: str = "base") -> Decoding:
    return parse(Decoding, {"mode": mode, "primary": primary, "criterion": criterion, "tau": 0.0})


WAYS: tuple[Decoding, ...] = (
    *(_way("replace", criterion) for criterion in (*CHOSEN, "random")),
    *(_way(mode, criterion) for mode in ("reject", "veto") for criterion in CHOSEN),
    _way("resample", "delta_logp"),
    *(_way("resample", criterion, "rl") for criterion in IN_RL),
)


def name_of(way: Decoding) -> str:
    """Return the name of a way of intervening, without its threshold: `replace js`, `resample js on rl`."""
    return f"{way.mode} {way.criterion}" + (" on rl" if way.primary == "rl" else "")


def points_at(values: Mapping[Decoding, Mapping[Gate, np.ndarray]]) -> list[tuple[str, float, Decoding]]:
    """Return every way at every share, with its decoding. Several may share a decoding if values tie.

    Args:
        values: Each criterion's values at each token of base's and RL's own responses, as `criterion_values` returns.
    """
    points: list[tuple[str, float, Decoding]] = []
    for way in WAYS:
        gate, own = gate_of(way), values[Decoding(mode=way.primary)]
        for share in SHARES:
            tau = tau_for(gate, own.get(gate.without_threshold(), ()), share).tau
            points.append((name_of(way), share, way.replace(tau=tau)))
    return points


def point_frame(points: Iterable[tuple[str, float, Decoding]], responses: Mapping[Decoding, Frame]) -> Frame:
    """Return the responses of each point, and of base and RL alone, which are ways with share 0 and 1."""
    alone = [("base", 0.0, Decoding(mode="base")), ("rl", 1.0, Decoding(mode="rl"))]
    parts = [responses[decoding].assign(way=way, share=share) for way, share, decoding in [*alone, *points]]
    return pandas.concat(parts, ignore_index=True)


# How an estimate is computed from points


def correct(points: Frame, way: str, share: float | None = None) -> np.ndarray:
    """Return whether each response of a way at a share is correct, (problems, samples).

    Base and RL alone need no share.
    """
    return by_problem(points[(points.way == way) & ((points.share == share) | (share is None))], "correct")


def accuracy(points: Frame, way: str, share: float | None = None) -> np.ndarray:
    """Return the accuracy of a way at a share, (problems,)."""
    return correct(points, way, share).mean(axis=1)


def share_of_tokens(points: Frame, way: str, share: float, kind: str = "changed") -> float:
    """Return the share of tokens that a way changed, or flagged (`replaced`); 0 if there are no tokens."""
    own = points[(points.way == way) & (points.share == share)]
    return float(own[kind].sum() / max(1, own.tokens.sum()))


def share_of_gain(way: str) -> Callable[[Frame], Estimate]:
    """Estimate the share of RL's gain that a way reaches: 0 is base's accuracy, 1 is RL's."""

    def of(points: Frame) -> Estimate:
        right, families = correct(points, way, AT), families_of(points)
        alone = [accuracy(points, model) for model in ("base", "rl")]
        return stats.share_of_gain(right.mean(axis=1), *alone, samples=right.shape[1], families=families)

    return of


def difference(way: str, other: str, share: float | None = AT) -> Callable[[Frame], Estimate]:
    """Estimate the accuracy of `way` minus that of `other`, paired by problem. Base and RL alone need no share."""

    def of(points: Frame) -> Estimate:
        first, second = (correct(points, each, share) for each in (way, other))
        d = stats.paired_difference(first, second, families=families_of(points))
        return Estimate(d.mean, d.low, d.high)

    return of


def reached(way: str, start: str, goal: str) -> Callable[[Frame], Estimate]:
    """Estimate the share of changed tokens at which `way`, which starts as the model `start`, is as accurate as `goal`.

    The estimate is None if RL is not significantly above base.
    """

    def of(points: Frame) -> Estimate:
        if not (difference("rl", "base", None)(points).low or 0.0) > 0:
            return Estimate(None)
        target = accuracy(points, goal)
        places = [0.0, *(share_of_tokens(points, way, share) for share in SHARES)]
        curve = np.stack([accuracy(points, start), *(accuracy(points, way, share) for share in SHARES)]) - target
        order, sign = np.argsort(places, kind="stable"), -1 if start == "rl" else 1
        samples = int(points["sample"].nunique())
        return stats.reached([places[at] for at in order], sign * curve[order], samples, families=families_of(points))

    return of


SPARSE = "2603.22446", "abstract", ""
SELECTION = "2605.06241", "abstract", "several families"
DIRECTION = "2603.22117", "§3.2", "ORZ, DAPO and UniReason, AIME24"
SOURCES: dict[str, tuple[Source, ...]] = {
    "delta_logp": (Source(*DIRECTION, "all, with about 10 % of tokens"),),
    "js": (Source(*SPARSE, "“a small fraction” recovers it"),),
    "entropy_base": (Source(*SELECTION, "“a large fraction” of the gain"),),
    "random": (Source(*SELECTION, "random tokens “fail”"),),
}
REACHED = {
    "delta_logp": (Source(*DIRECTION, "about 10 %"),), "entropy_base": (Source(*DIRECTION, "“clearly more”"),),
}  # fmt: skip
PAIRED = "Avg of both, paired by problem."
GAIN = (
    "0 % is base's accuracy, 100 % is RL's. A dash means that RL's gain is not significant. The threshold flags "
    f"{100 * AT:g} % of the tokens of the model's own responses; figures/accuracy.csv has the shares seen here."
)
BETWEEN = (
    "The smallest share of changed tokens that suffices. Its interval ends at the first share for which this is "
    "significant, or at 100 %. A dash means that RL's gain is not significant."
)


def _of(criterion: str) -> str:
    return criterion.replace(" ", "_")


def flagged(criterion: str) -> str:
    """Return the words for a criterion and the share of tokens that it flags."""
    return f"flagged by {CRITERIA[criterion]} ({100 * AT:g} %)"


CLAIMS: tuple[Claim, ...] = (
    *(Claim(f"interventions/replace/{criterion}", "points",
        "Share of RL's gain recovered when RL resamples base's tokens "
        f"{flagged(criterion)}", GAIN, share_of_gain(f"replace {criterion}"), SOURCES[criterion], of_gain=True)
        for criterion in (*CHOSEN, "random")),
    Claim("interventions/resample/delta_logp", "points",
        "Share of RL's gain recovered when base resamples its own tokens "
        f"{flagged('delta_logp')}", GAIN, share_of_gain("resample delta_logp"), of_gain=True),
    *(Claim(f"interventions/reached/{criterion}", "points",
        "Share of base's tokens to change until it matches RL, resampled "
        f"from RL by {CRITERIA[criterion]}", BETWEEN, reached(f"replace {criterion}", "base", "rl"),
        REACHED.get(criterion, ()), digits=2) for criterion in (*CHOSEN, "random")),
    *(Claim(f"interventions/token/{criterion}", "points",
        f"Benefit of writing RL's token: base's tokens {flagged(criterion)}",
        f"Replace (RL decides whether to drop the token, RL writes) minus reject (RL decides, base writes). {PAIRED}",
        difference(f"replace {criterion}", f"reject {criterion}"), **POINTS) for criterion in CHOSEN),
    Claim("interventions/own_draw/delta_logp", "points", "Benefit of RL deciding which tokens to drop, over resampling "
        f"from base: base's tokens {flagged('delta_logp')}",
        f"Reject (RL decides, base writes) minus resample (base does both). {PAIRED}",
        difference("reject delta_logp", "resample delta_logp"), **POINTS),
    *(Claim(f"interventions/decision/{criterion}", "points",
        "Benefit of RL deciding which tokens to drop, over dropping "
        f"all: base's tokens {flagged(criterion)}", f"Reject (RL decides, base writes) minus veto (all are dropped, "
        f"base writes). Veto can do harm: compare it with base in the first chart. {PAIRED}",
        difference(f"reject {criterion}", f"veto {criterion}"), **POINTS) for criterion in CHOSEN),
    *(Claim(f"interventions/in_rl/{_of(criterion)}", "points",
        "Share of RL's gain left when base resamples RL's tokens "
        f"{flagged(criterion)}", GAIN, share_of_gain(f"resample {criterion} on rl"),
        (Source(*SPARSE, "“collapses … to base levels”"),) if criterion == "js" else (), of_gain=True)
        for criterion in IN_RL),
    *(Claim(f"interventions/lost/{_of(criterion)}", "points",
        "Share of RL's tokens to change until it is no better than base, "
        f"resampled from base by {CRITERIA[criterion]}", BETWEEN, reached(f"resample {criterion} on rl", "rl", "base"),
        digits=2) for criterion in IN_RL),
)  # fmt: skip
