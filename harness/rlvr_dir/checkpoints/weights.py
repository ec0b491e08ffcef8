"""Inspect a checkpoint's weights without loading them: whether they are complete, their tensors, and a few numbers."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rlvr_dir.errors import UserError

HEAD = "lm_head.weight"
INDEX = "model.safetensors.index.json"
PICKLE = (
    "its weights are a pickle that contains more than tensors and could run code, so it is not loaded. If you trust "
    "the file, convert it to safetensors"
)
PREFIXES = {  # prefixes of names, by the library that leaves them
    "_orig_mod.": "torch.compile", "module.": "DistributedDataParallel", "base_model.model.": "PEFT",
}  # fmt: skip
FLOATS = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
}  # as safetensors and torch name them
BUFFERS = ("BOOL", "I64")  # types of masks and positions, which are not weights
_PASSED_OVER = (r"rotary_emb\.inv_freq$", r"\.attn\.(masked_)?bias$")  # buffers of older versions of transformers
_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")  # in a weight's name
CORNER = (4, 64)  # the rows and columns that represent a matrix; for a vector, the last many numbers


class Stored(NamedTuple):
    """Describe where a tensor is stored, its shape, and its type as safetensors names it."""

    file: Path
    shape: tuple[int, ...]
    dtype: str = ""


def tensors_of(name: str, revision: str | None = None, *, fetch: bool = False) -> dict[str, Stored]:
    """Return where each tensor of a checkpoint is stored, in safetensors files; empty if there are none.

    Args:
        name: A directory, or a hub id, which is looked up in this machine's cache.
        revision: That of a hub id.
        fetch: Whether to download what the cache does not have of a hub id.

    Raises:
        UserError: As for `stored_tensors`.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        kinds = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.py"]
        try:
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=kinds, local_files_only=not fetch))
        except LocalEntryNotFoundError:
            if fetch:
                raise
            return {}
    if not has_weights(folder):
        return {}
    return stored_tensors(repr(name), folder)


def has_weights(folder: Path) -> bool:
    """Return whether a directory contains weight files, complete or not."""
    return any(file.suffix in (".safetensors", ".bin", ".pt") for file in folder.iterdir())


def stored_tensors(where: str, folder: Path) -> dict[str, Stored]:
    """Return the file and shape of each tensor in a directory, from the files' headers, without reading numbers.

    Everything that loads, checks or compares a checkpoint uses this. A pickle does not list its tensors, and no code in
    it is run.

    Args:
        where: What messages begin with, such as `rl='runs/rl'`.
        folder: The checkpoint's folder.

    Raises:
        UserError: There are no weights or two sets of them, a file is incomplete or contains more than tensors, the
            index names something that does not exist, or a tensor is in two files or not where the index says.
    """
    from safetensors import SafetensorError, safe_open
    from torch.serialization import get_unsafe_globals_in_checkpoint

    whole = "a checkpoint whose files are all complete"
    if not has_weights(folder):
        of_llama_cpp = [file.name for file in sorted(folder.glob("*.gguf"))][:1]
        reason = f"only GGUF ({of_llama_cpp[0]}), which is not read here" if of_llama_cpp else "no weights"
        raise UserError(f"{where} holds {reason}", accepted=f"model.safetensors, or shards of it with {INDEX}")
    if len(sets := _sets(folder)) > 1:
        raise UserError(
            (
                f"{where} holds two sets of weights, {' and '.join(sets)}, and libraries do not agree on "
                "which of them to read"
            ),
            accepted="one of them, the other moved away",
        )
    index, named = _index(where, folder)
    files = [folder / file for file in dict.fromkeys(named.values())]
    files = files or sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    stored: dict[str, Stored] = {}
    for path in files:
        if not path.is_file():
            reason = f"its {index} names {path.name}, which is not there"
            reason = reason if index else f"its {path.name} is a link to nothing"
            raise UserError(f"{where}: {reason}", accepted=whole)
        if path.suffix != ".safetensors":
            more: list[str] = []
            with suppress(OSError, RuntimeError, ValueError):  # truncated, or of an old format; the engine reports it
                more = get_unsafe_globals_in_checkpoint(path)
            if more:
                raise UserError(f"{where} ({path.name}): {PICKLE}")
            continue
        try:
            with safe_open(path, "pt") as tensors:
                own = {
                    name: Stored(path, tuple((part := tensors.get_slice(name)).get_shape()), part.get_dtype())
                    for name in tensors.keys()  # noqa: SIM118 - not a mapping
                }
        except (OSError, SafetensorError) as error:
            with path.open("rb") as start:
                pointer = start.read(30).startswith(b"version https://git-lfs")
            reason = "it is a pointer of Git LFS, which `git lfs pull` replaces" if pointer else f"{error}"
            raise UserError(f"{where}: its {path.name} is truncated or damaged ({reason})", accepted=whole) from None
        if lost := sorted(tensor for tensor, file in named.items() if file == path.name and tensor not in own):
            problem = f"{where}: its {index} says that {path.name} contains {lost[0]}, and it does not"
            raise UserError(problem, accepted=whole)
        for name in own:
            owner = named.get(name) or (stored[name].file.name if name in stored else path.name)
            if owner != path.name:
                reason = f"which its {index} assigns to {owner}" if index else f"and so does {owner}"
                problem = f"{where}: its {path.name} contains {name}, {reason}"
                raise UserError(problem, accepted="each tensor in one file")
        stored |= own
    return stored


