"""A rollout as it is stored: its key, tokens, text and flags, which never vary, and delta log p, which is measured."""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

import numpy as np

Key = tuple[str, int]  # problem, sample
MEASURED = ("delta_logp", "trace", "trace_columns")  # of a stored row: what depends, in the last bits, on the batch
FinishReason = Literal["stop", "length", "unknown"]


@dataclass(frozen=True, slots=True, eq=False)
class StoredRollout:
    """One response. Arrays have one entry a generated token; names are those of `harness.decode.Rollout`.

    Everything but `delta_logp` is exact: the noise is counter-based, so any batch and any engine run gives the same.
    `delta_logp` is arithmetic in float32, whose last bits depend on who else was in the batch; it is kept to the bit as
    it was measured, and kept out of what is compared by bytes; so is `trace`, the table of `harness.decode.trace` where
    one was asked for. Imported rollouts have neither, and no token ids.
    """

    problem: str
    sample: int
    text: str
    finish_reason: FinishReason
    replaced: np.ndarray  # (tokens,) bool
    changed: np.ndarray  # (tokens,) bool
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    prompt: str | None = None  # digest of the prompt's text
    delta_logp: np.ndarray | None = None  # (tokens,) float32
    trace: np.ndarray | None = None  # (tokens, columns) float32

    def __post_init__(self) -> None:
        n = len(self.replaced)
        for name in ("changed", "token_ids", "delta_logp", "trace"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise ValueError(f"{name} of {self.problem} sample {self.sample} has {len(value)} entries, not {n}")

    @property
    def key(self) -> Key:
        """(problem, sample)"""
        return self.problem, self.sample

    @property
    def n_tokens(self) -> int:
        """Generated tokens, the end-of-text token included."""
        return len(self.replaced)

    @property
    def n_replaced(self) -> int:
        """Positions where the criterion held."""
        return int(self.replaced.sum())

    @property
    def n_changed(self) -> int:
        """Positions where the token really became another one."""
        return int(self.changed.sum())

    @classmethod
    def of(cls, rollout: Any) -> "StoredRollout":
        """From anything with the attributes of `harness.decode.Rollout`; a `StoredRollout` is given back."""
        if isinstance(rollout, cls):
            return rollout
        request = rollout.request
        return cls(
            problem=str(request.problem),
            sample=int(request.sample),
            text=rollout.text,
            finish_reason=rollout.finish_reason,
            replaced=np.asarray(rollout.replaced, dtype=bool),
            changed=np.asarray(rollout.changed, dtype=bool),
            token_ids=tuple(int(token) for token in rollout.token_ids),
            prompt_token_ids=tuple(int(token) for token in rollout.prompt_token_ids),
            prompt=digest(request.prompt) if request.prompt_token_ids is None else None,
            delta_logp=np.asarray(rollout.delta_logp, dtype=np.float32),
            trace=None if rollout.trace is None else np.asarray(rollout.trace.table, dtype=np.float32),
        )

    def row(self) -> dict[str, Any]:
        """As plain JSON values; `from_row` reads it back. Flags are packed eight a byte, numbers little-endian."""
        measured: dict[str, Any] = {"delta_logp": None if self.delta_logp is None else _floats(self.delta_logp)}
        if self.trace is not None:
            measured |= {"trace": _floats(self.trace), "trace_columns": self.trace.shape[1]}
        return {
            "problem": self.problem,
            "sample": self.sample,
            "prompt": self.prompt,
            "prompt_token_ids": None if self.prompt_token_ids is None else list(self.prompt_token_ids),
            "token_ids": None if self.token_ids is None else list(self.token_ids),
            "text": self.text,
            "finish_reason": self.finish_reason,
            "n_tokens": self.n_tokens,
            "n_replaced": self.n_replaced,
            "n_changed": self.n_changed,
            "replaced": _pack(self.replaced),
            "changed": _pack(self.changed),
            **measured,
        }

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "StoredRollout":
        """The rollout that `row` wrote, or the exact part of it."""
        n, delta, trace = row["n_tokens"], row.get("delta_logp"), row.get("trace")
        ids, prompt_ids = row["token_ids"], row["prompt_token_ids"]
        return cls(
            problem=row["problem"],
            sample=row["sample"],
            text=row["text"],
            finish_reason=row["finish_reason"],
            replaced=_unpack(row["replaced"], n),
            changed=_unpack(row["changed"], n),
            token_ids=None if ids is None else tuple(ids),
            prompt_token_ids=None if prompt_ids is None else tuple(prompt_ids),
            prompt=row["prompt"],
            delta_logp=None if delta is None else np.frombuffer(b64decode(delta), dtype="<f4"),
            trace=None
            if trace is None
            else np.frombuffer(b64decode(trace), dtype="<f4").reshape(-1, row["trace_columns"]),
        )


def exact(row: dict[str, Any]) -> dict[str, Any]:
    """The part of a row that is the same in every run: all that was not `MEASURED`."""
    return {name: value for name, value in row.items() if name not in MEASURED}


def digest(text: str) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _floats(values: np.ndarray) -> str:
    return b64encode(values.astype("<f4").tobytes()).decode()


def _pack(flags: np.ndarray) -> str:
    return b64encode(np.packbits(flags).tobytes()).decode()


def _unpack(text: str, n: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(b64decode(text), dtype=np.uint8), count=n).astype(bool)
