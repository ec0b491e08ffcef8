"""Store the measured decoding speed of a pair in a small file beside the records, for the next plan."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlvr_dir.config.stored import Count, Name, Number, Stored
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import DamagedError, UserError
from rlvr_dir.files import write_file

FILE = "speeds"  # not *.json, because a folder of results may contain those
LEAST = 2000  # minimum number of tokens for a measurement


class Speed(Stored, frozen=True):
    """Store a pair's tokens per second (`weights` is a digest of its identity), and the engine that was measured."""

    weights: Name
    backend: Name
    device: Name = ""
    tensor_parallel_size: Count = 1
    workers: Count = 1
    tokens: Count
    tokens_per_second: Annotated[Number, Field(gt=0)]

    @property
    def words(self) -> str:
        """Return the speed and what it was measured with, in words."""
        parts = [self.backend, self.device]
        parts += [f"tensor_parallel_size {self.tensor_parallel_size}"] if self.tensor_parallel_size > 1 else []
        parts += [f"{self.workers} workers"] if self.workers > 1 else []
        return f"{self.tokens_per_second:,.0f} tokens/s (measured here: {', '.join(filter(None, parts))})"


class Speeds(Stored, frozen=True):
    """Store the content of the file of speeds, the newest last."""

    speeds: tuple[Speed, ...] = ()


def pair_digest(weights: Mapping[str, str]) -> str:
    """Return a digest that identifies a pair's models."""
    return digest_of(dict(weights))


def read_speeds(records: Path) -> tuple[Speed, ...]:
    """Return the speeds that were measured with some records; empty if the file is missing or damaged."""
    try:
        return Speeds.from_file(records / FILE).speeds
    except DamagedError:
        return ()


def speed_of(records: Path, weights: Mapping[str, str], engine: Any) -> Speed | None:
    """Return the speed of a pair with as many GPUs as in `engine` (an `EngineSpec`), or else the newest one."""
    own = [speed for speed in read_speeds(records) if speed.weights == pair_digest(weights)]
    gpus = engine.tensor_parallel_size, engine.workers
    alike = [speed for speed in own if (speed.tensor_parallel_size, speed.workers) == gpus]
    return next(iter([*alike[::-1], *own[::-1]]), None)


def keep_speed(
    records: Path, weights: Mapping[str, str], info: Mapping[str, Any], tokens: int, seconds: float, least: int = LEAST
) -> None:
    """Store the speed of generating some tokens, unless they are too few. A full disk is ignored."""
    if tokens < max(1, least) or seconds <= 0:
        return
    machine = {name: info[name] for name in ("backend", "device", "tensor_parallel_size", "workers") if name in info}
    rate = tokens / seconds
    speed = Speed(weights=pair_digest(weights), **machine, tokens=tokens, tokens_per_second=rate)

    def engine(of: Speed) -> tuple[Any, ...]:
        return of.weights, of.backend, of.device, of.tensor_parallel_size, of.workers

    kept = [earlier for earlier in read_speeds(records) if engine(earlier) != engine(speed)]
    with suppress(UserError):
        plain = Speeds(speeds=(*kept, speed)).model_dump(mode="json")
        write_file(records / FILE, json.dumps(plain, indent=1))
