"""Score given text with both models, teacher-forced: what each thinks of every token that somebody else has written.

A row is an object with `response` and, optionally, `prompt` (text, or a list of chat messages).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlvr_dir.config.stored import is_text
from rlvr_dir.errors import UserError


def check_row(number: int, row: Mapping[str, Any]) -> None:
    """Check that the response and the prompt of a row are text, before a model loads.

    Raises:
        UserError: one is not, or the response is empty.
    """
    for name in ("response", "prompt"):
        value = row.get(name)
        texts = value if isinstance(value, list) and name == "prompt" else [value]
        texts = [text.get("content") if isinstance(text, Mapping) else text for text in texts]
        if name == "prompt" and value is None:
            continue
        if value is None or value == "":
            raise UserError(f"Line {number} has no {name}", argument=name, accepted="text that is not empty")
        for text in texts:
            if isinstance(text, str) and not is_text(text):
                problem, hint = f"in line {number} holds half a surrogate pair, which no UTF-8 text has", "Remove it."
            elif not isinstance(text, str) and (name == "response" or text is value):
                problem, hint = f"in line {number} is no text", ""
            else:
                continue
            raise UserError(problem, argument=name, value=text, accepted="text that is not empty", hint=hint)


def score_texts(engine: Any, rows: Iterator[Mapping[str, Any]], temperature: float = 1.0) -> Iterator[dict[str, Any]]:
    """Score rows one at a time on the transformers engine; each row keeps its fields and gets those of its tokens.

    Prompt and response are tokenized separately, so that the boundary between them is where decoding has it.

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
        check_row(number, row)
        response, prompt = row["response"], row.get("prompt") or ""
        if isinstance(prompt, list):
            prompt = engine.chat_prompt(prompt)
        before = list(encode_prompt(engine.tokenizer, str(prompt))) if prompt else _start(engine.tokenizer, number)
        tokens = engine.tokenizer.encode(response, add_special_tokens=False)
        ids = before + tokens
        if len(ids) > engine.max_model_len:
            raise UserError(
                f"Line {number} has {len(ids)} tokens in prompt and response", accepted=f"up to {engine.max_model_len}"
            )
        if (own := max(tokens, default=0)) >= (n_tokens := engine.checkpoints.shared):
            raise UserError(
                f"Line {number} has token {own} in the response, which base does not know",
                accepted=f"token ids below {n_tokens}",
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
            f"Line {number} has no prompt, and these models have no beginning-of-text token to put before the response",
            hint="Give a prompt.",
        )
    return [tokenizer.bos_token_id]


def _plain(values: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in values]
