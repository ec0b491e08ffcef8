"""Inspect's log: one JSON of version 2 for each result, an epoch a sample, which `inspect view` and its API open."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.exchange.material import Material, Response
from harness.exchange.scores import counts_of, scores_of
from harness.exchange.system import slug
from harness.exchange.target import Target, Written
from harness.files import make_folder, write_file

CANNOT = (
    "Inspect's log has no field for a decoding rule or for replaced tokens (they are in metadata), and its messages "
    "are the question as the benchmark has it, not as the prompt puts it"
)
_UNUSED: dict[str, Any] = {"model_usage": {}, "role_usage": {}}
STOPPED = {"stop": "stop", "length": "max_tokens", "unknown": "unknown"}  # finish_reason as Inspect says it


def write_inspect(material: Material, out: Path, target: Target) -> Written:
    """Write one result as a log into `out`."""
    result, system = material.result, material.system
    when = (material.when or target.now).isoformat()
    scorer = slug(str(result.provenance.get("grader") or "unknown"))
    drawn = ("temperature", "top_p", "max_tokens", "seed")
    config = {name: value for name, value in material.drawn.items() if name in drawn}
    head: dict[str, Any] = {
        "version": 2,
        "status": "success",
        "invalidated": False,
        "tags": [],
        "metadata": {},
        "eval": {
            "eval_id": result.config_hash,
            "run_id": result.config_hash,
            "task_id": result.config_hash,
            "created": when,
            "task": result.task,
            "task_version": 0,
            "task_attribs": {},
            "task_args": {},
            "task_args_passed": {},
            "dataset": {
                "name": result.task,
                "samples": len(result.problem_ids),
                "sample_ids": list(result.problem_ids),
                "shuffled": False,
            },
            "model": system.id,
            "model_generate_config": config,
            "model_args": dict(system.models),
            "config": {"epochs": result.samples, "epochs_reducer": ["mean"]},
            "packages": {str(name): str(each) for name, each in (result.provenance.get("versions") or {}).items()},
            "metadata": material.facts(),
        },
        "plan": {"name": "plan", "steps": [], "config": config},
        "results": _results(material, scorer),
        "stats": {"started_at": "", "completed_at": "", **_UNUSED, "connection_limit_history": []},
    }
    make_folder(out)
    names = f"{slug(result.task)[:80]}_{slug(system.model)[:80]}"  # a file system takes 255 letters; the hash is whole
    file = out / f"{when.replace(':', '-')}_{names}_{result.config_hash}.json"
    if material.why_none:
        write_file(file, json.dumps(head, indent=1) + "\n")
        return Written((file,), (f"{material.name}: a log without samples: {material.why_none}",))

    def pieces() -> Iterator[bytes]:
        text = json.dumps(head, indent=1)
        yield text.removesuffix("\n}").encode() + b',\n "samples": [\n'
        for i, response in enumerate(material.responses()):
            yield (b",\n" if i else b"") + json.dumps(_sample(material, response, scorer), allow_nan=False).encode()
        yield b"\n ]\n}\n"

    write_file(file, pieces())
    return Written((file,))


def _results(material: Material, scorer: str) -> dict[str, Any]:
    """Return each score under its own name, reduced over epochs as that name says."""
    result, responses = material.result, len(material.result.problem_ids) * material.result.samples
    found = []
    for score in scores_of(result):
        metrics = {"mean": {"name": "mean", "value": score.value, "params": {}}}
        if score.error is not None:
            metrics["stderr"] = {"name": "stderr", "value": score.error, "params": {}}
        reducer = "mean" if score.id == "accuracy" else score.name.replace("@", "_at_") if score.proportion else None
        about = {"name": score.name, "scorer": scorer, "reducer": reducer}
        found.append({**about, "params": dict(score.parameters), "metrics": metrics})
    counts = counts_of(result)
    return {"total_samples": responses, "completed_samples": responses, "scores": found, "metadata": counts}


def _sample(material: Material, response: Response, scorer: str) -> dict[str, Any]:
    rollout, result, system = response.rollout, material.result, material.system
    score: dict[str, Any] = {
        "value": "C" if response.correct else "I",
        "metadata": {"verdict": response.kind},
        "history": [],
    }
    if response.answer is not None:
        score["answer"] = response.answer
    output: dict[str, Any] = {
        "model": system.id,
        "choices": [
            {
                "message": {"role": "assistant", "content": rollout.text, "source": "generate"},
                "stop_reason": STOPPED[rollout.finish_reason],
            }
        ],
        "completion": rollout.text,
    }
    metadata: dict[str, Any] = {"decoding": result.decoding.label()}
    if "n_tokens" not in result.lacks:
        metadata["n_tokens"] = rollout.n_tokens
        for name in ("replaced", "changed"):
            metadata[f"{name}_at"] = getattr(rollout, name).nonzero()[0].tolist()
        if rollout.prompt_token_ids is not None:
            read, wrote = len(rollout.prompt_token_ids), rollout.n_tokens
            output["usage"] = {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}
    return {
        "id": response.problem,
        "epoch": response.sample + 1,
        "input": response.question,
        "target": response.gold[0] if len(response.gold) == 1 else list(response.gold),
        "messages": [
            {"role": "user", "content": response.question, "source": "input"},
            {"role": "assistant", "content": rollout.text, "source": "generate"},
        ],
        "output": output,
        "scores": {scorer: score},
        "metadata": metadata,
        "store": {},
        "events": [],
        "attachments": {},
        **_UNUSED,
    }
