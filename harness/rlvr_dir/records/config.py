"""What a record's rollouts have in common: everything that can change a token, and nothing else, under one hash."""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from rlvr_dir.config import Decoding, Pair, Sampling, Spec
from rlvr_dir.config.sampling import SamplingSettings
from rlvr_dir.digest import digest_of

# What an engine tells of itself that cannot change a token; anything else it tells is part of the hash.
NOT_HASHED = ("pair", "self_test", "workers")
_WEIGHTS = (
    "*.safetensors", "*.bin", "*.index.json", "*.py", "config.json", "adapter_config.json", "generation_config.json",
)  # fmt: skip
_OLDER = ("*.pt",)  # weights that vLLM reads where there are no others
_TOKENIZER = ("tokenizer*", "*.jinja", "vocab*", "merges*", "special_tokens_map.json", "added_tokens.json", "*.model")
_WHOLE, _CHUNK, _CHUNKS = 16 << 20, 64 << 10, 64  # files up to 16 MiB are read whole, of others 64 stretches of 64 KiB


class RecordConfig(Spec, frozen=True):
    """The settings behind a record. Its `hash()` names the record's folder, so a changed setting is another record.

    `weights` identify models, not places: by role, the fingerprint of a local checkpoint, or hub id and commit.
    `prompt` is the digest of the first problem's prompt as the models read it, which stands for how prompts are made.
    """

    weights: dict[str, str] = Field(default_factory=dict)
    decoding: Decoding
    sampling: SamplingSettings
    stop: tuple[str, ...] = ()
    prompt: str | None = None
    data: str | None = None
    engine: dict[str, Any] = Field(default_factory=dict)
    format: Literal[2] = 2

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
    ) -> "RecordConfig":
        """Return the config of what an open engine makes; `info` is its `info()`, `prompt` and `data` are digests."""
        return cls(
            weights=weights or {role: fingerprint(*model) for role, model in pair.models.items()},
            decoding=decoding,
            sampling=sampling.per_response,
            stop=stop,
            prompt=prompt,
            data=data,
            engine=engine_facts(info, decoding),
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Return what results say of their settings: `weights`, by role, where they are known, and `shared`.

        `shared` is the digest of all that can change a token but weights, decoding and seed. How long a context may be
        depends on the decoding, and is no part of it.
        """
        engine = {name: value for name, value in self.engine.items() if name != "max_model_len"}
        drawing = self.sampling.replace(seed=0).model_dump(mode="json")
        shared = digest_of([drawing, list(self.stop), self.prompt, self.data, engine])
        return {**({"weights": self.weights} if self.weights else {}), "shared": shared}


def engine_facts(info: Mapping[str, Any], decoding: Decoding) -> dict[str, Any]:
    """Return an engine's facts that can change a token, without places: a chat template is known by its digest.

    `max_model_len` becomes the length that holds for this decoding.
    """
    facts = dict(info)
    rl_alone = facts.pop("max_model_len_rl", None)
    if rl_alone and not decoding.reads_base:
        facts["max_model_len"] = rl_alone
    if isinstance(facts.get("chat_template"), Mapping):
        facts["chat_template"] = facts["chat_template"].get("sha256")
    return {name: value for name, value in facts.items() if name not in NOT_HASHED}


def fingerprint(name: str, revision: str | None = None) -> str:
    """Return what identifies a checkpoint's contents.

    A directory: `weights:` and a digest of its weights, configuration and tokenizer (of large files, 64 stretches and
    the size: retraining changes them all), so it may move, and training into the same place makes another. A hub id:
    the commit that this machine's cache holds for it, else the revision that was asked for.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        content = sha256()
        others = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
        older = () if others else _OLDER  # beside them they are an optimiser's
        for path in sorted({path for pattern in (*_WEIGHTS, *older, *_TOKENIZER) for path in folder.glob(pattern)}):
            if path.is_file():
                content.update(f"{path.name}\0{path.stat().st_size}\0".encode())
                _feed(content, path)
        return f"weights:{content.hexdigest()[:16]}"
    reference = _hub_cache() / f"models--{name.replace('/', '--')}" / "refs" / (revision or "main")
    commit = reference.read_text().strip() if reference.is_file() else revision
    return f"{name}@{commit}" if commit else name


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
