"""An audit from the request to its table, file and page.

    from rlvr_dir.audit.run import Request, run_audit
    audit = run_audit(Request(load_eval({}, {"base": "my-base", "pretrained": "my-rl", "tasks": "mine.jsonl"})), ...)

Every number is made from the list of claims: a row each, and a column a pair.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr_dir import stats
from rlvr_dir.analysis.result import Analysis, columns
from rlvr_dir.analysis.texts import read_rows
from rlvr_dir.audit import interventions, outcomes, texts, tokens, weights
from rlvr_dir.audit.claim import GROUPS, TEXTS, Claim, Frame
from rlvr_dir.audit.gather import Evidence, Questions, decoded_groups, gather, planned
from rlvr_dir.checkpoints.read import check_place
from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.checkpoints.sharpen import write_sharpened
from rlvr_dir.checkpoints.weights import INDEX
from rlvr_dir.config import EvalSpec, Pair, load_eval, parse
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import DamagedError, UserError, mention, unknown
from rlvr_dir.evals.plan import PROMPT, Gpus, Plan, memory_of
from rlvr_dir.evals.speed import speed_of
from rlvr_dir.files import check_writable, write_file
from rlvr_dir.problems.benchmark import Benchmark
from rlvr_dir.progress import phase, say
from rlvr_dir.records import fingerprint
from rlvr_dir.report.rows import estimate
from rlvr_dir.results.replacements import Replacements
from rlvr_dir.stats import Estimate

if TYPE_CHECKING:
    import pandas

THIS = "this pair"  # the first column


def claims(low_rank: Sequence[int] = ()) -> list[Claim]:
    """Return every claim that there is, group by group."""
    return [
        *outcomes.CLAIMS, *(outcomes.rank_claim(rank, rescale) for rank in low_rank for rescale in (False, True)),
        *interventions.CLAIMS, *tokens.CLAIMS, *weights.CLAIMS, *texts.CLAIMS,
    ]  # fmt: skip


@dataclass(frozen=True)
class Request:
    """Hold what is audited: the pair, the tasks and the sampling of `spec`, which groups of rows, and pairs beside it.

    Several pairs of one column are seeds of one training. `low_rank` are ranks of ΔW whose models are scored.
    With `floor` and rows of tokens, further columns are base beside itself. `steps` has the step of a training of each
    column that is one. `texts` is a file of given texts.
    """

    spec: EvalSpec
    rows: Sequence[str] = tuple(GROUPS)
    beside: Mapping[str, Sequence[Pair]] = field(default_factory=dict)
    low_rank: Sequence[int] = ()
    floor: bool = True
    steps: Mapping[str, int] = field(default_factory=dict)
    texts: Path | None = None

    @property
    def groups(self) -> list[str]:
        """Return the groups of rows: those that are asked for, and that of given texts."""
        return [*self.rows, *([TEXTS] if self.texts else [])]

    @property
    def columns(self) -> dict[str, list[EvalSpec]]:
        """Return the evaluations of each column, that of the pair itself first."""
        pairs = {THIS: [self.spec.pair], **self.beside}
        return {name: [self.spec.model_copy(update={"pair": p}) for p in of] for name, of in pairs.items()}

    def check(self) -> Questions:
        """Refuse what cannot be audited, before any model loads; return the benchmarks.

        Raises:
            UserError: naming the first thing that does not fit.
        """
        for name in self.rows:
            if name not in GROUPS:
                raise unknown("rows", name, GROUPS)
        if self.texts:
            read_rows(self.texts)
        if self.low_rank and "outcomes" not in self.rows:
            ranks = ",".join(map(str, self.low_rank))
            raise UserError(
                "is scored with outcomes, which rows leaves out",
                argument="low_rank",
                value=ranks,
                accepted=f"{mention('rows', 'outcomes')}",
            )
        if self.spec.sampling and self.spec.sampling.greedy and "interventions" in self.rows:
            raise UserError(
                "is not allowed with interventions, of which one flags tokens by chance",
                argument="temperature",
                value=0,
                accepted="other rows, or a temperature above 0",
            )
        if THIS in self.beside:
            raise UserError("is the audited pair's own column", argument="beside", value=THIS, accepted="another name")
        for spec in (spec for specs in self.columns.values() for spec in specs):
            for role, model in resolve(spec.pair).models.items():
                check_place(role, model.place, model.revision)
        return Questions.of(self.spec) if {*self.rows} - {"weights"} else Questions({})


@dataclass(frozen=True)
class Audit:
    """Hold what was found: the claims asked for, the table as its file has it, and the audited pair's `frames`.

    `replaced` has the tokens that would change if RL wrote base's tokens, if rows of tokens were asked for.

    `analysis` has the table `rows`, a row a claim and column, and facts, of each column its `pairs` and what is
    `missing` of it, by group.
    """

    claims: tuple[Claim, ...]
    analysis: Analysis
    frames: Mapping[str, Frame]
    replaced: Replacements | None = None

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, that of the pair itself first."""
        return list(self.analysis.facts["pairs"])

    @property
    def pair(self) -> Pair:
        """Return the audited pair."""
        return parse(Pair, self.analysis.facts["pairs"][THIS][0])

    @cached_property
    def estimates(self) -> dict[tuple[str, str], Estimate]:
        """Return each number by the name of its claim and its column."""
        return {(row["name"], row["pair"]): estimate(row, "value") for row in self.analysis.tables["rows"]}


