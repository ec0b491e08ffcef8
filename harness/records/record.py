"""One record, open for writing: what is asked, what is held, what is missing, and the finished file.

A record is the folder `<store>/<record hash>/<task>`:

    config.json            the settings, canonically (`RecordConfig`)
    journal.bin            every rollout as it finished (`harness.records.journal`): the truth, all else follows
    record.jsonl           once finished: a line a rollout, in order: its counts and the digest of all that is exact in
                           it, so the same bytes however it came about
    verdicts-<judge>.jsonl  what a grader said; apart, because graders change and tokens do not
    about.json             names and dates for people; what was asked last, and what was finished (`Snapshot.complete`)
    lock                   held by the one process that writes
"""

import json
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from harness.errors import DamagedError, UserError
from harness.files import make_folder, set_aside, write_file
from harness.grading import DEFAULT_GRADER, Gold, Verdict
from harness.records import lines
from harness.records.config import RecordConfig
from harness.records.journal import JOURNAL, Entry, Journal, header, journal_path
from harness.records.lock import Lock
from harness.records.rollout import Key, StoredRollout
from harness.records.verdicts import grade_record
from harness.spec.stored import Count, Stored, Text, check_stored, read_json

CONFIG, RECORD, ABOUT, LOCK = "config.json", "record.jsonl", "about.json", "lock"
_DIGITS = re.compile(r"([0-9]+)")


class Asked(Stored, frozen=True):
    """What was asked of a record last: the first problems of the benchmark, or those with these names."""

    problems: Count
    samples: Count
    names: tuple[Text, ...] | None = None


class About(Stored, frozen=True):
    """What is read of `about.json`, all of which earlier versions may have left out."""

    called: ClassVar[str] = "about.json"

    base: Text | None = None
    rl: Text | None = None
    file: Text | None = None
    asked: Asked | None = None
    complete: dict[str, Count] | None = None
    problems: Count | None = None  # of a benchmark of the user's own, all of them


