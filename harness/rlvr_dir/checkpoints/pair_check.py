"""Say of a pair whether it will run, and what will be warned of: no weights needed, none read.

    found = examine(Pair(base="Qwen/Qwen2.5-7B", rl="Open-Reasoner-Zero/Open-Reasoner-Zero-7B"))
    print(found.verdict, found.why, found.warned)

What is checked is `rlvr_dir.checkpoints.compat.check_pair`, with which every engine begins, so that the two cannot
disagree.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import EngineSpec, Pair, zoo
from rlvr_dir.config.zoo import ZooPair
from rlvr_dir.errors import UserError
from rlvr_dir.markdown import markdown_table

Verdict = Literal["runs", "refused", "unknown"]  # unknown: the checkpoints are not here and the hub cannot be asked


@dataclass(frozen=True)
class Examined:
    """Hold what was found of a pair."""

    name: str
    pair: Pair
    verdict: Verdict
    why: str | None = None  # unless it runs
    warned: tuple[str, ...] = ()
    context: tuple[int, int] | None = None  # tokens of prompt and response: where all models are read, of RL alone
    dtype: str | None = None  # in which it is decoded
    listed: ZooPair | None = None

    def lines(self) -> list[str]:
        """Say it, a line each."""
        lines = [f"{self.name}: " + ", ".join(f"{role} {_place(*model)}" for role, model in self.pair.models.items())]
        lines.append({"runs": "it runs", "refused": "it does not run", "unknown": "it cannot be told"}[self.verdict])
        if self.why:
            lines[-1] += f": {self.why}"
        lines += [f"warning: {warning}" for warning in self.warned]
        if self.context and self.dtype:
            both, alone = self.context
            more = f", {alone:,} where RL alone is read" if alone != both else ""
            lines.append(f"it is decoded in {self.dtype}, prompt and response of up to {both:,} tokens{more}")
        if self.listed and self.listed.note:
            lines.append(f"note: {self.listed.note}")
        if self.listed and self.listed.unverified:
            lines.append(f"not verified in the zoo: {', '.join(self.listed.unverified)}")
        return lines

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "name": self.name,
            **self.pair.model_dump(),
            "verdict": self.verdict,
            "why": self.why,
            "warnings": list(self.warned),
            "context": None if self.context is None else dict(zip(("all", "rl_alone"), self.context, strict=True)),
            "dtype": self.dtype,
            "zoo": self.listed and self.listed.model_dump(mode="json"),
        }


def examine(pair: Pair | str, engine: EngineSpec | None = None, name: str = "") -> Examined:
    """Check a pair, or `tiny`; by its `name` the zoo says more of it."""
    engine, pair = engine or EngineSpec(), resolve(pair)
    name = name or Path(pair.rl).name
    examined = partial(Examined, name, pair, listed=zoo().get(name.partition("@")[0]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        verdict, why, checked = _checked(pair, engine)
    warned = [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
    if checked is None:
        return examined(verdict, why, tuple(warned))
    for role in checked.without_weights:
        warned.append(f"{pair.argument(role)} has no weights yet, without which nothing can be loaded")
    context = (checked.context.length, checked.context.rl_alone)
    dtype = checked.dtype if engine.dtype == "auto" else engine.dtype
    return examined(verdict, None, tuple(warned), context, dtype)


def _checked(pair: Pair, engine: EngineSpec) -> tuple[Verdict, str | None, Any]:
    from rlvr_dir.checkpoints.compat import check_pair
    from rlvr_dir.checkpoints.read import UnreachableError

    try:
        checked = check_pair(pair, engine, absent=True)
        _try_a_prompt(checked, engine)
        return "runs", None, checked
    except UnreachableError as error:
        return "unknown", str(error), None
    except UserError as error:
        return "refused", str(error), None


def _try_a_prompt(checked: Any, engine: EngineSpec) -> None:
    """Write a problem as a prompt, as every evaluation does before its first token.

    Raises:
        UserError: the chat template refuses it, or the context has no room behind it.
    """
    from rlvr_dir.checkpoints.chat_template import chat_prompt, encode_prompt

    problem, tokenizer = "1 + 1 = ?", checked.tokenizer
    prompt = problem
    if tokenizer.chat_template:
        prompt = chat_prompt(tokenizer, [{"role": "user", "content": problem}], kwargs=engine.chat_template_kwargs)
    tokens, length = len(encode_prompt(tokenizer, prompt)), checked.context.length
    if tokens >= length:
        raise UserError(
            (
                f"a context of {length} tokens leaves no room for a response: as a prompt, {problem!r} "
                f"alone has {tokens}"
            ),
            accepted="a longer max_position_embeddings in config.json, or max_model_len",
        )


def _place(place: str, revision: str | None) -> str:
    return place + (f" at {revision}" if revision else "")


def zoo_table(pairs: Sequence[tuple[str, ZooPair]]) -> str:
    """Return the zoo as a table, a pair a row; a question mark is behind what nobody has verified."""
    rows = []
    for name, pair in pairs:

        def marked(fact: str, text: str | None, pair: ZooPair = pair) -> str:
            return f"{text or ''}?" if fact in pair.unverified else text or ""

        rows.append(
            [
                name,
                marked("base", pair.base),
                marked("rl", pair.rl),
                marked("size", f"{pair.size:g}"),
                marked("licence", pair.licence),
                marked("context", _both(pair.context)),
                marked("precision", _both(pair.precision)),
                marked("checkpoints", " ".join(pair.checkpoints)),
            ]
        )
    head = ["pair", "base", "RL", "size", "licence", "context", "precision", "checkpoints"]
    return markdown_table(head, rows, left=[True, True, True, False, True, False, True, True])


def _both(values: "tuple[Any, Any] | None") -> str | None:
    """Write a fact of two models: once where both have the same."""
    if values is None:
        return None
    texts = ["–" if value is None else f"{value:,}" if isinstance(value, int) else str(value) for value in values]
    return texts[0] if texts[0] == texts[1] else " / ".join(texts)
