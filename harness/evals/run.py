"""Evaluations from Python: many decodings in one engine stream, on our lm-eval tasks.

results = evaluate(pair, [Decoding(mode="base"), Decoding(mode="rl")], ["tiny_easy"], Sampling(samples=8))
"""

import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.decode import Engine
from harness.errors import UserError, unknown
from harness.evals.data import BENCHMARKS, GROUPS, PUBLISHED, check_golds, digest, golds_name
from harness.evals.result import EvalResult, asked_hash
from harness.evals.stream import Done, stream
from harness.evals.work import Exam, Work, exams, works_of
from harness.grading import DEFAULT_GRADER, GRADERS
from harness.records import RecordStore
from harness.records.verdicts import versions as grading_versions
from harness.spec import Decoding, EngineSpec, Pair, Sampling

TASKS: tuple[str, ...] = (*BENCHMARKS, *GROUPS)


def preflight(tasks: Sequence[str], data_dir: str | None = None, version: str = PUBLISHED) -> dict[str, str]:
    """Checks names and data before any model loads: each benchmark asked for (groups expanded) and its data digest.

    Raises:
        UserError: an unknown or doubled task, or a benchmark without data or without that version of its answers (the
            sentence says what to set).
    """
    if not tasks:
        raise UserError(f"tasks is empty; accepted: {', '.join(TASKS)}")
    names: list[str] = []
    for task in tasks:
        if task not in TASKS:
            raise unknown("task", task, TASKS)
        names.extend(GROUPS.get(task, (task,)))
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UserError(f"tasks={','.join(tasks)} asks for {doubled[0]} twice; name it once, alone or in its group")
    found = {name: digest(name, data_dir) for name in names}
    for name in names:
        check_golds(name, version, data_dir)
    return found


def evaluate(
    engine_or_pair: Engine | Pair,
    decodings: Sequence[Decoding],
    tasks: Sequence[str],
    sampling: Sampling | None = None,
    *,
    limit: int | None = None,
    data_dir: str | None = None,
    grader: str = DEFAULT_GRADER,
    golds: str = PUBLISHED,
    records: str | Path | None = None,
    engine_spec: EngineSpec | None = None,
    progress: bool = True,
    known: Callable[[str], EvalResult | None] | None = None,
    on_result: Callable[[EvalResult], None] | None = None,
) -> list[EvalResult]:
    """Evaluates every decoding on every task in one engine stream: results in that order, decoding by decoding.

    Args:
        engine_or_pair: an engine, or a pair: its engine is made as `engine_spec` says, loads its weights only if
            something has to be decoded, and is closed here.
        sampling: None is each task's own (the paper's).
        limit: the first problems only: for a look, not for a score.
        grader: `robust` or `plain`; golds: which version of a benchmark's answers counts (the others that are at hand
            are graded beside it).
        records: a folder that holds every rollout as it finishes; what it holds already is not decoded again, so an
            interrupted evaluation goes on where it stopped.
        known: gives an earlier result by its `config_hash`, or None; what is known is neither decoded nor graded.
        on_result: told of each result as soon as it is there, in the order of completion.

    Prompts go through the pair's chat template where it has one.

    Raises:
        UserError: what `preflight` refuses, or what the engine refuses.
    """
    names = list(preflight(tasks, data_dir, golds))
    if limit is not None and limit < 1:
        raise UserError(f"limit={limit} is refused; accepted: a number of problems, 1 or more")
    if grader not in GRADERS:
        raise unknown("grader", grader, GRADERS)
    if doubled := [d.label() for i, d in enumerate(decodings) if d in decodings[:i]] or not decodings:
        raise UserError(f"decodings: {doubled[0]} is asked for twice" if decodings else "decodings is empty")
    with opened(engine_or_pair, engine_spec) as engine:
        papers = exams(names, engine, sampling, limit=limit, data_dir=data_dir, version=golds)
        works = works_of(papers, decodings, engine)
        about = {"chat": _chat(engine), "versions": versions(), "limit": limit, "argv": sys.argv}
        about |= {"records": str(Path(records).expanduser().resolve())} if records else {}
        asked = [_provenance(work, paper, grader) for work, paper in zip(works, papers * len(decodings), strict=True)]
        results: dict[int, EvalResult] = {}

        def have(index: int, result: EvalResult) -> None:
            results[index] = result
            if on_result is not None:
                on_result(result)

        for index, work in enumerate(works if known else ()):
            ids = list(papers[index % len(papers)].prompts)
            found = known(asked_hash(work.task, work.decoding, work.sampling, ids, asked[index]))
            if found is not None:
                have(index, found)
        todo = [work for index, work in enumerate(works) if index not in results]
        for done in stream(engine, todo, RecordStore(records) if records else None, grader=grader, progress=progress):
            index = works.index(done.work)
            record = {"record": f"{asked[index]['settings']}/{done.work.task}"} if records else {}
            have(index, result_of(done, {**asked[index], **about, **record, "engine": engine.info()}))
        return [results[index] for index in range(len(works))]


def result_of(done: Done, provenance: dict[str, Any]) -> EvalResult:
    """The result of complete work; its `seconds` are those of the stream's mean speed, 0 where a record held a part."""
    work = done.work
    prefix = f"{work.task}/"
    rows: dict[str, list[dict[str, Any]]] = {}
    chosen, *others = done.verdicts
    for key in sorted(done.samples, key=lambda key: key[1]):
        verdict = done.verdicts[chosen][key]
        rows.setdefault(key[0].removeprefix(prefix), []).append(
            {
                **done.samples[key].facts(),
                "verdict": verdict.kind,
                "answer": verdict.answer,
                **{f"verdict_{version}": done.verdicts[version][key].kind for version in others},
            }
        )
    tokens = sum(sample.n_tokens for sample in done.samples.values())
    whole = done.decoded == len(done.samples) and done.tokens_per_second
    return EvalResult.from_samples(
        work.task,
        work.decoding,
        work.sampling,
        {request.problem.removeprefix(prefix): rows[request.problem.removeprefix(prefix)] for request in work.requests},
        seconds=tokens / done.tokens_per_second if whole else 0.0,
        provenance=provenance,
    )


def _provenance(work: Work, exam: Exam, grader: str) -> dict[str, Any]:
    """What identifies a result before there is one."""
    name = work.config.hash()
    version = next(iter(exam.gold))
    return {
        "settings": name,
        "data": exam.data,
        "grader": grader,
        "graded_with": grading_versions(grader),
        "golds": golds_name(version, exam.gold[version]),
    }


@contextmanager
def opened(engine_or_pair: Engine | Pair, spec: EngineSpec | None = None) -> Iterator[Engine]:
    """An engine as it is, left open; or a pair's, its weights loaded when they are needed, closed in the end."""
    if not isinstance(engine_or_pair, Pair):
        yield engine_or_pair
        return
    from harness.decode import open_engine

    engine = open_engine(engine_or_pair, spec or EngineSpec(), lazily=True)
    try:
        yield engine
    finally:
        engine.close()


def _chat(engine: Engine) -> str:
    return (
        "rlvr_dir" if getattr(engine.tokenizer, "chat_template", None) else "none: the tokenizer has no chat template"
    )


def versions() -> dict[str, str]:
    """Versions of what can change a score."""
    found = {"python": platform.python_version()}
    for name in ("rlvr-dir", "lm-eval", "math-verify", "latex2sympy2-extended", "sympy", "datasets"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