def run_audit(request: Request, *, records: Path, out: Path | None = None, progress: bool = True) -> Audit:
    """Measure every claim that was asked for, on every pair; write `audit.json` and `audit.csv` into `out`, if given.

    With rows of tokens it also writes `tokens.json`, which `rlvr-dir report --analysis` draws.

    Raises:
        UserError: what `Request.check` refuses, no group can be measured, or the disk is full.
    """
    questions, began, earlier = request.check(), time.monotonic(), _stored_facts(out)
    check_writable(*filter(None, (out, records)))
    for sentence in unmeasured(request, questions):
        say(sentence)
    kwargs: dict[str, Any] = {"low_rank": request.low_rank, "models": records.parent / "low-rank", "progress": progress}
    kwargs |= {"texts": request.texts}
    chosen = tuple(claim for claim in claims(request.low_rank) if claim.group in request.groups)
    evidence: dict[str, list[Evidence]] = {}
    numbers: dict[str, list[Estimate | None]] = {}
    for column, specs in request.columns.items():
        seeds = evidence[column] = [
            gather(
                spec,
                request.rows,
                questions,
                records,
                counted=column == THIS,
                floor=column == THIS and request.floor,
                **kwargs,
            )
            for spec in specs
        ]
        numbers[column] = [over_seeds([estimate_of(claim, seed) for seed in seeds], *claim.range) for claim in chosen]
        for seed in seeds if column != THIS else ():  # which may be large, and are drawn of the pair itself alone
            seed.frames = {}
    [this] = evidence[THIS]
    for column, traces in this.floors.items():
        same = Evidence(this.pair.replace(rl=this.pair.base, rl_revision=this.pair.base_revision), {"traces": traces})
        evidence[column] = [same]
        numbers[column] = [estimate_of(claim, same) if claim.reads == "traces" else None for claim in chosen]
    if not this.frames:
        raise UserError("; ".join(dict.fromkeys(this.missing.values())))
    speeds = [seed.speed for seeds in evidence.values() for seed in seeds if seed.speed]
    facts: dict[str, Any] = facts_of(request, questions, evidence) | {"date": str(date.today())}
    facts |= {"tokens_per_second": min(speeds, default=None), "minutes": round((time.monotonic() - began) / 60, 1)}
    if not speeds:  # nothing was decoded: what that took stays
        facts |= {name: earlier[name] for name in ("tokens_per_second", "minutes") if name in earlier}
    rows = table_rows(chosen, numbers, facts["samples"])
    analysis = Analysis(kind="audit", facts=facts, tables={"rows": rows})
    if out is not None:
        analysis.write(out)
        write_file(out / "audit.csv", analysis.frame("rows").to_csv(index=False))
        if this.tokens is not None:
            this.tokens.write(out)
    return Audit(chosen, analysis, this.frames, this.replaced)


def sharpened(pair: Pair, temperature: float, folder: Path) -> Pair:
    """Return base beside its sharpened copy, a placebo, which is written into the folder unless it is there.

    Raises:
        UserError: Base cannot be sharpened.
    """
    place = folder / f"sharp-{temperature:g}-{digest_of(fingerprint(*pair.models['base']))}"
    if not (place / INDEX).is_file():
        with phase("sharpening base"):
            write_sharpened(pair.base, temperature, place, pair.base_revision)
    return pair.replace(rl=str(place), rl_revision=None)


