"""Rollouts without an engine, any key gives the same one, as the noise promises of real ones; and what tests share."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from rlvr_dir.config import Decoding, Pair, Sampling
from rlvr_dir.records import RecordConfig, RecordStore, Replay, Row
from rlvr_dir.records.entries import encode, scan
from rlvr_dir.records.record import JOURNAL
from tests.facts import ROBUST

TASK = "tiny_easy"
PROBLEMS = [f"{TASK}/{i}" for i in range(12)]
INFO = {"backend": "made", "dtype": "float32", "chat_template": {"from": "x", "sha256": "ab"}, "pair": {}}
TAILS = ("", " naïve 数 \u2028", "\n\n", "\ud800")  # of texts: non-ASCII, line ends of any kind, a lone surrogate


def config(**changes):
    settings = {"decoding": Decoding(mode="replace", tau=-0.3), "sampling": Sampling(), "info": INFO}
    return RecordConfig.of(Pair(base="org/base", rl="org/rl"), **{**settings, **changes})


def made(problem, sample, length=None):
    """Looks like a `rlvr_dir.decode.Rollout`; lengths, flags and text vary with the key."""
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
        proposed=np.arange(n),
        delta_logp_written=np.zeros(n, np.float32),
        trace=None,
    )


def row(problem, sample, length=None, **changes):
    """The same as it is kept, with some of its values changed."""
    rollout = made(problem, sample, length)
    vars(rollout).update(changes)
    return Row.from_rollout(rollout)


def made_replay(row):
    """A replay of a response with its first token changed."""
    about = {"problem": row.problem, "sample": row.sample, "response": row.digest}
    return Replay(**about, at=0, by="own", noise=0, token=1, judge=ROBUST, right=True)


def open_record(folder, samples=3, problems=PROBLEMS, **options):
    return RecordStore(folder).open(config(), TASK, problems, samples, **options)


def fill(folder, samples=3, problems=PROBLEMS, **options):
    """A finished record; gives its folder."""
    with open_record(folder, samples, problems, **options) as record:
        resume(record)
        return record.folder


def resume(record, generate=None):
    """Decodes what is missing, by `generate` of the missing keys, and finishes the record."""
    missing = record.missing()
    for rollout in (generate or (lambda keys: (made(*key) for key in keys)))(missing) if missing else ():
        record.add(Row.from_rollout(rollout))
    record.finish()


def say(folder, **about):
    """Writes into a record what a stranger would have it say of itself."""
    with (folder / JOURNAL).open("ab") as file:
        file.write(encode({"about": about}))


def read(folder, *, whole=False):
    """The one record of a store."""
    [name] = RecordStore(folder).names()
    return RecordStore(folder).read(*name, whole=whole)


def stored(records):
    """The keys of each record's rollouts in order of arrival, by config hash: one decoded twice is there twice."""
    found = {}
    for path in Path(records).glob(f"*/*/{JOURNAL}"):
        with path.open("rb") as file:
            entries = [entry for _, _, entry in scan(file) if entry]
        found[path.parent.parent.name] = [value.key for kind, _, value in entries if kind == "rollout"]
    return found


def stored_count(records):
    """How many rollouts are on the disk, in all records of a store."""
    return sum(map(len, stored(records).values()))
