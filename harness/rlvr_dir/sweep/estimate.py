"""Plan a sweep of decodings from its spec, the records and what is known of the pairs."""

from collections.abc import Mapping
from contextlib import suppress
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
from rlvr_dir.evals.plan import PROMPT, Gpus, Plan, PlanRow, longest_response, memory_of
from rlvr_dir.evals.speed import Speed, speed_of
from rlvr_dir.problems.benchmark import GROUPS, benchmark_size
from rlvr_dir.problems.data import NoDataError, preflight_of
from rlvr_dir.records import Record, RecordStore, fingerprint
from rlvr_dir.sweep.entries import controls_of, decoding_of, entries_of
from rlvr_dir.sweep.folder import SweepFolder
from rlvr_dir.sweep.lists import Cost
from rlvr_dir.sweep.matched import is_uniform
from rlvr_dir.sweep.points import listed_points
from rlvr_dir.sweep.taus import EVENTS, Taus, gate_of, stored_taus, wanted


class SweepPlan(Plan):
    """Estimate what a sweep of decodings needs."""

    @property
    def total(self) -> Cost:
        """Return what is left to decode, for a list of sweeps."""
        tokens = self.most if self.mean is None else self.expected
        return Cost(jobs=len(self.rows), responses=self.missing, thresholds=self.thresholds[0], tokens=tokens)


def estimate(spec: SweepSpec, out: Path, records: Path, *, gpus: Gpus | None = None, memory: bool = False) -> SweepPlan:
    """Plan a sweep from the records, with the `memory` of its models if requested. Load no weights.

    If the problems of a shipped benchmark or the checkpoints are not on this machine, nothing counts as cached.

    Raises:
        UserError: A benchmark is unknown, or points contradict themselves.
    """
    responses, folder = _responses(spec), SweepFolder.of(spec, out)  # for each decoding
    rows: list[PlanRow] = []
    notes: list[str] = []
    refining = 0
    speed, context = _speed(out, spec), spec.engine.max_model_len
    most = min(spec.sampling.max_tokens, context or spec.sampling.max_tokens)
    for pair in spec.pairs:
        taus = stored_taus(spec, folder, pair)
        try:
            store = _PairRecords(spec, pair, records)
            speed = speed_of(records, store.weights, spec.engine) or speed
        except UserError as error:  # the checkpoints or problems are on another machine
            store = None
            notes.append(f"{pair}: it is not known here which responses are cached ({str(error)[:160]})")
        decodings, without_threshold = _decodings(spec, pair, taus)
        for decoding, sampling in decodings:
            lengths = None if store is None else store.lengths(decoding, sampling)
            drawn = sampling.difference_from(spec.sampling)
            label = decoding.label() + (f" ({drawn})" if drawn else "")
            needed = responses * sampling.samples // spec.sampling.samples
            count = None if lengths is None else len(lengths)
            rows.append(PlanRow(pair, label, needed, count, most * (needed - (count or 0)), tuple(lengths or ())))
        rows += [PlanRow(pair, label, responses, 0, most * responses) for label in without_threshold]
        ratios = wanted(spec).items()
        refined = sum(ratio not in taus and not is_uniform(gate_of(decoding)) for ratio, decoding in ratios)
        if refined and spec.refined:
            refining += refined * responses
            notes.append(
                f"{pair}: before the first point, {refined} thresholds are found on all of base's responses. Then each "
                f"is refined on enough responses to have about {EVENTS} flagged tokens: at most "
                f"{refined * responses:,} responses, which are not in the table."
            )
    if spec.method not in LISTED:
        controls = max(
            len(controls_of(spec, spec.decoding(point, 0.0 if RATIO in point else None)))
            for point in spec.covering_points()
        )
        kinds = ("to be proposed", *["its control"] * controls)
        own = next(iter(spec.pairs))
        rows += [PlanRow(own, kind, responses, 0, most * responses) for kind in kinds * (spec.run_cap or 0)]
    resolved = {name: resolve(pair) for name, pair in spec.pairs.items()} if memory else {}
    longest = min(most + PROMPT, context or most + PROMPT)
    return SweepPlan(
        f"{spec.size()}; with base, RL and controls {len(rows)} decodings",
        rows,
        max((longest_response(pair, spec.engine, longest) for pair in resolved.values()), default=longest),
        spec.engine,
        (refining, most * refining),
        {name: memory_of(pair, spec.engine) for name, pair in resolved.items()},
        speed,
        gpus,
        tuple(notes),
    )


