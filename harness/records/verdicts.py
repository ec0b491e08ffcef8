"""Verdicts beside a record, one file a grader; they depend on grader and gold answer, so they are kept apart.

A stored verdict counts only while the text, the gold answer and the grader's versions are those it was given for;
anything else is graded again. Losing the file loses nothing.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.grading import Verdict, grade_many
from harness.records import lines
from harness.records.files import folder_name, write_file
from harness.records.rollout import Key, StoredRollout, digest


def verdict_path(folder: Path, grader: str) -> Path:
    """Where a grader's verdicts on a record are."""
    return folder / f"verdicts-{folder_name('grader', grader)}.jsonl"


def versions(grader: str) -> dict[str, str]:
    """What a grader's verdicts depend on, beside text and gold."""
    found = {"grader": grader}
    for package in ("rlvr-dir", "math-verify", "latex2sympy2-extended", "sympy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def verdict_row(rollout: StoredRollout, gold: str, kind: str, answer: str | None = None) -> dict[str, Any]:
    """One stored verdict, with what it was given for."""
    return {
        "problem": rollout.problem,
        "sample": rollout.sample,
        "text": digest(rollout.text),
        "gold": gold,
        "kind": kind,
        "answer": answer,
    }


def read_verdicts(folder: Path, grader: str, expected: dict[str, Any] | None = None) -> dict[Key, dict[str, Any]]:
    """Stored rows by key. With `expected`, none unless the file's first line says exactly that."""
    path = verdict_path(folder, grader)
    if not path.is_file():
        return {}
    head, *rows = [line.row for line in lines.scan(path.read_bytes())] or [None]
    if expected is not None and head != expected:
        return {}
    return {(row["problem"], row["sample"]): row for row in rows if row is not None}


def write_verdicts(folder: Path, grader: str, head: dict[str, Any], rows: Iterable[dict[str, Any]]) -> None:
    """Replaces a grader's file."""
    write_file(verdict_path(folder, grader), b"".join(lines.encode(row) for row in (head, *rows)))


def grade_record(
    folder: Path,
    head: dict[str, Any],
    rollouts: Iterable[StoredRollout],
    gold: Mapping[str, str],
    grader: str,
) -> dict[Key, Verdict]:
    """Verdicts on `rollouts`: the stored ones where they still hold, the rest graded now, and all stored again.

    A verdict that the machinery failed to give (`timed_out`, `grader_error`) is tried again.

    Raises:
        UserError: a problem has no gold answer, no grader has that name, or the disk is full.
    """
    head = {**head, **versions(grader)}
    stored = read_verdicts(folder, grader, head)
    known: dict[Key, Verdict] = {}
    todo: list[StoredRollout] = []
    for rollout in rollouts:
        if rollout.problem not in gold:
            raise UserError(f"gold has no answer of {rollout.problem!r}")
        row = stored.get(rollout.key)
        if row and (row["text"], row["gold"]) == (digest(rollout.text), gold[rollout.problem]):
            verdict = Verdict(row["kind"], row["answer"], grader)
            if verdict.graded:
                known[rollout.key] = verdict
                continue
        todo.append(rollout)
    items = [(gold[rollout.problem], rollout.text, rollout.finish_reason) for rollout in todo]
    fresh = dict(zip(todo, grade_many(items, grader=grader), strict=True))
    if fresh:
        rows = stored | {
            r.key: verdict_row(r, gold[r.problem], verdict.kind, verdict.answer) for r, verdict in fresh.items()
        }
        write_verdicts(folder, grader, head, [rows[key] for key in sorted(rows)])
    return known | {rollout.key: verdict for rollout, verdict in fresh.items()}