def read_about(path: Path) -> dict[str, Any]:
    """Read `about.json`, all of it; empty where there is none.

    Raises:
        DamagedError: it is no JSON, or something that is read of it is of another type.
    """
    if not path.exists():
        return {}
    data = read_json(path)
    check_stored(data, About, path)
    return data


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Sort problems by their names, numbers in them as numbers (`aime24/2` before `aime24/10`), then by samples.

    It needs no memory of what was asked when, so any history of limits and samples ends in the same bytes.
    """

    def name(problem: str) -> tuple[list[Any], str]:
        parts = _DIGITS.split(problem)  # text, number, text, ...
        return [int(part) if i % 2 else part for i, part in enumerate(parts)], problem

    return sorted(keys, key=lambda key: (name(key[0]), key[1]))


def complete(about: Mapping[str, Any], held: Iterable[Key]) -> dict[str, int]:
    """Return how many samples of each problem, from the first on, belong to something that was asked and finished.

    Whatever else is held came of interruptions, and is there because it was short: no average may be of it. Records of
    before 2026-11-22 do not note what was finished; of them it is all that is held, or nothing.
    """
    samples: dict[str, set[int]] = {}
    for problem, sample in held:
        samples.setdefault(problem, set()).add(sample)
    first = {name: next(k for k in range(len(mine) + 1) if k not in mine) for name, mine in samples.items()}
    if about.get("complete") is not None:
        return {name: k for name, noted in about["complete"].items() if (k := min(noted, first.get(name, 0)))}
    asked = about.get("asked") or {}
    whole = len(first) == asked.get("problems") and min(first.values(), default=0) >= asked.get("samples", 1)
    return first if whole else {}


def manifest(record_hash: str, task: str, entries: Mapping[Key, Entry]) -> Iterator[bytes]:
    """Yield the lines of `record.jsonl`."""
    yield lines.encode(header(record_hash, task, 2))
    for key in in_order(entries):
        yield lines.encode(entries[key].manifest_row())


class Record:
    """Opens and locks a record; use it as a context manager. `RecordStore.open` makes it.

    `problems` are the keys that are asked, in order, each with `samples` samples; a mapping gives the digest of each
    prompt as well, and rollouts held for another prompt are then refused. More than is asked may be held: a run of
    32 samples serves one of 8. With `trace_columns`, rollouts held without a trace of so many columns count as missing.
    `repairs` says what was wrong on opening. What is only `looked` at is held and counts in no result: `about.json`
    goes on saying what was asked and finished before.
    """

    def __init__(
        self,
        folder: Path,
        config: RecordConfig,
        task: str,
        problems: Sequence[str] | Mapping[str, str],
        samples: int,
        *,
        about: Mapping[str, Any] | None = None,
        sync_seconds: float = 0.0,
        trace_columns: int = 0,
        looked: bool = False,
    ) -> None:
        if len(set(problems)) != len(problems) or not problems or samples < 1:
            raise ValueError("a record is asked for distinct problems, one at least, and samples >= 1")
        self.folder, self.config, self.task, self.samples = folder, config, task, samples
        self.problems, self.trace_columns, self.looked = list(problems), trace_columns, looked
        self._hash = config.hash()
        self._asked = {(problem, sample): None for problem in problems for sample in range(samples)}
        make_folder(folder)
        self._lock = Lock(folder / LOCK, f"record {self._hash}/{task}")
        try:
            for name in (CONFIG, ABOUT, RECORD, JOURNAL):  # what a killed writer of these has left
                for half in folder.glob(f".{name}*.new"):
                    half.unlink(missing_ok=True)
            self.repairs = self._settle_config()
            self._journal = Journal(journal_path(folder), self._hash, task, sync_seconds)
            self.repairs += self._journal.repairs
            if isinstance(problems, Mapping):
                self._check_prompts(problems)
            self._write_about(about or {})
        except BaseException:
            if hasattr(self, "_journal"):
                self._journal.close()
            self._lock.release()
            raise
        for repair in self.repairs:
            warnings.warn(repair, stacklevel=3)

    def _settle_config(self) -> list[str]:
        path, data = self.folder / CONFIG, self.config.canonical().encode() + b"\n"
        if path.exists() and path.read_bytes() == data:
            return []
        repairs = []
        if path.exists():
            repairs.append(f"{path} did not say what its folder's name says: set aside as {set_aside(path).name}")
        write_file(path, data, "nothing was written")
        return repairs

    def _check_prompts(self, prompts: Mapping[str, str]) -> None:
        for key in self._asked:
            held = self._journal.entries.get(key)
            if held is not None and held.prompt is not None and held.prompt != prompts[held.problem]:
                raise UserError(
                    f"record {self._hash}/{self.task}: {held.problem} was decoded from another prompt, so it is "
                    "another record; give the config the digest of the prompts"
                )

    def _write_about(self, about: Mapping[str, Any]) -> None:
        path = self.folder / ABOUT
        try:
            old = read_about(path)
        except DamagedError as error:
            old = {}
            self.repairs.append(f"{error}: set aside as {set_aside(path).name}")
        old = old or {"created": time.strftime("%Y-%m-%d %H:%M:%S")}
        asked = {"problems": len(self.problems), "samples": self.samples, "names": self.problems}
        new = {**old, **about, "complete": complete(old, self._journal.entries)}
        new |= {} if self.looked else {"asked": asked}
        if new != old:
            write_file(path, json.dumps(new, indent=1).encode() + b"\n")

    def _write_complete(self) -> None:
        """Note of each problem asked how many of its samples are finished: what else is held came of interruptions."""
        path = self.folder / ABOUT
        about = read_about(path)
        now = {name: max(self.samples, about["complete"].get(name, 0)) for name in self.problems}
        if now.items() - about["complete"].items():
            new = {**about, "complete": {**about["complete"], **now}}
            write_file(path, json.dumps(new, indent=1).encode() + b"\n", "the same command finishes the record")

    def __contains__(self, key: Key) -> bool:
        return self.held(*key) is not None

    def held(self, problem: str, sample: int) -> Entry | None:
        """Return the facts of a rollout, None where it is not held as asked; its text and tokens are not read yet."""
        entry = self._journal.entries.get((problem, sample))
        return entry if entry is not None and entry.trace_columns >= self.trace_columns else None

    def missing(self) -> list[Key]:
        """Return the keys that are asked and not held as asked, in the order they were asked."""
        return [key for key in self._asked if key not in self]

    def get(self, problem: str, sample: int) -> StoredRollout | None:
        """Return the rollout of a key, or None where it is not held as asked."""
        entry = self.held(problem, sample)
        return None if entry is None else entry.load()

    def add(self, rollout: Any) -> StoredRollout:
        """Store a rollout (anything like `harness.decode.Rollout`) durably; one that is held already stays, but for
        a trace that it lacks.

        Raises:
            UserError: the disk is full or fails; the rollouts before are safe.
            RuntimeError: the same key was decoded again, for its trace, to other tokens.
        """
        stored = StoredRollout.of(rollout)
        if stored.key not in self._asked:
            raise ValueError(f"{stored.key} is not asked of this record")
        if entry := self.held(*stored.key):
            return entry.load()
        self._journal.append(stored)
        return stored

    def entries(self) -> Iterator[Entry]:
        """Yield the facts of what is asked and held, problem by problem."""
        return (self._journal.entries[key] for key in self._asked if key in self._journal.entries)

    def rollouts(self) -> Iterator[StoredRollout]:
        """Yield what is asked and held, problem by problem."""
        return (entry.load() for entry in self.entries())

    def finish(self) -> Path:
        """Write `record.jsonl` of everything held and return its path; nothing is done where it is right already.

        Raises:
            UserError: something asked is missing, or the disk is full (the journal is safe then).
        """
        if missing := self.missing():
            raise UserError(
                f"record {self._hash}/{self.task} lacks {len(missing)} of {len(self._asked)} rollouts: "
                "a record is complete or it is none"
            )
        self._journal.sync()
        path, data = self.folder / RECORD, b"".join(manifest(self._hash, self.task, self._journal.entries))
        if not same_bytes(path, (data,)):
            write_file(path, data, "the journal is safe, and the same command finishes the record")
        if not self.looked:
            self._write_complete()
        return path

    def grade(self, gold: Mapping[str, Gold], judge: str = DEFAULT_GRADER) -> dict[Key, Verdict]:
        """Return a verdict a rollout asked and held, `gold` being the answers of each problem; they are stored."""
        return grade_record(self.folder, self.header(), self.entries(), gold, judge)

    def header(self) -> dict[str, Any]:
        """Return the first line of this record's verdicts."""
        return header(self._hash, self.task)

    def close(self) -> None:
        """Close the journal and let the next process in."""
        try:
            self._journal.close()
        finally:
            self._lock.release()

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def same_bytes(path: Path, pieces: Iterable[bytes]) -> bool:
    """Tell whether a file exists and holds exactly these pieces."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return all(file.read(len(piece)) == piece for piece in pieces) and not file.read(1)