def refuse_codes(where: str, stored: Mapping[str, Stored]) -> None:
    """Reject a checkpoint whose files contain quantisation codes instead of weights.

    Args:
        where: What the message begins with, such as `rl='runs/rl'`.
        stored: The checkpoint's tensors.

    Raises:
        UserError: A tensor does not have a floating-point type, and is not a buffer.
    """
    for name, tensor in stored.items():
        if tensor.dtype not in (*FLOATS, *BUFFERS):
            raise UserError(
                f"{where}: its {name} is stored as {tensor.dtype}, which is a code of a quantisation and not a weight",
                accepted=f"weights in {', '.join(FLOATS.values())}; or, as rl, int8 or fp8 of compressed-tensors or "
                "GGUF",
            )


def refuse_infinite(role: str, name: str, tensor: Any) -> None:
    """Reject a tensor that contains NaN or infinity.

    Raises:
        UserError: It does; the message names the tensor.
    """
    if not bool(tensor.isfinite().all()):
        raise UserError(
            f"The files of {role} contain NaN or infinity in {name}",
            argument=role,
            accepted="a checkpoint whose weights are finite",
        )


def left_prefix(names: Iterable[str]) -> str | None:
    """Describe a prefix that a library left in the names of weights, so that they fit no model; None if there is
    none."""
    names = list(names)
    for prefix, library in PREFIXES.items():
        if names and all(name.startswith(prefix) for name in names):
            return f"begin with {prefix!r}, as {library} leaves them"
    if any(".base_layer." in name for name in names):
        return "hold '.base_layer.', as PEFT leaves them in a model that is not merged"
    return None


def same_numbers(first: Mapping[str, Stored], second: Mapping[str, Stored]) -> bool:
    """Return whether two checkpoints, by their `tensors_of`, have the same tensors with the same numbers.

    The first numbers of each tensor are compared (`corner`), and all of them only where these are the same everywhere.
    """
    from safetensors import safe_open

    if not first or first.keys() != second.keys():
        return False
    pairs = zip(corners(first, first), corners(second, first), strict=True)
    if not all(_same(corner, other) for (_, corner), (_, other) in pairs):
        return False
    for name, stored in first.items():
        with safe_open(stored.file, "pt") as first_file, safe_open(second[name].file, "pt") as second_file:
            if not _same(first_file.get_tensor(name), second_file.get_tensor(name)):
                return False
    return True


