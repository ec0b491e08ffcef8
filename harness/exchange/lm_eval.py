"""lm-eval's two files: `results_<date>.json`, and `samples_<task>_<date>.jsonl` with a line a problem."""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from harness.exchange.material import Material, Response
from harness.exchange.system import slug
from harness.exchange.target import Target, Written
from harness.files import make_folder, write_file
from harness.stats import problem_metrics

FILTER = "boxed"  # the name of our tasks' filter in lm-eval's tables
CANNOT = (
    "lm-eval's files have the prompt in arguments, of which only the digest is kept, so arg_0 and prompt_hash are left "
    "out; token ids and log-probabilities have no place there"
)


def write_lm_eval(material: Material, out: Path, target: Target) -> Written:
    """Write one result into a folder of its system below `out`."""
    result, system = material.result, material.system
    folder = out / slug(f"{system.developer}__{system.model}") / result.config_hash
    make_folder(folder)
    stamp = (material.when or target.now).replace(tzinfo=None).isoformat().replace(":", "-")
    files = [folder / f"results_{stamp}.json"]
    hashes: list[str] = []
    if not material.why_none:
        files.append(folder / f"samples_{result.task}_{stamp}.jsonl")
        write_file(files[1], _lines(material, hashes))
    data = _results(material, target)
    if hashes:
        data["task_hashes"] = {result.task: sha256("".join(hashes).encode()).hexdigest()}
    write_file(files[0], json.dumps(data, indent=2) + "\n")
    why = material.why_none
    return Written(tuple(files), (f"{material.name}: no samples file: {why}",) if why else ())


def _results(material: Material, target: Target) -> dict[str, Any]:
    result, system = material.result, material.system
    asked, whole = len(result.problem_ids), result.provenance.get("benchmark_size")
    scores: dict[str, Any] = {"name": result.task, "alias": result.benchmark, "sample_len": asked}
    if not result.shares:
        for name, value in (result.scores or {}).items():
            metric, _, of = name.partition("/")
            scores[f"{metric},{of or 'none'}"] = value
    else:
        for name, value in result.metrics().items():
            if not name.endswith(("_se", "_se_sampling")):
                scores[f"{name},{FILTER}"] = value
        if len(result.problem_ids) > 1:
            scores[f"avg@{result.samples}_stderr,{FILTER}"] = result.standard_error
    metrics = [key.partition(",")[0] for key in scores if "," in key and "_stderr" not in key]
    lower = result.lower_is_better
    config: dict[str, Any] = {
        "model": "rlvr_dir",
        "model_args": {**system.models, "decoding": result.decoding.model_dump(mode="json")},
        "gen_kwargs": generation_kwargs(material),
        "limit": asked if result.limited else None,
        "metadata": material.facts(),
    }
    data: dict[str, Any] = {
        "results": {result.task: scores},
        "group_subtasks": {result.task: []},
        "configs": {result.task: {"task": result.task, "output_type": "generate_until", "repeats": result.samples}},
        "versions": {},
        "n-shot": {},
        "higher_is_better": {result.task: {name: "@" in name if not lower else name not in lower for name in metrics}},
        "n-samples": {result.task: {"original": whole or asked, "effective": asked}},
        "config": config,
        "date": (material.when or target.now).timestamp(),
        "model_source": "rlvr_dir",
        "model_name": system.id,
        "model_name_sanitized": slug(f"{system.developer}__{system.model}"),
    }
    return data


def generation_kwargs(material: Material) -> dict[str, Any]:
    """Return how a result was drawn, by lm-eval's names; what is not known is left out."""
    known = {"max_gen_toks" if name == "max_tokens" else name: value for name, value in material.drawn.items()}
    known.pop("seed", None)  # lm-eval's own, of its few-shot examples, has that name
    return {**known, "do_sample": not material.result.sampling.greedy} if "temperature" in known else known


def _lines(material: Material, hashes: list[str]) -> Iterator[bytes]:
    for number, (_, responses) in enumerate(groupby(material.responses(), key=lambda response: response.problem)):
        row = _line(material, number, list(responses))
        hashes.append(row["doc_hash"] + row["target_hash"])
        yield json.dumps(row, allow_nan=False).encode() + b"\n"


def _line(material: Material, number: int, responses: Sequence[Response]) -> dict[str, Any]:
    """Return the line of a problem: responses in `resps`, what is known of each in `doc.samples`, as our tasks do."""
    result, first = material.result, responses[0]
    target = first.gold[0] if len(first.gold) == 1 else str(list(first.gold))
    doc = {"id": first.problem, "problem": first.question, "answer": target}
    samples = [_counts(material, response) for response in responses]
    texts = [response.rollout.text for response in responses]
    metrics = problem_metrics(result.responses(number))
    return {
        "doc_id": number,
        "doc": {**doc, "samples": samples},
        "target": target,
        "arguments": {"gen_args_0": {"arg_1": generation_kwargs(material)}},
        "resps": [texts],
        "filtered_resps": [[response.answer for response in responses]],
        "filter": FILTER,
        "metrics": list(metrics),
        "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)),
        "target_hash": _hash(target),
        **metrics,
    }


def _counts(material: Material, response: Response) -> dict[str, Any]:
    rollout = response.rollout
    found: dict[str, Any] = {"verdict": response.kind, "answer": response.answer}
    if rollout.finish_reason != "unknown":
        found["finish_reason"] = rollout.finish_reason
    if "n_tokens" not in material.result.lacks:
        counts = {name: getattr(rollout, name) for name in ("n_tokens", "n_replaced", "n_changed")}
        places = {f"{name}_at": getattr(rollout, name).nonzero()[0].tolist() for name in ("replaced", "changed")}
        found |= {**counts, **places}
    return found


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