def beside_of(texts: Sequence[str]) -> dict[str, list[Pair]]:
    """Read pairs for further columns, `NAME=BASE:RL`, or `NAME=BASE:RL,RL` of seeds of one training.

    Raises:
        UserError: one is no such text, or a name is given twice.
    """
    columns: dict[str, list[Pair]] = {}
    for text in texts:
        name, equals, places = text.partition("=")
        base, colon, rl = places.partition(":")
        if not (equals and colon and name and base and rl) or name in columns:
            why = " names a column twice" if name in columns else " is refused"
            raise UserError(
                f"{why}", argument="beside", value=text, accepted="NAME=BASE:RL, or NAME=BASE:RL,RL, each name once"
            )
        columns[name] = [parse(Pair, {"base": base, "rl": one}) for one in rl.split(",")]
    return columns


def audit(
    base: str | Path,
    rl: str | Path,
    tasks: str | Sequence[str] = (),
    *,
    samples: int | None = None,
    rows: str | Sequence[str] = tuple(GROUPS),
    beside: Mapping[str, tuple[str, str]] | None = None,
    low_rank: Sequence[int] = (),
    floor: bool = False,
    texts: str | Path | None = None,
    records: str | Path = "runs/records",
    out: str | Path | None = None,
    **options: Any,
) -> "pandas.DataFrame":
    """Measure what is said of RLVR on a pair, as `rlvr-dir audit` does, and return the table.

    Args:
        base, rl: directories or hub ids.
        tasks: benchmarks, by name or `PATH.jsonl`; weights need none.
        samples: responses a problem; default 8, greedily 1.
        rows: groups of rows, of `tokens`, `weights`, `interventions` (the hours) and `outcomes`.
        beside: further pairs, (base, rl) by the name of their column.
        low_rank: ranks of ΔW whose models are scored.
        floor: whether rows of tokens are measured of base beside itself, too.
        texts: a file of given texts, which adds rows of its own.
        records: store of rollouts; what it holds is not decoded again.
        out: folder for `audit.json` and `audit.csv`, which replace those of an earlier audit. None writes no file.
        options: as those of the command: `limit`, `temperature`, `max_tokens`, `backend`, ...

    Returns:
        A row a claim and pair: `group`, `name`, `measured` (a sentence), `how`, `pair` (its column), `value` with its
        95 % interval `value_low` to `value_high` (shares are fractions), `unit`, and who `published` it.

    Raises:
        UserError: a model, a task or an option is refused, before any model loads.
    """
    pair = {"base": str(base), "pretrained": str(rl), "tasks": tasks if isinstance(tasks, str) else ",".join(tasks)}
    drawn = 8 if samples is None and options.get("temperature") != 0 else samples
    spec = load_eval({}, {**pair, "samples": drawn, **options})
    others = {name: [parse(Pair, {"base": str(b), "rl": str(r)})] for name, (b, r) in (beside or {}).items()}
    groups = [name.strip() for name in rows.split(",") if name.strip()] if isinstance(rows, str) else rows
    request = Request(spec, groups, others, low_rank, floor, texts=None if texts is None else Path(texts))
    return run_audit(request, records=Path(records), out=None if out is None else Path(out)).analysis.frame("rows")


def table_rows(
    chosen: Sequence[Claim], numbers: Mapping[str, Sequence[Estimate | None]], samples: int | None
) -> tuple[dict[str, Any], ...]:
    """Return the table as plain rows, one a claim and column; `numbers` are those of the claims by column.

    A column has no row for a claim whose number is None.
    """
    return tuple(
        {"group": claim.group, "name": claim.name, **dict(zip(("measured", "how"), claim.words(samples), strict=True)),
         "pair": column,
         **columns(value=number), "unit": claim.suffix.strip(), "published": claim.published}
        for at, claim in enumerate(chosen)
        for column, of_column in numbers.items()
        if (number := of_column[at]) is not None
    )  # fmt: skip


def estimate_of(claim: Claim, evidence: Evidence) -> Estimate:
    """Return the number of a claim on one pair; none where what it reads is not to be had."""
    frame = evidence.frames.get(claim.reads)
    return Estimate(None) if frame is None else claim.estimate(frame)


