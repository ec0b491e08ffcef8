"""Carries the change of one pair over to another model: proxy tuning (arXiv 2401.08565), as two policies again.

The target model's law times the ratio of the pair's, pi ∝ pi_target (pi_RL / pi_base)^lambda, is for lambda = 1 a
policy of its own, with logits l_target + l_RL - l_base. Where it takes RL's place and the target model takes base's,
every rule of this package holds as it stands: `Delta log p` is how far the carried change moves a token, and
extrapolation with gamma is lambda = 1 + gamma.
"""

import torch


def carried(
    base_logits: torch.Tensor, rl_logits: torch.Tensor, target_logits: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits that stand for base and for RL: the target's own, and those with the pair's change.

    Args:
        base_logits: (..., columns); padding may differ between the three, what not all have is no token.
        rl_logits: (..., columns).
        target_logits: (..., columns).

    Returns:
        Two float32 tensors (..., the fewest columns).
    """
    width = min(logits.shape[-1] for logits in (base_logits, rl_logits, target_logits))
    base, rl, target = (logits[..., :width].float() for logits in (base_logits, rl_logits, target_logits))
    return target, target + (rl - base)
