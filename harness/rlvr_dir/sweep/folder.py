"""A sweep's folder, `OUT/sweeps/NAME`: what was asked, what came out, and that nobody changes the one under the other.

sweep.yaml       the sweep, everything said; resuming reads it, and another sweep under this name is refused
study.journal    Optuna's trials, those of references too (unless `storage` is a database)
results/         one JSON file an evaluation, references included: what the records say, made again where it is missing
matched.json     the thresholds found for wanted replacement ratios
summary.md, summary.json, *.svg    what is said of it all
lock, study.lock, workers/         who runs it, who writes the journal, and what its workers print
"""

import difflib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import yaml

from rlvr_dir.config import read_yaml
from rlvr_dir.config.presentation import DEFAULT_GRADER
from rlvr_dir.config.search import Search
from rlvr_dir.config.sweep import SweepSpec
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.files import make_folder, write_file
from rlvr_dir.policy.own import not_loaded
from rlvr_dir.results import EvalResult
from rlvr_dir.results.result import read_result
from rlvr_dir.sweep.specs import load

# What may change between two runs of one sweep: it changes neither a token nor which points there are.
FREE = ("workers", "retries", "batch", "equal_forwards")
FREE_ENGINE = (
    "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_gib", "self_test", "workers",
    "ray_address", "enforce_eager",
)  # fmt: skip


class SweepFolder:
    """The files of one sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec, self.journal, self.lock = path / "sweep.yaml", path / "study.journal", path / "lock"
        self.results, self.workers = path / "results", path / "workers"
        self.matched = path / "matched.json"

    @classmethod
    def of(cls, spec: Search, out: Path) -> "SweepFolder":
        """Return the folder of a sweep under `out`."""
        return cls(out / "sweeps" / spec.name)

    def make(self) -> None:
        """Create what is missing."""
        for folder in (self.path, self.results, self.workers):
            make_folder(folder)

    def stored(self) -> Search | None:
        """Return the sweep this folder belongs to; None for a new one.

        Raises:
            UserError: its `sweep.yaml` cannot be read, or names a criterion of somebody's own that nobody has named; or
                it was begun when trials had files of their own.
        """
        if not self.spec.is_file():
            return None
        if (old := self.path / "points").is_dir():
            raise UserError(
                f"sweep={str(self.path)!r} was begun by an older version of rlvr-dir, and its trials ({old.name}/) "
                "are not read; accepted: move the folder away and run the sweep again, which decodes nothing twice"
            )
        data = read_yaml(self.spec)
        if own := not_loaded(data):
            raise UserError(
                f"sweep={str(self.path)!r} has criterion={own[0]!r}, which is loaded only where you name it; accepted: "
                "the file that the sweep was run from, in place of its name"
            )
        return load(data)

    def create_or_verify(self, spec: Search, *, extend: bool = False) -> Search:
        """Write the sweep down, or check it against the one that is; return it, its pairs called as they were.

        Raises:
            UserError: it is another sweep than the one begun here; with `extend`, more than points were added.
        """
        old = self.stored()
        check(old, spec, str(self.spec), extend=extend)
        if isinstance(old, SweepSpec):
            spec = spec.model_copy(update={"pair": old.pair})
        write_file(self.spec, dump(spec))
        return spec

    def tidy(self, names: Collection[str]) -> None:
        """Remove results that belong to no point any more, others than those of some names."""
        for path in self.results.glob("*.json"):
            if path.name not in names:
                path.unlink()

    def results_of(self, names: Iterable[str]) -> list[EvalResult] | None:
        """Return results by their files' names; None where a file is missing or damaged."""
        try:
            return [read_result(self.results / Path(name).name) for name in names]
        except DamagedError:
            return None


def dump(spec: Search) -> str:
    """Return a sweep as YAML."""
    return yaml.safe_dump(spec.plain(), sort_keys=False, allow_unicode=True)


def check(old: Search | None, new: Search, where: str, *, extend: bool) -> None:
    """Refuse to go on with a changed sweep.

    Raises:
        UserError: with the lines that differ.
    """
    if old is None or _identity(old) == _identity(new):
        return
    lines = difflib.unified_diff(_lines(old), _lines(new), "begun", "now", lineterm="", n=0)
    diff = [line for line in lines if not line.startswith("@@")]
    if not _adds_points(old, new):
        raise UserError(
            f"sweep {new.name!r} was begun with other settings ({where}); give the changed sweep another name, or undo "
            "the change:",
            diff,
        )
    if not extend:
        raise UserError(f"sweep {new.name!r} has more points now ({where}); add them with --extend:", diff)


def _identity(spec: Search) -> dict[str, Any]:
    data = {name: value for name, value in spec.plain().items() if name not in FREE}
    if "engine" in data:
        data["engine"] = {name: value for name, value in data["engine"].items() if name not in FREE_ENGINE}
    if "pair" in data:  # what a pair is called changes no token
        data["pair"] = [{**pair, "name": None} if isinstance(pair, dict) else pair for pair in data["pair"]]
    if "grader" in data:  # results of another grader are made again where trials are read
        data["grader"] = data["grader"] or DEFAULT_GRADER
    return data


def _lines(spec: Search) -> list[str]:
    return yaml.safe_dump(_identity(spec), sort_keys=False, default_flow_style=None, width=200).splitlines()


def _adds_points(old: Search, new: Search) -> bool:
    """Tell whether the new sweep only has more values of listed parameters, a higher `run_cap`, or more references."""
    if type(old) is not type(new) or set(old.parameters) != set(new.parameters):
        return False
    if old.method == "grid":
        for name, parameter in old.parameters.items():
            other = new.parameters[name]
            if type(parameter) is not type(other) or not set(parameter.listed) <= set(other.listed):
                return False
        parameters = old.parameters
    else:
        parameters = new.parameters
    capped = new.run_cap is not None and (old.run_cap is None or new.run_cap < old.run_cap)
    lists = {name: getattr(old, name) for name in old.grows}
    if capped or not all(set(values) <= set(getattr(new, name)) for name, values in lists.items()):
        return False
    like = new.model_copy(update={"parameters": parameters, "run_cap": old.run_cap, **lists})
    return _identity(like) == _identity(old)
