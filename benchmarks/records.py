"""Measure the record store at the paper's size: bytes per token, seconds and memory, on generated rollouts.

    python -m benchmarks.records {write|trace|read|resume|verify|grade|open|list|compare|report|sweep} FOLDER SETTINGS

This runs one stage in its own process, so that its peak memory is its own, and prints one JSON line. `cpu` is processor
time, which other jobs on the machine do not change.

The rollouts have the properties that storage depends on. Tokens follow a Zipf–Mandelbrot distribution over 151,936 ids
(12.2 bits each), and half of each response repeats earlier spans of it, so that its text compresses (zlib: to 0.34)
like this project's own docs and code; a token has 4.1 characters. Three fifths of delta log p are near zero at every
scale and the rest has a Laplace distribution. 7 % of the tokens are flagged, half of them changed. No two responses
share anything. A trace has the ten most likely tokens of each model; most entropies and divergences are small.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.script import run
from rlvr_dir.config import Decoding, Pair, Sampling
from rlvr_dir.errors import UserError
from rlvr_dir.policy.trace import FACTS, TOP_FACTS
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.records import Record, RecordConfig, RecordStore, Row
from rlvr_dir.records.commands import list_records
from rlvr_dir.records.entries import scan
from rlvr_dir.records.record import JOURNAL

TASK, SAMPLES, VOCABULARY = "tiny_medium", 32, 151_936
STAGES = ("write", "trace", "read", "resume", "verify", "grade", "open", "list", "compare", "report", "sweep")
TRACED, POINTS = 32, 400  # responses that are traced; points of a sweep
_TORN = 1000  # bytes that `resume` finds of the last response
_LETTERS = np.frombuffer(b"    eeetttaaooinnsshrrdlucmfwypvbgk0123456789\\{}^_=+-()", dtype=np.uint8)


def bench_records(
    *,
    responses: int = 96,
    tokens: int = 20_000,
    decodings: int = 3,
    folder: str | Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Write one record response by response, copy it under the names of other decodings, and measure what reads them.

    Args:
        responses: Those of each record, a multiple of 32 (samples per problem).
        tokens: Tokens per response.
        decodings: Records in all, at least 2.
        folder: Where the store is made, and deleted at the end; by default the system's folder for temporary files.
        say: Called with the progress.

    Returns:
        A plain object: `stages` ({stage: {"seconds", "cpu", "peak_mib", ...}}), `bytes_a_token`, `bytes`, `settings`,
            `machine`, `date`.

    Raises:
        UserError: The sizes do not fit, or the disk has no room.
    """
    from rlvr_dir.bench.decode import machine

    if responses < SAMPLES or responses % SAMPLES:
        raise UserError(
            argument="responses", value=responses, accepted=f"multiples of {SAMPLES}, the samples of a problem"
        )
    if responses // SAMPLES > (most := len(find_benchmark(TASK).problems)):
        raise UserError(argument="responses", value=responses, accepted=f"up to {most * SAMPLES}")
    if tokens < 100:
        raise UserError(argument="tokens", value=tokens, accepted="at least 100")
    if decodings < 2:
        raise UserError(argument="decodings", value=decodings, accepted="at least 2")
    settings = {"responses": responses, "tokens": tokens, "decodings": decodings}
    with tempfile.TemporaryDirectory(prefix="rlvr-dir-bench-", dir=folder) as directory:
        needed = 6 * responses * tokens * decodings
        if (free := shutil.disk_usage(directory).free) < 1.2 * needed:
            raise UserError(f"{directory} has {free / 1e9:.1f} GB free; this run needs about {needed / 1e9:.1f} GB")
        stages, store, size = {}, Path(directory, "records"), 0
        for stage in STAGES:
            say(f"{stage}: started")
            stages[stage] = _in_process(stage, store, settings)
            say("{}: {seconds:.2f} s, {cpu:.2f} s of a processor, {peak_mib:.0f} MiB".format(stage, **stages[stage]))
            if stage == "verify":
                size = sum(path.stat().st_size for path in _folder(store, 0).iterdir())
                for index in range(1, decodings):
                    _copy(store, index, settings)
    return {
        "stages": stages,
        "bytes": size,
        "bytes_a_token": size / (responses * tokens),
        "settings": settings,
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def _in_process(stage: str, folder: Path, settings: dict[str, int]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.records", stage, str(folder), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"bench records: stage {stage} ended early: {said}")
    return json.loads(done.stdout)


# Generated rollouts


@cache
def _ranks() -> np.ndarray:
    """Return the cumulative distribution of token ids, before they are shuffled."""
    p = 1 / (np.arange(1, VOCABULARY + 1) + 2.7) ** 1.05
    return np.cumsum(p / p.sum())


@cache
def _shuffled() -> np.ndarray:
    return np.random.default_rng(0).permutation(VOCABULARY)


@cache
def _piece(token: int) -> bytes:
    rng = np.random.default_rng(token)
    length = int(np.clip(round(1 + rng.gamma(2.2, 1.4)), 1, 14))
    return rng.choice(_LETTERS, size=length).tobytes()


def made_values(problem: str, sample: int, tokens: int, gold: str) -> dict[str, Any]:
    """Return the content of a response with this many tokens, the same for the same key; every second one is right."""
    rng = np.random.default_rng([sample, *problem.encode()])
    fresh = _shuffled()[np.searchsorted(_ranks(), rng.random(tokens))]
    ids, used = np.empty(tokens, dtype=np.int64), 0
    while used < tokens:  # spans of 12 tokens on average, every second from earlier in the response
        length = min(int(rng.geometric(1 / 12)), tokens - used)
        start = int(rng.integers(0, used - length)) if used > length and rng.random() < 0.5 else None
        ids[used : used + length] = fresh[used : used + length] if start is None else ids[start : start + length]
        used += length
    small = rng.normal(size=tokens) * 10.0 ** rng.uniform(-6, -2, tokens)
    delta = np.where(rng.random(tokens) < 0.6, small, rng.laplace(size=tokens) * 0.25).astype(np.float32)
    replaced = delta < np.quantile(delta, 0.07)
    answer = gold if sample % 2 else "no answer"
    return {
        "problem": problem,
        "sample": sample,
        "text": b"".join(map(_piece, ids.tolist())).decode() + rf" \boxed{{{answer}}}",
        "finish_reason": "stop",
        "replaced": replaced,
        "changed": replaced & (rng.random(tokens) < 0.5),
        "token_ids": ids,
        "prompt_token_ids": range(200),
        "prompt": "0" * 16,
        "delta_logp": delta,
    }


def made_trace(ids: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Return a table like that of `rlvr_dir.policy.trace` for a response, with random numbers."""
    rng, n = np.random.default_rng(len(ids)), len(ids)
    likeliest = np.sort(-rng.exponential(4, (2, n, 10)) * 10.0 ** rng.uniform(-3, 0, (2, n, 1)), axis=2)[:, :, ::-1]
    others = _shuffled()[np.searchsorted(_ranks(), rng.random((n, 10)))]
    others[:, 0] = ids
    facts = np.empty((n, len(FACTS) + 10 * len(TOP_FACTS)), np.float32)
    facts[:, : len(FACTS)] = rng.exponential(1, (n, len(FACTS))) * 10.0 ** rng.uniform(-4, 0, (n, 1))
    facts[:, FACTS.index("logp_base")] = likeliest[0, :, 0]
    facts[:, FACTS.index("logp_rl")] = likeliest[0, :, 0] + delta
    facts[:, FACTS.index("proposed")] = ids
    for name in ("rank_base", "rank_rl"):
        facts[:, FACTS.index(name)] = rng.geometric(0.8, n) - 1
    facts[:, len(FACTS) :] = np.stack([others, likeliest[0], others, likeliest[1]], axis=2).reshape(n, -1)
    return facts


# The stages, each in its own process


@contextmanager
def _spent() -> Iterator[dict[str, float]]:
    """Measure the `with` block, in seconds of time and of processor time."""
    spent, began, cpu = {"seconds": 0.0, "cpu": 0.0}, time.perf_counter(), time.process_time()
    yield spent
    spent |= {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def _config(index: int) -> RecordConfig:
    decoding = Decoding(mode="rl") if not index else Decoding(mode="replace", tau=-0.01 * index)
    sampling = Sampling(samples=SAMPLES, max_tokens=20_000)
    return RecordConfig.of(Pair(base="made/base", rl="made/rl"), decoding, sampling, {"backend": "made"})


def _folder(store: Path, index: int) -> Path:
    return store / _config(index).hash() / TASK


def _golds(responses: int) -> dict[str, Any]:
    golds = find_benchmark(TASK).golds
    return {f"{TASK}/{key}": gold for key, gold in islice(golds.items(), responses // SAMPLES)}


def _open(store: Path, responses: int, index: int = 0) -> Record:
    return RecordStore(store).open(_config(index), TASK, [*_golds(responses)], SAMPLES)


def _copy(store: Path, index: int, settings: dict[str, int]) -> None:
    """Copy the first record under another decoding's name."""
    with _open(store, settings["responses"], index) as record:
        record.add(*Record(_folder(store, 0)).read())
        record.finish()


def _write(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Write a record; `each_ms` is to compress, append and sync a response, without making it up."""
    golds, total = _golds(settings["responses"]), {"seconds": 0.0, "cpu": 0.0, "slowest_ms": 0.0}
    with _open(store, settings["responses"]) as record:
        for problem, sample in record.missing():
            values = made_values(problem, sample, settings["tokens"], str(golds[problem]))
            with _spent() as spent:
                record.add(Row.make(**values))
            total = {name: total[name] + spent.get(name, 0.0) for name in total}
            total["slowest_ms"] = max(total["slowest_ms"], 1e3 * spent["seconds"])
        with _spent() as spent:
            record.finish()
    return total | {"each_ms": 1e3 * (total["seconds"] + spent["seconds"]) / settings["responses"]}


def _trace(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Compress and append traced responses, then read their texts alone; times are those of a response."""
    golds, size, problems = _golds(TRACED), 0, [*_golds(TRACED)]
    config = _config(0).replace(stop=("traced",))
    with RecordStore(store.parent / "traced").open(config, TASK, problems, TRACED, trace_columns=50) as record:
        values = [made_values(*key, settings["tokens"], str(golds[key[0]])) for key in record.missing()]
        traces = [made_trace(each["token_ids"], each["delta_logp"]) for each in values]
        with _spent() as spent:
            for each, table in zip(values, traces, strict=True):
                record.add(row := Row.make(**each, trace=table))
                size += row.size
        with _spent() as texts:
            assert all(row.text == each["text"] for row, each in zip(record, values, strict=True))
    ms = {"each_cpu_ms": 1e3 * spent["cpu"] / TRACED, "text_cpu_ms": 1e3 * texts["cpu"] / TRACED}
    return {**spent, **ms, "bytes_a_token": size / TRACED / settings["tokens"]}


def _read(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Read without a lock: whether it is finished, and the counts of every response."""
    with _spent() as spent:
        record = RecordStore(store).read(_config(0).hash(), TASK)
        counted = sum(row.n_tokens for row in record)
        assert record.finished
    assert counted == settings["responses"] * settings["tokens"]
    return spent


def _resume(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Open for writing with a torn last response: unfinished entries are checked, and the tail is cut."""
    path = _folder(store, 0) / JOURNAL
    with path.open("rb") as file:
        last = max(at for at, _, entry in scan(file) if entry and entry[0] == "rollout")
    os.truncate(path, last + _TORN)
    with _spent() as spent, warnings.catch_warnings(action="ignore"):
        record = _open(store, settings["responses"])
        missing, held = record.missing(), sum(row.n_tokens for row in record)
    peak = _peak()
    with record:
        assert len(missing) == 1
        assert held == (settings["responses"] - 1) * settings["tokens"]
        [(problem, sample)] = missing
        gold = str(_golds(settings["responses"])[problem])
        record.add(Row.make(**made_values(problem, sample, settings["tokens"], gold)))
        record.finish()
    return {**spent, "peak_mib": peak}


def _verify(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Read every response back completely: tokens, text, flags and delta log p."""
    counted = 0
    with _spent() as spent:
        for row in map(Row.load, RecordStore(store).read(_config(0).hash(), TASK, whole=True)):
            assert len(row.text) > len(row.token_ids)
            counted += len(row.changed)
    assert counted == settings["responses"] * settings["tokens"]
    return spent


def _grade(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Grade all records for the first time: every text is read once; `each_s` is a record's share."""
    golds = _golds(settings["responses"])
    with _spent() as spent:
        for index in range(settings["decodings"]):
            with _open(store, settings["responses"], index) as record:
                record.finish()
                verdicts = record.grade(golds)
                assert sum(verdict.correct for verdict in verdicts.values()) == settings["responses"] // 2
    return {**spent, "each_s": spent["seconds"] / settings["decodings"]}


def _open_all(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Open all records for writing, like a command whose responses are all cached."""
    with _spent() as spent:
        for index in range(settings["decodings"]):
            with _open(store, settings["responses"], index) as record:
                assert not record.missing()
    return spent


def _list(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """List all records, like `rlvr-dir records list`, and measure the memory of a response's facts and verdict."""
    with _spent() as spent:
        assert all(row["finished"] for row in list_records(store))
    tracemalloc.start()
    record = RecordStore(store).read(_config(0).hash(), TASK)
    held = tracemalloc.get_traced_memory()[0] / len(record.rows)
    responses = settings["decodings"] * settings["responses"]
    return {**spent, "cpu_us_a_response": 1e6 * spent["cpu"] / responses, "bytes_a_response": held}


def _compare(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Compare all records, from counts and stored verdicts, as `rlvr-dir compare` does."""
    from rlvr_dir.results.compare import compare
    from rlvr_dir.results.load_results import read_results
    from rlvr_dir.results.settings import settings_of

    with _spent() as spent:
        rows = compare(settings_of(read_results([store])))
    assert len(rows) == settings["decodings"] - 1
    return spent


def _report(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Read all records, and build and write their report, as `rlvr-dir report` does."""
    from rlvr_dir.report.build import build
    from rlvr_dir.report.write import write
    from rlvr_dir.results.load_results import read_results

    with _spent() as spent:
        write(build(read_results([store])), store.parent / "report")
    return spent


def _sweep(store: Path, settings: dict[str, int]) -> dict[str, Any]:
    """Ask a sweep of 400 points what is left, a second time; `each_cpu_ms` is the time to complete a point and ask
    again."""
    from rlvr_dir.report.sweep import CompleteTrial
    from rlvr_dir.sweep.outcome import Places
    from rlvr_dir.sweep.run import open_sweep
    from rlvr_dir.sweep.specs import load

    values = {"values": [-(i + 1) / POINTS for i in range(POINTS // 4)]}
    varied = {"decode.tau": values, "decode.gamma": {"values": [0.0, 0.05, 0.1, 0.2]}}
    about: dict[str, Any] = {"name": "bench", "tasks": [TASK], "metric": {"name": "avg_at_2"}, "parameters": varied}
    sweep = open_sweep(load({**about, "sampling": {"samples": 2}}), Places.under(store.parent, track=False))
    sweep.folder.make()
    left = sweep.todo()
    with _spent() as spent:
        assert len(sweep.todo()) == len(left) > POINTS
    with _spent() as ended:
        for entry in left[:20]:
            sweep.trials[entry] = CompleteTrial(entry.pair, entry.number, entry.point, "", (), {"avg_at_2": 0.5})
            sweep.todo()
    return {**spent, "each_cpu_ms": 1e3 * ended["cpu"] / 20}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(stage: str, folder: str, settings: str) -> None:
    """Run one stage and print what it found."""
    stages: dict[str, Callable[[Path, dict[str, int]], dict[str, Any]]] = dict(
        zip(
            STAGES,
            (_write, _trace, _read, _resume, _verify, _grade, _open_all, _list, _compare, _report, _sweep),
            strict=True,
        )
    )
    found = stages[stage](Path(folder), json.loads(settings))
    print(json.dumps({"peak_mib": _peak(), **found}))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in STAGES:
        main(*sys.argv[1:])
    else:
        run(bench_records)
