"""lm-eval's two files: `results_<date>.json`, and `samples_<task>_<date>.jsonl` with a line a problem (and filter)."""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, UserError, unknown
from harness.exchange.material import Material, Target, Written, slug
from harness.exchange.responses import (
    DRAWN,
    ForeignRun,
    Response,
    Rows,
    at,
    mapping,
    numbered,
    same,
    sampling_of,
    text,
    told_by_ours,
)
from harness.files import make_folder, write_file
from harness.grading import VERDICT_KINDS
from harness.spec.stored import check_stored, is_number, read_json
from harness.stats import problem_metrics

FILTER = "boxed"  # the name of our tasks' filter in lm-eval's tables
CANNOT = (
    "lm-eval's files have the prompt in arguments, of which only the digest is kept, so arg_0 and prompt_hash are left "
    "out; token ids and log-probabilities have no place there"
)
_NAMES = tuple(name for name in DRAWN if name != "max_tokens")  # those that lm-eval calls as we do
_LENGTHS = ("max_gen_toks", "max_tokens", "max_new_tokens", "max_completion_tokens")


def write_lm_eval(material: Material, out: Path, target: Target) -> Written:
    """Write one result into a folder of its system below `out`."""
    result, system, why = material.result, material.system, material.why_none
    folder = out / slug(f"{system.developer}__{system.model}") / result.config_hash
    make_folder(folder)
    stamp = (material.when or target.now).replace(tzinfo=None).isoformat().replace(":", "-")
    files, data, hashes = [folder / f"results_{stamp}.json"], _results(material, target), list[str]()
    if not why:
        files.append(folder / f"samples_{result.task}_{stamp}.jsonl")
        write_file(files[1], _lines(material, hashes))
        data["task_hashes"] = {result.task: sha256("".join(hashes).encode()).hexdigest()}
    write_file(files[0], json.dumps(data, indent=2) + "\n")
    return Written(tuple(files), (f"{material.name}: no samples file: {why}",) if why else ())


def _results(material: Material, target: Target) -> dict[str, Any]:
    result, system, task = material.result, material.system, material.result.task
    asked, whole, n = len(result.problem_ids), result.provenance.get("benchmark_size"), result.samples
    if result.scores is not None:
        named = [(*name.partition("/")[::2], value) for name, value in result.scores.items()]
        scores = {f"{metric},{of or 'none'}": value for metric, of, value in named}
    else:
        known = {name: value for name, value in result.metrics().items() if not name.endswith(("_se", "_se_sampling"))}
        known |= {f"avg@{n}_stderr": result.standard_error} if asked > 1 else {}
        scores = {f"{name},{FILTER}": value for name, value in known.items()}
    metrics = [key.partition(",")[0] for key in scores if "_stderr" not in key]
    lower = {name.partition("/")[0] for name in result.lower_is_better}
    better = {name: "@" in name if result.shares else name not in lower for name in metrics}
    return {
        "results": {task: {"name": task, "alias": result.benchmark, "sample_len": asked, **scores}},
        "group_subtasks": {task: []},
        "configs": {task: {"task": task, "output_type": "generate_until", "repeats": n}},
        "versions": {},
        "n-shot": {},
        "higher_is_better": {task: better},
        "n-samples": {task: {"original": whole or asked, "effective": asked}},
        "config": {
            "model": "rlvr_dir",
            "model_args": {**system.models, "decoding": result.decoding.model_dump(mode="json")},
            "gen_kwargs": generation_kwargs(material),
            "limit": asked if result.limited else None,
            "metadata": material.facts(),
        },
        "date": (material.when or target.now).timestamp(),
        "model_source": "rlvr_dir",
        "model_name": system.id,
        "model_name_sanitized": slug(f"{system.developer}__{system.model}"),
    }


def generation_kwargs(material: Material) -> dict[str, Any]:
    """Return how a result was drawn, by lm-eval's names; what is not known is left out."""
    known = {"max_gen_toks" if name == "max_tokens" else name: value for name, value in material.drawn.items()}
    known.pop("seed", None)  # lm-eval's own, of its few-shot examples, has that name
    return {**known, "do_sample": not material.result.sampling.greedy} if "temperature" in known else known


def _lines(material: Material, hashes: list[str]) -> Iterator[bytes]:
    for number, (_, responses) in enumerate(groupby(material.responses(), key=lambda response: response.problem)):
        row = _line(material, number, [*responses])
        hashes.append(row["doc_hash"] + row["target_hash"])
        yield json.dumps(row, allow_nan=False).encode() + b"\n"


def _line(material: Material, number: int, responses: Sequence[Response]) -> dict[str, Any]:
    """Return the line of a problem: responses in `resps`, what is known of each in `doc.samples`, as our tasks do."""
    result, first, samples = material.result, responses[0], []
    target = first.gold[0] if len(first.gold) == 1 else str(list(first.gold))
    doc = {"id": first.problem, "problem": first.question, "answer": target}
    for i, one in enumerate(responses):
        ended = {} if one.finish_reason == "unknown" else {"finish_reason": one.finish_reason}
        samples.append({"verdict": one.kind, "answer": one.answer, **ended})
        if one.n_tokens is not None:
            counts = {name: int(getattr(result, name)[number, i]) for name in ("n_tokens", "n_replaced", "n_changed")}
            samples[-1] |= {**counts, "replaced_at": [*one.replaced], "changed_at": [*one.changed]}
    metrics = problem_metrics(result.responses(number))
    return {
        "doc_id": number,
        "doc": {**doc, "samples": samples},
        "target": target,
        "arguments": {"gen_args_0": {"arg_1": generation_kwargs(material)}},
        "resps": [[one.text for one in responses]],
        "filtered_resps": [[one.answer for one in responses]],
        "filter": FILTER,
        "metrics": list(metrics),
        "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)),
        "target_hash": _hash(target),
        **metrics,
    }


