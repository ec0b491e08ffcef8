"""Run an audit, from the request to its table, file and page.

    from rlvr_dir.audit.run import Request, run_audit
    audit = run_audit(Request(load_eval({}, {"base": "my-base", "pretrained": "my-rl", "tasks": "mine.jsonl"})), ...)

Every number is made from the list of claims. Each claim is a row and each pair is a column.
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
from rlvr_dir.evals.plan import PROMPT, Gpus, Plan, longest_response, memory_of, plural
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
    """Return every claim, group by group. `low_rank` adds a claim for each rank."""
    return [
        *outcomes.CLAIMS, *(outcomes.rank_claim(rank, rescale) for rank in low_rank for rescale in (False, True)),
        *interventions.CLAIMS, *tokens.CLAIMS, *weights.CLAIMS, *texts.CLAIMS,
    ]  # fmt: skip


@dataclass(frozen=True)
class Request:
    """Hold what to audit: `spec` with the pair, tasks and sampling settings, the groups of rows, and further pairs.

    If a column has several pairs, these are seeds of one training run. `low_rank` are ranks of ΔW whose models are
    scored. With `floor` and rows of tokens, further columns compare base with itself. `steps` maps columns to training
    steps. `texts` is a file of given texts.
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
        """Return the groups of rows that were requested, and that of given texts if there is a file."""
        return [*self.rows, *([TEXTS] if self.texts else [])]

    @property
    def columns(self) -> dict[str, list[EvalSpec]]:
        """Return the names of the columns, beginning with that of the pair itself."""
        pairs = {THIS: [self.spec.pair], **self.beside}
        return {name: [self.spec.model_copy(update={"pair": p}) for p in of] for name, of in pairs.items()}

    def check(self) -> Questions:
        """Refuse what cannot be audited, before any model loads; return the benchmarks.

        Raises:
            UserError: Something does not fit. The error names the first such thing.
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
    """Hold the result: the requested claims, the table as written to its file, and the audited pair's `frames`.

    `replaced` has the tokens that would change if RL wrote base's tokens. It is set only if rows of tokens were
    requested.

    `analysis` has the table `rows`, with a row per claim and column. Its context lists the `pairs` of each column, and
    by group what is `missing` in it.
    """

    claims: tuple[Claim, ...]
    analysis: Analysis
    frames: Mapping[str, Frame]
    replaced: Replacements | None = None

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, beginning with that of the pair itself."""
        return list(self.analysis.context["pairs"])

    @property
    def pair(self) -> Pair:
        """Return the audited pair."""
        return parse(Pair, self.analysis.context["pairs"][THIS][0])

    @cached_property
    def estimates(self) -> dict[tuple[str, str], Estimate]:
        """Return each number by the name of its claim and its column."""
        return {(row["name"], row["pair"]): estimate(row, "value") for row in self.analysis.tables["rows"]}


def run_audit(request: Request, *, records: Path, out: Path | None = None, progress: bool = True) -> Audit:
    """Measure every requested claim on every pair; write `audit.json` and `audit.csv` into `out`, if given.

    With rows of tokens it also writes `tokens.json`, which `rlvr-dir report --analysis` draws.

    Raises:
        UserError: `Request.check` refuses the request, no group can be measured, or the disk is full.
    """
    questions, began, earlier = request.check(), time.monotonic(), _stored_context(out)
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
        for seed in seeds if column != THIS else ():  # may be large, and only the pair's own are drawn
            seed.frames = {}
    [this] = evidence[THIS]
    for column, traces in this.floors.items():
        same = Evidence(this.pair.replace(rl=this.pair.base, rl_revision=this.pair.base_revision), {"traces": traces})
        evidence[column] = [same]
        numbers[column] = [estimate_of(claim, same) if claim.reads == "traces" else None for claim in chosen]
    if not this.frames:
        raise UserError(
            f"None of the requested rows can be measured: {' '.join(dict.fromkeys(this.missing.values()))}",
            argument="rows",
        )
    speeds = [seed.speed for seeds in evidence.values() for seed in seeds if seed.speed]
    context: dict[str, Any] = context_of(request, questions, evidence) | {"date": str(date.today())}
    context |= {"tokens_per_second": min(speeds, default=None), "minutes": round((time.monotonic() - began) / 60, 1)}
    if not speeds:  # nothing was decoded, so the earlier speed is kept
        context |= {name: earlier[name] for name in ("tokens_per_second", "minutes") if name in earlier}
    rows = table_rows(chosen, numbers, context["samples"])
    analysis = Analysis(kind="audit", context=context, tables={"rows": rows})
    if out is not None:
        analysis.write(out)
        write_file(out / "audit.csv", analysis.frame("rows").to_csv(index=False))
        if this.tokens is not None:
            this.tokens.write(out)
    return Audit(chosen, analysis, this.frames, this.replaced)


def sharpened(pair: Pair, temperature: float, folder: Path) -> Pair:
    """Return base paired with its sharpened copy, a placebo. The copy is written into `folder` unless it exists.

    Raises:
        UserError: Base cannot be sharpened.
    """
    place = folder / f"sharp-{temperature:g}-{digest_of(fingerprint(*pair.models['base']))}"
    if not (place / INDEX).is_file():
        with phase("sharpening base"):
            write_sharpened(pair.base, temperature, place, pair.base_revision)
    return pair.replace(rl=str(place), rl_revision=None)


