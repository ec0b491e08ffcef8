"""Reads a log of Inspect: a JSON, or the zip `.eval` that it writes by default."""

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

from harness.errors import DamagedError, UserError, unknown
from harness.exchange.foreign_run import (
    ForeignResponse,
    ForeignRun,
    length,
    numbered,
    places,
    problem_id,
    sampling_of,
    texts,
    told_by_ours,
)
from harness.records.row import FinishReason
from harness.spec.stored import MOST_BYTES, is_number, parse_json

_STOPPED: dict[Any, FinishReason] = {"stop": "stop", "max_tokens": "length", "model_length": "length"}
_RIGHT, _WRONG = ("C", True, 1), ("I", "N", False, 0)
_ATTACHED = "attachment://"
_ZSTANDARD = 93  # among a zip's ways of packing


def is_inspect(data: Any) -> bool:
    """Tell whether a JSON is a log of Inspect."""
    return isinstance(data, dict) and isinstance(data.get("eval"), dict) and "status" in data


def unzipped(path: Path, data: bytes) -> dict[str, Any]:
    """Return the log that a `.eval` file holds, with its samples.

    Raises:
        DamagedError: it is no such file, or its contents have more than `MOST_BYTES`.
    """
    found: dict[str, Any] = {}
    samples: list[Any] = []
    left = MOST_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in sorted(archive.namelist()):
                if name != "header.json" and not (name.startswith("samples/") and name.endswith(".json")):
                    continue
                text = _member(archive, name, data, left)
                if text is None or (left := left - len(text)) < 0:
                    raise DamagedError(f"{path} unpacks to more than {MOST_BYTES:,} bytes, which is refused")
                value = parse_json(text, f"{path} {name}")
                if name == "header.json":
                    found = value if isinstance(value, dict) else {}
                else:
                    samples.append(value)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, DamagedError):
            raise
        said = " ".join(str(error).split())[:100]
        raise DamagedError(
            f"{path} cannot be unpacked ({said}); `inspect log convert --to json` makes it a JSON"
        ) from None
    return {**found, "samples": samples}


def _member(archive: zipfile.ZipFile, name: str, data: bytes, most: int) -> bytes | None:
    """Return a file of a zip; None where it has more than `most` bytes. Zstandard is unpacked too: Inspect's default.

    Raises:
        ValueError: it is damaged. What `zipfile` raises, for other ways of packing.
    """
    info = archive.getinfo(name)
    if info.compress_type != _ZSTANDARD:
        with archive.open(name) as file:
            text = file.read(most + 1)
        return text if len(text) <= most else None
    if info.file_size > most:
        return None
    import pyarrow

    start = info.header_offset + 30  # of the local header, behind which are a name and an extra field
    lengths = data[start - 4 : start]
    start += int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    packed = data[start : start + info.compress_size]
    text = pyarrow.decompress(packed, decompressed_size=info.file_size, codec="zstd", asbytes=True)
    if zlib.crc32(text) != info.CRC:
        raise ValueError(f"{name} has a wrong checksum")
    return text


