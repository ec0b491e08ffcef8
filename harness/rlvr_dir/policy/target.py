"""The policies of a batch: base's, RL's, who proposes, and where a gate holds who decides and who writes."""

import torch
from torch import Tensor

from rlvr_dir.policy.rule import Rows, Rules
from rlvr_dir.policy.statistics import at


class Policies:
    """Both models' log-probabilities at the rules' temperatures, `lb` and `lr`, (n, vocab) float32, and what follows.

    Greedy rows compare the logits themselves: to normalise them could make two of them equal. So where others carry
    log-probabilities, a greedy row of a primary or target carries logits.
    """

    def __init__(self, base: Tensor, rl: Tensor, rules: Rules) -> None:
        self.rules = rules
        self.lb, self.lr = (self._log_softmax(logits) for logits in (base, rl))
        self._scores = rules.greedy.put(self.lb, base.float()), rules.greedy.put(self.lr, rl.float())

    def _log_softmax(self, logits: Tensor) -> Tensor:
        """Normalise (n, vocab) logits of any float type; NaN everywhere in a row that is no distribution."""
        logits = logits.float()
        divided = self.rules.tempered.apply(torch.div, logits, logits, self.rules.temperature)
        return torch.log_softmax(divided, dim=-1)

    def delta_logp(self, token: Tensor) -> Tensor:
        """Return log pi_RL - log pi_Base of one token a row, in nats: (n,) int64 -> (n,) float32."""
        return at(self.lr, token) - at(self.lb, token)

    @property
    def primary(self) -> Tensor:
        """(n, vocab): who proposes."""
        return self.rules.rl_rows.put(*self._scores)

    @property
    def decider(self) -> Tensor:
        """(n, vocab): the model whose draw says whether a flagged token is dropped, if one does."""
        return self.rules.rl_decides.put(*self._scores)

    def target(self, rows: Rows, proposed: Tensor) -> tuple[Tensor, Rules]:
        """Return what is written from where the gate holds, of some rows, (rows, vocab), and the rules of these rows.

        It is RL, pi_extra or base, by gamma; of some rules without the token that was proposed.

        Args:
            proposed: (n,) int64, of the whole batch.
        """
        sb, sr = (rows.of(score) for score in self._scores)
        rules = self.rules.of(rows)
        policy = rules.extrapolated.apply(extrapolate, sr, sb, sr, rules.gamma, rules.normalised)
        return rules.without.apply(without, policy, policy, rows.of(proposed), rules.normalised), rules


def extrapolate(sb: Tensor, sr: Tensor, gamma: Tensor, normalised: Tensor) -> Tensor:
    """Return log pi_extra, proportional to exp(lr + gamma (lr - lb)): two (n, vocab) -> (n, vocab).

    One family: gamma -1 is base, -1 to 0 lies between the two, 0 is RL, and above it lies what is beyond RL. Both ends
    are met to the bit. A token that one model cannot give has no ratio: between the two it has no weight, as in any
    product of powers, and beyond RL, where it would have all, it keeps its RL weight.

    Args:
        sb, sr: log-probabilities; of greedy rows logits, of which the sum itself is returned: in the same order.
        gamma: (n, 1). normalised: (n, 1) bool, False for greedy rows.
    """
    shift = torch.where(normalised, 0.0, sr.logsumexp(1, keepdim=True) - sb.logsumexp(1, keepdim=True))
    alone = torch.where(gamma > 0, gamma * shift, -torch.inf)  # what a token has more that base cannot give
    step = torch.where(sb == -torch.inf, alone, gamma * (sr - sb))
    extra = torch.where(sr == -torch.inf, sr, sr + step)
    extra = torch.where(normalised, torch.log_softmax(extra, dim=-1), extra)
    return torch.where(gamma == -1, sb, torch.where(gamma == 0, sr, extra))


def without(policy: Tensor, token: Tensor, normalised: Tensor) -> Tensor:
    """Return a policy that cannot give one token of each row: pi(y) 1[y != token], normalised: (n, vocab) -> the same.

    Its nucleus is taken of what is left, so that there is one where the token was all of the policy's own. A policy
    that gives no other token stays as it is.

    Args:
        policy: log-probabilities; of greedy rows logits.
        token: (n,) int64. normalised: (n, 1) bool, False for greedy rows.
    """
    rest = policy.scatter(1, token[:, None], -torch.inf)
    rest = torch.where((rest == -torch.inf).all(1, keepdim=True), policy, rest)
    return torch.where(normalised, torch.log_softmax(rest, dim=-1), rest)


def weights(policy: Tensor, rules: Rules) -> Tensor:
    """Return what is drawn from, (n, vocab) weights at most 1: top-p is the draw's, a greedy row has one token."""
    probabilities = policy.exp()
    if rules.greedy.rows:
        rules.greedy.write(probabilities, likeliest(rules.greedy.of(policy)))
    return probabilities


def likeliest(policy: Tensor) -> Tensor:
    """Put all weight on the largest of each row, of equal ones the first: (rows, vocab) -> the same, 0 or 1."""
    return torch.zeros_like(policy).scatter_(1, policy.argmax(1, keepdim=True), 1.0)
