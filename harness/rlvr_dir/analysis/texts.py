"""Given text scored by both models, teacher-forced: what each thinks of every token that somebody else has written.

A row is an object with `response`, and `prompt` (text, or a list of chat messages) or nothing; one comes back for each.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlvr_dir.errors import UserError

MISSING = "accepted: one object a line with 'response' (text) and, if any, 'prompt' (text or chat messages)"


def score_texts(engine: Any, rows: Iterator[Mapping[str, Any]], temperature: float = 1.0) -> Iterator[dict[str, Any]]:
    """Score rows one at a time on the transformers engine; each keeps its own fields and gets those of its tokens.

    Tokens are cut as they are in prompt and response apart, so that the boundary is where it was in a decoding.

    Args:
        engine: an open `TransformersPair`.
        rows: objects as described above.
        temperature: divides the logits first, as in decoding.

    Yields:
        the row with `tokens` (ids) and, a number a token, `delta_logp`, `logp_base`, `logp_rl`, `entropy_base`,
        `entropy_rl`, `kl_rl_base`, `kl_base_rl`, `rank_base`, `rank_rl`; and `mean_delta_logp`.

    Raises:
        UserError: a row has no response, or is longer than the models' context.
    """
    import torch

    from rlvr_dir.checkpoints.chat_template import encode_prompt
    from rlvr_dir.policy.trace import FACTS, trace

    for number, row in enumerate(rows, 1):
        response, prompt = row.get("response"), row.get("prompt") or ""
        if not isinstance(response, str) or not response:
            raise UserError(f"line {number}: response is missing or empty; {MISSING}")
        if isinstance(prompt, list):
            prompt = engine.chat_prompt(prompt)
        before = list(encode_prompt(engine.tokenizer, str(prompt))) if prompt else _start(engine.tokenizer, number)
        tokens = engine.tokenizer.encode(response, add_special_tokens=False)
        ids = before + tokens
        if len(ids) > engine.max_model_len:
            raise UserError(
                f"line {number}: prompt and response have {len(ids)} tokens; accepted: up to {engine.max_model_len}"
            )
        if (own := max(tokens, default=0)) >= (n_tokens := engine.checkpoints.shared):
            raise UserError(
                f"line {number}: the response has token {own}, which base does not know; accepted: below {n_tokens}"
            )
        lb, lr = teacher_forced(engine, before, tokens, temperature)
        table = trace(lb, lr, torch.tensor(tokens, device=lb.device)).cpu().numpy()
        facts = {name: table[:, i] for i, name in enumerate(FACTS) if name != "proposed"}
        delta = facts["logp_rl"] - facts["logp_base"]
        yield {
            **row,
            "tokens": tokens,
            "delta_logp": _plain(delta),
            **{name: _plain(values) for name, values in facts.items()},
            "mean_delta_logp": float(delta.mean()),
        }


def teacher_forced(engine: Any, before: Sequence[int], tokens: Sequence[int], temperature: float) -> tuple[Any, Any]:
    """Return log-probabilities of base and RL at each token of a text, after a prompt: two (tokens, shared ids)."""
    import torch

    base, rl = teacher_forced_logits(engine, before, tokens)
    return torch.log_softmax(base / temperature, dim=-1), torch.log_softmax(rl / temperature, dim=-1)


def teacher_forced_logits(engine: Any, before: Sequence[int], tokens: Sequence[int]) -> tuple[Any, Any]:
    """Return the logits of base and RL at each token of a text, after a prompt: two (tokens, shared ids) float32.

    What lies beyond the context of both models is left out.
    """
    ids = [*before, *tokens][: engine.max_model_len]
    base, rl = engine.logits(ids)
    at = slice(len(before) - 1, len(ids) - 1)  # the logits after a token are about the next one
    return base[at, : engine.checkpoints.shared], rl[at, : engine.checkpoints.shared]


def _start(tokenizer: Any, number: int) -> list[int]:
    """Return the tokens that stand before a text without a prompt."""
    if tokenizer.bos_token_id is None:
        raise UserError(
            f"line {number}: without a prompt the first token has nothing before it, and these models have no "
            "beginning-of-text token; give a prompt"
        )
    return [tokenizer.bos_token_id]


def _plain(values: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in values]
