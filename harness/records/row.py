"""One response as it is kept: facts that are at hand, and columns that are read when they are asked for.

    row = Row.from_rollout(rollout)                     # anything like `harness.decode.Rollout`
    row.n_tokens, row.text, row.delta_logp

Tokens, flags and text are exact. `delta_logp` is float32 arithmetic whose last bits depend on who else was in the batch
(by up to 1e-3), so it is kept as float16: off by at most `DELTA_ERROR` of its value, by
0.00003 at the threshold -0.1. Beside a trace, which has 36 bytes a token and more, it is kept as float32.
"""

import json
import zlib
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, PrivateAttr, Strict, model_validator

from harness.digest import digest
from harness.errors import DamagedError
from harness.spec.stored import Count, Name, Stored

Key = tuple[str, int]  # problem, sample
FinishReason = Literal["stop", "length"]
DELTA_ERROR = 2.0**-11  # relative; below 6e-5 absolute, by at most 3e-8
MOST_TOKENS = 1 << 22  # of a response
_TEXT_BYTES, _PROMPT_BYTES = 1 << 22, 1 << 24  # what a text may have whatever its tokens, and the ids of a prompt
_EXACT = ("text", "replaced", "changed", "token_ids", "prompt_token_ids")

_Tokens = Annotated[int, Strict(), Field(ge=0, le=MOST_TOKENS)]
_Column = Literal["text", "replaced", "changed", "token_ids", "prompt_token_ids", "delta_logp", "trace"]


