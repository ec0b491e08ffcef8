"""Before anything runs: the points, how much of each is in the records already, and what the rest will cost."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import Decoding, EngineSpec, Sampling
from rlvr_dir.config.sampling import SamplingSettings
from rlvr_dir.config.search import LISTED
from rlvr_dir.config.stored import Number, Plain, Stored
from rlvr_dir.config.sweep import RATIO, SweepSpec
from rlvr_dir.digest import installed
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.markdown import duration, markdown_table
from rlvr_dir.problems.benchmark import GROUPS, benchmark_size
from rlvr_dir.problems.data import NoDataError, preflight_of
from rlvr_dir.records import Record, RecordStore, fingerprint
from rlvr_dir.sweep.entries import controls_of, decoding_of, entries_of
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.lists import Cost
from rlvr_dir.sweep.matched import is_uniform
from rlvr_dir.sweep.points import listed_points
from rlvr_dir.sweep.taus import EVENTS, Taus, gate_of, stored_taus, wanted


@dataclass(frozen=True, slots=True)
class TrialCost:
    """A point or a reference: what it is, how many responses it needs, how many are held (None: cannot be told)."""

    pair: str
    label: str
    responses: int
    responses_held: int | None

    @property
    def missing(self) -> int:
        """Responses to be decoded."""
        return self.responses - (self.responses_held or 0)


@dataclass(frozen=True, slots=True)
class DecodingEstimate:
    """What a sweep will cost. `mean_tokens` is measured on held responses; None where there are none.

    `speed` is in tokens a second, of an earlier sweep here; None where there is none. `thresholds` counts the
    responses, at most, that refine thresholds.
    """

    rows: list[TrialCost]
    size: str
    mean_tokens: float | None
    max_tokens: int
    speed: float | None
    notes: tuple[str, ...]
    thresholds: int = 0

    @property
    def missing(self) -> int:
        """Responses to be decoded."""
        return sum(row.missing for row in self.rows)

    @property
    def length(self) -> float:
        """Tokens of a response, as measured, or at most."""
        return self.max_tokens if self.mean_tokens is None else self.mean_tokens

    @property
    def total(self) -> Cost:
        """Return what is left to decode, at most."""
        tokens = round(self.length * (self.missing + self.thresholds))
        return Cost(jobs=len(self.rows), responses=self.missing, thresholds=self.thresholds, tokens=tokens)

    def text(self, *, points: bool) -> str:
        """Write it as a person reads it; `points` lists them one by one."""
        n_held = sum(row.responses_held or 0 for row in self.rows)
        lines = [f"{self.size}; with references {len(self.rows)} ways of decoding, {self.missing + n_held:,} responses"]
        if points:
            cells = [
                [
                    row.pair,
                    row.label,
                    f"{row.responses:,}",
                    "?" if row.responses_held is None else f"{row.responses_held:,}",
                ]
                for row in self.rows
            ]
            lines += ["", markdown_table(["pair", "decoding", "responses", "in the records"], cells, left=2), ""]
        lines.append(f"in the records: {n_held:,}; to be decoded: {self.missing:,}, {self.cost()}")
        return "\n".join([*lines, *self.notes])

    def cost(self) -> str:
        """Say how many tokens and how much time it takes."""
        tokens = round(self.length * self.missing)
        if self.mean_tokens is None:
            words = f"at most {tokens:,} tokens (no response of this pair is at hand to tell their length)"
        else:
            words = f"about {tokens:,} tokens ({self.mean_tokens:.0f} each, as measured)"
        if self.speed is None:
            return words
        return f"{words}; {duration(tokens / self.speed)} at {self.speed:,.0f} tokens/s (an earlier sweep here)"


def estimate(spec: SweepSpec, out: Path, records: Path) -> DecodingEstimate:
    """Estimate from the records; load no weights, write nothing.

    Without the problems of a shipped benchmark, or the checkpoints, their numbers still tell what all of it costs.

    Raises:
        UserError: an unknown benchmark, or points that contradict themselves.
    """
    responses, folder = _responses(spec), SweepFolder.of(spec, out)  # to one decoding
    rows: list[TrialCost] = []
    notes: list[str] = []
    lengths: list[int] = []
    refining = 0
    for pair in spec.pairs:
        taus = stored_taus(spec, folder, pair)
        try:
            store = _PairRecords(spec, pair, records)
        except UserError as error:  # checkpoints or problems that are on another machine
            store = None
            notes.append(f"{pair}: what the records hold cannot be told here ({str(error)[:160]})")
        decodings, without_threshold = _decodings(spec, pair, taus)
        for decoding, sampling in decodings:
            stored = None if store is None else store.lengths(decoding, sampling)
            lengths += stored or []
            drawn = sampling.difference_from(spec.sampling)
            label = decoding.label() + (f" ({drawn})" if drawn else "")
            needed, count = (
                responses * sampling.samples // spec.sampling.samples,
                None if stored is None else len(stored),
            )
            rows.append(TrialCost(pair, label, needed, count))
        rows += [TrialCost(pair, label, responses, 0) for label in without_threshold]
        ratios = wanted(spec).items()
        refined = sum(ratio not in taus and not is_uniform(gate_of(decoding)) for ratio, decoding in ratios)
        if refined and spec.refined:
            refining += refined * responses
            notes.append(
                f"{pair}: not counted: {refined} thresholds are refined, each on as many samples as promise {EVENTS} "
                f"replaced tokens, at most {refined * responses:,} responses"
            )
    if spec.method not in LISTED:
        controls = max(
            len(controls_of(spec, spec.decoding(point, 0.0 if RATIO in point else None)))
            for point in spec.covering_points()
        )
        kinds = ("to be proposed", *["its control"] * controls)
        rows += [TrialCost(next(iter(spec.pairs)), kind, responses, 0) for kind in kinds * (spec.run_cap or 0)]
    mean = sum(lengths) / len(lengths) if lengths else None
    return DecodingEstimate(
        rows, spec.size(), mean, spec.sampling.max_tokens, _speed(out, spec), tuple(notes), refining
    )


def _decodings(spec: SweepSpec, pair: str, taus: Taus) -> tuple[list[tuple[Decoding, Sampling]], list[str]]:
    """List what is known to be decoded and how it is drawn, references first; and labels of points without a threshold
    as yet.
    """
    points = [point for point in listed_points(spec) if point["pair"] == pair]
    entries = entries_of(spec, points, dict.fromkeys(spec.pairs, taus))
    labels: list[str] = []
    for point in points:
        if decoding_of(spec, point, taus) is None:
            decoding = spec.decoding(point, 0.0)
            for each in (decoding, *controls_of(spec, decoding)[::-1]):
                words = " ".join(filter(None, (each.mode, each.strength, each.criterion)))
                labels.append(f"{words} at {100 * point[RATIO]:g} % replaced")
    return list(dict.fromkeys(entry.what for entry in entries if entry.pair == pair)), list(dict.fromkeys(labels))


def _responses(spec: SweepSpec) -> int:
    """Return how many responses a decoding needs; of shipped benchmarks that are not here by their known sizes."""
    try:
        asked = [(benchmark.golds, benchmark.facts.families) for benchmark in preflight_of(spec).values()]
    except NoDataError:
        sizes = [benchmark_size(name) or 0 for task in spec.tasks for name in GROUPS.get(task, (task,))]
        if not all(sizes):
            raise
        asked = [(map(str, range(size)), None) for size in sizes]
    return spec.sampling.samples * sum(len(spec.part.select([*ids], of)[: spec.limit]) for ids, of in asked)


class _PairRecords:
    """The responses of a pair in the records, told without its engine.

    A record counts where its weights, decoding, sampling and problems are those of the sweep, and its engine is the one
    that would run here, as far as the settings and the installed versions say it. Whether the prompts are the same is
    known when it runs.
    """

    def __init__(self, spec: SweepSpec, pair: str, folder: Path) -> None:
        """Find the records of a pair.

        Raises:
            UserError: the checkpoints or the problems are not on this machine.
        """
        weights = {role: fingerprint(*model) for role, model in resolve(spec.pairs[pair]).models.items()}
        if missing := [name for name in weights.values() if not name.startswith("weights:") and "@" not in name]:
            raise UserError(f"{missing[0]} is not here")
        self._problems: dict[tuple[str, str | None], list[str]] = {}
        for benchmark in preflight_of(spec).values():
            facts, names = benchmark.facts, spec.part.select([*benchmark.golds], benchmark.facts.families)[: spec.limit]
            task = facts.of or benchmark.name
            self._problems[task, facts.of_data or facts.data] = [f"{task}/{name}" for name in names]
        self._records: dict[tuple[str, str | None, Decoding, SamplingSettings], list[Record]] = {}
        store = RecordStore(folder)
        for hash_and_task in store.names():
            record = Record(store.folder / "/".join(hash_and_task))
            with suppress(DamagedError):
                config = record.read(head=True).config
                if config is not None and config.weights == weights and _would_run(config.engine, spec.engine):
                    name = record.task, config.data, config.decoding, config.sampling
                    self._records.setdefault(name, []).append(record)

    def lengths(self, decoding: Decoding, sampling: Sampling) -> list[int]:
        """Return the lengths of the responses that are there of what a decoding needs."""
        lengths: list[int] = []
        for (task, data), problems in self._problems.items():
            names, samples = {*problems}, sampling.samples
            records = self._records.get((task, data, decoding, sampling.per_response), [])
            stored = (
                [row.n_tokens for row in record.read() if row.problem in names and row.sample < samples]
                for record in records
            )
            lengths += max(stored, key=len, default=[])
        return lengths


def _would_run(engine: Mapping[str, Any], spec: EngineSpec) -> bool:
    """Tell whether an engine's facts are those of the one that would run here, as far as that is known beforehand."""
    backend = ("vllm" if find_spec("vllm") else "transformers") if spec.backend == "auto" else spec.backend
    stated = {"backend": backend, "dtype": spec.dtype, "max_model_len": spec.max_model_len}
    versions = {name: installed(name, f"{name}-cpu").values() for name in ("vllm", "transformers", "torch")}
    return (
        all(value in (None, "auto", engine.get(name)) for name, value in stated.items())
        and all(engine.get(name) in (None, *values) for name, values in versions.items())
        and spec.deterministic == engine.get("deterministic", False)
    )


class _Speed(Stored, frozen=True):
    """What is read of another sweep's summary."""

    tokens_per_second: Annotated[Number, Field(ge=0)] | None = None
    mean_tokens: Plain = Field(default_factory=dict)


def _speed(out: Path, spec: SweepSpec) -> float | None:
    """Return the tokens a second of an earlier sweep of the same pairs here; None where there is none."""
    for path in sorted(out.glob("sweeps/*/summary.json"), key=lambda path: -path.lstat().st_mtime):
        try:
            summary = _Speed.from_file(path)
        except DamagedError:  # of another kind of sweep, say
            continue
        if summary.tokens_per_second and set(spec.pairs) <= set(summary.mean_tokens):
            return summary.tokens_per_second
    return None
