"""Results straight from the record store: finished records, other people's, and marked parts of unfinished ones."""

from collections.abc import Mapping
from typing import Any

from harness.errors import UserError, unknown
from harness.evals.data import BENCHMARKS, PUBLISHED, gold_answers, golds_name
from harness.evals.result import EvalResult
from harness.grading import DEFAULT_GRADER, GRADERS, Gold, Verdict
from harness.records import Snapshot, judge_name
from harness.records.journal import header
from harness.records.verdicts import OFFICIAL, grade_record, read_verdicts, versions
from harness.spec import Decoding, Sampling, parse


def result_of_record(
    snapshot: Snapshot,
    *,
    grader: str = DEFAULT_GRADER,
    golds: str = PUBLISHED,
    data_dir: str | None = None,
    partial: bool = False,
) -> EvalResult:
    """The result of a record, by stored verdicts where they hold and graded now where not; changes nothing.

    With `partial`, an unfinished record gives its first k samples of every problem, k as large as it can be. That part
    is no selection: which samples come first does not depend on what was decoded. The result says so in `partial`.

    Raises:
        UserError: samples are missing and `partial` was not asked for (or not one sample of every problem is there),
            or the right answers are not known.
    """
    if snapshot.config is None:
        raise UserError(f"record {snapshot.name}: its config.json is damaged; run its command again")
    width, part = _complete(snapshot, partial)
    verdicts, answers = _verdicts(snapshot, width, grader, golds, data_dir)
    rows: dict[str, list[dict[str, Any]]] = {}
    for problem, sample in snapshot.held:
        if sample < width:
            counts, verdict = snapshot.entry((problem, sample)).counts(), verdicts[problem, sample]
            rows.setdefault(problem.removeprefix(f"{snapshot.task}/"), []).append(
                {**counts, "verdict": verdict.kind, "answer": verdict.answer}
            )
    config = snapshot.config
    provenance = {
        "settings": snapshot.config_hash,
        "record": snapshot.name,
        "records": str(snapshot.folder.parents[1]),
        "data": config.data,
        "grader": grader,
        "graded_with": versions(grader),
        "golds": answers,
        "engine": {**config.engine, "pair": {role: snapshot.about.get(role) for role in ("base", "rl")}},
        **({"partial": part} if part else {}),
        **({"source": config.source} if config.source else {}),
    }
    return EvalResult.from_samples(
        snapshot.task,
        config.decoding or _imported(config.source),
        _sampling(config, width),
        rows,
        provenance=provenance,
    )


def _complete(snapshot: Snapshot, partial: bool) -> tuple[int, str | None]:
    """How many samples of every problem there are, and of what that is a part."""
    held: dict[str, set[int]] = {}
    for problem, sample in snapshot.held:
        held.setdefault(problem, set()).add(sample)
    asked = snapshot.about.get("asked", {})
    problems, samples = asked.get("problems", len(held)), asked.get("samples", 1)
    first = [next(k for k in range(len(row) + 1) if k not in row) for row in held.values()]  # samples before a gap
    width = min(first) if len(held) >= problems and first else 0
    if width >= samples:
        return width, None
    if not partial:
        there, wanted = sum(map(len, held.values())), problems * samples
        raise UserError(
            f"record {snapshot.name} has {there} of {wanted} rollouts, and an average of them would be of the short "
            "ones; run its command again, or ask for partial results (--partial), which are marked"
        )
    if not width:
        lacking = max(problems - len(held), sum(k == 0 for k in first))
        raise UserError(
            f"record {snapshot.name} has no sample yet of {lacking} of {problems} problems, so not even a partial "
            "result; run its command again"
        )
    return width, f"first {width} of {samples} samples"


def _verdicts(
    snapshot: Snapshot, width: int, grader: str, golds: str, data_dir: str | None
) -> tuple[dict[tuple[str, int], Verdict], str]:
    """The verdicts, and the name of the answers they go by."""
    keys = [key for key in snapshot.held if key[1] < width]
    if grader == OFFICIAL:
        stored = read_verdicts(snapshot.folder, OFFICIAL)
        if lacking := [key for key in keys if key not in stored]:
            raise UserError(f"record {snapshot.name} has no verdict by grader={grader!r} on {lacking[0]}")
        return {key: Verdict(stored[key]["kind"], stored[key].get("answer"), grader) for key in keys}, PUBLISHED
    if grader not in GRADERS:
        raise unknown("grader", grader, (*GRADERS, OFFICIAL))
    answers = _answers(snapshot, golds, data_dir)
    entries = map(snapshot.entry, keys)
    head, judge = header(snapshot.config_hash, snapshot.task), judge_name(grader, golds)
    asked = {key[0].removeprefix(f"{snapshot.task}/"): answers[key[0]] for key in keys}
    return grade_record(snapshot.folder, head, entries, answers, judge, keep=False), golds_name(golds, asked)


def _answers(snapshot: Snapshot, golds: str, data_dir: str | None) -> Mapping[str, Gold]:
    """The right answers: those of the benchmark, of an imported record those that came with it."""
    if snapshot.config is None or not snapshot.config.source:
        if snapshot.task not in BENCHMARKS:
            raise UserError(f"record {snapshot.name}: the right answers of {snapshot.task!r} are not known here")
        return {f"{snapshot.task}/{key}": gold for key, gold in gold_answers(snapshot.task, golds, data_dir).items()}
    if golds != PUBLISHED:
        raise UserError(f"golds={golds!r}: the imported record {snapshot.name} has the answers it came with only")
    return {row["problem"]: str(row["gold"]) for row in read_verdicts(snapshot.folder, OFFICIAL).values()}


def _sampling(config: Any, samples: int) -> Sampling:
    """How a record was drawn; what an imported one does not say is taken as the paper's."""
    if config.sampling is not None:
        return Sampling(samples=samples, **config.sampling.model_dump())
    known = {name: config.source[name] for name in ("temperature", "top_p") if name in config.source}
    return parse(Sampling, {"samples": samples, **known})


def _imported(source: Mapping[str, Any]) -> Decoding:
    """The decoding of an imported record, by what its folder's name says of it (w0 = -gamma).

    Raises:
        UserError: it does not say, or names a criterion whose counterpart here is not known.
    """
    criterion, gamma = source.get("criterion"), -float(source.get("w0") or 0.0)
    if criterion == "none":
        return Decoding(mode="base")
    if criterion == "all" and not gamma:
        return Decoding(mode="rl")
    if criterion == "neg_logp" and "tau" in source:
        mode = "extrapolate" if gamma else "replace"
        return parse(Decoding, {"mode": mode, "tau": float(source["tau"]), "gamma": gamma})
    raise UserError(
        f"the imported record of {source.get('folder', 'unknown origin')!r} cannot be compared: its folder's name does "
        f"not say how it was decoded, or by criterion={criterion!r}; accepted: none, all, neg_logp"
    )
