"""Verdicts beside a record, one file a judge; they depend on grader and gold answer, so they are kept apart.

A stored verdict counts only while the text, the gold answer and the grader's versions are those it was given for;
anything else is graded again. Losing the file loses nothing. A judge is a grader's name, with `+VERSION` where it went
by another version of the benchmark's answers than the published one: `robust-2`, `robust-2+r1zero`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.files import folder_name, write_file
from harness.grading import OLDER, VERDICT_KINDS, Gold, Verdict, code_digest, grade_many, grader_name
from harness.records import lines
from harness.records.journal import Entry
from harness.records.rollout import Key, StoredRollout
from harness.spec.stored import MOST, MOST_BYTES

_JUDGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")


def judge_name(grader: str, golds: str = "published") -> str:
    """Return the judge: a grader that goes by a version of the gold answers."""
    return grader if golds == "published" else f"{grader}+{golds}"


def verdict_path(folder: Path, judge: str) -> Path:
    """Return where a judge's verdicts on a record are."""
    grader, *version = judge.split("+")
    return folder / f"verdicts-{'+'.join(folder_name('grader', part) for part in (grader, *version))}.jsonl"


OFFICIAL = "official"  # the judge whose verdicts came with an imported record


@cache
def _packages() -> dict[str, str]:
    found = {}
    for package in ("math-verify", "latex2sympy2-extended", "sympy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def versions(judge: str) -> dict[str, str]:
    """Return what verdicts depend on beside text and gold answer: the libraries, and the very code of our graders."""
    if judge == OFFICIAL:
        return {"grader": judge}
    return {"grader": judge.split("+")[0], "code": code_digest(), **_packages()}


def verdict_row(rollout: Entry | StoredRollout, gold: Gold, kind: str, answer: str | None = None) -> dict[str, Any]:
    """Return a verdict as it is stored, with what it was given for."""
    return {
        "problem": rollout.problem,
        "sample": rollout.sample,
        "text": rollout.text_digest,
        "gold": _plain(gold),
        "kind": kind,
        "answer": answer,
    }


def _plain(gold: Gold) -> str | list[str]:
    """Return a gold answer as JSON has it."""
    return gold if isinstance(gold, str) else list(gold)


def read_verdicts(folder: Path, judge: str, expected: dict[str, Any] | None = None) -> dict[Key, dict[str, Any]]:
    """Return the stored rows by key. With `expected`, none unless the file's first line says exactly that."""
    path = verdict_path(folder, judge)
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return {}
    head, *rows = [*lines.decode_all(path.read_bytes())] or [None]
    if expected is not None and head != expected:
        return {}
    return {(row["problem"], row["sample"]): row for row in rows if row is not None and _is_verdict(row)}


def _is_verdict(row: dict[str, Any]) -> bool:
    gold, answer, sample = row.get("gold"), row.get("answer"), row.get("sample")
    return (
        all(type(row.get(name)) is str for name in ("problem", "text"))
        and type(sample) is int
        and 0 <= sample <= MOST
        and row.get("kind") in VERDICT_KINDS
        and (answer is None or type(answer) is str)
        and (type(gold) is str or (type(gold) is list and all(type(each) is str for each in gold)))
    )


def judges(folder: Path) -> list[str]:
    """Return whose verdicts are beside a record."""
    names = sorted(path.stem.removeprefix("verdicts-") for path in folder.glob("verdicts-*.jsonl"))
    return [name for name in names if _JUDGE.fullmatch(name)]


def verdict_damage(folder: Path) -> list[str]:
    """Say of each file of verdicts beside a record what is wrong with it; what is damaged is graded again."""
    said = []
    for path in sorted(folder.glob("verdicts-*.jsonl")):
        try:
            size, rows = path.stat().st_size, [*lines.decode_all(path.read_bytes())] if path.is_file() else []
        except OSError as error:
            said.append(f"{path.name} cannot be read ({error.strerror})")
            continue
        bad = sum(row is None or (number > 0 and not _is_verdict(row)) for number, row in enumerate(rows))
        if not _JUDGE.fullmatch(path.stem.removeprefix("verdicts-")):
            said.append(f"{path.name} is named after no grader")
        elif size > MOST_BYTES or not rows:
            said.append(f"{path.name} has {size:,} bytes: it is not read")
        elif bad:
            said.append(f"{bad} damaged lines in {path.name}: what they said is graded again")
    return said


def latest_verdicts(folder: Path, judge: str) -> dict[Key, dict[str, Any]]:
    """Return the stored rows of the newest version of a judge that has graded a record, whether they still hold or not.

    Raises:
        UserError: no grader has that name.
    """
    grader, *version_of_golds = judge.split("+")
    names = (grader_name(grader), *OLDER.get(grader_name(grader), ()))
    found = (read_verdicts(folder, "+".join((name, *version_of_golds))) for name in names)
    return next(filter(None, found), {})


def write_verdicts(folder: Path, judge: str, head: dict[str, Any], rows: Iterable[dict[str, Any]]) -> None:
    """Replace a judge's file."""
    write_file(verdict_path(folder, judge), b"".join(lines.encode(row) for row in (head, *rows)))


class StoredVerdicts:
    """A judge's verdicts beside a record: those that still hold, and new ones until they are written.

    A stored verdict holds for the text, the gold answer and the grader's versions it was given for. One that the
    machinery failed to give (`timed_out`, `grader_error`) does not: it is tried again.
    """

    def __init__(self, folder: Path, head: dict[str, Any], judge: str) -> None:
        self.grader = judge.split("+")[0]
        self._folder, self._judge, self._head = folder, judge, {**head, **versions(judge)}
        self._rows = read_verdicts(folder, judge, self._head)
        self._new = 0

    def get(self, rollout: Entry | StoredRollout, gold: Gold) -> Verdict | None:
        """Return the verdict on a rollout, None where none holds."""
        row = self._rows.get(rollout.key)
        if row is None or (row["text"], row["gold"]) != (rollout.text_digest, _plain(gold)):
            return None
        verdict = Verdict(row["kind"], row["answer"], self.grader)
        return verdict if verdict.graded else None

    def add(self, rollout: Entry | StoredRollout, gold: Gold, verdict: Verdict) -> None:
        """Take a new verdict, which `write` stores."""
        self._rows[rollout.key] = verdict_row(rollout, gold, verdict.kind, verdict.answer)
        self._new += 1

    def write(self) -> None:
        """Replace the file, where there is something new.

        Raises:
            UserError: the disk is full.
        """
        if self._new:
            write_verdicts(self._folder, self._judge, self._head, [self._rows[key] for key in sorted(self._rows)])
        self._new = 0


def grade_record(
    folder: Path,
    head: dict[str, Any],
    rollouts: Iterable[Entry | StoredRollout],
    gold: Mapping[str, Gold],
    judge: str,
    *,
    keep: bool = True,
) -> dict[Key, Verdict]:
    """Return verdicts on `rollouts`: the stored ones where they still hold, the rest graded now, and stored (`keep`).

    Raises:
        UserError: a problem has no gold answer, no grader has that name, or the disk is full.
    """
    grader, *version_of_golds = judge.split("+")
    stored = StoredVerdicts(folder, head, "+".join((grader_name(grader), *version_of_golds)))
    known: dict[Key, Verdict] = {}
    todo: list[Entry | StoredRollout] = []
    for rollout in rollouts:
        if rollout.problem not in gold:
            raise UserError(f"gold has no answer of {rollout.problem!r}")
        verdict = stored.get(rollout, gold[rollout.problem])
        if verdict is None:
            todo.append(rollout)
        else:
            known[rollout.key] = verdict
    items = ((gold[rollout.problem], rollout.text, rollout.finish_reason) for rollout in todo)  # one text at a time
    for rollout, verdict in zip(todo, grade_many(items, grader=stored.grader), strict=True):
        known[rollout.key] = verdict
        stored.add(rollout, gold[rollout.problem], verdict)
    if keep:
        stored.write()
    return known
