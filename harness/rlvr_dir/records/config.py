"""Describe what a record's rollouts have in common: everything that can change a token, and nothing else, under one
hash."""

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from rlvr_dir.config import Decoding, Pair, Sampling, Spec
from rlvr_dir.config.sampling import SamplingSettings
from rlvr_dir.digest import digest_of

# Settings of an engine that are not part of the hash, and why.
NOT_HASHED = (
    "pair",  # places; `weights` identifies the models
    "self_test",  # it changes nothing
    "workers",  # the engine that serves a request changes no number in it
    "tensor_parallel_size",  # the number of GPUs changes the last bits of a sum, as the batch does
    "freed_args",  # of vLLM: how the GPUs add up, and how weights are loaded
    "own_max_model_len", "own_max_model_len_rl",  # the models' own context, if another one is set
)  # fmt: skip
# The hash includes what changes tokens in any batch: versions, dtype, head_dtype, device, the path of the decision, the
# algorithm, chat template, end-of-text tokens, deterministic kernels, other arguments of vLLM (such as kv_cache_dtype),
# and a context that ends responses.
_SIZES = (1, 2, 4, 8, 16, 3, 5, 6, 7, 32)  # tensor parallelism, which was part of the name in earlier versions
_WEIGHTS = (
    "*.safetensors", "*.bin", "*.index.json", "*.py", "config.json", "adapter_config.json", "generation_config.json",
)  # fmt: skip
_OLDER = ("*.pt", "*.gguf")  # weights that are read if there are no others
_TOKENIZER = ("tokenizer*", "*.jinja", "vocab*", "merges*", "special_tokens_map.json", "added_tokens.json", "*.model")
_WHOLE, _CHUNK, _CHUNKS = 16 << 20, 64 << 10, 64  # files up to 16 MiB are read whole, of others 64 stretches of 64 KiB


class RecordConfig(Spec, frozen=True):
    """Store the settings of a record. Its `hash()` names the record's folder, so changed settings make another record.

    `weights` identify models, not places: by role, the fingerprint of a local checkpoint, or hub id and commit.
    `prompt` is the digest of the first problem's prompt as the models read it, which represents how prompts are made.
    """

    weights: dict[str, str] = Field(default_factory=dict)
    decoding: Decoding
    sampling: SamplingSettings
    stop: tuple[str, ...] = ()
    prompt: str | None = None
    data: str | None = None
    engine: dict[str, Any] = Field(default_factory=dict)
    format: Literal[2] = 2

    def canonical(self) -> str:
        """Return the text that is hashed, with tensor_parallel_size 1 unless the record itself stores another one."""
        plain = self.model_dump(mode="json")
        if plain["engine"].get("backend") == "vllm":
            plain["engine"] = {"tensor_parallel_size": 1, **plain["engine"]}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @classmethod
    def of(
        cls,
        pair: Pair,
        decoding: Decoding,
        sampling: Sampling,
        info: Mapping[str, Any],
        *,
        stop: tuple[str, ...] = (),
        prompt: str | None = None,
        data: str | None = None,
        weights: dict[str, str] | None = None,
        longest: int | None = None,
    ) -> "RecordConfig":
        """Return the config for an open engine.

        Args:
            info: The engine's `info()`.
            prompt: The digest of the first prompt.
            data: The digest of the benchmark.
            longest: Tokens of the longest prompt with its response. A context that has room for it is not part of the
                hash.
        """
        return cls(
            weights=weights or {role: fingerprint(*model) for role, model in pair.models.items()},
            decoding=decoding,
            sampling=sampling.per_response,
            stop=stop,
            prompt=prompt,
            data=data,
            engine=engine_identity(info, decoding, longest),
        )

    def earlier(self, info: Mapping[str, Any], decoding: Decoding) -> "list[RecordConfig]":
        """Return the configs by which earlier versions named this record, with that of the present engine first."""
        if self.engine.get("backend") != "vllm":
            lengths, sizes, args = [{}], [{}], [{}]
        else:
            own = int(info.get("tensor_parallel_size", 1))
            sizes = [{"tensor_parallel_size": size} for size in dict.fromkeys((own, *_SIZES))]
            merged = {**info.get("vllm_args", {}), **info.get("freed_args", {})}
            args = [{"vllm_args": merged}, {}] if info.get("freed_args") else [{}]
            lengths = [{}]
        if (stated := engine_identity(info, decoding)["max_model_len"]) != self.engine.get("max_model_len"):
            lengths = [{"max_model_len": stated}, {}]
        changes = [{**arg, **length, **size} for arg, length, size in product(args, lengths, sizes)]
        configs = [self.model_copy(update={"engine": {**self.engine, **change}}) for change in changes]
        return list({config.hash(): config for config in configs}.values())

    @property
    def provenance(self) -> dict[str, Any]:
        """Return what results store of their settings: `weights`, by role, if they are known, and `shared`.

        `shared` is the digest of everything that can change a token except weights, decoding and seed. The possible
        context depends on the decoding, and is not part of it.
        """
        engine = {name: value for name, value in self.engine.items() if name != "max_model_len"}
        if engine.get("backend") == "vllm":  # a record of an earlier version may have another size
            engine["tensor_parallel_size"] = 1
        drawing = self.sampling.replace(seed=0).model_dump(mode="json")
        shared = digest_of([drawing, list(self.stop), self.prompt, self.data, engine])
        return {**({"weights": self.weights} if self.weights else {}), "shared": shared}


