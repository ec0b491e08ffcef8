"""Inspect's log: one JSON of version 2 for each result, an epoch a sample, which `inspect view` and its API open.

Read are a JSON and the zip `.eval` that Inspect writes by default.
"""

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, UserError, unknown
from harness.exchange.material import Material, Target, Written, slug
from harness.exchange.responses import (
    ForeignRun,
    Response,
    at,
    mapping,
    numbered,
    sampling_of,
    text,
    told_by_ours,
)
from harness.files import make_folder, write_file
from harness.spec.stored import MOST_BYTES, check_stored, is_number, parse_json

CANNOT = (
    "Inspect's log has no field for a decoding rule or for replaced tokens (they are in metadata), and its messages "
    "are the question as the benchmark has it, not as the prompt puts it"
)
STOPPED = {"stop": "stop", "length": "max_tokens", "unknown": "unknown"}  # finish_reason as Inspect says it
_FINISHED = {"stop": "stop", "max_tokens": "length", "model_length": "length"}
_UNUSED: dict[str, Any] = {"model_usage": {}, "role_usage": {}}
_VERDICTS = {
    "C": True,
    "1": True,
    "True": True,
    "1.0": True,
    "I": False,
    "N": False,
    "0": False,
    "0.0": False,
    "False": False,
}
_ATTACHED = "attachment://"
_ZSTANDARD = 93  # among a zip's ways of packing


def write_inspect(material: Material, out: Path, target: Target) -> Written:
    """Write one result as a log into `out`."""
    result, system, why = material.result, material.system, material.why_none
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
            **dict.fromkeys(("eval_id", "run_id", "task_id"), result.config_hash),
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

    def pieces() -> Iterator[bytes]:
        yield json.dumps(head, indent=1).removesuffix("\n}").encode()
        for i, response in enumerate(material.responses()):
            said = json.dumps(_sample(material, response, scorer), allow_nan=False).encode()
            yield (b",\n" if i else b',\n "samples": [\n') + said
        yield b"\n}\n" if why else b"\n ]\n}\n"

    write_file(file, pieces())
    return Written((file,), (f"{material.name}: a log without samples: {why}",) if why else ())


def _results(material: Material, scorer: str) -> dict[str, Any]:
    """Return each score under its own name, reduced over epochs as that name says."""
    result, found = material.result, []
    responses = len(result.problem_ids) * result.samples
    for score in material.scores():
        known = {"mean": score.value, "stderr": score.error}
        metrics = {
            name: {"name": name, "value": each, "params": {}} for name, each in known.items() if each is not None
        }
        reducer = "mean" if score.id == "accuracy" else score.name.replace("@", "_at_") if score.proportion else None
        about = {"name": score.name, "scorer": scorer, "reducer": reducer}
        found.append({**about, "params": dict(score.parameters), "metrics": metrics})
    counts = {"total_samples": responses, "completed_samples": responses}
    return {**counts, "scores": found, "metadata": material.counts()}


def _sample(material: Material, response: Response, scorer: str) -> dict[str, Any]:
    result, tokens, read = material.result, response.n_tokens, response.prompt_tokens
    answer = {"role": "assistant", "content": response.text, "source": "generate"}
    metadata: dict[str, Any] = {"decoding": result.decoding.label()}
    if tokens is not None:
        metadata |= {"n_tokens": tokens, "replaced_at": [*response.replaced], "changed_at": [*response.changed]}
    usage = {"input_tokens": read, "output_tokens": tokens, "total_tokens": (read or 0) + (tokens or 0)}
    return {
        "id": response.problem,
        "epoch": response.sample + 1,
        "input": response.question,
        "target": response.gold[0] if len(response.gold) == 1 else list(response.gold),
        "messages": [{"role": "user", "content": response.question, "source": "input"}, answer],
        "output": {
            "model": material.system.id,
            "choices": [{"message": answer, "stop_reason": STOPPED[response.finish_reason]}],
            "completion": response.text,
            **({"usage": usage} if read is not None else {}),
        },
        "scores": {
            scorer: {
                "value": "C" if response.correct else "I",
                "metadata": {"verdict": response.kind},
                "history": [],
                **({} if response.answer is None else {"answer": response.answer}),
            }
        },
        "metadata": metadata,
        "store": {},
        "events": [],
        "attachments": {},
        **_UNUSED,
    }


def is_inspect(data: Any) -> bool:
    """Tell whether a JSON is a log of Inspect."""
    return isinstance(at(data, "eval"), dict) and "status" in data


def unzipped(path: Path, data: bytes) -> dict[str, Any]:
    """Return the log that a `.eval` file holds, with its samples.

    Raises:
        DamagedError: it is no such file, or its contents have more than `MOST_BYTES`.
    """
    members: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = [
                each for each in archive.infolist() if re.fullmatch(r"header\.json|samples/.*\.json", each.filename)
            ]
            if sum(info.file_size for info in infos) > MOST_BYTES:  # nothing unpacks to more than it says
                raise DamagedError(f"{path} unpacks to more than {MOST_BYTES:,} bytes, which is refused")
            for info in infos:
                unpacked = _zstandard(info, data) if info.compress_type == _ZSTANDARD else archive.read(info)
                members[info.filename] = parse_json(unpacked, f"{path} {info.filename}")
    except DamagedError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())[:100]
        raise DamagedError(
            f"{path} cannot be unpacked ({said}); `inspect log convert --to json` makes it a JSON"
        ) from None
    return {**mapping(members, "header.json"), "samples": [members[name] for name in sorted(members) if "/" in name]}


