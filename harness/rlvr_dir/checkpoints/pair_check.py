"""Check whether a pair can be decoded, and describe both checkpoints and the weights that differ.

    examined = examine(Pair(base="Qwen/Qwen2.5-7B", rl="Open-Reasoner-Zero/Open-Reasoner-Zero-7B"))
    print(examined.verdict, examined.why, examined.warned)

It uses `rlvr_dir.checkpoints.compat.check_pair`, with which every engine begins, so that the two agree.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rlvr_dir.checkpoints.changed import ChangedWeights, changed_weights
from rlvr_dir.checkpoints.memory import ModelShape, dtype_of
from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import EngineSpec, Pair, zoo
from rlvr_dir.config.zoo import ZooPair
from rlvr_dir.errors import UserError, plain
from rlvr_dir.markdown import markdown_table

Verdict = Literal["runs", "refused", "unknown"]  # unknown: the checkpoints are not here and the hub is unreachable


@dataclass(frozen=True)
class Examined:
    """Describe a pair.

    `properties` has a row for each property of the checkpoints (`model`, `parameters`, ...), by role. `context` is the
    longest prompt with its response in tokens, for the pair and for RL alone.
    """

    name: str
    pair: Pair
    verdict: Verdict
    why: str | None = None  # why it does not run, or cannot be checked
    warned: tuple[str, ...] = ()
    context: tuple[int, int] | None = None
    dtype: str | None = None  # the type in which it is decoded
    listed: ZooPair | None = None
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    weights: ChangedWeights | None = None

    def lines(self) -> list[str]:
        """Return the report for a terminal, one entry per line."""
        lines = [f"{role:<6}{_place(*model)}" for role, model in self.pair.models.items()]
        lines += ["", *_side_by_side(self.properties)] if self.properties else []
        lines += [self.weights.sentence()] if self.weights else []
        lines += [f"warning: {warning}" for warning in self.warned]
        if self.verdict == "runs" and self.context and self.dtype:
            both, alone = self.context
            more = f" ({alone:,} for RL alone)" if alone != both else ""
            lines.append(
                f"These two can be decoded together, in {self.dtype}, with up to {both:,} tokens of prompt and "
                f"response{more}."
            )
        elif self.verdict == "unknown":
            lines.append(f"Cannot check: {self.why}")
        elif self.verdict == "refused":
            lines.append(f"These two cannot be decoded together: {self.why}")
        if self.listed and self.listed.note:
            lines.append(f"Note: {self.listed.note}")
        if self.listed and self.listed.unverified:
            lines.append(f"Not verified in the list of pairs: {', '.join(self.listed.unverified)}.")
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
            "checkpoints": {role: dict(values) for role, values in self.properties.items()},
            "weights": None if self.weights is None else asdict(self.weights),
            "zoo": self.listed and self.listed.model_dump(mode="json"),
        }


def _side_by_side(properties: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return one line for each property, with a column for each role; what equals base's is `the same`."""
    roles, names = list(properties), list(dict.fromkeys(name for values in properties.values() for name in values))
    rows = [["", *roles]]
    for name in names:
        values = [properties[role].get(name, "") for role in roles]
        rows.append([name, values[0], *("the same" if value == values[0] else value for value in values[1:])])
    widths = [max(len(row[i]) for row in rows) for i in range(len(roles) + 1)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def examine(pair: Pair | str, engine: EngineSpec | None = None, name: str = "") -> Examined:
    """Check whether a pair can be decoded, and describe both checkpoints. The list of pairs is consulted by `name`."""
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
        warned.append(plain(f"{pair.argument(role)} has no weights yet, so it cannot be loaded"))
    context = (checked.context.length, checked.context.rl_alone)
    dtype = checked.dtype if engine.dtype == "auto" else engine.dtype
    properties = {
        role: _properties(model.config, checked.shapes[role], len(model.tokenizer))
        for role, model in checked.models.items()
    }
    weights = None if checked.without_weights or checked.rewritten else _changed_weights(pair, dtype)
    return examined(verdict, None, tuple(warned), context, dtype, properties=properties, weights=weights)


def _properties(config: Any, shape: ModelShape, tokens: int) -> dict[str, str]:
    """Return what identifies a checkpoint to its owner, as texts."""
    count = shape.parameters
    return {
        "architecture": ", ".join(config.architectures or ["not named"]),
        "parameters": f"{count / 1e9:.2f} B" if count >= 1e8 else f"{count / 1e6:.2f} M",
        "layers": str(shape.layers),
        "dtype": dtype_of(config),
        "vocabulary": f"{tokens:,} tokens",
        "context": f"{length:,} tokens" if (length := getattr(config, "max_position_embeddings", None)) else "",
    }


def _changed_weights(pair: Pair, dtype: str) -> ChangedWeights | None:
    """Return which weights differ; None if the weights cannot be read here."""
    try:
        return changed_weights(pair.base, pair.rl, dtype)
    except UserError:
        return None


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
    """Write a problem as a prompt, like every evaluation before its first token.

    Raises:
        UserError: The chat template rejects it, or the context has no room after it.
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
    """Return the zoo as a table, one pair per row. A question mark follows facts that are not verified."""
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
    """Return a fact of two models; once if both have the same."""
    if values is None:
        return None
    texts = ["–" if value is None else f"{value:,}" if isinstance(value, int) else str(value) for value in values]
    return texts[0] if texts[0] == texts[1] else " / ".join(texts)
