"""Define the criteria that compare one statistic of a position. The first seven are the paper's."""

from rlvr_dir.policy.gates import Threshold


class DeltaLogp(Threshold, frozen=True):
    """Flag tokens that RL made less likely."""

    name = statistic = "delta_logp"
    paper = landmark = True
    label, below = "Δ log p", True

    def doubt(self) -> str | None:
        """Return a warning for a positive threshold, which also flags tokens that RL made more likely."""
        if self.holds_below and self.tau > 0:
            return (
                f"tau={self.tau} is positive: delta_logp < tau also flags tokens that RL made more likely. "
                "The paper uses negative thresholds"
            )
        return None


class EntropyBase(Threshold, frozen=True):
    """Flag positions at which base is uncertain."""

    name = statistic = "entropy_base"
    paper = True
    label, least = "entropy of base", 0.0


class EntropyRL(Threshold, frozen=True):
    """Flag positions at which RL is uncertain."""

    name = statistic = "entropy_rl"
    paper = True
    label, least = "entropy of RL", 0.0


class KL(Threshold, frozen=True):
    """Flag positions at which the models differ, by the mean of both KL divergences."""

    name = statistic = "kl"
    paper = True
    label, least = "KL", 0.0


class KLOfRL(Threshold, frozen=True):
    """Flag positions by KL(RL || base)."""

    name = statistic = "kl_rl_base"
    paper = True
    label, least = "KL(RL, base)", 0.0


class KLOfBase(Threshold, frozen=True):
    """Flag positions by KL(base || RL)."""

    name = statistic = "kl_base_rl"
    paper = True
    label, least = "KL(base, RL)", 0.0


class Random(Threshold, frozen=True):
    """Flag a random share tau of the positions, as a control."""

    name = statistic = "random"
    paper = True
    label, below = "random", True

    def doubt(self) -> str | None:
        """Return a warning for a threshold outside [0, 1), the range of the random numbers."""
        return None if 0 <= self.tau <= 1 else f"tau={self.tau}: the random criterion compares with a number in [0, 1)"


class AbsDeltaLogp(Threshold, frozen=True):
    """Flag tokens whose probability RL changed in either direction, to test whether the sign matters."""

    name = statistic = "abs_delta_logp"
    landmark = True
    label, least = "|Δ log p|", 0.0


class NllRL(Threshold, frozen=True):
    """Flag tokens that are unlikely under RL, to test whether RL alone is enough."""

    name = statistic = "nll_rl"
    label, least = "−log p of RL", 0.0


class CrossEntropy(Threshold, frozen=True):
    """Flag positions by the cross entropy of base and RL (arXiv 2605.16874)."""

    name = statistic = "ce"
    label, least = "cross entropy", 0.0


class JensenShannon(Threshold, frozen=True):
    """Flag positions by the Jensen-Shannon divergence, which is at most log 2."""

    name = statistic = "js"
    label, least = "Jensen–Shannon", 0.0