def over_seeds(estimates: Sequence[Estimate], least: float = -np.inf, most: float = np.inf) -> Estimate:
    """Return the mean of the seeds of a training: half its interval is that over seeds and their mean one (MOVER).

    Cut at what the number can be, `least` to `most`. Where all seeds have one number with one interval, as of the base
    that they share, it is that. None where a seed has no number, and without an interval where it has none of that
    either.
    """
    values = [value for estimate in estimates if (value := estimate.value) is not None and value == value]
    if len(values) < len(estimates):
        return estimates[0] if len(estimates) == 1 else Estimate(None)
    if all(estimate == estimates[0] for estimate in estimates):
        return estimates[0]
    mean, error = float(np.mean(values)), stats.standard_error(values)
    seeds = mean - stats.t_interval(mean, error, len(values))[0] if error else 0.0
    half = np.array([seeds, seeds])
    if all(estimate.low is not None and estimate.high is not None for estimate in estimates):
        own = np.array([[e.value - e.low, e.high - e.value] for e in estimates], float)  # pyright: ignore
        half = np.hypot(half, own.mean(axis=0))
    if not half.any():
        return Estimate(mean)
    return Estimate(mean, max(least, mean - float(half[0])), min(most, mean + float(half[1])))


def facts_of(request: Request, questions: Questions, evidence: Mapping[str, Sequence[Evidence]]) -> dict[str, Any]:
    """Return what was compared, on what, and what could not be measured."""
    sampling, benchmarks = request.spec.sampling, questions.benchmarks.values()
    return {
        "pairs": {name: [seed.pair.model_dump(mode="json") for seed in seeds] for name, seeds in evidence.items()},
        "tasks": [benchmark.name for benchmark in benchmarks],
        "families": {b.name: _families(request.spec, b) for b in benchmarks if b.facts.families},
        "questions": ", ".join(_asked(request.spec, benchmark) for benchmark in benchmarks),
        "samples": sampling.samples if sampling else None,
        "sampling": sampling.words if sampling else None,
        "steps": dict(request.steps),
        "notes": [f"{name}: {note}" for name, seeds in evidence.items() for note in _notes(seeds)],
        "same": [name for name, seeds in evidence.items() if any(seed.same for seed in seeds)],
        "missing": {
            name: {k: why for seed in seeds for k, why in seed.missing.items()} for name, seeds in evidence.items()
        },
    }


def _notes(seeds: Sequence[Evidence]) -> list[str]:
    return list(dict.fromkeys(note for seed in seeds for note in seed.notes))


def _families(spec: EvalSpec, benchmark: Benchmark) -> int:
    """Count the families of those problems of a benchmark that are asked."""
    labels = benchmark.facts.families or {}
    return stats.count_families([labels[key] for key in spec.problem_ids([*labels], labels)])


def _asked(spec: EvalSpec, benchmark: Benchmark) -> str:
    """Describe how many problems of a benchmark are asked."""
    every = [row["id"] for row in benchmark.problems]
    asked = len(spec.problem_ids(every, benchmark.facts.families))
    return f"{'' if asked == len(every) else f'{asked} of '}{len(every)} problems of {benchmark.name}"


def dry_run_words(request: Request, *, records: Path, gpus: Gpus | None = None) -> str:
    """Return the plan of each column; load no weights.

    Raises:
        UserError: what `Request.check` refuses, or the two models do not fit together.
    """
    questions = request.check()
    sampling, lines = request.spec.sampling, list[str]()
    longest = PROMPT + (sampling.max_tokens if sampling else 0)
    for name, specs in request.columns.items():
        rows = [row for spec in specs for row in planned(spec, request.rows, questions, records)]
        pair = resolve(specs[0].pair)
        weights = {role: fingerprint(*model) for role, model in pair.models.items()}
        speed = speed_of(records, weights, request.spec.engine)
        memory = {name: memory_of(pair, request.spec.engine)}
        plan = Plan(
            f"{name}: {len(rows)} rows", rows, longest, request.spec.engine, memory=memory, speed=speed, gpus=gpus
        )
        lines.append(plan.text())
    lines += unmeasured(request, questions)
    if request.low_rank:
        lines.append(f"not counted: models of rank {', '.join(map(str, request.low_rank))}, each scored twice as RL is")
    return "\n\n".join(lines)


def unmeasured(request: Request, questions: Questions) -> list[str]:
    """Return which groups questions without right answers leave out, of every pair; nothing where there are none."""
    missing = Evidence(resolve(request.spec.pair))
    decoded_groups(request.rows, questions, missing)
    return [f"{', '.join(missing.missing)} not measured: {why}" for why in dict.fromkeys(missing.missing.values())]


def _stored_facts(out: Path | None) -> dict[str, Any]:
    """Return the facts of an earlier audit in a folder. They are empty if there is none that can be read."""
    if out is None:
        return {}
    try:
        return Analysis.read(out / "audit.json").facts
    except (DamagedError, OSError):
        return {}
