"""Re-evaluate the best point and its controls with fresh seeds on problems that did not choose it.

A sweep picks the luckiest of its points. Its luck was with the samples, which new seeds replace, and with the problems,
which only other problems do: those that a declared split held out, those beyond the sweep's limit, or other benchmarks.
Where a benchmark has no others, the row says that they are the same.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness import stats
from harness.decode import open_engine
from harness.errors import UserError
from harness.evals import EvalResult, evaluate
from harness.evals.benchmark import Benchmark
from harness.evals.data import preflight, preflight_of
from harness.evals.settings import Setting, settings_of
from harness.evals.show import score
from harness.files import make_folder, write_file
from harness.markdown import interval, markdown_table
from harness.records.lock import Lock
from harness.report.sweep import CompleteTrial, unit_of
from harness.spec import Decoding, ProblemPart
from harness.spec.search import Search
from harness.spec.sweep import SweepSpec, in_percent
from harness.stats import p_value
from harness.sweep.base import Places, Sweep
from harness.sweep.folder import SweepFolder
from harness.sweep.track import SweepRun
from harness.tiny import checkpoints


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The winner minus one of its controls on one benchmark, all new seeds together; `before` is that of the sweep.

    `problems` says how many problems, and whether the winner was chosen on them.
    """

    pair: str
    row: stats.Comparison[Any]
    before: float | None
    problems: str


def confirm(
    sweep: Sweep[SweepSpec], seeds: Sequence[int], tasks: Sequence[str] | None = None, *, limit: int | None = None
) -> str:
    """Decode the winner of each pair, base, RL and the gamma = 0 control; write `confirm.md` and `confirm.json`.

    `limit` takes the first of the problems that `unused` gives. Interrupted, the same call goes on.

    Raises:
        UserError: the sweep is greedy or has no winner yet, or a seed is the sweep's own.
    """
    spec, folder, places = sweep.spec, sweep.folder, sweep.places
    if spec.sampling.greedy:
        raise UserError(
            f"seeds={','.join(map(str, seeds))} is refused: the sweep is greedy (temperature=0), and every seed gives "
            "the same tokens; accepted: a sweep that samples"
        )
    check_seeds(seeds, (spec.sampling.seed,))
    found = preflight(tasks or spec.tasks, spec.data_dir, spec, spec.include_path)
    asked = {each.name: task for task, each in found.items()}
    parts = {each.name: unused(spec, each) for each in found.values()}
    with winner(sweep) as made:
        results = folder.path / "confirm"
        make_folder(results)
        run = SweepRun(spec, places.tracking)
        pairs: list[tuple[str, Setting, Setting]] = []
        for entry in made.best:
            found = _decode(spec, entry, places, seeds, asked, parts, limit)
            for result in found:
                result.write(results)
                run.child(result)
                own = not result.shares
                shown = score(result) if own else f"{100 * result.avg:.2f}"
                sweep.say(f"{result.benchmark}  {result.label}  seed {result.sampling.seed}  {shown}")
            found = [result.of_metric(spec.metric[0].name) for result in found]
            pairs += [(entry.pair, *each) for each in _against_controls(entry, found)]
        rows = [
            Confirmed(pair, row, _before(spec, row, made.of(pair)), _problems(spec, row, parts))
            for (pair, *_), row in zip(pairs, stats.family((one, other) for _, one, other in pairs), strict=True)
        ]
        metric = spec.metric[0].name
        unit = "points of Avg" if metric in spec.metrics or in_percent(metric) else metric
        about = f"{spec.sampling.samples} samples each.\nDifferences in {unit}, paired by problem"
        return write(spec, folder, rows, seeds, about, run)


def check_seeds(seeds: Sequence[int], used: Sequence[int]) -> None:
    """Refuse seeds on which the winner was chosen.

    Raises:
        UserError: one of them was used, or is named twice, or there is none.
    """
    if set(used) & set(seeds) or len(set(seeds)) < len(seeds) or not seeds:
        raise UserError(
            f"seeds={','.join(map(str, seeds))} is refused; accepted: different ones, and none of the sweep's own "
            f"({', '.join(map(str, used))}), on which the winner was chosen"
        )


@contextmanager
def winner(sweep: Sweep[Any]) -> Iterator[Any]:
    """Hold the sweep's lock, and give its summary, which has one best point.

    Raises:
        UserError: another process runs the sweep, or it has no single best point.
    """
    lock = Lock(sweep.folder.lock, f"sweep {sweep.spec.name!r}")
    try:
        made = sweep.summary()
        if not made.best or len(sweep.spec.metric) > 1:
            raise UserError(f"sweep {sweep.spec.name!r} has no single best point to be confirmed")
        yield made
    finally:
        lock.release()


