"""The policies of a step: what proposes, what is drawn from where the gate holds, and the likeliest token of either."""

import torch

from harness.policy.rule import Rule


def log_softmax(logits: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Return log-probabilities over the whole vocabulary at each row's temperature: (n, vocab) -> the same, float32."""
    return torch.log_softmax(tempered(logits, rule), dim=-1)


def tempered(logits: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Return float32 logits over the temperature; no copy where both are so already."""
    logits = logits.float()
    return logits if rule.unit_temperature else logits / rule.temperature[:, None]


def primary_of(lb: torch.Tensor, lr: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Return the log-probabilities that propose, row by row; no copy when all rows have the same primary."""
    if len(rule.primaries) == 1:
        return lr if "rl" in rule.primaries else lb
    return torch.where(rule.proposes_rl[:, None], lr, lb)


def target_of(lb: torch.Tensor, lr: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Return the log-probabilities that are drawn from where the gate holds: two (n, vocab) -> (n, vocab)."""
    target = extrapolate(lb, lr, rule.gamma) if rule.extrapolates else lr
    return plausible(target, lr, rule) if rule.guards else target


def extrapolate(lb: torch.Tensor, lr: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """Return log pi_extra, proportional to exp(lr + gamma (lr - lb)): two (n, vocab) and (n,) -> (n, vocab).

    One family: gamma -1 is base, -1 to 0 lies between the two, 0 is RL, and above it lies what is beyond RL. Both ends
    are met to the bit. A token that one model cannot give has no ratio: between the two it has no weight, as in any
    product of powers, and beyond RL, where it would have all, it keeps its RL weight.
    """
    weight = gamma[:, None]
    extra = torch.log_softmax(lr + moved(weight * (lr - lb)), dim=-1)
    return torch.where(weight == 0, lr, torch.where(weight == -1, lb, extra))


def moved(step: torch.Tensor) -> torch.Tensor:
    """Return gamma times the log-ratio, in place, with what `extrapolate` says where a model cannot give the token."""
    return step.nan_to_num_(nan=0.0, posinf=0.0, neginf=-torch.inf)


def plausible(target: torch.Tensor, lr: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Return the target without tokens that RL finds implausible: two (n, vocab) -> (n, vocab).

    Those that RL gives less than `min_p_rl` of its largest probability lose their weight to the others: the constraint
    of contrastive decoding (arXiv 2210.15097), which keeps a large gamma from raising tokens that both models all but
    exclude. Rows whose `min_p_rl` is 0 stay as they are, to the bit.
    """
    least = lr.amax(1, keepdim=True) + rule.min_p_rl.log()[:, None]
    kept = torch.log_softmax(target.masked_fill(lr < least, -torch.inf), dim=-1)
    return torch.where(rule.min_p_rl[:, None] > 0, kept, target)


def argmax(logits: torch.Tensor, vocab_size: int | None) -> torch.Tensor:
    """Return the token of the largest logit, of equal ones the first: (n, padded vocabulary) -> (n,) int64."""
    return logits[:, :vocab_size].argmax(1)


def argmax_target(
    base_logits: torch.Tensor, rl_logits: torch.Tensor, rule: Rule, vocab_size: int | None
) -> torch.Tensor:
    """Return the likeliest token of each target: two (n, padded vocabulary) -> (n,) int64.

    For gamma 0 it is the largest logit of RL, for gamma -1 of base, to the bit. Else r + gamma (r - b) is in the order
    of pi_extra's probabilities, without any normaliser; but for gamma above 0 a token that base cannot give keeps its
    RL weight (see `extrapolate`), which on this scale is r and gamma times the difference of the two normalisers.
    """
    if not rule.extrapolates:
        return argmax(rl_logits, vocab_size)  # which is plausible
    b, r = (logits[:, :vocab_size].float() for logits in (base_logits, rl_logits))
    gamma, temperature = rule.gamma[:, None], rule.temperature[:, None]
    zb, zr = ((x / temperature).logsumexp(1, keepdim=True) for x in (b, r))
    alone, impossible = b == float("-inf"), r == float("-inf")
    beyond = torch.where(gamma > 0, gamma * (zr - zb) * temperature, -torch.inf)
    score = torch.where(alone, r + beyond, r + gamma * (r - b))
    score = torch.where(impossible | (gamma == 0), r, score)
    score = torch.where(gamma == -1, b, score)
    if rule.guards:
        least = r.amax(1, keepdim=True) + temperature * rule.min_p_rl.log()[:, None]
        score = score.masked_fill(r < least, -torch.inf)
    return score.argmax(1)