def _zstandard(info: zipfile.ZipInfo, data: bytes) -> bytes:
    """Unpack a file of a zip that is packed as Inspect does by default, and Python's `zipfile` cannot read."""
    import pyarrow

    start = info.header_offset + 30  # of the local header, behind which are a name and an extra field
    start += int.from_bytes(data[start - 4 : start - 2], "little") + int.from_bytes(data[start - 2 : start], "little")
    packed = data[start : start + info.compress_size]
    unpacked = pyarrow.decompress(packed, decompressed_size=info.file_size, codec="zstd", asbytes=True)
    if zlib.crc32(unpacked) != info.CRC:
        raise ValueError(f"{info.filename} has a wrong checksum")
    return unpacked


def read_inspect(path: Path, data: dict[str, Any], metric: str | None = None) -> ForeignRun:
    """Read a log; an epoch is a sample. `metric` is a scorer, by default the first of the first sample.

    Raises:
        UserError: a sample is not of that form, has no response, or the log has no such scorer.
    """
    about, samples = data["eval"], at(data, "samples")
    if not isinstance(samples, list) or not samples:
        raise DamagedError(f"{path} has no samples; accepted: a log that was written with them")
    scorers = [*mapping(samples, 0, "scores")]
    if metric and metric not in scorers:
        raise unknown("metric", metric, scorers or ["none: the log has no scores"])
    scorer = metric or next(iter(scorers), None)
    found = [_response(sample, scorer, f"{path} sample {i}") for i, sample in enumerate(samples)]
    judged = scorer if scorer and all(each.correct is not None for each in found) else None
    if metric and not judged:
        raise UserError(f"metric={metric!r} is not right or wrong (C or I, 1 or 0) for every response")
    config: dict[str, Any] = {}  # what the run asked for, over what the model had
    for each in (mapping(about, "model_generate_config"), mapping(data, "plan", "config")):
        config |= {name: value for name, value in each.items() if value is not None}
    drawn, decoding = told_by_ours(at(about, "metadata"))
    said = {name: config.get(name) for name in ("temperature", "top_p", "max_tokens", "seed")}
    known, remarks = sampling_of({**said, **drawn})
    if data["status"] != "success":
        remarks.append(f"the log's status is {str(data['status'])[:40]!r}, not 'success'")
    if scorer and not judged:
        remarks.append(f"the scorer {scorer} is not right or wrong for every response: its verdicts are left out")
    task = (text(about, "task") or "").rpartition("/")[2] or None
    responses = numbered(found, path)
    return ForeignRun("inspect", task, text(about, "model"), responses, judged, known, decoding, tuple(remarks))


def _response(sample: Any, scorer: str | None, where: str) -> Response:
    attached, choice, meta = (
        mapping(sample, "attachments"),
        mapping(sample, "output", "choices", 0),
        mapping(sample, "metadata"),
    )
    said = _content(at(choice, "message", "content"), attached)
    if said is None:
        ended = ": it ended in an error" if at(sample, "error") else ""
        raise DamagedError(f"{where} (problem {at(sample, 'id')!r}) has no response{ended}")
    score, value = mapping(sample, "scores", scorer or ""), at(sample, "scores", scorer or "", "value")
    stopped = text(choice, "stop_reason")
    fields = {
        "problem": at(sample, "id"),
        "sample": sample.get("epoch", 1),
        "text": said,
        "gold": at(sample, "target"),
        "correct": _VERDICTS.get(str(value)) if isinstance(value, str | bool) or is_number(value) else None,
        "answer": at(score, "answer"),
        "question": _content(at(sample, "input"), attached),
        "finish_reason": _FINISHED.get(stopped or ""),
        "n_tokens": at(sample, "output", "usage", "output_tokens"),
        "replaced": at(meta, "replaced_at"),
        "changed": at(meta, "changed_at"),
    }
    return check_stored(fields, Response, where)


def _content(value: Any, attached: dict[str, Any]) -> str | None:
    """Return the text of a message, its reasoning first; of a list of messages, that of the user's turns."""
    if isinstance(value, str):
        return text(attached, value.removeprefix(_ATTACHED)) if value.startswith(_ATTACHED) else value
    parts: list[str | None] = []
    for part in value if isinstance(value, list) else ():
        role, kind = at(part, "role"), at(part, "type")
        inner = (
            at(part, "content") if role == "user" else None if role else at(part, "text" if kind == "text" else kind)
        )
        parts.append(_content(inner, attached) if role or kind in ("reasoning", "text") else None)
    known = [part for part in parts if part is not None]
    return "\n".join(known) if known else None
