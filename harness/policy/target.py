"""The policies of a batch: base's, RL's, who proposes, and the target that is drawn from where a gate holds."""

from collections.abc import Callable

import torch
from torch import Tensor

from harness.policy.rule import Rows, Rules


class Policies:
    """Both models' log-probabilities at the rules' temperatures, `lb` and `lr`, (n, vocab) float32, and what follows.

    Greedy rows compare the logits themselves: to normalise them could make two of them equal. So where others carry
    log-probabilities, a greedy row of a primary or target carries logits.
    """

    def __init__(self, base: Tensor, rl: Tensor, rules: Rules) -> None:
        self.rules = rules
        self.lb, self.lr = (self._log_softmax(each) for each in (base, rl))
        self._scores = rules.greedy.put(self.lb, base.float()), rules.greedy.put(self.lr, rl.float())

    def _log_softmax(self, logits: Tensor) -> Tensor:
        """Normalise (n, vocab) logits of any float type; NaN everywhere in a row that is no distribution."""
        logits = logits.float()
        divided = self.rules.tempered.apply(torch.div, logits, logits, self.rules.temperature)
        return torch.log_softmax(divided, dim=-1)

    @property
    def primary(self) -> Tensor:
        """(n, vocab): who proposes."""
        return self.rules.rl_rows.put(*self._scores)

    def target(self, rows: Rows) -> tuple[Tensor, Rules]:
        """Return what is drawn from where the gate holds, of some rows, (rows, vocab), and the rules of these rows.

        It is RL, pi_extra or base, by gamma, without what the guard drops.
        """
        sb, sr = (rows.of(each) for each in self._scores)
        rules = self.rules.of(rows)
        target = rules.extrapolated.apply(extrapolate, sr, sb, sr, rules.gamma, rules.normalised)
        return rules.guarded.apply(plausible, target, target, sr, rules.plausibility, rules.normalised), rules


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


def plausible(target: Tensor, sr: Tensor, plausibility: Tensor, normalised: Tensor) -> Tensor:
    """Return the target without tokens that RL finds implausible: two (n, vocab) -> (n, vocab).

    Those that RL gives less than `plausibility` (n, 1) of its largest probability lose their weight to the others: the
    constraint of contrastive decoding (arXiv 2210.15097), which keeps a large gamma from raising tokens that both
    models all but exclude.
    """
    kept = target.masked_fill(sr < sr.amax(1, keepdim=True) + plausibility.log(), -torch.inf)
    return torch.where(normalised, torch.log_softmax(kept, dim=-1), kept)


def weights(policy: Tensor, rules: Rules) -> Tensor:
    """Return what is drawn from, (n, vocab) weights at most 1: without what truncations drop; top-p is the draw's."""
    made = policy.exp()
    for truncation, rows in rules.truncations:
        kept = _by_parts(truncation.keep, rows.of(policy))
        rows.write(made, kept.exp_())
    return made


AT_ONCE = 32  # rows that are narrowed together: a sorted policy with its sums in float64 takes much memory


def _by_parts(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.cat([function(part) for part in x.split(AT_ONCE)]) if len(x) > AT_ONCE else function(x)
