"""Which results may stand in one table: those of one pair, drawn one way; and what the pair is called."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from harness.evals.result import EvalResult
from harness.report import paper


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A result and the name that the reader gave to its RL model (`DAPO`), if any."""

    result: EvalResult
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The results of one pair, drawn one way: what may be compared."""

    pair: str  # as titles have it
    slug: str  # as files have it
    base: str
    rl: str
    entries: tuple[Entry, ...]

    @property
    def results(self) -> list[EvalResult]:
        """Without the names."""
        return [entry.result for entry in self.entries]

    @property
    def tasks(self) -> list[str]:
        """Benchmarks, in order."""
        return list(dict.fromkeys(result.task for result in self.results))


def grouped(entries: Sequence[Entry]) -> list[Group]:
    """By pair, temperature, top-p and token limit; the same result given twice counts once.

    Those with the most samples come first: where one decoding has several results, tables that show one take the first.
    """
    found: dict[tuple[Any, ...], dict[str, Entry]] = {}
    for entry in sorted(entries, key=lambda entry: -entry.result.samples):
        s = entry.result.sampling
        base, rl = pair_of(entry.result)
        key = base, rl, s.temperature, s.top_p, s.max_tokens
        found.setdefault(key, {})[entry.result.config_hash] = entry
    pairs = [key[:2] for key in found]
    groups = []
    for number, (key, mine) in enumerate(found.items()):
        base, rl, temperature, top_p, limit = key
        label = pair_title(base, rl)
        if pairs.count(key[:2]) > 1:
            label += f" (T = {temperature:g}, top-p {top_p:g}, {limit} tokens)"
        groups.append(Group(label, f"{number}-" if len(found) > 1 else "", base, rl, tuple(mine.values())))
    return groups


def pair_of(result: EvalResult) -> tuple[str, str]:
    """The checkpoints of a result as it names them; `?` where it does not."""
    engine = result.provenance.get("engine")
    pair = engine.get("pair") if isinstance(engine, dict) else None
    pair = pair if isinstance(pair, dict) else {}
    return str(pair.get("base") or "?"), str(pair.get("rl") or "?")


def pair_title(base: str, rl: str) -> str:
    """The paper's name of a pair, `tiny pair`, or the last part of the RL checkpoint's name."""
    if (known := paper.pair_of(rl)) is not None:
        return f"{paper.PAIRS[known]} ({rl.rpartition('/')[2]})"
    parts = PurePath(rl).parts
    if parts[-3:] == ("tiny", "weights", "rl"):
        return "tiny pair"
    if parts[-1:] == ("rl",) and len(parts) > 1:
        return parts[-2]
    return parts[-1] if parts else "?"


def with_names(results: Sequence[EvalResult], name: str = "") -> list[Entry]:
    """Entries under one name."""
    return [Entry(result, name) for result in results]