def read_inspect(path: Path, data: dict[str, Any], metric: str | None = None) -> ForeignRun:
    """Read a log; an epoch is a sample. `metric` is a scorer, by default the first of the first sample.

    Raises:
        UserError: a sample is not of that form, has no response, or the log has no such scorer.
    """
    about, samples = data["eval"], data.get("samples")
    if not isinstance(samples, list) or not samples:
        raise DamagedError(f"{path} has no samples; accepted: a log that was written with them")
    first = samples[0].get("scores") if isinstance(samples[0], dict) else None
    scorers = [name for name in first if isinstance(name, str)] if isinstance(first, dict) else []
    if metric and metric not in scorers:
        raise unknown("metric", metric, scorers or ["none: the log has no scores"])
    scorer = metric or next(iter(scorers), None)
    found = [_response(sample, scorer, f"{path} sample {i}") for i, sample in enumerate(samples)]
    judged = scorer if scorer and all(each.correct is not None for each in found) else None
    if metric and not judged:
        raise UserError(f"metric={metric!r} is not right or wrong (C or I, 1 or 0) for every response")
    plan = data.get("plan")
    over = plan.get("config") if isinstance(plan, dict) else None  # what the run asked for, over what the model had
    config, over, meta = (
        {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else {}
        for value in (about.get("model_generate_config"), over, about.get("metadata"))
    )
    config = {**config, **over}
    drawn, decoding = told_by_ours(meta, path)
    said = {name: config.get(name) for name in ("temperature", "top_p", "max_tokens", "seed")}
    known, remarks = sampling_of({**said, **drawn})
    if data["status"] != "success":
        remarks.append(f"the log's status is {str(data['status'])[:40]!r}, not 'success'")
    if scorer and not judged:
        remarks.append(f"the scorer {scorer} is not right or wrong for every response: its verdicts are left out")
    task, model = about.get("task"), about.get("model")
    return ForeignRun(
        "inspect",
        task.rpartition("/")[2] if isinstance(task, str) else None,
        model if isinstance(model, str) else None,
        numbered(found, path),
        judged,
        known,
        decoding,
        tuple(remarks),
    )


def _response(sample: Any, scorer: str | None, where: str) -> ForeignResponse:
    if not isinstance(sample, dict):
        raise DamagedError(f"{where} is no object")
    attached, epoch = sample.get("attachments"), sample.get("epoch", 1)
    attached = attached if isinstance(attached, dict) else {}
    if type(epoch) is not int or not 0 <= epoch <= 1_000_000:
        raise DamagedError(f"{where} has epoch={str(epoch)[:40]}; accepted: a whole number from 0 to 1,000,000")
    key = problem_id(sample.get("id"), where)
    output = sample.get("output")
    choices = output.get("choices") if isinstance(output, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message")
    text = _content(message.get("content") if isinstance(message, dict) else None, attached)
    if text is None:
        ended = ": it ended in an error" if sample.get("error") else ""
        raise DamagedError(f"{where} (problem {key!r}, epoch {epoch}) has no response{ended}")
    usage, meta = (output or {}).get("usage"), sample.get("metadata")
    tokens = length(usage.get("output_tokens") if isinstance(usage, dict) else None, where)
    meta = meta if isinstance(meta, dict) else {}
    ours = {
        name: places(meta.get(f"{name}_at"), tokens, where) for name in ("replaced", "changed") if f"{name}_at" in meta
    }
    scores = sample.get("scores")
    score = scores.get(scorer) if isinstance(scores, dict) else None
    score = score if isinstance(score, dict) else {}
    question = _content(sample.get("input"), attached)
    answer, stopped = score.get("answer"), choice.get("stop_reason")
    return ForeignResponse(
        key,
        epoch,
        text,
        texts(sample.get("target"), where, "target"),
        _verdict(score.get("value")),
        answer if isinstance(answer, str) else None,
        question,
        _STOPPED.get(stopped, "unknown") if isinstance(stopped, str) else "unknown",
        tokens,
        **ours,
    )


def _verdict(value: Any) -> bool | None:
    """Return what a score says; None where it is neither right nor wrong."""
    if not (isinstance(value, str | bool) or is_number(value)):
        return None
    return True if value in _RIGHT else False if value in _WRONG else None


def _content(value: Any, attached: dict[str, Any]) -> str | None:
    """Return the text of a message, its reasoning first; of a list of messages, that of the user's turns."""
    if isinstance(value, str):
        found = attached.get(value.removeprefix(_ATTACHED)) if value.startswith(_ATTACHED) else value
        return found if isinstance(found, str) else None
    if not isinstance(value, list):
        return None
    parts = []
    for part in value:
        if not isinstance(part, dict):
            return None
        if "role" in part:
            said = _content(part.get("content"), attached) if part["role"] == "user" else None
        else:
            kind = part.get("type")
            said = part.get("reasoning" if kind == "reasoning" else "text") if kind in ("reasoning", "text") else None
            said = _content(said, attached) if isinstance(said, str) else None
        parts += [said] if said is not None else []
    return "\n".join(parts) if parts else None
