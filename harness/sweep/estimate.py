"""Before anything runs: the points, how much of each is in the records already, and what the rest will cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from harness.decode import open_engine
from harness.errors import DamagedError, UserError
from harness.evals.benchmark import GROUPS, benchmark_size
from harness.evals.data import NoDataError, preflight_of
from harness.evals.loop import Job, jobs_of
from harness.markdown import duration, markdown_table
from harness.records import RecordStore
from harness.spec import Decoding, Sampling
from harness.spec.stored import Number, Plain, Stored
from harness.spec.sweep import LISTED, RATIO, SweepSpec
from harness.sweep.decodings import decoding_of, references, sampling_of
from harness.sweep.folder import SweepFolder
from harness.sweep.matched import is_uniform
from harness.sweep.points import Point, listed_points
from harness.sweep.several import Cost
from harness.sweep.taus import EVENTS, Taus, gate_of, stored_taus, wanted
from harness.tiny import checkpoints


@dataclass(frozen=True, slots=True)
class TrialCost:
    """A point or a reference: what it is, how many responses it needs, how many are held (None: cannot be told).

    Without a `decoding` a response costs the tokens that it has.
    """

    pair: str
    label: str
    asked: int
    held: int | None
    decoding: Decoding | None = None

    @property
    def missing(self) -> int:
        """Responses to be decoded."""
        return self.asked - (self.held or 0)


@dataclass(frozen=True, slots=True)
class DecodingEstimate:
    """What a sweep will cost. `mean_tokens` is measured on held responses; None where there are none.

    `speed` is in tokens a second, of an earlier sweep here; None where there is none.
    """

    rows: list[TrialCost]
    size: str
    mean_tokens: float | None
    max_tokens: int
    speed: float | None
    notes: tuple[str, ...]
    thresholds: Mapping[str, int] = field(default_factory=dict)  # by pair: responses, at most, that refine thresholds

    @property
    def missing(self) -> int:
        """Responses to be decoded."""
        return sum(row.missing for row in self.rows)

    @property
    def tokens(self) -> dict[str, float]:
        """Tokens to be drawn for them, by pair."""
        length = self.max_tokens if self.mean_tokens is None else self.mean_tokens
        found = dict.fromkeys((row.pair for row in self.rows), 0.0)
        for row in self.rows:
            found[row.pair] += row.missing * length
        return found

    @property
    def total(self) -> Cost:
        """Return what is left to decode, at most."""
        length = self.max_tokens if self.mean_tokens is None else self.mean_tokens
        refining = sum(self.thresholds.values())
        return Cost(
            ways=len(self.rows),
            responses=self.missing,
            thresholds=refining,
            tokens=round(sum(self.tokens.values()) + length * refining),
        )

    def text(self, *, points: bool) -> str:
        """Write it as a person reads it; `points` lists them one by one."""
        held = sum(row.held or 0 for row in self.rows)
        lines = [f"{self.size}; with references {len(self.rows)} ways of decoding, {self.missing + held:,} responses"]
        if points:
            cells = [[r.pair, r.label, f"{r.asked:,}", "?" if r.held is None else f"{r.held:,}"] for r in self.rows]
            lines += ["", markdown_table(["pair", "decoding", "responses", "in the records"], cells, left=2), ""]
        lines.append(f"in the records: {held:,}; to be decoded: {self.missing:,}, {self.cost()}")
        return "\n".join([*lines, *self.notes])

    def cost(self) -> str:
        """Say how many tokens and how much time it takes."""
        tokens = round(sum(self.tokens.values()))
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
    each = _responses(spec)  # to one decoding
    folder = SweepFolder.of(spec, out)
    rows: list[TrialCost] = []
    notes: list[str] = []
    lengths: list[int] = []
    thresholds: dict[str, int] = {}
    store = RecordStore(records)
    for pair in spec.pairs:
        taus = stored_taus(spec, folder, pair)
        asked, unknown = _decodings(spec, pair, taus)
        refined = sum(each not in taus and not is_uniform(gate_of(how)) for each, how in wanted(spec).items())
        try:
            jobs = _jobs(spec, pair, asked)
        except Exception as error:  # checkpoints or problems that are on another machine
            reason = str(error) if isinstance(error, UserError) else type(error).__name__
            notes.append(f"{pair}: what the records hold cannot be told here ({reason[:160]})")
            for decoding, sampling in asked:
                responses = each * sampling.samples // spec.sampling.samples
                rows.append(TrialCost(pair, _label(spec, decoding, sampling), responses, None, decoding))
        else:
            for decoding, sampling in asked:
                mine = [job for job in jobs[sampling] if job.decoding == decoding]
                held = [tokens for job in mine for tokens in _held(store, job)]
                lengths += held
                needed = sum(len(job.requests) for job in mine)
                rows.append(TrialCost(pair, _label(spec, decoding, sampling), needed, len(held), decoding))
        rows += [TrialCost(pair, label, each, 0) for label in unknown]
        if refined and spec.refined:
            thresholds[pair] = refined * each
            notes.append(
                f"{pair}: not counted: {refined} thresholds are refined, each on as many samples as promise {EVENTS} "
                f"replaced tokens, at most {refined * each:,} responses"
            )
    if spec.method not in LISTED:
        controls = max(
            len(spec.decoding(point, 0.0 if RATIO in point else None).controls()) for point in spec.covering()
        )
        kinds = ("to be proposed", *["its control"] * controls)
        rows += [TrialCost(next(iter(spec.pairs)), kind, each, 0) for kind in kinds * (spec.run_cap or 0)]
    return DecodingEstimate(
        rows,
        spec.size(),
        sum(lengths) / len(lengths) if lengths else None,
        spec.sampling.max_tokens,
        _speed(out, spec),
        tuple(notes),
        thresholds,
    )


def _label(spec: SweepSpec, decoding: Decoding, sampling: Sampling) -> str:
    words = sampling.unlike(spec.sampling)
    return decoding.label() + (f" ({words})" if words else "")


def _decodings(spec: SweepSpec, pair: str, taus: Taus) -> tuple[list[tuple[Decoding, Sampling]], list[str]]:
    """List what is known to be decoded and how it is drawn, references first; and labels of points without a threshold
    as yet.
    """
    known: list[Point] = []
    unknown: list[str] = []
    for point in listed_points(spec):
        if point["pair"] == pair:
            decoding = spec.decoding(point, 0.0) if RATIO in point else None
            if decoding and not is_uniform(gate_of(decoding)) and (decoding.criterion, point[RATIO]) not in taus:
                for each in (*decoding.controls(), decoding):
                    gamma = f" γ{each.gamma:g}" if each.mode == "extrapolate" else ""
                    unknown.append(f"{each.mode}{gamma} {each.criterion} at {100 * point[RATIO]:g} % replaced")
            else:
                known.append(point)
    points = [*references(spec, pair, known, taus), *known]
    ways = [(decoding_of(spec, point, taus), sampling_of(spec, point)) for point in points]
    return list(dict.fromkeys(ways)), list(dict.fromkeys(unknown))


def _jobs(spec: SweepSpec, pair: str, asked: Sequence[tuple[Decoding, Sampling]]) -> dict[Sampling, list[Job]]:
    engine = open_engine(checkpoints(spec.pairs[pair]), spec.engine, lazily=True)
    by: dict[Sampling, list[Decoding]] = {}
    for decoding, sampling in asked:
        by.setdefault(sampling, []).append(decoding)
    try:
        return {s: jobs_of(spec.evaluation(pair, decodings, sampling=s), engine) for s, decodings in by.items()}
    finally:
        engine.close()


def _responses(spec: SweepSpec) -> int:
    try:
        sizes = [len(each.problems) for each in preflight_of(spec).values()]
    except NoDataError:
        sizes = [benchmark_size(each) or 0 for name in spec.tasks for each in GROUPS.get(name, (name,))]
        if not all(sizes):
            raise
    return spec.sampling.samples * sum(len(spec.part.of([str(i) for i in range(each)])[: spec.limit]) for each in sizes)


def _held(store: RecordStore, job: Job) -> list[int]:
    """Return the lengths of the responses of a job that are in the records."""
    record = job.read(store)
    asked = {(request.problem, request.sample) for request in job.requests}
    return [row.n_tokens for row in record or () if row.key in asked]


class _Speed(Stored, frozen=True):
    """What is read of another sweep's summary."""

    tokens_per_second: Annotated[Number, Field(ge=0)] | None = None
    mean_tokens: Plain = Field(default_factory=dict)


def _speed(out: Path, spec: SweepSpec) -> float | None:
    """Return the tokens a second of an earlier sweep of the same pairs here; None where there is none."""
    for path in sorted(out.glob("sweeps/*/summary.json"), key=lambda path: -path.lstat().st_mtime):
        try:
            told = _Speed.from_file(path)
        except DamagedError:  # of another kind of sweep, say
            continue
        if told.tokens_per_second and set(spec.pairs) <= set(told.mean_tokens):
            return told.tokens_per_second
    return None