def _hash(said: str) -> str:
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def is_lm_eval(row: dict[str, Any]) -> bool:
    """Tell whether an object is a line of a samples file."""
    return {"doc_id", "resps"} <= row.keys()


def read_lm_eval(path: Path, rows: Rows, metric: str | None = None) -> ForeignRun:
    """Read the lines of one filter, by default the first; `metric` is `METRIC`, `METRIC/FILTER` or `/FILTER`.

    Their verdict on a response is the metric, where a document has one response and every value is 0 or 1; of ours,
    what `doc.samples` says.

    Raises:
        UserError: a line is not of that form, has log-likelihoods in place of texts, or there is no such filter.
    """
    name, _, wanted = (metric or "").partition("/")
    filters = [*dict.fromkeys(str(row.get("filter", "none")) for _, row in rows)]
    if wanted and wanted not in filters:
        raise unknown("metric", f"/{wanted}", (f"/{each}" for each in filters))
    chosen = wanted or filters[0]
    mine = [(where, row) for where, row in rows if str(row.get("filter", "none")) == chosen]
    remarks = [f"of the filters {', '.join(filters)} this is {chosen}"] if len(filters) > 1 else []
    texts = [_texts(row, where) for where, row in mine]
    judge = _judge([row for _, row in mine], name, max(map(len, texts)))
    own = [at(row, "doc", "id") for _, row in mine]
    distinct = all(isinstance(one, str) or type(one) is int for one in own) and len({*map(str, own)}) == len(own)
    found = []
    for (where, row), key, responses in zip(mine, own, texts, strict=True):
        said = at(row, "doc", "samples")  # our own files say of each response what it is
        ours = isinstance(said, list) and len(said) == len(responses)
        ours = ours and all(at(one, "verdict") in VERDICT_KINDS for one in said)
        for i, one in enumerate(said if ours else [{"verdict": row[judge] if judge else None}] * len(responses)):
            fields = {
                "problem": key if distinct else row["doc_id"],
                "sample": i,
                "text": responses[i],
                "gold": at(row, "target"),
                "correct": one["verdict"] == "correct" if ours else bool(row[judge]) if judge else None,
                "question": at(row, "arguments", "gen_args_0", "arg_0"),
                "answer": at(one, "answer"),
                "finish_reason": at(one, "finish_reason"),
                "n_tokens": at(one, "n_tokens"),
                "replaced": at(one, "replaced_at"),
                "changed": at(one, "changed_at"),
            }
            found.append(check_stored(fields, Response, where))
    by = f"{judge}/{chosen}" if judge else None
    if not judge and all(response.correct is not None for response in found):
        by = "verdicts of rlvr-dir"
    told = [_kwargs(row) for _, row in mine]
    drawn = {key: same(each.get(key) for each in told) for key in told[0]}
    try:
        beside = read_json(path.with_name(f"results_{path.stem.rpartition('_')[2]}.json"))
    except DamagedError:
        beside = {}
    ours = at(beside, "model_source") == "rlvr_dir"
    more, decoding = told_by_ours(at(beside, "config", "metadata") if ours else None)
    known, left = sampling_of({**drawn, **more})
    task, model = _task(path), text(beside, "model_name")
    return ForeignRun("lm-eval", task, model, numbered(found, path), by, known, decoding, (*remarks, *left))


def _texts(row: dict[str, Any], where: str) -> list[str]:
    resps = row["resps"] if isinstance(row["resps"], list) else []
    flat = [one for each in resps for one in (each if isinstance(each, list) else [each])]
    if not flat or not all(isinstance(one, str) for one in flat):
        raise DamagedError(
            f"{where} has no texts in resps (a task of log-likelihoods has none); accepted: generate_until's responses"
        )
    return flat


def _kwargs(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the arguments of a request say of its sampling, by our names."""
    said = mapping(row, "arguments", "gen_args_0", "arg_1")
    lengths = [said[name] for name in _LENGTHS if said.get(name) is not None]
    found = {**{name: said.get(name) for name in _NAMES}, "max_tokens": [*lengths, None][0]}
    zero = is_number(found["temperature"]) and found["temperature"] == 0
    return {**found, **dict.fromkeys(_NAMES), "temperature": 0} if said.get("do_sample") is False or zero else found


def _judge(rows: Sequence[dict[str, Any]], wanted: str, responses: int) -> str | None:
    """Return the metric that says of each response whether it is right; None where there is none.

    Raises:
        UserError: the one that is wanted does not say so.
    """
    listed = at(rows[0], "metrics")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) and responses == 1 else []
    fitting = [name for name in names if all(isinstance(r.get(name), int | float) and r[name] in (0, 1) for r in rows)]
    if wanted and wanted not in fitting:
        raise UserError(
            f"metric={wanted!r} is not 0 or 1 for every single response; accepted: {', '.join(fitting) or 'none here'}"
        )
    return wanted or next(iter(fitting), None)


def _task(path: Path) -> str | None:
    """Return the task that a file's name says: `samples_TASK_2026-11-23T01-53-59.jsonl`."""
    name = path.stem.removeprefix("samples_")
    task, _, date = name.rpartition("_")
    return (task if task and date[:1].isdigit() else name) if path.stem.startswith("samples_") else None
