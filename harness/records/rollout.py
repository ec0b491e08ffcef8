"""A rollout as it is stored: a row of facts and compressed columns, and how both are written and read.

Tokens, flags and text are exact. `delta_logp` is float32 arithmetic whose last bits depend on who else was in the batch
(by up to 1e-3, tests/records/test_kills.py), so it is kept as float16: off by at most `DELTA_ERROR` of its value, by
0.00003 at the threshold -0.1. Beside a trace, which has 36 bytes a token and more, it is kept as float32.
"""

import zlib
from base64 import b64encode
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from harness.digest import digest
from harness.records.lines import checksum

Key = tuple[str, int]  # problem, sample
FinishReason = Literal["stop", "length", "unknown"]
DELTA_ERROR = 2.0**-11  # relative; below 6e-5 absolute, by at most 3e-8
_MEASURED = ("delta_logp", "trace", "trace_columns")  # what depends, in its last bits, on the batch
_TEXT_BYTES, _PROMPT_BYTES = 1 << 22, 1 << 24  # what a text may have whatever its tokens, and the ids of a prompt
_KINDS = {
    "text": ("utf-8",), "replaced": ("bits",), "changed": ("bits",), "token_ids": ("<u4",),
    "prompt_token_ids": ("<u4",), "delta_logp": ("<f2", "<f4"), "trace": ("<f4",),
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class StoredRollout:
    """One response. Arrays have one entry a generated token; names are those of `harness.decode.Rollout`.

    Everything but `delta_logp` and `trace` (the table of `harness.decode.trace`, where one was asked for) is exact: the
    noise is counter-based, so any batch and any engine run gives the same. Imported rollouts have neither of the two,
    and no token ids.
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
    n_forwards: int | None = None  # of `mode=power`; None: as many as tokens

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

    @property
    def text_digest(self) -> str:
        """The digest of the text, by which a verdict knows it."""
        return digest(self.text)

    @classmethod
    def of(cls, rollout: Any) -> "StoredRollout":
        """Make it from anything with the attributes of `harness.decode.Rollout`, delta log p as it will be kept."""
        if not isinstance(rollout, cls):
            request = rollout.request
            rollout = cls(
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
                n_forwards=rollout.n_forwards,
            )
        if rollout.delta_logp is None or rollout.trace is not None:
            return rollout
        return replace(rollout, delta_logp=_half(rollout.delta_logp).astype(np.float32))

    def exact_row(self) -> dict[str, Any]:
        """Return what is the same in every run, as plain JSON values: a line of `rlvr-dir records export`.

        Flags are packed eight a byte.
        """
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
            "replaced": b64encode(np.packbits(self.replaced).tobytes()).decode(),
            "changed": b64encode(np.packbits(self.changed).tobytes()).decode(),
            **self._counted(),
        }

    def _counted(self) -> dict[str, int]:
        """Return `n_forwards` where it was counted: rows of others are without it."""
        return {} if self.n_forwards is None else {"n_forwards": self.n_forwards}

    def pack(self) -> tuple[dict[str, Any], bytes]:
        """Return the row of facts and the compressed columns, which `unpack` reads.

        The row's `columns` say name, type and compressed bytes of each, in order; its `crc` is of all their bytes.
        """
        columns = [
            ("text", "utf-8", self.text.encode("utf-8", "surrogatepass")),
            ("replaced", "bits", np.packbits(self.replaced).tobytes()),
            ("changed", "bits", np.packbits(self.changed).tobytes()),
        ]
        numbers = (
            ("token_ids", "<u4", self.token_ids),
            ("prompt_token_ids", "<u4", self.prompt_token_ids),
            ("delta_logp", "<f4" if self.trace is not None else "<f2", self.delta_logp),
            ("trace", "<f4", self.trace),
        )
        for name, kind, values in numbers:
            if values is not None:
                values = _half(values) if kind == "<f2" else np.asarray(values)
                columns.append((name, kind, values.astype(kind).tobytes()))
        packed = [zlib.compress(data) for _, _, data in columns]
        payload = b"".join(packed)
        row = {
            "problem": self.problem,
            "sample": self.sample,
            "prompt": self.prompt,
            "finish_reason": self.finish_reason,
            "n_tokens": self.n_tokens,
            "n_replaced": self.n_replaced,
            "n_changed": self.n_changed,
            **self._counted(),
            "text_digest": self.text_digest,
            "digest": checksum(self.exact_row()),
            "trace_columns": 0 if self.trace is None else self.trace.shape[1],
            "columns": [[name, kind, len(data)] for (name, kind, _), data in zip(columns, packed, strict=True)],
            "crc": zlib.crc32(payload),
        }
        return row, payload

    @classmethod
    def unpack(cls, row: dict[str, Any], payload: bytes) -> "StoredRollout":
        """Return the rollout that `pack` wrote.

        Raises:
            ValueError: the columns are damaged, or are not those of the row.
        """
        columns = unpacked(row, payload)
        n, trace = row["n_tokens"], columns.get("trace")
        rollout = cls(
            problem=row["problem"],
            sample=row["sample"],
            text=columns["text"],
            finish_reason=row["finish_reason"],
            replaced=_flags(columns["replaced"], n),
            changed=_flags(columns["changed"], n),
            token_ids=_tuple(columns.get("token_ids")),
            prompt_token_ids=_tuple(columns.get("prompt_token_ids")),
            prompt=row["prompt"],
            delta_logp=columns["delta_logp"].astype(np.float32) if "delta_logp" in columns else None,
            trace=None if trace is None else trace.reshape(n, row["trace_columns"]),
            n_forwards=row.get("n_forwards"),
        )
        if (rollout.n_tokens, rollout.n_replaced, rollout.n_changed) != (n, row["n_replaced"], row["n_changed"]):
            raise ValueError("the flags are not those that were counted")
        return rollout


def unpacked(row: dict[str, Any], payload: bytes, only: str | None = None) -> dict[str, Any]:
    """Return the columns of a payload by name: a text, bytes of flags, arrays; `only` one of them.

    Raises:
        ValueError: a column is damaged.
    """
    found, at = {}, 0
    for name, kind, size in row["columns"]:
        if name in _KINDS and only in (None, name):
            if kind not in _KINDS[name]:
                raise ValueError(f"column {name} is of type {kind!r}")
            stream = zlib.decompressobj()
            try:
                data = stream.decompress(payload[at : at + size], _most_bytes(name, row))
            except zlib.error as error:
                raise ValueError(f"column {name}: {error}") from None
            if not stream.eof:
                raise ValueError(f"column {name} is cut short, or too large")
            if kind == "utf-8":
                found[name] = data.decode("utf-8", "surrogatepass")
            else:
                found[name] = data if kind == "bits" else np.frombuffer(data, dtype=kind)
        at += size
    return found


def _most_bytes(name: str, row: dict[str, Any]) -> int:
    """Return how many bytes a column of so many tokens can have: a few bytes that say otherwise are no rollout."""
    n = row["n_tokens"]
    if name == "text":
        return max(_TEXT_BYTES, 256 * n)
    if name == "prompt_token_ids":
        return _PROMPT_BYTES
    return 1 + 4 * n * max(1, row.get("trace_columns", 0) if name == "trace" else 1)


def exact(row: dict[str, Any]) -> dict[str, Any]:
    """Return the exact part of an exported row."""
    return {name: value for name, value in row.items() if name not in _MEASURED}


def _half(values: ArrayLike) -> np.ndarray:
    """Round to the nearest float16; what is finite stays finite."""
    values, most = np.asarray(values, dtype=np.float32), float(np.finfo(np.float16).max)
    return np.where(np.isfinite(values), np.clip(values, -most, most), values).astype(np.float16)


def _flags(data: bytes, n: int) -> np.ndarray:
    if len(data) != (n + 7) // 8:
        raise ValueError(f"{len(data)} bytes of flags are not those of {n} tokens")
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=n).astype(bool)


def _tuple(ids: Any) -> tuple[int, ...] | None:
    if ids is None:
        return None
    found = tuple(ids.tolist() if isinstance(ids, np.ndarray) else ids)
    if not all(type(token) is int and 0 <= token < 2**32 for token in found):
        raise ValueError("token ids of another type")
    return found
