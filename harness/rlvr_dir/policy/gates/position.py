"""Criteria of one position: each compares one statistic of it. The first seven are the paper's."""

from rlvr_dir.policy.gates import Threshold


class DeltaLogp(Threshold, frozen=True):
    """The direction of the change: redraw what RL made less likely."""

    name = statistic = "delta_logp"
    paper = landmark = True
    label, below = "Δ log p", True

    def doubt(self) -> str | None:
        """A positive threshold redraws what RL made likelier, too."""
        if self.holds_below and self.tau > 0:
            return (
                f"tau={self.tau} is positive: delta_logp < tau then also redraws tokens that RL made likelier; "
                "the paper uses negative thresholds"
            )
        return None


class EntropyBase(Threshold, frozen=True):
    """Where base is unsure."""

    name = statistic = "entropy_base"
    paper = True
    label, least = "entropy of base", 0.0


class EntropyRL(Threshold, frozen=True):
    """Where RL is unsure."""

    name = statistic = "entropy_rl"
    paper = True
    label, least = "entropy of RL", 0.0


class KL(Threshold, frozen=True):
    """Where the two differ: the mean of both divergences."""

    name = statistic = "kl"
    paper = True
    label, least = "KL", 0.0


class KLOfRL(Threshold, frozen=True):
    """KL(RL || base)."""

    name = statistic = "kl_rl_base"
    paper = True
    label, least = "KL(RL, base)", 0.0


class KLOfBase(Threshold, frozen=True):
    """KL(base || RL)."""

    name = statistic = "kl_base_rl"
    paper = True
    label, least = "KL(base, RL)", 0.0


class Random(Threshold, frozen=True):
    """Nothing at all: a share of tau of the positions."""

    name = statistic = "random"
    paper = True
    label, below = "random", True

    def doubt(self) -> str | None:
        """It compares with a number in [0, 1)."""
        return None if 0 <= self.tau <= 1 else f"tau={self.tau}: the random criterion compares with a number in [0, 1)"


class AbsDeltaLogp(Threshold, frozen=True):
    """Is the sign of the change needed?"""

    name = statistic = "abs_delta_logp"
    landmark = True
    label, least = "|Δ log p|", 0.0


class NllRL(Threshold, frozen=True):
    """Does RL alone tell as much?"""

    name = statistic = "nll_rl"
    label, least = "−log p of RL", 0.0


class CrossEntropy(Threshold, frozen=True):
    """The cross entropy of base and RL (arXiv 2605.16874)."""

    name = statistic = "ce"
    label, least = "cross entropy", 0.0


class JensenShannon(Threshold, frozen=True):
    """A divergence that has a bound: at most log 2."""

    name = statistic = "js"
    label, least = "Jensen–Shannon", 0.0
