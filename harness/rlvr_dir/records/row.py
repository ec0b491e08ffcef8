"""Store one response: facts that are always available, and columns that are read on access.

    row = Row.from_rollout(rollout)                     # anything like `rlvr_dir.decode.Rollout`
    row.n_tokens, row.text, row.delta_logp

Tokens, flags and text are exact. `delta_logp` is float32 arithmetic whose last bits depend on the rest of the batch (by
up to 1e-3), so it is stored as float16. The error is at most `DELTA_ERROR` of its value, 0.00003 at the threshold -0.1.
Beside a trace, which has at least 44 bytes per token, it is stored as float32.
"""

import json
import sys
import zlib
from array import array
from base64 import b64encode
from copy import copy
from dataclasses import InitVar, field
from hashlib import sha256
from itertools import accumulate, chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, Strict
from pydantic.dataclasses import dataclass

from rlvr_dir.config.stored import Count, Name
from rlvr_dir.digest import digest
from rlvr_dir.errors import DamagedError
from rlvr_dir.policy.trace import FACTS, known

Key = tuple[str, int]  # problem, sample
FinishReason = Literal["stop", "length"]
DELTA_ERROR = 2.0**-11  # relative; below 6e-5 absolute, by at most 3e-8
MOST_TOKENS = 1 << 22  # of a response
_TEXT_BYTES, _PROMPT_BYTES = 1 << 22, 1 << 24  # what a text may have whatever its tokens, and the ids of a prompt
_EXACT = ("text", "replaced", "changed", "token_ids", "prompt_token_ids")
# Columns in their stored order. `trace` may be missing, and so may the last two, which have an entry for each changed
# token. A response without changed tokens has none, nor has one of an earlier version.
_COLUMNS = (*_EXACT, "delta_logp", "trace", "proposed", "delta_logp_written")
UNKNOWN = -1  # instead of a proposed token that a record of an earlier version does not contain

_NOT_EXACT = ("text_digest", "columns", "trace_columns")

_Tokens = Annotated[int, Strict(), Field(ge=0, le=MOST_TOKENS)]
_Checksum = Annotated[int, Strict(), Field(ge=0, lt=1 << 32)]


