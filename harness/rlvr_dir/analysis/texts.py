"""Read texts from other sources: responses to prompts, plain text, and rollouts of trainers.

A line of JSON, or a row of a parquet file, is one text. `FIELDS` lists the accepted field names: those of TRL's
completions and `rollout_func`, verl's `rollout_data_dir`, prime-rl's token exports and our own `rlvr-dir records
export`. Token ids are used unchanged. A text is tokenized separately from its prompt, as in decoding.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_dir.checkpoints.chat_template import encode_prompt
from rlvr_dir.config.base import read_jsonl
from rlvr_dir.config.stored import is_text
from rlvr_dir.decode.types import GivenText
from rlvr_dir.errors import UserError

FIELDS = {
    "prompt": ("prompt", "input"),
    "response": ("response", "completion", "output", "text"),
    "before": ("prompt_token_ids", "prompt_ids"),
    "tokens": ("response_token_ids", "completion_ids", "response_ids", "token_ids"),
    "counted": ("loss_mask", "response_mask", "completion_mask", "mask"),
    "logp": ("inference_logprobs", "rollout_log_probs", "completion_logprobs", "logprobs", "sampling_per_token_logps"),
}
HEADER = ["config", "task"]  # fields of the first line that `rlvr-dir records export` writes
ACCEPTED = {
    "prompt": "text, or a list of chat messages", "response": "text, or a list of chat messages",
    "before": "a list of token ids", "tokens": "a list of token ids", "counted": "a list of 0 and 1",
    "logp": "a list of numbers, with null for an unknown one",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Text(GivenText):
    """Hold a text with facts of each token from its file: whether a model wrote it, and its log-probability or NaN."""

    number: int  # the number of its line
    counted: np.ndarray  # (tokens,) bool
    logp: np.ndarray | None  # (tokens,) float


def read_rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the texts of a file as (line number, values by the keys of FIELDS). No model is needed.

    Raises:
        UserError: The file cannot be read, or a line has no response or a value of another kind.
    """
    try:
        if path.suffix == ".parquet":
            import pandas

            table = pandas.read_parquet(path).astype(object)
            lines = [*enumerate(table.where(table.notna(), None).to_dict("records"), 1)]
        else:
            lines = read_jsonl(path, ())
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError("does not exist", argument="texts", value=str(path), accepted="an existing file") from None
    except (OSError, ValueError, ImportError) as error:
        why = f"cannot be read ({error})"
        accepted = "JSON lines, or a parquet file"
        raise UserError(why, argument="texts", value=str(path), accepted=accepted) from None
    if not lines:
        raise UserError("is empty", argument="texts", value=str(path), accepted="one text per line")
    rows = [(number, _values(number, row)) for number, row in lines if [*row] != HEADER]
    if {"input", "output"} <= lines[0][1].keys():
        warnings.warn(
            "this looks like a file of verl, which writes prompts without their special tokens. The models will read "
            "them as they are in the file, so the first tokens of each response are scored after another prompt",
            stacklevel=2,
        )
    return rows


def _values(number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise UserError("is no JSON object", argument="texts", value=f"line {number}", accepted="one object per line")
    values: dict[str, Any] = {}
    for field, names in FIELDS.items():
        name = next((name for name in names if row.get(name) is not None), None)
        if name is None:
            continue
        value = row[name].tolist() if isinstance(row[name], np.ndarray) else row[name]
        if not _is_valid(field, value):
            raise UserError(f"in line {number} is not valid", argument=name, value=value, accepted=ACCEPTED[field])
        values[field] = value
    if not values.get("tokens") and not values.get("response"):
        accepted = f"one of {', '.join((*FIELDS['response'], *FIELDS['tokens']))}"
        raise UserError(f"Line {number} has no response", argument="response", accepted=accepted)
    lengths = {len(values[field]) for field in ("tokens", "counted", "logp") if field in values}
    if "tokens" in values and len(lengths) > 1:
        raise UserError(
            f"Line {number} has {sorted(lengths)} entries for its tokens", argument="tokens", accepted="one each"
        )
    return values


def _is_valid(field: str, value: Any) -> bool:
    """Return whether a value is of the kind that ACCEPTED names."""
    if field in ("prompt", "response"):
        parts = [value] if isinstance(value, str) else value if isinstance(value, list) else [None]
        contents = [part.get("content") if isinstance(part, Mapping) else part for part in parts]
        return all(isinstance(text, str) and is_text(text) for text in contents)
    kinds = {"logp": (int, float, type(None)), "counted": (int, bool, float)}.get(field, (int,))
    is_list = isinstance(value, list) and all(type(each) in kinds for each in value)
    return is_list and (field == "logp" or min(value, default=0) >= 0)


def texts_of(rows: Sequence[tuple[int, Mapping[str, Any]]], engine: Any) -> list[Text]:
    """Tokenize the `rows` from `read_rows`. A prompt that is a list of messages is formatted by RL's chat template.

    If a line has one list of tokens and a mask of those that the model wrote, the prompt is the part before the first
    of these. A text without a prompt begins after the beginning-of-text token. If the tokenizer has none, it begins
    after its own first token, which then has no probability.

    Args:
        rows: What `read_rows` returned.
        engine: An `Engine`. Its weights need not be loaded.

    Raises:
        UserError: A text has no token, or its numbers of tokens and of log-probabilities differ.
    """
    texts, bos = [], engine.tokenizer.bos_token_id
    for number, row in rows:
        tokens, before, prompt = row.get("tokens"), row.get("before"), row.get("prompt")
        if tokens is None:
            response = row["response"]
            parts = [response] if isinstance(response, str) else [message["content"] for message in response]
            tokens = engine.tokenizer.encode("".join(parts), add_special_tokens=False)
        counted = np.array(row.get("counted", [True] * len(tokens)), dtype=bool)
        logp = np.array(row.get("logp") or [None] * len(tokens), dtype=float)
        if before is None and prompt:
            text = prompt if isinstance(prompt, str) else engine.chat_prompt(prompt)
            before = encode_prompt(engine.tokenizer, text)
        if before is None:
            start = int(counted.argmax()) if "counted" in row else int(bos is None)
            before = tokens[:start] or ([] if bos is None else [bos])
            tokens, counted, logp = (each[start:] for each in (tokens, counted, logp))
        named: dict[str, Any] = {"argument": "texts", "value": f"line {number}"}
        if not len(before) or not len(tokens) or not counted.any():
            raise UserError("has no token to score", **named, accepted="a response after at least one token")
        if len(logp) != len(tokens) or len(counted) != len(tokens):
            hint = "Give the token ids, since the text was tokenized differently."
            problem = f"has {len(logp)} log-probabilities for {len(tokens)} tokens"
            raise UserError(problem, **named, accepted="one for each token", hint=hint)
        known = logp if np.isfinite(logp).any() else None
        texts.append(Text(f"line {number}", tuple(before), tuple(tokens), number, counted, known))
    return texts