class Row(Stored, frozen=True):
    """A response: what is counted, and compressed columns of one entry a generated token.

    Everything but `delta_logp` and `trace` (the table of `harness.decode.trace`, where one was asked for) is exact: the
    noise is counter-based, so any batch and any engine run gives the same. The columns are in memory, or in the file of
    a record, where each access reads them.
    """

    problem: Name
    sample: Count
    finish_reason: FinishReason
    n_tokens: _Tokens  # generated, the end-of-text token included
    n_replaced: _Tokens  # positions where the criterion held
    n_changed: _Tokens  # positions where the token really became another one
    text_digest: Name  # by which a verdict knows the text
    digest: Name  # of everything exact
    columns: dict[_Column, Count]  # compressed bytes, in the order in which they follow
    crc: Annotated[int, Strict(), Field(ge=0, lt=1 << 32)]  # of these bytes
    prompt: Name | None = None  # digest of the prompt's text
    trace_columns: Annotated[int, Strict(), Field(ge=0, le=1024)] = 0
    _source: bytes | tuple[Path, int] = PrivateAttr(b"")  # the columns, or the file and the place where they begin

    @model_validator(mode="after")
    def _check(self) -> Self:
        if max(self.n_replaced, self.n_changed) > self.n_tokens:
            raise ValueError("more tokens are flagged than there are")
        if not {*_EXACT, "delta_logp"} <= self.columns.keys():
            raise ValueError("a column is missing")
        return self

    @classmethod
    def from_rollout(cls, rollout: Any) -> "Row":
        """Make it from anything with the attributes of `harness.decode.Rollout`."""
        request = rollout.request
        return cls.make(
            str(request.problem),
            int(request.sample),
            rollout.text,
            rollout.finish_reason,
            rollout.replaced,
            rollout.changed,
            rollout.token_ids,
            rollout.prompt_token_ids,
            rollout.delta_logp,
            digest(request.prompt) if request.prompt_token_ids is None else None,
            None if rollout.trace is None else rollout.trace.table,
        )

    @classmethod
    def make(
        cls,
        problem: str,
        sample: int,
        text: str,
        finish_reason: FinishReason,
        replaced: ArrayLike,
        changed: ArrayLike,
        token_ids: ArrayLike,
        prompt_token_ids: ArrayLike,
        delta_logp: ArrayLike,
        prompt: str | None = None,
        trace: ArrayLike | None = None,
    ) -> "Row":
        """Make it from values, and compress them.

        Raises:
            ValueError: the columns are not of the same length.
        """
        flags = {"replaced": np.asarray(replaced, dtype=bool), "changed": np.asarray(changed, dtype=bool)}
        table = None if trace is None else np.asarray(trace, dtype="<f4")
        given = {
            "token_ids": np.asarray(token_ids, dtype="<u4"),
            "prompt_token_ids": np.asarray(prompt_token_ids, dtype="<u4"),
            "delta_logp": _rounded(delta_logp, table is not None),
            **({} if table is None else {"trace": table}),
        }
        n = len(flags["replaced"])
        for name, values in (flags | given).items():
            if name != "prompt_token_ids" and len(values) != n:
                raise ValueError(f"{name} of {problem} sample {sample} has {len(values)} entries, not {n}")
        data = {
            "text": text.encode("utf-8", "surrogatepass"),
            **{name: np.packbits(values).tobytes() for name, values in flags.items()},
            **{name: values.tobytes() for name, values in given.items()},
        }
        exact = sha256(json.dumps([problem, sample, prompt, finish_reason, n]).encode())
        for name in _EXACT:
            exact.update(b"\n%s %d\n" % (name.encode(), len(data[name])) + data[name])
        packed = {name: zlib.compress(column) for name, column in data.items()}
        payload = b"".join(packed.values())
        row = cls(
            problem=problem,
            sample=sample,
            finish_reason=finish_reason,
            n_tokens=n,
            n_replaced=int(flags["replaced"].sum()),
            n_changed=int(flags["changed"].sum()),
            text_digest=digest(text),
            digest=exact.hexdigest()[:16],
            columns={name: len(column) for name, column in packed.items()},  # pyright: ignore[reportArgumentType]
            crc=zlib.crc32(payload),
            prompt=prompt,
            trace_columns=0 if table is None else table.shape[1],
        )
        row.place(payload)
        return row

    @property
    def key(self) -> Key:
        """(problem, sample)"""
        return self.problem, self.sample

    @property
    def size(self) -> int:
        """Return the bytes of all columns."""
        return sum(self.columns.values())

    @property
    def text(self) -> str:
        """Return the response."""
        return self._column("text").decode("utf-8", "surrogatepass")

    @property
    def replaced(self) -> np.ndarray:
        """Return where the criterion held, (tokens,) bool."""
        return self._flags("replaced", self.n_replaced)

    @property
    def changed(self) -> np.ndarray:
        """Return where the token really became another one, (tokens,) bool."""
        return self._flags("changed", self.n_changed)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Return the generated tokens."""
        return self._ids("token_ids")

    @property
    def prompt_token_ids(self) -> tuple[int, ...]:
        """Return the prompt's tokens."""
        return self._ids("prompt_token_ids")

    @property
    def delta_logp(self) -> np.ndarray:
        """Return log π_RL - log π_Base of the proposed tokens, (tokens,) float32."""
        kind = "<f4" if self.trace_columns else "<f2"
        return np.frombuffer(self._column("delta_logp"), kind).astype(np.float32)

    @property
    def trace(self) -> np.ndarray | None:
        """Return the table of `harness.decode.trace`, (tokens, columns) float32."""
        if "trace" not in self.columns:
            return None
        return np.frombuffer(self._column("trace"), "<f4").reshape(self.n_tokens, self.trace_columns)

    def counts(self) -> dict[str, Any]:
        """Return what the engine counted, by the names of lm-eval's samples file."""
        return {name: getattr(self, name) for name in ("n_tokens", "n_replaced", "n_changed", "finish_reason")}

    def exact_row(self) -> dict[str, Any]:
        """Return what is the same in every run, as plain JSON values; flags are packed eight a byte."""
        facts = self.model_dump(exclude={"columns", "crc", "text_digest", "trace_columns"}, exclude_none=True)
        flags = {"replaced": self.replaced, "changed": self.changed}
        packed = {name: b64encode(np.packbits(values).tobytes()).decode() for name, values in flags.items()}
        ids = {"token_ids": self.token_ids, "prompt_token_ids": self.prompt_token_ids}
        return {**facts, "text": self.text, **packed, **ids}

    def load(self) -> "Row":
        """Return a copy whose columns are in memory.

        Raises:
            DamagedError: they are damaged, or gone.
        """
        row = self.model_copy()
        row.place(self.payload())
        return row

    def payload(self) -> bytes:
        """Return the compressed columns.

        Raises:
            DamagedError: they are not what was stored.
        """
        if isinstance(self._source, bytes):
            return self._source
        path, at = self._source
        try:
            with path.open("rb") as file:
                file.seek(at)
                data = file.read(self.size)
        except OSError as error:
            raise self._damaged(error.strerror) from None
        if zlib.crc32(data) != self.crc:
            raise self._damaged("its checksum does not fit")
        return data

    def place(self, source: bytes | tuple[Path, int]) -> None:
        """Say where the columns are: these bytes, or in a file from some byte on."""
        self._source = source  # pyright: ignore[reportAttributeAccessIssue]

    def _column(self, name: _Column) -> bytes:
        """Decompress a column, to no more bytes than so many tokens can have."""
        names = list(self.columns)
        at = sum(self.columns[each] for each in names[: names.index(name)])
        least, most = self._bytes(name)
        stream = zlib.decompressobj()
        try:
            data = stream.decompress(self.payload()[at : at + self.columns[name]], most + 1)
        except zlib.error as error:
            raise self._damaged(f"column {name}: {error}") from None
        if not (stream.eof and least <= len(data) <= most):
            raise self._damaged(f"column {name} is cut short, or too large")
        return data

    def _bytes(self, name: _Column) -> tuple[int, int]:
        """Return how many bytes a column can have, at least and at most."""
        n, flags = self.n_tokens, (self.n_tokens + 7) // 8
        if name == "text":
            return 0, max(_TEXT_BYTES, 256 * n)
        if name == "prompt_token_ids":
            return 0, _PROMPT_BYTES
        delta = n * (4 if self.trace_columns else 2)
        exact = {"token_ids": 4 * n, "delta_logp": delta, "trace": 4 * n * self.trace_columns}.get(name, flags)
        return exact, exact

    def _flags(self, name: _Column, count: int) -> np.ndarray:
        found = np.unpackbits(np.frombuffer(self._column(name), np.uint8), count=self.n_tokens).astype(bool)
        if found.sum() != count:
            raise self._damaged(f"{name} is not what was counted")
        return found

    def _ids(self, name: _Column) -> tuple[int, ...]:
        data = self._column(name)
        if len(data) % 4:
            raise self._damaged(f"column {name} is cut short")
        return tuple(np.frombuffer(data, "<u4").tolist())

    def _damaged(self, why: object) -> DamagedError:
        where = f"{self._source[0]}: " if isinstance(self._source, tuple) else ""
        return DamagedError(
            f"{where}{self.problem} sample {self.sample} was damaged or moved while in use ({why}); run again: "
            "`rlvr-dir records verify` names damage, and the command that decoded it decodes it again"
        )


def _rounded(values: ArrayLike, traced: bool) -> np.ndarray:
    """Return delta log p as it is kept: float32 beside a trace, else the nearest float16, which is as finite."""
    values = np.asarray(values, dtype="<f4")
    if traced:
        return values
    most = float(np.finfo(np.float16).max)
    return np.where(np.isfinite(values), np.clip(values, -most, most), values).astype("<f2")
