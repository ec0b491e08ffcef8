"""A checkpoint's weights without loading them: which tensors there are, and a few of their numbers."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
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
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, "pt") as tensors:
            found |= dict.fromkeys(tensors.keys(), file)
    return found


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
