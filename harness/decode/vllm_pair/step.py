"""The decision of one step: both models' logits in, one forced token a row out."""

import torch

from harness.decode.vllm_pair import channel
from harness.policy import Decision, Noise, Rule, RuleRow, decide


def decide_step(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    keys: torch.Tensor,
    positions: torch.Tensor,
    *,
    vocab_size: int | None,
    traced: torch.Tensor | None = None,
    top: int = 0,
    dense: bool | None = None,
) -> Decision:
    """Decides n rows of (n, padded vocabulary) logits; keys and positions (n,) int64; the rest as for `decide`."""
    noise = Noise.at(keys, positions)
    return decide(
        base_logits, rl_logits, rule, noise, vocab_size=vocab_size, dense=dense, traced=traced, top=top
    )  # fmt: skip


def force(logits: torch.Tensor, decision: Decision, decided: torch.Tensor | None) -> None:
    """Leaves one finite logit a row, the channel's number on the decided token; (n, vocab), in place.

    Rows that are not `decided` (n,) bool are left as they are.
    """
    token = decision.token[:, None]
    facts = channel.encode(decision.replaced, decision.changed, decision.delta_logp).to(logits.dtype)[:, None]
    if decided is None:
        logits.fill_(float("-inf"))
    else:
        facts = torch.where(decided[:, None], facts, logits.gather(1, token))
        logits.masked_fill_(decided[:, None], float("-inf"))
    logits.scatter_(1, token, facts)


def rehearse(base_logits: torch.Tensor, rl_logits: torch.Tensor) -> None:
    """Decides once, under the rule that takes most memory, and forgets it: vLLM's memory profile then knows the peak.

    Its own dummy run of the sampler leaves out custom processors (V1 passes an empty list, V2 returns before them).
    """
    n, device = rl_logits.shape[0], rl_logits.device
    rule = Rule([RuleRow(gate="kl", tau=0.0, gamma=0.1, temperature=0.9, top_p=0.95)] * n, device)
    numbers = torch.arange(n, device=device)
    decide_step(base_logits, rl_logits.float(), rule, numbers, numbers, vocab_size=None)
