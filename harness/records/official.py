"""The authors' own result files as a record: read, checked against themselves, compared and graded again with ours.

Their script writes one folder a run,
`{base}-{rl}-{dataset}-w{w0}_{w1}-select_{criterion}-thresh_{tau}-n{n}-t{T}-top_p{p}`,
with one `seed{seed}.json` a seed: a list with an object a problem (`prompt`, `gt`, and lists of length n
`generated_texts`, `accs`, `lengths`, `resample_rates`, `resample_infos`). Flagged positions are the keys of
`resample_infos`, whose values name the proposed token (`original`) and the emitted one (`resampled`). There are no
token ids of the response, no log-probabilities and no problem ids, so problems are known by their place.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from harness.digest import digest
from harness.errors import UserError
from harness.records.row import Row
from harness.spec.stored import Count, Flag, Number, Stored, Text, check_stored, is_number, read_json

_FOLDER = re.compile(
    r"(?P<models>.+)-(?P<dataset>[^-]+)-w(?P<w0>-?[^_]+)_(?P<w1>[^_]+)-select_(?P<criterion>.+)"
    r"-thresh_(?P<tau>.+)-n(?P<n>[0-9]+)-t(?P<temperature>[^-]+)-top_p(?P<top_p>[^-]+)"
)
MOST_TOKENS = 1 << 20  # of a response
_LISTS = ("generated_texts", "accs", "lengths", "resample_rates", "resample_infos")


class Resampled(Stored, frozen=True):
    """A flagged position: the token that was proposed, and the one in its place."""

    original: Any
    resampled: Any


class ProblemFile(Stored, frozen=True):
    """A problem of their files."""

    prompt: Text
    gt: Text | Number
    generated_texts: tuple[Text, ...]
    accs: tuple[Flag, ...]
    lengths: tuple[Annotated[Count, Field(le=MOST_TOKENS)], ...]
    resample_rates: tuple[Number, ...]
    resample_infos: tuple[dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Resampled], ...]


@dataclass(frozen=True)
class OfficialRun:
    """One folder of theirs. Sample `s` of a problem is response `s % per_seed` of seed `seeds[s // per_seed]`."""

    source: dict[str, Any]
    seeds: tuple[int, ...]
    per_seed: int
    rows: tuple[Row, ...]
    accs: tuple[bool, ...]  # their verdicts, one a response
    gold: dict[str, str]

    @property
    def task(self) -> str | None:
        """The dataset that the folder's name gives."""
        return self.source.get("dataset")


def read_official(folder: str | Path, ids: Sequence[str] | None = None, task: str | None = None) -> OfficialRun:
    """Read a run's folder.

    Args:
        folder: holds the `seed*.json`.
        ids: of the problems, in the dataset's order; their place by default.
        task: the benchmark, where the folder's name does not give it.

    Raises:
        UserError: no seed files, seeds that do not fit together, or a file that contradicts itself.
    """
    folder = Path(folder).expanduser()
    paths = sorted(
        (path for path in folder.glob("seed*.json") if path.stem[4:].isdecimal()), key=lambda path: int(path.stem[4:])
    )
    if not paths:
        raise UserError(f"{folder} holds no seed<number>.json; accepted: a folder that the authors' script wrote")
    source = _settings(folder.name)
    name = task or source.get("dataset")
    if not name:
        raise UserError(f"{folder.name!r} does not say which benchmark it is; give the task")
    runs = {path: _load(path) for path in paths}
    first = runs[paths[0]]
    per_seed = len(first[0]["generated_texts"])
    for path, problems in runs.items():
        if [(p["prompt"], p["gt"]) for p in problems] != [(p["prompt"], p["gt"]) for p in first]:
            raise UserError(f"{path} has other problems than {paths[0].name}; seeds of one run have the same")
        if {len(p["generated_texts"]) for p in problems} != {per_seed}:
            raise UserError(f"{path} does not have {per_seed} responses to each problem, as {paths[0].name} has")
    if ids is not None and len(ids) != len(first):
        raise UserError(f"ids has {len(ids)} entries, but {folder} has {len(first)} problems")
    keys = [f"{name}/{key}" for key in (ids if ids is not None else range(len(first)))]
    rows, accs = [], []
    for turn, path in enumerate(paths):
        for key, problem in zip(keys, runs[path], strict=True):
            for i in range(per_seed):
                rows.append(_row(path, key, turn * per_seed + i, problem, i))
                accs.append(bool(problem["accs"][i]))
    files = {path.name: digest(path.read_bytes()) for path in paths}
    seeds = tuple(int(path.stem[4:]) for path in paths)
    return OfficialRun(
        source={"folder": folder.name, **source, "dataset": name, "seeds": seeds, "per_seed": per_seed, "files": files},
        seeds=seeds,
        per_seed=per_seed,
        rows=tuple(rows),
        accs=tuple(accs),
        gold={key: str(problem["gt"]) for key, problem in zip(keys, first, strict=True)},
    )


def _settings(folder: str) -> dict[str, Any]:
    """Return what the folder's name says; nothing where it was renamed. gamma = -w0 (0 is plain replacement)."""
    match = _FOLDER.fullmatch(folder)
    return {name: _number(value) for name, value in match.groupdict().items()} if match else {}


def _number(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if is_number(value) else text


def _load(path: Path) -> list[dict[str, Any]]:
    problems = read_json(path)
    if not isinstance(problems, list) or not problems:
        raise UserError(f"{path} is not a list of problems")
    for number, problem in enumerate(problems):
        absent = [name for name in ("prompt", "gt", *_LISTS) if not isinstance(problem, dict) or name not in problem]
        if absent:
            raise UserError(f"{path} problem {number} lacks {absent[0]!r}")
        check_stored(problem, ProblemFile, f"{path} problem {number}")
        if len({len(problem[name]) for name in _LISTS}) != 1 or not problem["accs"]:
            raise UserError(f"{path} problem {number} has lists of different lengths, or empty ones")
    return problems


def _row(path: Path, key: str, sample: int, problem: dict[str, Any], i: int) -> Row:
    n = int(problem["lengths"][i])
    replaced, changed = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    for position, tokens in problem["resample_infos"][i].items():
        if not 0 <= int(position) < n:
            raise UserError(f"{path} {key} response {i} flags position {position} of {n} tokens")
        replaced[int(position)] = True
        changed[int(position)] = tokens["resampled"] != tokens["original"]
    told = problem["resample_rates"][i]
    if abs(replaced.sum() - told * n) > 1e-6 * max(1, n):
        raise UserError(f"{path} {key} response {i} tells a ratio of {told}, but flags {replaced.sum()} of {n} tokens")
    return Row.make(
        problem=key,
        sample=sample,
        text=problem["generated_texts"][i],
        finish_reason="unknown",
        replaced=replaced,
        changed=changed,
        prompt=digest(problem["prompt"]),
    )
