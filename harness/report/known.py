"""Tell which of the paper's pairs and models a result is of: by a name that is given, by place, by content.

A name wins. A place is a hub id, also in the hub's cache, or a folder of the repository's name. Content is what a
folder's config.json says: the repository it names, together with the sizes. One that was trained further says the same,
so what is known by content alone is marked. Sizes alone never make a match, but are told, so that a name can be given.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from harness.errors import UserError, unknown
from harness.report import paper
from harness.spec.pair import preset
from harness.spec.published import KNOWN
from harness.spec.zoo import zoo

MODELS = {name: next(hub for hub in KNOWN if hub.endswith(f"/{name}")) for name in paper.MODELS.values()}
_SIZES = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
)  # fmt: skip
_LARGEST = 1 << 20  # bytes of a config.json


@dataclass(frozen=True, slots=True)
class Known:
    """Hold what the paper calls a pair or a model; `unsure` says what of it neither a name nor a place tells."""

    name: str
    unsure: tuple[str, ...] = ()


def pair_known(base: str, rl: str, called: str = "") -> Known | None:
    """Return which of the paper's pairs this is; None where it is none, or nothing tells.

    Beside an RL checkpoint of the paper's any folder may be its base, unless its sizes are others.

    Raises:
        UserError: RL is `called` as one of the paper's, and is a folder of other sizes.
    """
    if (name := name_of("", called)) is not None:
        _check_sizes(called, rl, _pairs()[name]["base"])
        return Known(name)
    for name, pair in _pairs().items():
        hub, like = pair["rl"], pair["base"]
        if not (_at(rl, hub, like) or _says(rl, hub, like)):
            continue
        unsure = [] if _at(rl, hub, like) else [_why(rl, hub)]
        if _says(base, like, like):
            unsure += [] if _at(base, like, like) else [_why(base, like)]
        elif not _at(base, like, like):
            if not repository(base)[1] or (_configuration(base) and not _sized(base, like)):
                return None
            unsure.append(f"{_end(base)} is taken for {like}, which nothing but its place beside {_end(rl)} says")
        return Known(name, tuple(unsure))
    return None


def model_known(base: str, called: str | None = None) -> Known | None:
    """Return which of the paper's models, whose trainings it reports, a base is; None where it is none.

    Raises:
        UserError: the paper has no model that is `called` so, or the base is a folder of other sizes.
    """
    if called is not None:
        found = [name for name in MODELS if called.lower() in (name.lower(), MODELS[name].lower())]
        if not found:
            raise unknown("paper_base", called, [name.lower() for name in MODELS])
        _check_sizes(called, base, MODELS[found[0]])
        return Known(found[0])
    if (name := model_of(base)) is not None:
        return Known(name)
    found = [name for name, hub in MODELS.items() if _says(base, hub, hub)]
    return Known(found[0], (_why(base, MODELS[found[0]]),)) if found else None


def name_of(rl: str, called: str = "") -> str | None:
    """Return the paper's name of a pair by the name that was given, of the zoo (`dapo-32b`) or a repository, else by
    the place of its RL checkpoint; None where it is none of the paper's."""
    named = found.rl if (found := preset(called.lower())) else called
    for name, pair in _pairs().items():
        if named.lower() in (pair["rl"].lower(), _own(pair["rl"])):
            return name
    return next((name for name, pair in _pairs().items() if _at(rl, pair["rl"], pair["base"])), None)


def model_of(base: str) -> str | None:
    """Return the paper's name of a trained model's base, by its place; None where it is none of the paper's."""
    return next((name for name, hub in MODELS.items() if _at(base, hub, hub)), None)


def like_pairs(rl: str) -> list[str]:
    """Return the names of the paper's pairs whose RL checkpoint has the sizes of a folder's."""
    papers = {pair["rl"] for pair in _pairs().values()}
    return [name for name, pair in zoo().items() if pair.rl in papers and _sized(rl, pair.base)]


def like_models(base: str) -> list[str]:
    """Return the paper's names of the models that have the sizes of a folder's."""
    return [name.lower() for name, hub in MODELS.items() if _sized(base, hub)]


def repository(checkpoint: str) -> tuple[str, bool]:
    """Return the hub id behind a checkpoint, or a folder's own name; and whether it is the latter.

    >>> repository("/cache/models--org--Name/snapshots/0a1b"), repository("/models/Name/"), repository("org/Name")
    (('org/Name', False), ('Name', True), ('org/Name', False))
    """
    parts = PurePath(checkpoint).parts
    for part in reversed(parts):
        if part.startswith("models--"):
            return "/".join(part.split("--", 2)[1:]), False
    if PurePath(checkpoint).is_absolute() or checkpoint.startswith((".", "~")):
        return parts[-1] if parts else "", True
    return checkpoint, False


def _pairs() -> Mapping[str, dict[str, str]]:
    return paper.paper()["pairs"]


def _own(hub: str) -> str:
    return hub.rpartition("/")[2].lower()


def _at(checkpoint: str, hub: str, like: str) -> bool:
    """Tell whether a checkpoint is this repository by its place; not where a folder of that name has other sizes."""
    found, folder = repository(checkpoint)
    if not folder:
        return found == hub
    return found.lower() == _own(hub) and (not _configuration(checkpoint) or _sized(checkpoint, like))


def _says(checkpoint: str, hub: str, like: str) -> bool:
    """Tell whether a folder's configuration names this repository and has its sizes."""
    origin = str(_configuration(checkpoint).get("_name_or_path", ""))
    return _sized(checkpoint, like) and repository(origin)[0].lower() in (hub.lower(), _own(hub))


def _sized(checkpoint: str, like: str) -> bool:
    """Tell whether a folder's configuration has the sizes of a model that is published."""
    kind, fields = KNOWN[like]
    config = _configuration(checkpoint)
    return config.get("model_type") == kind and all(config.get(name) == fields[name] for name in _SIZES)


def _check_sizes(called: str, checkpoint: str, like: str) -> None:
    if _configuration(checkpoint) and not _sized(checkpoint, like):
        raise UserError(
            f"{called!r} is what the paper calls a model with the sizes of {like}, and {_end(checkpoint)} has others; "
            "accepted: another name"
        )


def _configuration(checkpoint: str) -> dict[str, Any]:
    """Read a folder's config.json; nothing where there is none. Read as data: whose folder it is is not known."""
    try:
        file = Path(checkpoint).expanduser() / "config.json"
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return {}
        found = json.loads(file.read_text())
    except (OSError, ValueError, RuntimeError):  # also a home of nobody's, and nesting without end
        return {}
    return found if isinstance(found, dict) else {}


def _why(checkpoint: str, hub: str) -> str:
    return f"{_end(checkpoint)} is taken for {hub}, whose name and sizes its config.json has"


def _end(checkpoint: str) -> str:
    """Return the end of a place: a report is sent to others, whom the folders of this machine do not concern."""
    return "/".join(PurePath(checkpoint).parts[-2:])
