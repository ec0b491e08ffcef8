"""Define a record: one append-only file of responses, their verdicts, and facts about them.

`<store>/<record hash>/<task>/journal.bin` is a sequence of entries (`entries.py`): `rollout` (a `Row`), `verdict` (a
`StoredVerdict`), `replay` (a `Replay`) and `about` (`RecordMetadata`; the first one identifies the record). For each
key the last entry is valid.

Readers need no lock. The one process that writes has locked `lock`, and repairs the file when it opens it. A torn tail
is cut off. A damaged file is kept under another name, and its good entries are copied, so that only damaged ones are
decoded again.
"""

import json
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from rlvr_dir.config import parse
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.files import disk_error, folder_name, make_folder, set_aside, write_file
from rlvr_dir.grading import DEFAULT_GRADER, OLDER, Gold, Verdict, grade_many, grader_name
from rlvr_dir.policy.trace import known
from rlvr_dir.records.config import RecordConfig
from rlvr_dir.records.entries import FORMAT, RecordMetadata, encode, scan
from rlvr_dir.records.lock import Lock
from rlvr_dir.records.replay import Replay
from rlvr_dir.records.row import Key, Row
from rlvr_dir.records.verdicts import StoredVerdict, versions

JOURNAL, LOCK = "journal.bin", "lock"
SYNC = 1.0  # seconds; responses from this time are flushed to disk together
_LINE = 2048  # bytes to read at a time: a line and a little more, because the columns after it are skipped
_DIGITS = re.compile(r"([0-9]+)")


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Sort problems by their names, numbers in them as numbers (`aime24/2` before `aime24/10`), then by samples.

    The order does not depend on the history of requests, so any sequence of limits and samples gives the same order.
    """

    def parts(problem: str) -> tuple[list[Any], str]:
        chunks = _DIGITS.split(problem)  # text, number, text, ...
        return [int(part) if i % 2 else part for i, part in enumerate(chunks)], problem

    keys = list(keys)
    place = {problem: i for i, problem in enumerate(sorted({problem for problem, _ in keys}, key=parts))}
    return sorted(keys, key=lambda key: (place[key[0]], key[1]))


class Record:
    """Represent a record on disk. `RecordStore.read` opens one for reading, `RecordStore.open` also for writing.

    The facts of all responses are available at once. Texts and tokens are read and checked on access. `damage` has a
    sentence for each problem of the file; `repairs` lists the problems that were repaired when it was opened for
    writing.
    """

    def __init__(self, folder: Path, *, in_memory: bool = False) -> None:
        self.folder, self.path, self.in_memory = folder, folder / JOURNAL, in_memory
        self.record_hash, self.task = folder.parent.name, folder.name
        self.name = f"{self.record_hash}/{self.task}"
        self.trace_columns, self.inspect_only = 0, False
        self.repairs: list[str] = []
        self._requested: dict[Key, None] = {}
        self._fd, self._lock = -1, None
        self._synced = 0.0  # when the file was last flushed to disk
        self._pending = False  # whether it has grown since

    @classmethod
    def without_file(cls, config: RecordConfig, task: str) -> Self:
        """Make a record in memory only, with the name that it would have in a store."""
        record = cls(Path(config.hash()) / folder_name("task", task), in_memory=True)
        record._forget()
        record.config = config
        return record

    # Reading

    def _forget(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.replays: dict[tuple[Any, ...], Replay] = {}
        self.config: RecordConfig | None = None
        self.bad, self.tail, self._size, self._finished_at, self._foreign = 0, 0, 0, 0, False
        self._verdicts: dict[str, dict[Key, StoredVerdict]] = {}
        self._metadata: dict[str, Any] = {}

    def read(self, *, whole: bool = False, checked: int | None = None, head: bool = False) -> Self:
        """Read the file. With `whole` every byte is checked, otherwise the columns after the byte `checked`.

        `head` reads only the first entry, which contains the config.

        Raises:
            DamagedError: It cannot be read, or a later version of this program wrote it.
        """
        self._forget()
        if os.path.lexists(self.path) and not self.path.is_file():  # a pipe would be waited for, a device never ends
            raise DamagedError(f"{self.path} is not a regular file; the other records can be read")
        try:
            with self.path.open("rb", buffering=_LINE) as file:
                for at, end, entry in scan(file, checked=0 if whole else checked):
                    if entry is None:
                        self.bad += 1
                    elif entry:
                        self._take(end, *entry)
                    else:
                        self.tail = end - at
                        break
                    self._size = end
                    if head:
                        break
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DamagedError(f"{self.path} cannot be read ({error.strerror})") from None
        if self._foreign:  # it may contain entries of another record
            self.rows, self._verdicts, self.replays, self._metadata = {}, {}, {}, {}
        return self

    def _take(self, end: int, kind: str, plain: Any, value: Any) -> None:
        if kind == "rollout":
            value.place(self.path, end - 1 - value.size)
            self.rows[value.key] = value
        elif kind == "verdict":
            self._verdicts.setdefault(value.judge, {})[value.key] = value
        elif kind == "replay":
            self.replays[value.key] = value
        else:
            if value.format != FORMAT:
                raise DamagedError(
                    f"{self.path} has format {value.format}, which this version of rlvr-dir cannot read",
                    accepted=f"format {FORMAT}",
                )
            if value.config is not None:
                self._identify(value)
            self._metadata |= plain
            self._finished_at = end if "finished" in plain else self._finished_at

    def _identify(self, metadata: RecordMetadata) -> None:
        """Read the config, if it is the one that the folder is named after."""
        try:
            config = parse(RecordConfig, metadata.config)
        except (UserError, RecursionError):
            config = None
        ours = config is not None and (config.hash(), metadata.task) == (self.record_hash, self.task)
        self.config, self._foreign = (config if ours else None), self._foreign or not ours

    @property
    def metadata(self) -> RecordMetadata:
        """Return the facts about it."""
        return RecordMetadata.model_validate(self._metadata)

    @property
    def damage(self) -> list[str]:
        """Return a sentence for each problem of the file; the rest of it can be read."""
        sentences = []
        if self._foreign:
            sentences.append(f"{self.path} is damaged, or is not of the record that its folder is named after")
        elif self.config is None:
            sentences.append(f"{self.path} has no first entry, which says what it is")
        if self.bad:
            sentences.append(f"{self.bad} damaged entries in {self.path}: what they held is made again by its command")
        return sentences

    @property
    def response_keys(self) -> list[Key]:
        """Return the keys of all good responses, in the record's order."""
        return in_order(self.rows)

    def get(self, key: Key) -> Row | None:
        """Return a response; None if it is not stored, or not with the requested trace."""
        row = self.rows.get(key)
        if row is not None and self.trace_columns and not known(row.trace_columns):
            return None
        return row if row is not None and row.trace_columns >= self.trace_columns else None

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[Row]:
        """Yield all good responses, in the record's order."""
        return (self.rows[key] for key in self.response_keys)

    def digest(self) -> str:
        """Return the digest of everything exact, which is the same for any history of the record."""
        return digest_of([self.rows[key].digest for key in self.response_keys])

    @property
    def finished(self) -> bool:
        """Return whether it contains exactly what it contained when a command finished it."""
        return self.metadata.finished == self.digest()

    @property
    def first(self) -> dict[str, int]:
        """Return how many samples of each problem are stored, from the first on, before a gap."""
        samples: dict[str, set[int]] = {}
        for problem, sample in self.response_keys:
            samples.setdefault(problem, set()).add(sample)
        return {name: next(k for k in range(len(own) + 1) if k not in own) for name, own in samples.items()}

    @property
    def complete(self) -> dict[str, int]:
        """Return how many samples of each problem, from the first on, belong to a finished request.

        Other stored responses come from interruptions. They finished early because they are short, so an average must
        not contain them.
        """
        first = self.first
        return {name: k for name, noted in self.metadata.complete.items() if (k := min(noted, first.get(name, 0)))}

    @property
    def judges(self) -> list[str]:
        """Return the judges with verdicts."""
        return sorted(self._verdicts)

    @property
    def tasks(self) -> list[str]:
        """Return the tasks whose results it contains: its own task, unless only the answers of another one were
        used."""
        others = {judge.partition("+")[2] for judge in self._verdicts} or {""}
        return [other or self.task for other in sorted(others)]

    def verdicts(self, judge: str) -> dict[Key, StoredVerdict]:
        """Return a judge's verdicts on the stored responses."""
        stored = self._verdicts.get(judge, {})
        return {
            key: verdict
            for key, verdict in stored.items()
            if key in self.rows and self.rows[key].text_digest == verdict.text
        }

    def latest_verdicts(self, judge: str) -> dict[Key, StoredVerdict]:
        """Return the verdicts of the newest version of a judge that has any."""
        grader, *task = judge.split("+")
        names = (grader_name(grader), *OLDER.get(grader_name(grader), ()))
        return next(filter(None, (self.verdicts("+".join((name, *task))) for name in names)), {})

    def verdict(self, judge: str, row: Row, gold: Gold) -> Verdict | None:
        """Return a judge's valid verdict on a response; None if there is none."""
        stored = self._verdicts.get(judge, {}).get(row.key)
        if stored is None or not stored.holds(row.text_digest, gold):
            return None
        return stored.verdict if self._metadata.get("graded_with", {}).get(judge) == versions(judge) else None

    def export(self) -> Iterator[bytes]:
        """Yield the lines of `rlvr-dir records export`: everything exact, in the record's order."""
        encoded = partial(json.dumps, separators=(",", ":"))
        yield encoded({"config": self.record_hash, "task": self.task}).encode() + b"\n"
        for row in self:
            yield encoded(row.exact_row()).encode() + b"\n"

    # Writing

    def lock(self, config: RecordConfig | None = None, *, whole: bool = False) -> Self:
        """Become the only writer: repair the file, or create it if there is none and a config is given.

        What was written since a command last finished it is checked; with `whole` every byte.

        Raises:
            UserError: Another process writes it, the disk is full, or it cannot be identified.
        """
        make_folder(self.folder)
        self._lock = Lock(self.folder / LOCK, f"record {self.name}")
        try:
            for half in self.folder.glob(".*.new"):  # left by a writer that was killed
                half.unlink(missing_ok=True)
            self._repair(config, whole)
            self._fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except BaseException:
            self.close()
            raise
        for repair in self.repairs:
            warnings.warn(repair, stacklevel=3)
        return self

    @property
    def _is_broken(self) -> bool:
        return bool(self.bad or self._foreign or (self.rows and self.config is None))

    def _repair(self, config: RecordConfig | None, whole: bool) -> None:
        self.read(whole=whole)
        if not whole and any(row.at > self._finished_at for row in self.rows.values()):
            self.read(checked=self._finished_at)
        if not whole and self._is_broken:  # then all good entries are copied
            self.read(whole=True)
        if (config := config or self.config) is None:
            raise DamagedError(f"record {self.name}: {'; '.join(self.damage)}; run its command again")
        begun = {"format": FORMAT, "config": config.model_dump(mode="json"), "task": self.task}
        if self._is_broken:
            aside = set_aside(self.path)
            reason = "belongs to another record" if self._foreign else f"has {self.bad} damaged entries"
            self.repairs.append(
                f"{self.path} {reason}: set aside as {aside.name}; {len(self.rows)} good rollouts kept, the others are "
                "redone"
            )
            kept = f"the damaged journal is as it was ({aside.name} is another name of it)"
            write_file(self.path, self._entries(begun), kept)
        elif self.tail:
            self.repairs.append(f"{self.path}: a torn last entry of {self.tail} bytes was cut off")
            try:
                os.truncate(self.path, self._size)
            except OSError as error:
                raise disk_error(error, self.path, "its torn last entry is still there") from None
            self.tail = 0
        if not self._size:  # new, or torn before its first line was whole
            created = {"created": time.strftime("%Y-%m-%d %H:%M:%S")}
            write_file(self.path, encode({"about": begun | created}), "nothing was written")
        if not self._size or self._is_broken or self.config is None:
            self.read()

    def _entries(self, begun: dict[str, Any]) -> Iterator[bytes]:
        """Yield all good entries, encoded anew."""
        yield encode({"about": self._metadata | begun})
        for row in self.rows.values():
            yield _rollout(row)
        for verdict in self._verdicts.values():
            yield from (encode({"verdict": stored.to_dict()}) for stored in verdict.values())
        yield from (encode({"replay": replay.model_dump()}) for replay in self.replays.values())

    def _append(self, data: bytes, kept: str, *, sync: bool = True) -> int:
        """Append entries, flush everything to disk, and return where they begin. If it fails, nothing is appended.

        Without `sync` the operating system has the data. It survives the end of this process, but not a power failure.
        """
        view, at = memoryview(data), self._size
        if self.in_memory:
            return at
        try:
            while view:
                written = os.pwrite(self._fd, view, at)
                view, at = view[written:], at + written
            if sync:
                os.fsync(self._fd)
                self._synced = time.monotonic()
            self._pending = not sync
        except BaseException as error:  # including Ctrl-C between two writes
            with suppress(OSError):  # a failed disk: what stays is a torn tail, which the next writer cuts off
                os.ftruncate(self._fd, self._size)
            if isinstance(error, OSError):
                raise disk_error(error, self.path, kept) from None
            raise
        began, self._size = self._size, at
        return began

    def note(self, **values: Any) -> None:
        """Store values of `RecordMetadata` that are new."""
        plain = json.loads(json.dumps(values))
        if new := {name: value for name, value in plain.items() if self._metadata.get(name) != value}:
            self._append(encode({"about": new}), "the rollouts are safe, and the same command finishes the record")
            self._metadata |= new

    def request(
        self,
        problems: Sequence[str] | Mapping[str, str],
        samples: int,
        *,
        metadata: Mapping[str, Any] | None = None,
        trace_columns: int = 0,
        inspect_only: bool = False,
    ) -> Self:
        """Request the first samples of some problems. A mapping of problems also gives the digest of each prompt.

        The record may contain more: 32 stored samples serve a request for 8. With `trace_columns`, responses stored
        without a trace of this many columns count as missing. A request that is `inspect_only` is stored, and counts in
        no result.

        Raises:
            UserError: A stored response has another prompt, or the disk is full.
        """
        if len(set(problems)) != len(problems) or not problems or samples < 1:
            raise ValueError("a record is asked for distinct problems, one at least, and samples >= 1")
        self.trace_columns, self.inspect_only = trace_columns, inspect_only
        self._requested = {(problem, sample): None for problem in problems for sample in range(samples)}
        for problem, prompt in problems.items() if isinstance(problems, Mapping) else ():
            if any(
                row is not None and row.prompt not in (None, prompt)
                for row in (self.rows.get((problem, sample)) for sample in range(samples))
            ):
                raise UserError(
                    f"record {self.name}: {problem} was decoded from another prompt, so it is another record; give the "
                    "config the digest of the prompts"
                )
        requested = {"problems": len(problems), "samples": samples, "names": list(problems)}
        self.note(**(metadata or {}), **({} if inspect_only else {"asked": requested}))
        return self

    def missing(self) -> list[Key]:
        """Return the requested keys that are missing, or whose requested trace is missing, in the order of the
        request."""
        return [key for key in self._requested if key not in self]

    def add(self, *rows: Row) -> None:
        """Store responses. A stored response is kept, except to add a missing trace.

        They survive the end of this process at once. They are flushed to disk together by the first call that is `SYNC`
        seconds after the last flush, or by `finish` or `close`.

        Raises:
            UserError: The disk is full or fails; the responses before are safe.
            RuntimeError: A response was decoded again, for its trace, with other tokens.
        """
        new = [row for row in rows if row.key not in self]
        for row in new:
            if row.key not in self._requested:
                raise ValueError(f"{row.key} was not requested from this record")
            if row.key in self.rows and self.rows[row.key].digest != row.digest:
                raise RuntimeError(f"{row.key} was decoded again, for its trace, and came out with other tokens")
        if self.in_memory:
            self.rows |= {row.key: row for row in new}
            return
        data = [_rollout(row) for row in new]
        due = time.monotonic() - self._synced >= SYNC
        end = self._append(b"".join(data), f"the {len(self.rows)} rollouts before it are safe", sync=due)
        for row, entry in zip(new, data, strict=True):
            end += len(entry)
            row.place(self.path, end - 1 - row.size)
            self.rows[row.key] = row

    def finish(self) -> None:
        """Store that everything requested is complete.

        Raises:
            UserError: Something is missing, or the disk is full.
        """
        if missing := self.missing():
            raise UserError(
                f"record {self.name} is incomplete: {len(missing)} of {len(self._requested)} rollouts are missing",
                hint="Run the command again to finish it",
            )
        complete: dict[str, int] = dict(self._metadata.get("complete", {}))
        for problem, sample in () if self.inspect_only else self._requested:
            complete[problem] = max(sample + 1, complete.get(problem, 0))
        self.note(finished=self.digest(), complete=complete)
        self._force()

    def judge(self, judge: str, graded: Iterable[tuple[Row, Gold, Verdict]]) -> None:
        """Store the verdicts of a judge. Its other verdicts by older libraries are computed again.

        Raises:
            UserError: The disk is full.
        """
        graded, before, now = [*graded], self._metadata.get("graded_with", {}).get(judge), versions(judge)
        if before not in (None, now):
            keys = {row.key for row, _, _ in graded}
            others = {key: verdict for key, verdict in self.verdicts(judge).items() if key not in keys and verdict.gold}
            older = [(self.rows[key], verdict.gold) for key, verdict in others.items()]
            items = ((gold, row.text, row.finish_reason) for row, gold in older)
            verdicts = grade_many(items, grader=judge.partition("+")[0])
            graded += [(row, gold, verdict) for (row, gold), verdict in zip(older, verdicts, strict=True)]
        new = [
            StoredVerdict(
                judge=judge,
                problem=row.problem,
                sample=row.sample,
                text=row.text_digest,
                gold=gold if isinstance(gold, str) else tuple(gold),
                kind=verdict.kind,
                answer=verdict.answer,
            )
            for row, gold, verdict in graded
        ]
        old = self._verdicts.setdefault(judge, {})
        new = [verdict for verdict in new if old.get(verdict.key) != verdict]
        if new:
            self._append(b"".join(encode({"verdict": verdict.to_dict()}) for verdict in new), "the rollouts are safe")
            old |= {verdict.key: verdict for verdict in new}
        self.note(graded_with={**self._metadata.get("graded_with", {}), judge: now})

    def keep_replay(self, replay: Replay) -> None:
        """Store a replay of a response. It survives the end of this process at once.

        Raises:
            UserError: The disk is full.
        """
        due = time.monotonic() - self._synced >= SYNC
        self._append(encode({"replay": replay.model_dump()}), "the rollouts and replays before it are safe", sync=due)
        self.replays[replay.key] = replay

    def grade(
        self, gold: Mapping[str, Gold], judge: str = DEFAULT_GRADER, keys: Iterable[Key] | None = None
    ) -> dict[Key, Verdict]:
        """Return verdicts on the stored responses: the stored verdicts if they are valid, the rest graded now.

        `gold` has the answers of each problem. New verdicts are stored if the record is open for writing.

        Raises:
            UserError: A problem has no gold answer, the grader is unknown, or the disk is full.
        """
        grader, *task = judge.split("+")
        judge = "+".join((grader_name(grader), *task))
        rows = [self.rows[key] for key in (self.response_keys if keys is None else keys)]
        if unknown := [row.problem for row in rows if row.problem not in gold]:
            raise UserError(f"gold has no answer of {unknown[0]!r}")
        stored = {row.key: self.verdict(judge, row, gold[row.problem]) for row in rows}
        todo = [row for row in rows if stored[row.key] is None]
        items = ((gold[row.problem], row.text, row.finish_reason) for row in todo)  # one text at a time
        fresh = grade_many(items, grader=grader_name(grader))
        if self._fd >= 0 and todo:
            self.judge(judge, [(row, gold[row.problem], verdict) for row, verdict in zip(todo, fresh, strict=True)])
        verdicts = {key: verdict for key, verdict in stored.items() if verdict is not None}
        return verdicts | {row.key: verdict for row, verdict in zip(todo, fresh, strict=True)}

    def _force(self) -> None:
        """Flush everything to disk."""
        if self._pending:
            self._append(b"", "rollouts are written but not flushed to disk; a power failure now would lose them")

    def close(self) -> None:
        """Close it for writing, so that another process can write."""
        if self._fd >= 0:
            with suppress(UserError):  # the operating system has them; `finish` has reported on requests
                self._force()
            os.close(self._fd)
            self._fd = -1
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rollout(row: Row) -> bytes:
    """Return the entry of a response."""
    return encode({"rollout": row.to_dict()}, row.payload())
