"""Make the two policies of a request from the logits of the models that an engine runs.

Gates, targets and draws work with two policies and do not know models. To add another combination, write a class with
`roles` and `policies`. An engine runs the models of these roles and passes their logits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad


def cut(x: Tensor, width: int | None) -> Tensor:
    """Return the first `width` columns of (rows, columns); all of them if `width` is None."""
    return x if width is None or x.shape[1] <= width else x[:, :width]


@dataclass(frozen=True)
class Combination:
    """Use base and RL unchanged; if RL is paired with itself, RL twice.

    Columns from `vocab` on are padding. Columns that not all models have are dropped, too.
    """

    vocab: int | None = None  # real tokens
    roles: ClassVar[tuple[str, ...]] = ("base", "rl")

    def policies(self, logits: Mapping[str, Tensor], alone: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits of the two policies, base's first.

        Args:
            logits: For each role, (rows, padded vocabulary).
            alone: (rows,) bool, the rows that RL writes by itself.
        """
        rl = logits["rl"]
        base = logits.get("base", rl)
        width = min(base.shape[1], rl.shape[1], self.vocab or base.shape[1])
        return cut(base, width), cut(rl, width)


@dataclass(frozen=True)
class TransferredPair(Combination):
    """Apply the change from base to RL to a recipient model: proxy tuning (arXiv 2401.08565), as two policies.

    The recipient's distribution times the ratio of the pair's, pi ∝ pi_recipient (pi_RL / pi_base)^lambda, is for
    lambda = 1 a policy with logits l_recipient + l_RL - l_base. It replaces RL, and the recipient replaces base. Then
    `Delta log p` measures how far the transferred change moves a token, and extrapolation with gamma is lambda = 1 +
    gamma.
    """

    roles: ClassVar[tuple[str, ...]] = ("base", "rl", "recipient")

    def policies(self, logits: Mapping[str, Tensor], alone: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the recipient's logits, and those with the pair's change added, float32."""
        width = min(self.vocab or logits["rl"].shape[1], *(logit.shape[1] for logit in logits.values()))
        base, rl, recipient = (cut(logits[role], width).float() for role in self.roles)
        return recipient, recipient + (rl - base)


@dataclass(frozen=True)
class AddedTokens(Combination):
    """Allow the tokens from `shared` to `vocab`, which only RL has, only in rows that RL writes by itself.

    Base has no probability for these tokens. In rows that compare the two models, neither can write them.
    """

    shared: int = 0

    def policies(self, logits: Mapping[str, Tensor], alone: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return both models' logits, -inf where a row may not have a token; RL's width is a multiple of 16.

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
        roles: A single role is a model that is paired with itself.
        vocab: The number of RL's real tokens; None keeps the padding.
        shared: How many of these base knows as well; None: all.
    """
    if vocab and shared and shared < vocab:
        return AddedTokens(vocab, shared)
    return next(kind for kind in (Combination, TransferredPair) if {*roles} <= {*kind.roles})(vocab)
