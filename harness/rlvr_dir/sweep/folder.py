"""Manage the folder of a sweep, `OUT/sweeps/NAME`, with its settings and results.

sweep.yaml       the sweep with every key; `sweep resume` reads it
study.journal    Optuna's trials, which are written from the results
results/         one JSON file per evaluation, including references; made again from the records if it is missing
matched.json     the thresholds found for requested replacement ratios
summary.md, summary.json, *.svg    the tables and figures
lock             locked by the process that runs the sweep
failed.json      what failed in the last run, and why
"""

import difflib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from rlvr_dir.config import read_yaml
from rlvr_dir.config.engine import PLACING_ARGS
from rlvr_dir.config.presentation import DEFAULT_GRADER
from rlvr_dir.config.search import Search
from rlvr_dir.config.stored import Count, Flag, Stored, Text
from rlvr_dir.config.sweep import SweepSpec
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.files import make_folder, write_file
from rlvr_dir.policy.own import not_loaded
from rlvr_dir.report.sweep import CompleteTrial
from rlvr_dir.results import EvalResult
from rlvr_dir.results.result import read_result
from rlvr_dir.sweep.specs import load

# Settings that may change between two runs of a sweep. The first changes no token and no point. The others change which
# points and references there are: what was decoded is kept and used.
FREE = ("workers", "batch", "equal_forwards")
POINTS = ("parameters", "method", "metric", "run_cap", "seed", "decode", "references", "samplings", "controls")
FREE_ENGINE = (
    "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_gib", "self_test", "workers",
    "ray_address", "enforce_eager", "tensor_parallel_size", "draft",
)  # fmt: skip
# Keys that older versions wrote. Now Ray starts the engines (`engine.workers`), and trials are stored in the folder.
REMOVED = ("storage", "retries")


class Failure(Stored, frozen=True):
    """Store a point or a reference that failed, in `failed.json`; `number` is its place."""

    number: Count
    reference: Flag
    reason: Text


class Failures(Stored, frozen=True):
    """Store the content of `failed.json`."""

    failed: tuple[Failure, ...] = ()


class SweepFolder:
    """Manage the files of one sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec, self.journal, self.lock = path / "sweep.yaml", path / "study.journal", path / "lock"
        self.results, self.matched, self.failed = path / "results", path / "matched.json", path / "failed.json"

    @classmethod
    def of(cls, spec: Search, out: Path) -> "SweepFolder":
        """Return the folder of a sweep under `out`."""
        return cls(out / "sweeps" / spec.name)

    def make(self) -> None:
        """Create the folders that do not exist yet."""
        for folder in (self.path, self.results):
            make_folder(folder)

    def stored(self) -> Search | None:
        """Return the sweep of this folder; None for a new one. Keys of older versions are left out.

        Raises:
            UserError: Its `sweep.yaml` cannot be read, names a user-defined criterion that is not imported, or is from
                a version in which trials had their own files.
        """
        if not self.spec.is_file():
            return None
        if (old := self.path / "points").is_dir():
            raise UserError(
                f"was begun by an older version of rlvr-dir, whose trials ({old.name}/) cannot be read",
                argument="sweep",
                value=str(self.path),
                hint="Move the folder away and run the sweep again. No response is decoded twice.",
            )
        data = read_yaml(self.spec)
        if own := not_loaded(data):
            raise UserError(
                f"uses criterion={own[0]!r}, which is loaded only when you name it",
                argument="sweep",
                value=str(self.path),
                hint="Pass the file that the sweep was run from, in place of its name.",
            )
        removed = REMOVED if data.get("kind") == "train" else (*REMOVED, "workers")
        return load({name: value for name, value in data.items() if name not in removed})

    def create_or_verify(self, spec: Search, say: Callable[[str], None]) -> Search:
        """Store the sweep, or check it against the stored one. Return it, with pairs named as stored.

        A sweep whose points have changed is continued, and `say` is called with the changes.

        Raises:
            UserError: The stored sweep is another one.
        """
        old = self.stored()
        if old is not None:
            self._check(old, spec)
            if changed := _difference(*(_identity(search, (*FREE, "engine")) for search in (old, spec))):
                lines = "\n".join(changed)
                say(f"The points of this sweep have changed. Responses that are cached are used again:\n{lines}")
        if isinstance(old, SweepSpec):
            spec = spec.model_copy(update={"pair": old.pair})
        write_file(self.spec, yaml.safe_dump(spec.plain(), sort_keys=False, allow_unicode=True))
        return spec

    def _check(self, old: Search, new: Search) -> None:
        """Raise UserError, with the lines that differ, if more than the points of the sweep have changed."""
        begun, now = (_identity(search, (*FREE, *POINTS)) for search in (old, new))
        if "engine" in begun and _context(now) >= _context(begun):  # what the old one cut is decoded again
            begun["engine"]["max_model_len"] = now["engine"]["max_model_len"]
        changed = _difference(begun, now)
        if changed:
            raise UserError(
                f"was begun with other settings ({self.spec})",
                changed,
                argument="sweep",
                value=new.name,
                hint="Give the changed sweep another name, or undo the change:",
            )

    def tidy(self, trials: Iterable[CompleteTrial]) -> None:
        """Remove the result files of points that the sweep no longer has. Their responses are kept."""
        names = {result.file_name for trial in trials for result in trial.results if isinstance(result, EvalResult)}
        for path in self.results.glob("*.json"):
            if path.name not in names:
                path.unlink()

    def read_results(self) -> list[EvalResult]:
        """Return all results, the newest last. A damaged file is left out, and the next run makes it again."""
        results: list[EvalResult] = []
        for path in sorted(self.results.glob("*.json"), key=lambda path: path.stat().st_mtime):
            with suppress(DamagedError):
                results.append(read_result(path))
        return results

    def write_failures(self, failures: Sequence[Failure]) -> None:
        """Write what failed in this run."""
        plain = Failures(failed=tuple(failures)).model_dump(mode="json")
        write_file(self.failed, json.dumps(plain, indent=1).encode())

    def read_failures(self) -> tuple[Failure, ...]:
        """Return what failed in the last run; raises DamagedError."""
        return Failures.from_file(self.failed).failed if self.failed.is_file() else ()


def _identity(spec: Search, free: Sequence[str]) -> dict[str, Any]:
    """Return what two runs of a sweep must have in common."""
    data = {name: value for name, value in spec.plain().items() if name not in free}
    if "engine" in data:
        data["engine"] = {name: value for name, value in data["engine"].items() if name not in FREE_ENGINE}
        own = data["engine"]["vllm_args"]
        data["engine"]["vllm_args"] = {name: value for name, value in own.items() if name not in PLACING_ARGS}
    if "pair" in data:  # the name of a pair changes no token
        data["pair"] = [{**pair, "name": None} if isinstance(pair, dict) else pair for pair in data["pair"]]
    if "grader" in data:  # results of another grader are made again from the records
        data["grader"] = data["grader"] or DEFAULT_GRADER
    return data


def _context(identity: dict[str, Any]) -> float:
    """Return the context that a sweep sets, in tokens; infinity if it takes the models' own."""
    return identity["engine"]["max_model_len"] or float("inf")


def _difference(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the lines in which two sweeps differ, as a diff without context. The order of keys is ignored."""
    if old == new:
        return []
    lines = difflib.unified_diff(_lines(old), _lines(new), "begun", "now", lineterm="", n=0)
    return [line for line in lines if not line.startswith("@@")]


def _lines(data: dict[str, Any]) -> list[str]:
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=200).splitlines()
