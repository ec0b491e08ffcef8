"""The criteria f of Algorithm 1: which proposed tokens are redrawn.

All of them look at untruncated policies: `lb` and `lr` are log-probabilities of base and RL over the whole
vocabulary, (n, vocab) float32. The first seven are the paper's. The others ask what its claim rests on: whether the
sign of the change is needed (`abs_delta_logp`), whether RL alone tells as much (`nll_rl`), whether a divergence that
others use does better (`ce`, arXiv 2605.16874; `js`, which has a bound). `spike`, which looks back, is `Past.spike`.
"""

from math import log

import torch

CRITERIA = (
    "delta_logp", "entropy_base", "entropy_rl", "kl", "kl_rl_base", "kl_base_rl", "random",
    "abs_delta_logp", "nll_rl", "ce", "js",
)  # fmt: skip
BELOW = ("delta_logp", "random")  # hold below their threshold unless a rule says otherwise; the others hold above it


def delta_logp(lb: torch.Tensor, lr: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """Return log pi_RL(y) - log pi_Base(y) of one token a row, in nats: (n, vocab), (n, vocab), (n,) -> (n,)."""
    index = token[:, None]
    return (lr.gather(1, index) - lb.gather(1, index)).squeeze(1)


def entropy(logp: torch.Tensor) -> torch.Tensor:
    """Return H(pi) = -sum_y pi(y) log pi(y) in nats: (n, vocab) -> (n,). Impossible tokens count 0."""
    return -_expectation(logp, logp)


def renyi_entropy(logp: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Return the Renyi entropy of order 1 / T of a policy, from its log-probabilities at temperature T below 1.

    H_a = log sum p^a / (1 - a), a = 1 / T: as p^a = q e^((1 - a) H_a), where q is the policy at temperature T, it tells
    p^a of a text from its q, which is all that power sampling needs. As q is normalised, log sum p^a is -a log sum q^T.

    Args:
        logp: (n, vocab), log q.
        temperature: (n,), T.

    Returns:
        (n,) float32, in nats, within 0 and log vocab.
    """
    return (temperature[:, None] * logp).logsumexp(1) / (1 - temperature)


def kl_divergence(lp: torch.Tensor, lq: torch.Tensor) -> torch.Tensor:
    """Return KL(p || q) = sum_y p(y) (log p(y) - log q(y)) in nats: (n, vocab), (n, vocab) -> (n,)."""
    return _expectation(lp, lp - lq)


def cross_entropy(lp: torch.Tensor, lq: torch.Tensor) -> torch.Tensor:
    """Return CE(p, q) = -sum_y p(y) log q(y) in nats: (n, vocab), (n, vocab) -> (n,)."""
    return -_expectation(lp, lq)


def js_divergence(lp: torch.Tensor, lq: torch.Tensor) -> torch.Tensor:
    """Return the Jensen-Shannon divergence in nats, at most log 2: (n, vocab), (n, vocab) -> (n,).

    (1/2) KL(p || m) + (1/2) KL(q || m), with m halfway between p and q (Lin 1991).
    """
    middle = torch.logaddexp(lp, lq).sub_(log(2))
    return 0.5 * (_expectation(lp, lp - middle) + _expectation(lq, lq - middle))


def _expectation(logp: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    p = logp.exp()
    impossible = ~(p > 0)
    return p.mul_(value).masked_fill_(impossible, 0.0).sum(-1)  # not the bare product: 0 * inf is NaN


def statistic(
    criterion: str, lb: torch.Tensor, lr: torch.Tensor, token: torch.Tensor, rho: torch.Tensor
) -> torch.Tensor:
    """Return the number that a criterion compares with its threshold.

    Args:
        criterion: one of CRITERIA.
        lb, lr: (n, vocab) log-probabilities of base and RL.
        token: (n,) proposed tokens; only `delta_logp`, `abs_delta_logp` and `nll_rl` look at them.
        rho: (n,) uniform numbers; only `random` looks at them.

    Returns:
        (n,) float.

    Raises:
        ValueError: `criterion` is none of CRITERIA.
    """
    match criterion:
        case "delta_logp":
            return delta_logp(lb, lr, token)
        case "entropy_base":
            return entropy(lb)
        case "entropy_rl":
            return entropy(lr)
        case "kl_rl_base":
            return kl_divergence(lr, lb)
        case "kl_base_rl":
            return kl_divergence(lb, lr)
        case "kl":
            return 0.5 * (kl_divergence(lr, lb) + kl_divergence(lb, lr))
        case "random":
            return rho
        case "abs_delta_logp":
            return delta_logp(lb, lr, token).abs()
        case "nll_rl":
            return -lr.gather(1, token[:, None]).squeeze(1)
        case "ce":
            return cross_entropy(lb, lr)
        case "js":
            return js_divergence(lb, lr)
    raise ValueError(f"criterion={criterion!r} is not known; accepted: {', '.join(CRITERIA)}")


def fires(value: torch.Tensor, tau: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """Tell where a criterion holds: where `below` (bool) below tau, else above it; all (n,). Equality does not fire."""
    return torch.where(below, value < tau, value > tau)
