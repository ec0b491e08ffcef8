"""Tokens that RL alone has (added to its tokenizer): rules of both models decode over the ids that both know.

RL's own draws, which look at RL alone, may still be any of its ids. Base has no probability for those it does not know:
there its logits are minus infinity, and so are RL's in every row where the two are compared.
"""

import torch

from harness.policy.rule import Rule


def over_shared(
    base_logits: torch.Tensor, rl_logits: torch.Tensor, rule: Rule, shared: int, vocab_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both models' logits with what one of them does not know left out.

    Args:
        base_logits: (n, columns), at least `shared`; the rest is padding.
        rl_logits: (n, columns), at least `vocab_size`.
        rule: n rules.
        shared: ids that both know, 0 to this; RL's own come after them.
        vocab_size: RL's ids.

    Returns:
        Two tensors (n, vocab_size rounded up to a multiple of 16, for a GPU to read 16 bytes at once, where RL has as
        many columns): base's with minus infinity from `shared` on; RL's the same, but for rows that RL writes alone
        (`never`, proposed by RL).
    """
    width = min(rl_logits.shape[1], -(-vocab_size // 16) * 16)
    base = torch.nn.functional.pad(base_logits[:, :shared], (0, width - shared), value=-torch.inf)
    alone = rule.has("never") & rule.proposes_rl
    rest = rl_logits[:, shared:width].masked_fill(~alone[:, None], -torch.inf)
    return base, torch.cat([rl_logits[:, :shared], rest], dim=1)