def beside_of(texts: Sequence[str]) -> dict[str, list[Pair]]:
    """Return the pairs of further columns.

    A text is `NAME=BASE:RL`, or `NAME=BASE:RL,RL` for seeds of one training run.

    Raises:
        UserError: A text has another form, or a name is given twice.
    """
    columns: dict[str, list[Pair]] = {}
    for text in texts:
        name, equals, places = text.partition("=")
        base, colon, rl = places.partition(":")
        if not (equals and colon and name and base and rl) or name in columns:
            why = "names a column twice" if name in columns else "is not a column"
            raise UserError(
                why, argument="beside", value=text, accepted="NAME=BASE:RL, or NAME=BASE:RL,RL, each name once"
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
    """Measure what papers report about RLVR on a pair, as `rlvr-dir audit` does, and return the table.

    Args:
        base, rl: Directories or hub ids.
        tasks: Benchmarks, by name or `PATH.jsonl`. Rows of weights need none.
        samples: Responses per problem. Default: 8, or 1 for greedy decoding.
        rows: Groups of rows: `tokens`, `weights`, `interventions` (which takes hours) and `outcomes`.
        beside: Further pairs, as (base, rl) by the name of their column.
        low_rank: Ranks of ΔW whose models are scored.
        floor: Whether rows of tokens are also measured for base compared with itself.
        texts: A file of given texts, which adds rows of its own.
        records: The store of responses. Cached responses are not generated again.
        out: Folder for `audit.json` and `audit.csv`, which replace those of an earlier audit. None writes no file.
        options: Further options of the command: `limit`, `temperature`, `max_tokens`, `backend`, ...

    Returns:
        One row per claim and pair: `group`, `name`, `measured` (a sentence), `how`, `pair` (its column), `value` with
        its 95 % interval `value_low` to `value_high` (shares are fractions), `unit`, and who `published` it.

    Raises:
        UserError: A model, a task or an option is refused, before any model loads.
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
    """Return the table as plain rows, one per claim and column.

    `numbers` are those of the claims in `chosen`, by column. A column has no row for a claim whose number is None.
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
    """Return the number of a claim on one pair. It has no value if the data that the claim reads are unavailable."""
    frame = evidence.frames.get(claim.reads)
    return Estimate(None) if frame is None else claim.estimate(frame)


def over_seeds(estimates: Sequence[Estimate], least: float = -np.inf, most: float = np.inf) -> Estimate:
    """Return the mean over the seeds of a training run, with an interval over seeds combined with their own (MOVER).

    The interval is cut to the possible values, `least` to `most`. If all seeds have the same number with the same
    interval, such as that of their common base, it is returned unchanged. The value is None if a seed has no number. If
    a seed has no interval of its own, only the variation over seeds counts.
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


def context_of(request: Request, questions: Questions, evidence: Mapping[str, Sequence[Evidence]]) -> dict[str, Any]:
    """Return what was compared, on which problems, and what could not be measured."""
    sampling, benchmarks = request.spec.sampling, questions.benchmarks.values()
    return {
        "pairs": {name: [seed.pair.model_dump(mode="json") for seed in seeds] for name, seeds in evidence.items()},
        "tasks": [benchmark.name for benchmark in benchmarks],
        "families": {b.name: _families(request.spec, b) for b in benchmarks if b.metadata.families},
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
    """Count the families of the problems that are used from a benchmark."""
    labels = benchmark.metadata.families or {}
    return stats.count_families([labels[key] for key in spec.problem_ids([*labels], labels)])


def _asked(spec: EvalSpec, benchmark: Benchmark) -> str:
    """Describe how many problems of a benchmark are used."""
    every = [row["id"] for row in benchmark.problems]
    asked = len(spec.problem_ids(every, benchmark.metadata.families))
    return f"{'' if asked == len(every) else f'{asked} of '}{len(every)} problems of {benchmark.name}"


def dry_run_words(request: Request, *, records: Path, gpus: Gpus | None = None) -> str:
    """Return the plan of each column as text. This loads no weights.

    Raises:
        UserError: `Request.check` refuses the request, or the two models do not fit together.
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
            f"{name}: {plural(len(rows), 'decoding')}",
            rows,
            longest_response(pair, request.spec.engine, longest),
            request.spec.engine,
            memory=memory,
            speed=speed,
            gpus=gpus,
        )
        lines.append(plan.text())
    lines += unmeasured(request, questions)
    if request.low_rank:
        lines.append(f"not counted: models of rank {', '.join(map(str, request.low_rank))}, each scored twice as RL is")
    return "\n\n".join(lines)


def unmeasured(request: Request, questions: Questions) -> list[str]:
    """Return a sentence for the groups that cannot be measured for any pair because some tasks have no gold answers.

    The list is empty if all tasks have gold answers.
    """
    missing = Evidence(resolve(request.spec.pair))
    decoded_groups(request.rows, questions, missing)
    return [f"{', '.join(missing.missing)} not measured: {why}" for why in dict.fromkeys(missing.missing.values())]


def _stored_context(out: Path | None) -> dict[str, Any]:
    """Return the context of an earlier audit in the folder `out`. They are empty if there is none that can be read."""
    if out is None:
        return {}
    try:
        return Analysis.read(out / "audit.json").context
    except (DamagedError, OSError):
        return {}
