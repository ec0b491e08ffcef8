"""Rollouts without an engine, any key gives the same one, as the noise promises of real ones; and what tests share."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from harness.records import RecordConfig, RecordStore
from harness.records.journal import JOURNAL, scan
from harness.spec import Decoding, Pair, Sampling

TASK = "tiny_easy"
PROBLEMS = [f"{TASK}/{i}" for i in range(12)]
INFO = {"backend": "made", "dtype": "float32", "chat_template": {"from": "x", "sha256": "ab"}, "pair": {}}
TAILS = ("", " naïve 数 \u2028", "\n\n", "\ud800")  # of texts: non-ASCII, line ends of any kind, a lone surrogate


def config(**changes):
    settings = {"decoding": Decoding(mode="replace", tau=-0.3), "sampling": Sampling(), "info": INFO}
    return RecordConfig.of(Pair(base="org/base", rl="org/rl"), **{**settings, **changes})


def made(problem, sample, length=None):
    """Looks like a `harness.decode.Rollout`; lengths, flags and text vary with the key."""
    rng = np.random.default_rng([sample, *problem.encode()])
    n = int(rng.integers(1, 30)) if length is None else length
    replaced = rng.random(n) < 0.3
    return SimpleNamespace(
        request=SimpleNamespace(problem=problem, sample=sample, prompt=f"Q {problem}", prompt_token_ids=None),
        prompt_token_ids=(5, 6, 7),
        token_ids=tuple(int(t) for t in rng.integers(0, 300, n)),
        text=rf"{problem} gives \boxed{{{n % 3}}}{TAILS[n % 4]}",
        finish_reason=("stop", "length")[n % 2],
        replaced=replaced,
        changed=replaced & (rng.random(n) < 0.5),
        delta_logp=rng.normal(size=n).astype(np.float32),
        trace=None,
        n_forwards=None,
    )


def open_record(folder, samples=3, problems=PROBLEMS, **options):
    return RecordStore(folder).open(config(), TASK, problems, samples, **options)


def fill(folder, samples=3, problems=PROBLEMS):
    """A finished record; gives its folder."""
    with open_record(folder, samples, problems) as record:
        for key in record.missing():
            record.add(made(*key))
        record.finish()
        return record.folder


def resume(record, generate):
    """Yields every rollout asked of `record`, facts of the held ones first; `generate` makes the rest; finishes it."""
    missing = record.missing()
    yield from record.entries()
    for rollout in generate(missing) if missing else ():
        yield record.add(rollout)
    if left := record.missing():
        raise RuntimeError(f"no rollout came back for {len(left)} of {len(missing)} missing keys, {left[0]} first")
    record.finish()


def stored(records):
    """The keys of each record's rollouts in order of arrival, by config hash: one decoded twice is there twice."""
    found = {}
    for path in Path(records).glob(f"*/*/{JOURNAL}"):
        with path.open("rb") as file:
            rows = [row for _, _, row in scan(file, whole=False) if row and "problem" in row]
        found[path.parent.parent.name] = [(row["problem"], row["sample"]) for row in rows]
    return found


def stored_count(records):
    """How many rollouts are on the disk, in all records of a store."""
    return sum(map(len, stored(records).values()))