def rl_is_base(base: str, rl: str | Path) -> bool:
    """Return whether two local checkpoints, complete and in safetensors, have the same numbers; False for other
    kinds."""
    folders = [Path(place).expanduser() for place in (base, rl)]
    return all(map(Path.is_dir, folders)) and same_numbers(*(tensors_of(str(folder)) for folder in folders))


def _same(tensor: Any, other: Any) -> bool:
    return tensor.shape == other.shape and bool((tensor.float() == other.float()).all())


def _sets(folder: Path) -> list[str]:
    """Return the complete sets of safetensors weights in a folder: one file, or shards."""
    shards = [*folder.glob("model-*-of-*.safetensors")]
    single = [file for file in (folder / "model.safetensors",) if file.is_file()]
    names = [file.name for file in single]
    return names + ([f"{len(shards)} shards (model-…-of-….safetensors)"] if shards else [])


def missing_weight(stored: Iterable[str], built: Iterable[str]) -> str | None:
    """Return a weight that the files do not have and the model has; None if none is known to be missing.

    Files may contain weights under other names than the model's, which loading maps. So a weight is only known to be
    missing if similar ones are stored under the model's own names (for a weight in a layer, those of another layer;
    otherwise, all others).
    """
    stored, built = set(stored), set(built)
    kinds = {_LAYER.sub("*", name) for name in stored}
    outside = {name for name in stored if not _LAYER.search(name)}
    for name in sorted(built - stored):
        is_known = _LAYER.sub("*", name) in kinds if _LAYER.search(name) else bool(outside) and outside < built
        if is_known:
            return name
    return None


def surplus_weight(stored: Iterable[str], built: Iterable[str], passed_over: Iterable[str]) -> str | None:
    """Return a weight that the files contain and the model does not have; None if none is known to be one.

    A weight of a layer is one if the model has others of its kind. Any other weight is one if every kind of weight of
    the model is stored under the model's own name. Otherwise the files' names may be different ones, which loading
    maps.

    Args:
        passed_over: Patterns of names that loading ignores, according to the model's class.
    """
    built = set(built)
    kinds = {_LAYER.sub("*", name) for name in built}
    mapped = bool(kinds - {_LAYER.sub("*", name) for name in stored})
    expected = re.compile("|".join([*_PASSED_OVER, *passed_over]))
    for name in sorted(set(stored) - built):
        of_a_layer = _LAYER.search(name) and _LAYER.sub("*", name) in kinds
        if of_a_layer or not (mapped or expected.search(name)):
            return name
    return None


def _index(where: str, folder: Path) -> tuple[str, dict[str, str]]:
    """Read which file contains each tensor: the name and content of the index; empty if no index applies.

    Raises:
        UserError: The index is not as libraries write it.
    """
    for kind in ("model.safetensors", "pytorch_model.bin"):
        if (folder / kind).is_file():
            break
        index = folder / f"{kind}.index.json"
        if index.is_file():
            try:
                return index.name, dict(json.loads(index.read_text())["weight_map"])
            except (OSError, ValueError, KeyError, TypeError):
                raise UserError(
                    f"{where}: its {index.name} cannot be read", accepted="a weight_map of tensors to files, as JSON"
                ) from None
    return "", {}


def corner(tensor: Any) -> Any:
    """Return the first numbers of a tensor, or of a safetensors slice of one: (…) -> at most `CORNER`.

    The first rank of a model that is split over several has them too, in whichever way the tensor is split.
    """
    shape = tensor.get_shape() if hasattr(tensor, "get_shape") else tensor.shape
    rows, columns = CORNER
    return tensor[:rows, :columns] if len(shape) == 2 else tensor[:columns]


def corners(stored: Mapping[str, Stored], names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the corner, a torch tensor, of each tensor."""
    from safetensors import safe_open

    with ExitStack() as stack:
        opened: dict[Path, Any] = {}
        for name in names:
            file = stored[name].file
            if file not in opened:
                opened[file] = stack.enter_context(safe_open(file, "pt"))
            yield name, corner(opened[file].get_slice(name))