def engine_identity(info: Mapping[str, Any], decoding: Decoding, longest: int | None = None) -> dict[str, Any]:
    """Return the settings of an engine that can change a token, without places.

    A chat template is identified by its digest. `max_model_len` becomes the length for this decoding, or the models'
    own, if `longest` tokens fit into both.
    """
    identity, alone = dict(info), not decoding.reads_base
    own = info.get("own_max_model_len_rl" if alone else "", info.get("own_max_model_len"))
    rl_alone = identity.pop("max_model_len_rl", None)
    if rl_alone and alone:
        identity["max_model_len"] = rl_alone
    if own is not None and longest is not None and longest <= min(own, identity["max_model_len"]):
        identity["max_model_len"] = own
    if isinstance(identity.get("chat_template"), Mapping):
        identity["chat_template"] = identity["chat_template"].get("sha256")
    return {name: value for name, value in identity.items() if name not in NOT_HASHED}


def fingerprint(name: str, revision: str | None = None) -> str:
    """Return what identifies a checkpoint's contents.

    For a directory: `weights:` and a digest of its weights, configuration and tokenizer, so it may be moved, and
    another training in the same place has another fingerprint. (From large files, 64 blocks and the size are read,
    because retraining changes them all.) For a hub id: the commit in this machine's cache, or else the requested
    revision.
    """
    folder, content = Path(name).expanduser(), sha256()
    if folder.is_file():  # GGUF
        _feed(content, folder)
        return f"weights:{content.hexdigest()[:16]}"
    if folder.is_dir():
        others = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
        older = () if others else _OLDER  # beside other weights they are an optimiser's
        for path in sorted({path for pattern in (*_WEIGHTS, *older, *_TOKENIZER) for path in folder.glob(pattern)}):
            if path.is_file():
                content.update(f"{path.name}\0{path.stat().st_size}\0".encode())
                _feed(content, path)
        return f"weights:{content.hexdigest()[:16]}"
    commit = _commit(name, revision)
    return f"{name}@{commit}" if commit else name


def local_snapshot(name: str, revision: str | None = None) -> Path | None:
    """Return the folder of a hub id in this machine's cache; None if it is not there."""
    folder = _repository(name) / "snapshots" / (_commit(name, revision) or "none")
    return folder if folder.is_dir() else None


def _repository(name: str) -> Path:
    return _hub_cache() / f"models--{name.replace('/', '--')}"


def _commit(name: str, revision: str | None) -> str | None:
    reference = _repository(name) / "refs" / (revision or "main")
    return reference.read_text().strip() if reference.is_file() else revision


def _feed(value: Any, path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE:
            value.update(file.read())
            return
        for i in range(_CHUNKS):
            file.seek((size - _CHUNK) * i // (_CHUNKS - 1))
            value.update(file.read(_CHUNK))


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()
