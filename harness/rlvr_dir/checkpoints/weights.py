"""A checkpoint's weights without loading them: whether they are there, which tensors, and a few of their numbers."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from rlvr_dir.errors import UserError

HEAD = "lm_head.weight"
INDEX = "model.safetensors.index.json"
PICKLE = (
    "its weights are a pickle that holds more than tensors, and could run code, so it is not loaded; accepted: "
    "safetensors, to which those who trust the file can convert it"
)
PREFIXES = {  # of names, by what leaves them
    "_orig_mod.": "torch.compile", "module.": "DistributedDataParallel", "base_model.model.": "PEFT",
}  # fmt: skip
_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")  # in a weight's name
CORNER = (4, 64)  # of a matrix, the rows and columns that stand for it; of a vector, the last many


def tensor_files(name: str, revision: str | None = None, *, fetch: bool = False) -> dict[str, Path]:
    """Map each tensor of a checkpoint to the safetensors file that holds it; empty where there are none.

    Args:
        name: a directory, or a hub id, which is looked for in this machine's cache.
        revision: of a hub id.
        fetch: downloads what the cache lacks of a hub id.
    """
    from safetensors import safe_open

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
    if (index := folder / INDEX).is_file():
        return {tensor: folder / file for tensor, file in json.loads(index.read_text())["weight_map"].items()}
    files: dict[str, Path] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, "pt") as tensors:
            files |= dict.fromkeys(tensors.keys(), file)
    return files


def tensor_shapes(files: Mapping[str, Path]) -> dict[str, tuple[int, ...]]:
    """Read the shape of each tensor that `tensor_files` found; no numbers are read."""
    from safetensors import safe_open

    shapes = {}
    for file in dict.fromkeys(files.values()):
        with safe_open(file, "pt") as tensors:
            shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    return shapes


def has_weights(folder: Path) -> bool:
    """Tell whether a directory holds files of weights, whole or not."""
    return any(file.suffix in (".safetensors", ".bin", ".pt") for file in folder.iterdir())


def header_shapes(where: str, folder: Path) -> dict[str, tuple[int, ...]]:
    """Read the shape of each tensor of a directory's weights, from the headers of its files; no numbers are read.

    A pickle says nothing of its tensors; nothing in it is run.

    Args:
        where: what a sentence begins with, `rl='runs/rl'`.
        folder: of a checkpoint.

    Raises:
        UserError: no weights, or two sets of them, a file that is not whole or holds more than tensors, an index that
            names what is not there, or a tensor that stands in two files or elsewhere than the index says.
    """
    from safetensors import SafetensorError, safe_open
    from torch.serialization import get_unsafe_globals_in_checkpoint

    whole = "accepted: every file of the checkpoint, whole"
    if not has_weights(folder):
        of_llama_cpp = [file.name for file in sorted(folder.glob("*.gguf"))][:1]
        reason = f"only GGUF ({of_llama_cpp[0]}), which is not read here" if of_llama_cpp else "no weights"
        raise UserError(f"{where} holds {reason}; accepted: model.safetensors, or shards of it with {INDEX}")
    if len(sets := _sets(folder)) > 1:
        raise UserError(
            f"{where} holds two sets of weights, {' and '.join(sets)}, and libraries do not agree on which of them to "
            "read; accepted: one of them, the other moved away"
        )
    index, named = _index(where, folder)
    files = [folder / file for file in dict.fromkeys(named.values())]
    files = files or sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    shapes: dict[str, tuple[int, ...]] = {}
    holders: dict[str, str] = {}
    for path in files:
        if not path.is_file():
            reason = f"its {index} names {path.name}, which is not there"
            raise UserError(f"{where}: {reason if index else f'its {path.name} is a link to nothing'}; {whole}")
        if path.suffix != ".safetensors":
            more: list[str] = []
            with suppress(OSError, RuntimeError, ValueError):  # cut short, or of an old format: the engine says what
                more = get_unsafe_globals_in_checkpoint(path)
            if more:
                raise UserError(f"{where} ({path.name}): {PICKLE}")
            continue
        try:
            with safe_open(path, "pt") as tensors:
                stored_shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            with path.open("rb") as start:
                pointer = start.read(30).startswith(b"version https://git-lfs")
            reason = "it is a pointer of Git LFS, which `git lfs pull` replaces" if pointer else f"{error}"
            raise UserError(f"{where}: its {path.name} is cut short or damaged ({reason}); {whole}") from None
        if lost := sorted(
            tensor for tensor, file in named.items() if file == path.name and tensor not in stored_shapes
        ):
            raise UserError(f"{where}: its {index} says that {path.name} holds {lost[0]}, which it does not; {whole}")
        for name in stored_shapes:
            owner = named.get(name) or holders.get(name, path.name)
            if owner != path.name:
                reason = f"which its {index} assigns to {owner}" if index else f"which {owner} holds, too"
                raise UserError(f"{where}: its {path.name} holds {name}, {reason}; accepted: each tensor in one file")
            holders[name] = path.name
        shapes |= stored_shapes
    return shapes


def left_prefix(names: Iterable[str]) -> str | None:
    """Say in a few words what a library left in the names of weights, which then fit no model; None where nothing."""
    names = list(names)
    for prefix, library in PREFIXES.items():
        if names and all(name.startswith(prefix) for name in names):
            return f"begin with {prefix!r}, as {library} leaves them"
    if any(".base_layer." in name for name in names):
        return "hold '.base_layer.', as PEFT leaves them in a model that is not merged"
    return None


def same_numbers(first: Mapping[str, Path], second: Mapping[str, Path]) -> bool:
    """Tell whether two checkpoints, by their `tensor_files`, have the same tensors with the same numbers.

    The first numbers of each are compared (`corner`): training leaves no model all of whose tensors begin alike.
    """
    if not first or first.keys() != second.keys() or tensor_shapes(first) != tensor_shapes(second):
        return False
    pairs = zip(corners(first, first), corners(second, first), strict=True)
    return all(bool((one.float() == other.float()).all()) for (_, one), (_, other) in pairs)


def _sets(folder: Path) -> list[str]:
    """Name the whole sets of safetensors weights in a folder: one file, or shards."""
    shards = [*folder.glob("model-*-of-*.safetensors")]
    one = [file for file in (folder / "model.safetensors",) if file.is_file()]
    names = [file.name for file in one]
    return names + ([f"{len(shards)} shards (model-…-of-….safetensors)"] if shards else [])


def missing_weight(stored: Iterable[str], built: Iterable[str]) -> str | None:
    """Return a weight that the files lack and the model has; None where none is known to be missing.

    Files may hold weights under other names than the model's, which loading maps: only one whose like is held under
    the model's own name (of another layer; outside of layers, all others) is known to be missing.
    """
    stored, built = set(stored), set(built)
    kinds = {_LAYER.sub("*", name) for name in stored}
    outside = {name for name in stored if not _LAYER.search(name)}
    for name in sorted(built - stored):
        is_known = _LAYER.sub("*", name) in kinds if _LAYER.search(name) else bool(outside) and outside < built
        if is_known:
            return name
    return None


def surplus_layer(stored: Iterable[str], built: Iterable[str]) -> str | None:
    """Return a weight of a layer that the files hold and the model does not have, though it has others of its kind."""
    built = set(built)
    kinds = {_LAYER.sub("*", name) for name in built}
    return min(
        (name for name in set(stored) - built if _LAYER.search(name) and _LAYER.sub("*", name) in kinds), default=None
    )


def _index(where: str, folder: Path) -> tuple[str, dict[str, str]]:
    """Read which file holds each tensor: the index's name and what it says; nothing where no index counts.

    Raises:
        UserError: the index is not as libraries write it.
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
                    f"{where}: its {index.name} cannot be read; accepted: a weight_map of tensors to files, as JSON"
                ) from None
    return "", {}


def corner(tensor: Any) -> Any:
    """Return the first numbers of a tensor, or of a safetensors slice of one: (…) -> at most `CORNER`.

    The first rank of a model that is cut over several has them too, whichever way the tensor is cut.
    """
    shape = tensor.get_shape() if hasattr(tensor, "get_shape") else tensor.shape
    rows, columns = CORNER
    return tensor[:rows, :columns] if len(shape) == 2 else tensor[:columns]


def corners(files: Mapping[str, Path], names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Read the corners of tensors, one after the other: yield name and a torch tensor."""
    from safetensors import safe_open

    with ExitStack() as stack:
        opened: dict[Path, Any] = {}
        for name in names:
            file = files[name]
            if file not in opened:
                opened[file] = stack.enter_context(safe_open(file, "pt"))
            yield name, corner(opened[file].get_slice(name))