def write(
    spec: Search, folder: SweepFolder, rows: Sequence[Confirmed], seeds: Sequence[int], about: str, run: SweepRun
) -> str:
    """Write `confirm.md`, which is returned, and `confirm.json`, and add both to the sweep's run."""
    head = ["pair", "benchmark", "problems", "winner of the sweep", "minus", "in the sweep", "anew", "95 % interval"]
    cells = []
    for one in rows:
        row, d = one.row, one.row.difference
        cells.append([one.pair, row.result.benchmark, one.problems, row.result.label, row.reference.label])
        unit, digits, _ = unit_of(row.result)
        cells[-1] += ["" if one.before is None else f"{unit * one.before:+.{digits}f}", f"{unit * d.mean:+.{digits}f}"]
        cells[-1] += [interval(d.low, d.high, digits, sign=True, unit=unit)]
        cells[-1] += [p_value(d.p), p_value(row.holm_p)]
    lines = [f"# Confirmation of sweep {spec.name}", ""]
    lines += [f"{time.strftime('%Y-%m-%d')}: new seeds {', '.join(map(str, seeds))}, {about}; Holm's correction"]
    lines += ["over this table.", "", markdown_table([*head, "p", "p (Holm)"], cells, left=5)]
    text = "\n".join(lines) + "\n"
    plain = [
        {
            **one.row.facts(),
            "pair": one.pair,
            "winner": one.row.result.label,
            "before": one.before,
            "problems": one.problems,
        }
        for one in rows
    ]
    write_file(folder.path / "confirm.md", text.encode())
    write_file(folder.path / "confirm.json", json.dumps(plain, indent=1, ensure_ascii=False).encode())
    run.attach(folder.path / "confirm.md", folder.path / "confirm.json")
    return text


def _decode(
    spec: SweepSpec,
    entry: CompleteTrial,
    places: Places,
    seeds: Sequence[int],
    names: Mapping[str, str],
    parts: Mapping[str, ProblemPart],
    limit: int | None,
) -> list[EvalResult]:
    """Return the results of the winner, its control, base and RL with each new seed.

    `names` has what was asked for by the name of each benchmark, `parts` its problems.
    """
    best = entry.results[0].decoding
    decodings = list(dict.fromkeys([Decoding(mode="base"), Decoding(mode="rl"), best.control(), best]))
    asked = []
    for seed in seeds:
        for part in dict.fromkeys(parts.values()):
            tasks = tuple(names[task] for task, its in parts.items() if its == part)
            same = spec.limit if part == spec.part else None  # nothing new is left, so no more than the sweep had
            changes = {"tasks": tasks, "part": part, "limit": limit or same}
            asked.append(spec.evaluation(entry.pair, decodings, sampling=spec.sampling.replace(seed=seed), **changes))
    engine = open_engine(checkpoints(spec.pairs[entry.pair]), spec.engine, lazily=True)
    try:
        return [result for each in asked for result in evaluate(each, engine=engine, records=places.records)]
    finally:
        engine.close()


def unused(spec: SweepSpec, benchmark: Benchmark) -> ProblemPart:
    """Return the problems of a benchmark on which the winner was not chosen; the sweep's own where there are none."""
    if benchmark.name not in _chosen_on(spec):
        return ProblemPart()
    if spec.confirm is not None:
        return spec.part.replace(held_out=True)
    if spec.limit is not None and spec.limit < len(benchmark.problems):
        return ProblemPart(skip=spec.limit)
    return spec.part


def _chosen_on(spec: SweepSpec) -> set[str]:
    """Return the names of the benchmarks on which the winner was chosen."""
    return {each.name for each in preflight_of(spec).values()}


def _problems(spec: SweepSpec, row: stats.Comparison[Any], parts: Mapping[str, ProblemPart]) -> str:
    """Say how many problems a row has, and whether the winner was chosen on them."""
    task = row.result.first.task
    if task not in _chosen_on(spec):
        return f"{row.difference.n} of another benchmark"
    return f"the same {row.difference.n}" if parts[task] == spec.part else f"{row.difference.n} others"


def _against_controls(entry: CompleteTrial, found: Sequence[EvalResult]) -> list[tuple[Setting, Setting]]:
    """Return the winner with RL and, where it extrapolates, with its control, on every benchmark."""
    best = entry.results[0].decoding
    subjects = dict.fromkeys(result.subject for result in found)
    by = {(setting.task, setting.decoding): setting for setting in settings_of(found)}
    controls = [each for each in dict.fromkeys([Decoding(mode="rl"), best.control()]) if each != best]
    return [(by[subject, best], by[subject, control]) for subject in subjects for control in controls]


def _before(spec: SweepSpec, row: stats.Comparison[Setting], entries: Sequence[CompleteTrial]) -> float | None:
    """Return the difference in the sweep, where it had this benchmark and both decodings."""
    usual = [entry for entry in entries if not entry.drawn]
    found = [each.of_metric(spec.metric[0].name) for entry in usual for each in entry.results]
    scores = {result.decoding: result.avg for result in found if result.subject == row.task}
    best, control = (scores.get(side.decoding) for side in (row.result, row.reference))
    return None if best is None or control is None else best - control