def _decodings(spec: SweepSpec, pair: str, taus: Taus) -> tuple[list[tuple[Decoding, Sampling]], list[str]]:
    """List the decodings that are known and their sampling, references first, and labels of points without a
    threshold."""
    points = [point for point in listed_points(spec) if point["pair"] == pair]
    entries = entries_of(spec, points, dict.fromkeys(spec.pairs, taus))
    labels: list[str] = []
    for point in points:
        if decoding_of(spec, point, taus) is None:
            decoding = spec.decoding(point, 0.0)
            flagged = f"at {100 * point[RATIO]:g} % flagged"
            labels += [setting.label(flagged) for setting in (decoding, *controls_of(spec, decoding)[::-1])]
    return list(dict.fromkeys(entry.item for entry in entries if entry.pair == pair)), list(dict.fromkeys(labels))


def _responses(spec: SweepSpec) -> int:
    """Return how many responses a decoding needs; shipped benchmarks that are not here have known sizes."""
    try:
        read = [(benchmark.golds, benchmark.metadata.families) for benchmark in preflight_of(spec).values()]
    except NoDataError:
        sizes = [benchmark_size(name) or 0 for task in spec.tasks for name in GROUPS.get(task, (task,))]
        if not all(sizes):
            raise
        read = [(map(str, range(size)), None) for size in sizes]
    return spec.sampling.samples * sum(len(spec.part.select([*ids], of)[: spec.limit]) for ids, of in read)


class _PairRecords:
    """Find the responses of a pair in the records without its engine.

    A record is used if its weights, decoding, sampling and problems are those of the sweep, and its engine is the one
    that would run here, according to the settings and the installed versions. Whether the prompts are the same is only
    known when it runs.
    """

    def __init__(self, spec: SweepSpec, pair: str, folder: Path) -> None:
        """Find the records of a pair.

        Raises:
            UserError: The checkpoints or the problems are not on this machine.
        """
        self.weights = weights = {role: fingerprint(*m) for role, m in resolve(spec.pairs[pair]).models.items()}
        if missing := [name for name in weights.values() if not name.startswith("weights:") and "@" not in name]:
            raise UserError(f"The checkpoint {missing[0]} is not on this machine", hint="Download it first.")
        self._problems: dict[tuple[str, str | None], list[str]] = {}
        for benchmark in preflight_of(spec).values():
            metadata = benchmark.metadata
            names = spec.part.select([*benchmark.golds], metadata.families)[: spec.limit]
            task = metadata.of or benchmark.name
            self._problems[task, metadata.of_data or metadata.data] = [f"{task}/{name}" for name in names]
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
        """Return the lengths of the cached responses for a decoding."""
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
    """Return whether an engine's facts match the engine that would run here, as far as that can be predicted."""
    backend = ("vllm" if find_spec("vllm") else "transformers") if spec.backend == "auto" else spec.backend
    stated = {"backend": backend, "dtype": spec.dtype, "max_model_len": spec.max_model_len}
    versions = {name: installed(name, f"{name}-cpu").values() for name in ("vllm", "transformers", "torch")}
    return (
        all(value in (None, "auto", engine.get(name)) for name, value in stated.items())
        and all(engine.get(name) in (None, *values) for name, values in versions.items())
        and spec.deterministic == engine.get("deterministic", False)
    )


class _Speed(Stored, frozen=True):
    """Hold what is read from another sweep's summary."""

    tokens_per_second: Annotated[Number, Field(ge=0)] | None = None
    mean_tokens: Plain = Field(default_factory=dict)


def _speed(out: Path, spec: SweepSpec) -> Speed | None:
    """Return the speed of an earlier sweep of the same pairs, which an older version measured; None without any."""
    for path in sorted(out.glob("sweeps/*/summary.json"), key=lambda path: -path.lstat().st_mtime):
        try:
            summary = _Speed.from_file(path)
        except DamagedError:  # such as another kind of sweep
            continue
        if summary.tokens_per_second and set(spec.pairs) <= set(summary.mean_tokens):
            return Speed(weights="", backend="an earlier sweep", tokens=0, tokens_per_second=summary.tokens_per_second)
    return None