@dataclass(slots=True)
class Row:
    """Store a response: its counts, and compressed columns with one entry per generated token.

    Everything but `delta_logp` and `trace` (the table of `rlvr_dir.decode.trace`, if one was requested) is exact: the
    noise is counter-based, so any batch and any engine run gives the same. The columns are in memory, or in the file of
    a record, where each access reads its own. Slots limit a response's facts to 600 bytes, because a study has half a
    million responses.
    """

    problem: Name
    sample: Count
    finish_reason: FinishReason
    n_tokens: _Tokens  # generated, including the end-of-text token
    n_replaced: _Tokens  # flagged tokens
    n_changed: _Tokens  # changed tokens
    text_digest: Name  # identifies the text in verdicts
    digest: Name  # of everything exact
    columns: InitVar[dict[str, tuple[Count, _Checksum]]]  # by name: compressed bytes, and the CRC-32 of these
    prompt: Name | None = None  # digest of the prompt's text
    trace_columns: Annotated[int, Strict(), Field(ge=0, le=1024)] = 0
    numbers: Any = field(init=False, repr=False)  # size and checksum of a column, then those of the next one
    source: Any = field(default=b"", init=False, repr=False, compare=False)  # the columns, or the file that has them
    at: int = field(default=0, init=False, repr=False, compare=False)  # where they begin in it

    def __post_init__(self, columns: dict[str, tuple[int, int]]) -> None:
        if max(self.n_replaced, self.n_changed) > self.n_tokens:
            raise ValueError("more tokens are flagged than there are")
        if tuple(columns) not in (self._names(False), self._names(bool(self.n_changed))):
            raise ValueError(f"its columns are {[*columns]}")
        self.problem, self.numbers = sys.intern(self.problem), array("I", chain.from_iterable(columns.values()))

    @classmethod
    def from_rollout(cls, rollout: Any) -> "Row":
        """Make a row from anything with the attributes of `rlvr_dir.decode.Rollout`."""
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
            rollout.proposed,
            rollout.delta_logp_written,
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
        proposed: ArrayLike | None = None,
        delta_logp_written: ArrayLike | None = None,
    ) -> "Row":
        """Make a row from values, and compress them.

        `proposed` and `delta_logp_written` have an entry for each token, and those of changed tokens are stored. None
        is unknown.

        Raises:
            ValueError: The columns have different lengths.
        """
        flags = {"replaced": np.asarray(replaced, dtype=bool), "changed": np.asarray(changed, dtype=bool)}
        table = None if trace is None else np.ascontiguousarray(trace, dtype="<f4")
        columns = {
            "token_ids": np.asarray(token_ids, dtype="<u4"),
            "prompt_token_ids": np.asarray(prompt_token_ids, dtype="<u4"),
            "delta_logp": _rounded(delta_logp, table is not None),
        }
        n = len(flags["replaced"])
        of_changed: dict[str, np.ndarray] = {}
        if proposed is not None and delta_logp_written is not None:
            of_changed["proposed"] = np.asarray(proposed, dtype="<u4")
            of_changed["delta_logp_written"] = _rounded(delta_logp_written, table is not None)
        for name, values in (flags | columns | of_changed | ({} if table is None else {"trace": table})).items():
            if name != "prompt_token_ids" and len(values) != n:
                raise ValueError(f"{name} of {problem} sample {sample} has {len(values)} entries, not {n}")
        data = {
            "text": text.encode("utf-8", "surrogatepass"),
            **{name: np.packbits(values).tobytes() for name, values in flags.items()},
            **{name: values.tobytes() for name, values in columns.items()},
        }
        exact = sha256(json.dumps([problem, sample, prompt, finish_reason, n]).encode())
        for name in _EXACT:
            exact.update(b"\n%s %d\n" % (name.encode(), len(data[name])) + data[name])
        packed = {name: zlib.compress(column) for name, column in data.items()}
        if table is not None:
            packed["trace"] = zlib.compress(_planes(table), 1)
        if flags["changed"].any():
            for name, values in of_changed.items():
                packed[name] = zlib.compress(values[flags["changed"]].tobytes())
        row = cls(
            problem=problem,
            sample=sample,
            finish_reason=finish_reason,
            n_tokens=n,
            n_replaced=int(flags["replaced"].sum()),
            n_changed=int(flags["changed"].sum()),
            text_digest=digest(text),
            digest=exact.hexdigest()[:16],
            columns={name: (len(column), zlib.crc32(column)) for name, column in packed.items()},
            prompt=prompt,
            trace_columns=0 if table is None else table.shape[1],
        )
        row.place(b"".join(packed.values()))
        return row

    @property
    def key(self) -> Key:
        """Return (problem, sample)."""
        return self.problem, self.sample

    @property
    def size(self) -> int:
        """Return the bytes of all columns."""
        return sum(self.numbers[::2])

    @property
    def text(self) -> str:
        """Return the response."""
        return self._column("text").decode("utf-8", "surrogatepass")

    @property
    def replaced(self) -> np.ndarray:
        """Return which tokens were flagged, (tokens,) bool."""
        return self._flags("replaced", self.n_replaced)

    @property
    def changed(self) -> np.ndarray:
        """Return which tokens were changed, (tokens,) bool."""
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
        return self._numbers("delta_logp")

    @property
    def proposed(self) -> np.ndarray:
        """Return the proposed tokens, (tokens,) int64; a token that was not changed is its own proposal.

        In a record of an earlier version a changed token has `UNKNOWN`, unless there is a trace.
        """
        proposed = np.array(self.token_ids, dtype=np.int64)
        if self._has_proposals:
            proposed[self.changed] = self._ids("proposed")
        elif self.n_changed:
            trace = self.trace
            proposed[self.changed] = UNKNOWN if trace is None else trace[self.changed, FACTS.index("proposed")]
        return proposed

    @property
    def delta_logp_written(self) -> np.ndarray:
        """Return log π_RL - log π_Base of the written tokens, (tokens,) float32.

        In a record of an earlier version it is NaN for changed tokens.
        """
        delta_logp = self.delta_logp
        if self._has_proposals:
            delta_logp[self.changed] = self._numbers("delta_logp_written")
        elif self.n_changed:
            delta_logp[self.changed] = np.nan
        return delta_logp

    @property
    def trace(self) -> np.ndarray | None:
        """Return the table of `rlvr_dir.decode.trace`, (tokens, columns) float32; None if a column is missing."""
        return self.table if known(self.trace_columns) else None

    @property
    def table(self) -> np.ndarray:
        """Return the numbers of each token that are stored, (tokens, trace_columns) float32, whatever they are."""
        planes = np.frombuffer(self._column("trace"), np.uint8).reshape(self.trace_columns, 4, self.n_tokens)
        return np.ascontiguousarray(planes.transpose(2, 0, 1)).view("<f4")[..., 0]

    def counts(self) -> dict[str, Any]:
        """Return the engine's counts, by the names in lm-eval's samples file."""
        return {name: getattr(self, name) for name in ("n_tokens", "n_replaced", "n_changed", "finish_reason")}

    def to_dict(self) -> dict[str, Any]:
        """Return its facts as plain JSON values, from which `Row(**values)` is made."""
        prompt = {} if self.prompt is None else {"prompt": self.prompt}
        columns = {name: (size, checksum) for name, _, size, checksum in self._places()}
        names = ("problem", "sample", "finish_reason", "n_tokens", "n_replaced", "n_changed", "text_digest", "digest")
        width = {"trace_columns": self.trace_columns} if self.trace_columns else {}
        return {**{name: getattr(self, name) for name in names}, "columns": columns, **prompt, **width}

    def exact_row(self) -> dict[str, Any]:
        """Return what is the same in every run, as plain JSON values. Flags are packed eight per byte."""
        fields = {name: value for name, value in self.to_dict().items() if name not in _NOT_EXACT}
        flags = {"replaced": self.replaced, "changed": self.changed}
        packed = {name: b64encode(np.packbits(values).tobytes()).decode() for name, values in flags.items()}
        ids = {"token_ids": self.token_ids, "prompt_token_ids": self.prompt_token_ids}
        return {**fields, "text": self.text, **packed, **ids}

    def load(self) -> "Row":
        """Return a copy whose columns are in memory.

        Raises:
            DamagedError: They are damaged or missing.
        """
        row = copy(self)
        row.place(self.payload())
        return row

    def payload(self) -> bytes:
        """Return the compressed columns.

        Raises:
            DamagedError: They differ from what was stored.
        """
        if not self.holds(data := self._read(0, self.size)):
            raise self._damaged("its checksum does not fit")
        return data

    def holds(self, payload: bytes) -> bool:
        """Return whether `payload` contains its columns."""
        return all(zlib.crc32(payload[at : at + size]) == crc for _, at, size, crc in self._places())

    def place(self, source: bytes | Path, at: int = 0) -> None:
        """Set where the columns are: these bytes, or a file from some byte on."""
        self.source, self.at = source, at

    def _places(self) -> list[tuple[str, int, int, int]]:
        """Return the name, start, size and checksum of each column."""
        sizes, checksums = self.numbers[::2], self.numbers[1::2]
        names = self._names(self._has_proposals)
        return [*zip(names, accumulate(sizes[:-1], initial=0), sizes, checksums, strict=True)]

    def _names(self, with_proposals: bool) -> tuple[str, ...]:
        """Return the names of its columns, in order."""
        absent = () if self.trace_columns else ("trace",)
        absent += () if with_proposals else ("proposed", "delta_logp_written")
        return tuple(name for name in _COLUMNS if name not in absent)

    @property
    def _has_proposals(self) -> bool:
        return len(self.numbers) == 2 * len(self._names(True))

    def _read(self, start: int, size: int) -> bytes:
        if isinstance(self.source, bytes):
            return self.source[start : start + size]
        try:
            with self.source.open("rb", buffering=0) as file:
                file.seek(self.at + start)
                return file.read(size)
        except OSError as error:
            raise self._damaged(error.strerror) from None

    def _column(self, name: str) -> bytes:
        """Read and decompress one column, up to the number of bytes that its tokens can have."""
        start, size, checksum = next(place for key, *place in self._places() if key == name)
        least, most = self._bytes(name)
        stream, packed = zlib.decompressobj(), self._read(start, size)
        if zlib.crc32(packed) != checksum:
            raise self._damaged("its checksum does not fit")
        try:
            data = stream.decompress(packed, most + 1)
        except zlib.error as error:
            raise self._damaged(f"column {name}: {error}") from None
        if not (stream.eof and least <= len(data) <= most):
            raise self._damaged(f"column {name} is truncated or too large")
        return data

    def _bytes(self, name: str) -> tuple[int, int]:
        """Return the least and greatest number of bytes of a column."""
        n, flags = self.n_tokens, (self.n_tokens + 7) // 8
        if name == "text":
            return 0, max(_TEXT_BYTES, 256 * n)
        if name == "prompt_token_ids":
            return 0, _PROMPT_BYTES
        a_number = 4 if self.trace_columns else 2
        sizes = {
            "token_ids": 4 * n,
            "delta_logp": a_number * n,
            "trace": 4 * n * self.trace_columns,
            "proposed": 4 * self.n_changed,
            "delta_logp_written": a_number * self.n_changed,
        }
        exact = sizes.get(name, flags)
        return exact, exact

    def _numbers(self, name: str) -> np.ndarray:
        kind = "<f4" if self.trace_columns else "<f2"
        return np.frombuffer(self._column(name), kind).astype(np.float32)

    def _flags(self, name: str, count: int) -> np.ndarray:
        flags = np.unpackbits(np.frombuffer(self._column(name), np.uint8), count=self.n_tokens).astype(bool)
        if flags.sum() != count:
            raise self._damaged(f"{name} is not what was counted")
        return flags

    def _ids(self, name: str) -> tuple[int, ...]:
        data = self._column(name)
        if len(data) % 4:
            raise self._damaged(f"column {name} is truncated")
        return tuple(np.frombuffer(data, "<u4").tolist())

    def _damaged(self, why: object) -> DamagedError:
        where = f"{self.source}: " if isinstance(self.source, Path) else ""
        return DamagedError(
            f"{where}{self.problem} sample {self.sample} was damaged or moved while in use ({why}); "
            "`rlvr-dir records verify --repair` sets it aside, and the command that decoded it decodes it again"
        )


def _planes(table: np.ndarray) -> bytes:
    """Return (tokens, columns) float32 as planes: the first byte of every token in each column, then the second, ...

    Similar bytes are then adjacent, so a trace takes a fifth less space, and a third of the time, to compress (zlib).
    """
    return np.ascontiguousarray(table.view(np.uint8).reshape(*table.shape, 4).transpose(1, 2, 0)).tobytes()


def _rounded(values: ArrayLike, traced: bool) -> np.ndarray:
    """Return delta log p as it is stored: float32 beside a trace, otherwise the nearest finite float16."""
    values = np.asarray(values, dtype="<f4")
    if traced:
        return values
    most = float(np.finfo(np.float16).max)
    return np.where(np.isfinite(values), np.clip(values, -most, most), values).astype("<f2")
