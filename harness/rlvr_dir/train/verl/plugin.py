"""Define verl's policy loss `rlvr_dir`, DAPO's with reweighted advantages, in every process of verl.

verl loads this at `import verl`, through the entry point `verl.plugins`, whose failures it hides, and through the
variable VERL_USE_EXTERNAL_MODULES, whose failures end the process. It needs torch, verl and, of ours, only
`rlvr_dir.policy`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, register_policy_loss
from verl.workers.config.actor import PolicyLossConfig

from rlvr_dir.policy.reweighting import PLAIN, reweighting, token_weights

LOSS = "rlvr_dir"


@dataclass
class ReweightedLossConfig(PolicyLossConfig):
    """Hold verl's settings of a policy loss and ours. `actor.policy_loss._target_` names it."""

    method: str = PLAIN  # # one that needs no whole batch (`hook`)
    alpha: float = 0.0
    pi_source: str = "old"  # # the probability that determines the weight: old or current


@register_policy_loss(LOSS)
def reweighted_policy_loss(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Compute verl's clipped loss of advantages that `rlvr_dir.policy.reweighting` reweights. All tensors are (n,
    tokens).

    Returns:
        The loss, and verl's metrics with `actor/advantage_weight`, the mean weight of a response token.
    """
    settings = config.policy_loss
    logp = old_log_prob if settings.pi_source == "old" else log_prob
    weight = token_weights(reweighting(settings.method, settings.alpha), logp, response_mask)
    loss, metrics = compute_policy_loss_vanilla(
        old_log_prob=old_log_prob,
        log_prob=log_prob,
        advantages=advantages * weight,
        response_mask=response_mask,
        loss_agg_mode=loss_agg_mode,
        config=config,
        rollout_is_weights=rollout_is_weights,
    )
    tokens = response_mask.sum().clamp(min=1)
    return loss, {**metrics, "actor/advantage_weight": ((weight * response_mask).sum() / tokens).item()}
