"""Which two policies a request is decided between, made of the logits of the models that an engine runs.

What follows, gates, targets and draws, knows two policies and no model. A new way is a class with `roles` and
`policies`; an engine runs the models of these roles and hands on their logits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad


def cut(x: Tensor, width: int | None) -> Tensor:
    """Return the first columns of (rows, columns), `width` of them; all for None."""
    return x if width is None or x.shape[1] <= width else x[:, :width]


@dataclass(frozen=True)
class Combination:
    """Base and RL as they are; RL twice where it is paired with itself.

    Columns beyond `vocab` are padding, as are those that not all models have.
    """

    vocab: int | None = None  # real tokens
    roles: ClassVar[tuple[str, ...]] = ("base", "rl")

    def policies(self, logits: Mapping[str, Tensor], alone: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits that stand for base and for RL.

        Args:
            logits: of each role, (rows, padded vocabulary).
            alone: (rows,) bool, those that RL writes by itself.
        """
        rl = logits["rl"]
        base = logits.get("base", rl)
        width = min(base.shape[1], rl.shape[1], self.vocab or base.shape[1])
        return cut(base, width), cut(rl, width)


@dataclass(frozen=True)
class TransferredPair(Combination):
    """The change of the pair carried over to a recipient: proxy tuning (arXiv 2401.08565), as two policies again.

    The recipient's distribution times the ratio of the pair's, pi ∝ pi_recipient (pi_RL / pi_base)^lambda, is for
    lambda = 1 a policy of its own, with logits l_recipient + l_RL - l_base. It takes RL's place, and the recipient
    base's: then `Delta log p` is how far the carried change moves a token, and extrapolation with gamma is
    lambda = 1 + gamma.
    """

    roles: ClassVar[tuple[str, ...]] = ("base", "rl", "recipient")

    def policies(self, logits: Mapping[str, Tensor], alone: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the recipient's logits, and those with the pair's change, float32."""
        width = min(self.vocab or logits["rl"].shape[1], *(logit.shape[1] for logit in logits.values()))
        base, rl, recipient = (cut(logits[role], width).float() for role in self.roles)
        return recipient, recipient + (rl - base)


@dataclass(frozen=True)
class AddedTokens(Combination):
    """Tokens from `shared` to `vocab` are RL's alone: only rows that RL writes by itself may have them.

    Base has no probability for them. In every row where the two are compared, neither has RL.
    """

    shared: int = 0

    def policies(self, logits: Mapping[str, Tensor], alone: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return both models' logits, -inf where a row may not have a token; RL's width in multiples of 16.

        A GPU reads 16 bytes at once.
        """
        base, rl = (logits[role] for role in self.roles)
        assert self.vocab is not None
        assert alone is not None
        width = min(rl.shape[1], -(-self.vocab // 16) * 16)
        base = pad(base[:, : self.shared], (0, width - self.shared), value=-torch.inf)
        rest = rl[:, self.shared : width].masked_fill(~alone[:, None], -torch.inf)
        return base, torch.cat([rl[:, : self.shared], rest], dim=1)


PAIR = Combination()


def combination_of(roles: Iterable[str], vocab: int | None = None, shared: int | None = None) -> Combination:
    """Return how the logits of the models with these roles become two policies.

    Args:
        roles: one alone is a model that is paired with itself.
        vocab: real tokens of RL; None: padding is kept.
        shared: of these, those that base knows as well; None: all.
    """
    if vocab and shared and shared < vocab:
        return AddedTokens(vocab, shared)
    return next(kind for kind in (Combination, TransferredPair) if {*roles} <= {*kind.roles})(vocab)
