"""One record, open for writing: what is asked, what is held, what is missing, and the finished file.

A record is the folder `<store>/<config hash>/<task>`:

    config.json            the settings, canonically (`RecordConfig`)
    journal.jsonl          every rollout as it finished, delta log p and traces included: the truth, all else follows
    record.jsonl           once finished: all rollouts in order, exact facts only, the same bytes however it came about
    verdicts-<judge>.jsonl  what a grader said; apart, because graders change and tokens do not
    about.json             names and dates for people; nothing is computed from it
    lock                   held by the one process that writes
"""

import json
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.grading import DEFAULT_GRADER, Gold, Verdict
from harness.records import lines
from harness.records.config import RecordConfig
from harness.records.files import make_folder, set_aside, write_file
from harness.records.journal import Journal
from harness.records.lock import Lock
from harness.records.rollout import Key, StoredRollout, exact
from harness.records.verdicts import grade_record

CONFIG, JOURNAL, RECORD, ABOUT, LOCK = "config.json", "journal.jsonl", "record.jsonl", "about.json", "lock"
_DIGITS = re.compile(r"([0-9]+)")


def header(config_hash: str, task: str) -> dict[str, Any]:
    """The first line of a journal and of a record: whose it is."""
    return {"config": config_hash, "task": task, "format": 1}


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Problems by their names, numbers in them as numbers (`aime24/2` before `aime24/10`), then samples.

    It needs no memory of what was asked when, so any history of limits and samples ends in the same bytes.
    """

    def name(problem: str) -> tuple[list[Any], str]:
        parts = _DIGITS.split(problem)  # text, number, text, ...
        return [int(part) if i % 2 else part for i, part in enumerate(parts)], problem

    return sorted(keys, key=lambda key: (name(key[0]), key[1]))


def record_lines(config_hash: str, task: str, rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """The lines of `record.jsonl`, from rows in order."""
    yield lines.encode(header(config_hash, task))
    for row in rows:
        yield lines.encode(exact(row))


class Record:
    """Opens and locks a record; use it as a context manager. `RecordStore.open` makes it.

    `problems` are the keys that are asked, in order, each with `samples` samples; a mapping gives the digest of each
    prompt as well, and rollouts held for another prompt are then refused. More than is asked may be held: a run of
    32 samples serves one of 8. With `trace_columns`, rollouts held without a trace of so many columns count as missing.
    `repairs` says what was wrong on opening.
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
    ) -> None:
        if len(set(problems)) != len(problems) or not problems or samples < 1:
            raise ValueError("a record is asked for distinct problems, one at least, and samples >= 1")
        self.folder, self.config, self.task, self.samples = folder, config, task, samples
        self.problems, self.trace_columns = list(problems), trace_columns
        self._hash = config.hash()
        self._asked = {(problem, sample): None for problem in problems for sample in range(samples)}
        make_folder(folder)
        self._lock = Lock(folder / LOCK, f"record {self._hash}/{task}")
        try:
            self.repairs = self._settle_config()
            self._journal = Journal(folder / JOURNAL, header(self._hash, task), sync_seconds)
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
        for problem, sample in self._asked:
            held = self._journal.prompts.get((problem, sample))
            if held is not None and held != prompts[problem]:
                raise UserError(
                    f"record {self._hash}/{self.task}: {problem} was decoded from another prompt, so it is another "
                    "record; give the config the digest of the prompts"
                )

    def _write_about(self, about: Mapping[str, Any]) -> None:
        path = self.folder / ABOUT
        try:
            old = json.loads(path.read_bytes())
        except (OSError, ValueError):
            old = {"created": time.strftime("%Y-%m-%d %H:%M:%S")}
        new = {**old, **about, "asked": {"problems": len(self.problems), "samples": self.samples}}
        if new != old:
            write_file(path, json.dumps(new, indent=1).encode() + b"\n")

    def __contains__(self, key: Key) -> bool:
        return key in self._journal and self._journal.traces[key] >= self.trace_columns

    def missing(self) -> list[Key]:
        """The keys that are asked and not held as asked, in the order they were asked."""
        return [key for key in self._asked if key not in self]

    def get(self, problem: str, sample: int) -> StoredRollout | None:
        """The rollout of a key, or None where it is not held as asked."""
        key = problem, sample
        return StoredRollout.from_row(self._journal.row(key)) if key in self else None

    def add(self, rollout: Any) -> StoredRollout:
        """Stores a rollout (anything like `harness.decode.Rollout`) durably; one that is held already stays, but for
        a trace that it lacks.

        Raises:
            UserError: the disk is full or fails; the rollouts before are safe.
            RuntimeError: the same key was decoded again, for its trace, to other tokens.
        """
        stored = StoredRollout.of(rollout)
        if stored.key not in self._asked:
            raise ValueError(f"{stored.key} is not asked of this record")
        if stored.key in self:
            return StoredRollout.from_row(self._journal.row(stored.key))
        if stored.key in self._journal and exact(self._journal.row(stored.key)) != exact(stored.row()):
            raise RuntimeError(f"{stored.key} was decoded again, for its trace, and came out with other tokens")
        self._journal.append(stored)
        return stored

    def rollouts(self, *, everything: bool = False) -> Iterator[StoredRollout]:
        """What is asked and held, problem by problem; with `everything`, all that is held, in the record's order."""
        keys = in_order(self._journal.keys()) if everything else [key for key in self._asked if key in self._journal]
        return (StoredRollout.from_row(self._journal.row(key)) for key in keys)

    def finish(self) -> Path:
        """Writes `record.jsonl` with everything held and gives its path; does nothing where it is right already.

        Raises:
            UserError: something asked is missing, or the disk is full (the journal is safe then).
        """
        if missing := self.missing():
            raise UserError(
                f"record {self._hash}/{self.task} lacks {len(missing)} of {len(self._asked)} rollouts: "
                "a record is complete or it is none"
            )
        self._journal.sync()
        path = self.folder / RECORD
        if not same_bytes(path, self._lines()):
            write_file(path, self._lines(), "the journal is safe, and the same command finishes the record")
        return path

    def _lines(self) -> Iterator[bytes]:
        return record_lines(self._hash, self.task, map(self._journal.row, in_order(self._journal.keys())))

    def grade(self, gold: Mapping[str, Gold], judge: str = DEFAULT_GRADER) -> dict[Key, Verdict]:
        """A verdict a rollout asked and held, `gold` being the answers of each problem; kept in `verdicts-<judge>`."""
        return grade_record(self.folder, self.header(), self.rollouts(), gold, judge)

    def header(self) -> dict[str, Any]:
        """The first line of this record's files."""
        return header(self._hash, self.task)

    def close(self) -> None:
        """Closes the journal and lets the next process in."""
        try:
            self._journal.close()
        finally:
            self._lock.release()

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def same_bytes(path: Path, pieces: Iterable[bytes]) -> bool:
    """Whether a file exists and holds exactly these pieces."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return all(file.read(len(piece)) == piece for piece in pieces) and not file.read(1)
