"""Compute the policies of a batch: base, RL, the proposing model, and for flagged tokens the decider and the writer."""

import torch
from torch import Tensor

from rlvr_dir.policy.rule import Rows, Rules
from rlvr_dir.policy.statistics import at


class Policies:
    """Compute both models' log-probabilities at the rules' temperatures, `lb` and `lr`, (n, vocab) float32, and what
    follows.

    Greedy rows compare the logits themselves, because normalising could make two of them equal. So in the primary and
    the target, a greedy row contains logits where others contain log-probabilities.
    """

    def __init__(self, base: Tensor, rl: Tensor, rules: Rules) -> None:
        self.rules = rules
        self.lb, self.lr = (self._log_softmax(logits) for logits in (base, rl))
        self._scores = rules.greedy.put(self.lb, base.float()), rules.greedy.put(self.lr, rl.float())

    def _log_softmax(self, logits: Tensor) -> Tensor:
        """Normalise (n, vocab) logits of any float type. A row that does not form a distribution becomes all NaN."""
        logits = logits.float()
        divided = self.rules.tempered.apply(torch.div, logits, logits, self.rules.temperature)
        return torch.log_softmax(divided, dim=-1)

    def delta_logp(self, token: Tensor) -> Tensor:
        """Return log pi_RL - log pi_Base of one token per row, in nats: (n,) int64 -> (n,) float32."""
        return at(self.lr, token) - at(self.lb, token)

    @property
    def primary(self) -> Tensor:
        """Return the proposing model's policy, (n, vocab)."""
        return self.rules.rl_rows.put(*self._scores)

    @property
    def decider(self) -> Tensor:
        """Return (n, vocab): the model whose draw decides whether a flagged token is dropped, if one does."""
        return self.rules.rl_decides.put(*self._scores)

    def target(self, rows: Rows, proposed: Tensor) -> tuple[Tensor, Rules]:
        """Return the distribution that flagged tokens are written from, for some rows, (rows, vocab), and their rules.

        It is RL, pi_extra or base, by gamma. For some rules the proposed token is excluded.

        Args:
            proposed: (n,) int64, of the whole batch.
        """
        sb, sr = (rows.of(score) for score in self._scores)
        rules = self.rules.of(rows)
        policy = rules.extrapolated.apply(extrapolate, sr, sb, sr, rules.gamma, rules.normalised)
        return rules.without.apply(without, policy, policy, rows.of(proposed), rules.normalised), rules


def extrapolate(sb: Tensor, sr: Tensor, gamma: Tensor, normalised: Tensor) -> Tensor:
    """Return log pi_extra, proportional to exp(lr + gamma (lr - lb)): two (n, vocab) -> (n, vocab).

    Gamma -1 is base, -1 to 0 interpolates, 0 is RL, and above 0 extrapolates past RL. Both ends are exact, bit for bit.
    A token that one model cannot write has no ratio. Between the two models it has no weight, as in any product of
    powers. Past RL, where its weight would be infinite, it keeps its RL weight.

    Args:
        sb, sr: Log-probabilities. For greedy rows they are logits, and the sum itself is returned, which has the same
            order.
        gamma: (n, 1).
        normalised: (n, 1) bool, False for greedy rows.
    """
    shift = torch.where(normalised, 0.0, sr.logsumexp(1, keepdim=True) - sb.logsumexp(1, keepdim=True))
    alone = torch.where(gamma > 0, gamma * shift, -torch.inf)  # added to the score of a token that base cannot write
    step = torch.where(sb == -torch.inf, alone, gamma * (sr - sb))
    extra = torch.where(sr == -torch.inf, sr, sr + step)
    extra = torch.where(normalised, torch.log_softmax(extra, dim=-1), extra)
    return torch.where(gamma == -1, sb, torch.where(gamma == 0, sr, extra))


def without(policy: Tensor, token: Tensor, normalised: Tensor) -> Tensor:
    """Return a policy without one token of each row: pi(y) 1[y != token], normalised: (n, vocab) -> the same.

    The nucleus is computed from what is left, so there is one even if the policy's own nucleus was only that token. A
    policy without any other token is unchanged.

    Args:
        policy: Log-probabilities; logits for greedy rows.
        token: (n,) int64.
        normalised: (n, 1) bool, False for greedy rows.
    """
    rest = policy.scatter(1, token[:, None], -torch.inf)
    rest = torch.where((rest == -torch.inf).all(1, keepdim=True), policy, rest)
    return torch.where(normalised, torch.log_softmax(rest, dim=-1), rest)


def weights(policy: Tensor, rules: Rules) -> Tensor:
    """Return (n, vocab) weights of at most 1 to sample from. Top-p is applied later; a greedy row has one token."""
    probabilities = policy.exp()
    if rules.greedy.rows:
        rules.greedy.write(probabilities, likeliest(rules.greedy.of(policy)))
    return probabilities


def likeliest(policy: Tensor) -> Tensor:
    """Put all weight on the largest value of each row, the first of equal ones: (rows, vocab) -> the same shape, 0 or
    1."""
    return torch.zeros_like(policy).scatter_(1, policy.argmax(1, keepdim=True), 1.0)
