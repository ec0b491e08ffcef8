"""Find the tokenizer of stored responses, and read it without torch.

    load = tokenizers("records")                     # or a folder, a hub id, None
    decoded(load([record]), record.rows[key].token_ids)

`tokenizer.json` is sufficient to convert tokens to text, and the library `tokenizers` reads it. Other formats are read
by transformers, which imports torch.
"""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_dir.config import Pair
from rlvr_dir.errors import UserError
from rlvr_dir.records import Record
from rlvr_dir.records.config import fingerprint
from rlvr_dir.text import visible
from rlvr_dir.tiny import tiny_pair

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAMED_THERE = "records"  # as --tokenizer: the place of the models in the records
_FILES = ("tokenizer.json", "tokenizer_config.json")


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of tokens, including special ones; the tokenizer may also be one of transformers."""
    from tokenizers import Tokenizer

    kwargs = {} if isinstance(tokenizer, Tokenizer) else {"clean_up_tokenization_spaces": False}
    return tokenizer.decode(list(ids), skip_special_tokens=False, **kwargs)


def tokenizers(named: str | None, pair: Pair | None = None) -> Callable[[Sequence[Record]], Any]:
    """Return a function that loads the tokenizer of some records. If there is none, it warns and returns None.

    The tokenizer comes from the user's choice: `named`, or else the `pair` that the command itself decodes. The models
    in a record are not trusted: they are looked up only for `records`, among local files, and their code is never run.
    The tiny pair's records are recognised by the digest of its weights.

    Raises:
        UserError: Nothing can be read at the user's choice.
    """
    hinted = False  # a report loads many records, and the hint is given once
    fixed: Any = None
    if named is not None and named != NAMED_THERE:
        try:
            fixed = _read(named, trust_remote_code=False, local_files_only=False)
        except Exception as error:  # transformers may raise anything
            raise UserError(f"cannot be read: {_first_line(error)}", argument="tokenizer", value=named) from None

    def load(records: Sequence[Record]) -> Any:
        nonlocal hinted
        if fixed is not None:
            return fixed
        kwargs: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
        if named == NAMED_THERE:
            place = _named_by(records)
        elif pair is not None:
            place = pair.rl
            kwargs |= {"revision": pair.rl_revision, "trust_remote_code": pair.trust_remote_code}
        else:
            place = _tiny(records) or _below(records)
        if place is None:
            if _named_by(records) and not hinted:
                hinted = True
                _warn("Some responses are shown as plain text. To color their tokens, pass --tokenizer records.")
            return None
        try:
            return _read(place, **kwargs)
        except Exception as error:  # as above; the page is useful without it
            _warn(f"warning: no tokenizer in {place} ({_first_line(error)}): responses are plain text")
            return None

    return load


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _read(place: str, **options: Any) -> Any:
    """Read the tokenizer of a folder or of the hub; with transformers if the library `tokenizers` cannot read it."""
    if (tokenizer := _alone(_folder(place, options["local_files_only"], options.get("revision")))) is not None:
        return tokenizer
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(place, **options)


def _folder(place: str, local: bool, revision: str | None) -> Path:
    """Return the folder of a tokenizer's files: the given one, or that in the hub's cache. They are downloaded if
    allowed."""
    if Path(place).is_dir():
        return Path(place)
    from huggingface_hub import snapshot_download

    with suppress(Exception):  # of many types; transformers, which is tried next, explains it
        return Path(snapshot_download(place, revision=revision, allow_patterns=[*_FILES], local_files_only=local))
    return Path(place)


def _alone(folder: Path) -> "Tokenizer | None":
    """Read `tokenizer.json`; None if there is none, or if it is not sufficient because of added tokens or code."""
    from tokenizers import Tokenizer

    file, settings = (folder / name for name in _FILES)
    with suppress(Exception):  # tokenizers raises bare ones; transformers, which is tried next, explains it
        tokenizer = Tokenizer.from_file(str(file))
        config = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
        added = {int(number): token["content"] for number, token in config.get("added_tokens_decoder", {}).items()}
        if "auto_map" not in config and all(tokenizer.id_to_token(number) == added[number] for number in added):
            return tokenizer
    return None


def _named_by(records: Sequence[Record]) -> str | None:
    """Return the RL model in the records."""
    return next((record.metadata.rl for record in records if record.metadata.rl), None)


def _below(records: Sequence[Record]) -> str | None:
    """Return the RL model in the records, if its folder is below the current one."""
    named = _named_by(records)
    inside = named is not None and Path(named).is_dir() and Path(named).resolve().is_relative_to(Path.cwd())
    return named if inside else None


def _tiny(records: Sequence[Record]) -> str | None:
    """Return the tiny pair's folder if these are its records, by the digest of their weights."""
    tiny = tiny_pair().rl
    digests = {record.config.weights.get("rl") for record in records if record.config is not None}
    return tiny if digests == {fingerprint(tiny)} else None


def _warn(sentence: str) -> None:
    print(visible(sentence, None), file=sys.stderr)
