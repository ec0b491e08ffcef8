"""Define what all command modules share: how commands and groups are made, and how lines are printed."""

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from rlvr_dir.errors import UserError, unknown
from rlvr_dir.text import visible

N = TypeVar("N", int, float)
# No rich help, because importing it would take half of the time of `--help`.
PLAIN: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}


# The options from specs that `--help` shows; `--help-all` shows the others, too.
USUAL = {
    "tasks", "limit", "pair", "base", "pretrained", "rl", "mode", "criterion", "tau", "gamma", "temperature", "top_p",
    "max_tokens", "seed", "samples", "backend", "dtype", "host", "port", "ui",
}  # fmt: skip


DECODING = "Decoding"  # the group of the options that set a decoding
LIST = "A,B,…"  # metavar of an option with a comma-separated list, which can be given only once


class Command(TyperCommand):
    """Group a command's options in its help, and name options in errors as they are typed."""

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """Return `--help`, and `--help-all` if it shows more."""
        return [*super().get_help_option_names(ctx), *(["--help-all"] if self._further() else [])]

    def _further(self) -> list[Any]:
        """Return the options that `--help` leaves out: those from specs, except the usual ones.

        If they are few, none is left out.
        """
        further = [param for param in self.params if getattr(param, "rich_help_panel", None)]
        further = [param for param in further if param.name not in USUAL]
        return further if len(further) > 5 else []

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and the command's own options first, then those of each group."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        params = self.get_params(ctx)
        further = [] if ctx.meta.get("help all") else self._further()
        for param in params:
            panel = "Arguments" if param.param_type_name == "argument" else "Options"
            if param not in further and (row := param.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(param, "rich_help_panel", None) or panel, []).append(row)
        for title, rows in filter(lambda group: group[1], groups.items()):
            with formatter.section(title):
                formatter.write_dl(rows)
        if further:
            text = f"--help-all shows {len(further)} more, such as {further[0].opts[0]} and {further[-1].opts[0]}."
            formatter.write(f"\n{text}\n")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words and keep them as typed.

        Raises:
            UserError: A list is given twice (the first would be lost), or a value has the wrong type.
        """
        words = ctx.meta["words"] = list(args)
        ctx.meta["help all"] = "--help-all" in words
        for param in self.params:
            if param.metavar == LIST and len(values := _values(param, words)) > 1:
                raise UserError(
                    f"{param.opts[-1]} is given {len(values)} times",
                    argument=str(param.name),
                    accepted=f"one list, as {','.join(values)}",
                )
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if (param := error.param) is None or not (values := _values(param, words)):
                raise  # of an argument, or a missing value
            reason = error.message.rstrip(".")
            problem = f"{param.opts[-1]} {values[0]!r} is not allowed: {reason[:1].lower()}{reason[1:]}"
            raise UserError(problem, argument=str(param.name)) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An error then names arguments as options (`--tau -0.3`)."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            error.name_options(self.option_names(ctx.meta["words"]))
            raise

    def option_names(self, words: Sequence[str]) -> dict[str, str]:
        """Return how each argument is typed as an option; an option with two names as it was typed.

        An argument has no option if it was written otherwise (`tau=3` in some text), nor, unless it was typed as an
        option, if it may come from a file or from -d. A checkpoint that was named without an option is BASE or RL.
        """
        typed = {word.partition("=")[0] for word in words}
        texts = [word for word in words if not word.startswith("-")]
        in_file = any(text.endswith((".yaml", ".yml")) for text in texts)
        in_rule = any(word.startswith(("-d", "--decoding", "--rule")) for word in words)
        names: dict[str, str] = {}
        for param in self.params:
            spelt = next((name for name in param.opts if name in typed), "")
            elsewhere = in_file or (in_rule and getattr(param, "rich_help_panel", "") == DECODING)
            if (spelt or not elsewhere) and param.name != "decoding":
                names |= {name[2:].replace("-", "_"): spelt or name for name in param.opts if name.startswith("--")}
        places = [
            word for before, word in pairwise(["", *words]) if not (before.startswith("-") or word.startswith("-"))
        ]
        if len(places) >= 2 and not in_file and any(param.name == "names" for param in self.params):  # BASE RL
            positional = (("base", "BASE"), ("rl", "RL"), ("pretrained", "RL"))
            names |= {name: place for name, place in positional if name in names and names[name] not in typed}
        return {name: option for name, option in names.items() if not any(f"{name}=" in text for text in texts)}


def _values(param: Any, words: Sequence[str]) -> list[str]:
    """Return the values that were typed for an option."""
    words = words[: words.index("--")] if "--" in words else words
    values = [after for word, after in pairwise(words) if word in param.opts]
    return [
        *values,
        *(word.partition("=")[2] for word in words if word.partition("=")[0] in param.opts and "=" in word),
    ]


class CommandGroup(TyperGroup):
    """Group commands. For an unknown command, the nearest name is suggested."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command.

        Raises:
            UserError: There is none of that name.
        """
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            group_name = f"{ctx.info_name} " if ctx.parent else ""
            raise unknown(f"{group_name}command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class _Typer(typer.Typer):
    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Add a command of our own class."""
        return super().command(name, cls=Command, **options)


def group(text: str) -> typer.Typer:
    """Make a group of commands with this help."""
    return _Typer(help=text, cls=CommandGroup, add_completion=False, **PLAIN)


def parse_numbers(name: str, text: str, kind: type[N] = int, least: int | None = None) -> list[N]:
    """Read the comma-separated numbers of an option.

    Raises:
        UserError: One is not a number, or below the `least`.
    """
    with suppress(ValueError):
        values = [kind(part) for part in text.split(",")]
        if least is None or min(values) >= least:
            return values
    accepted = ("whole numbers" if kind is int else "numbers") + ("" if least is None else f" from {least}")
    raise UserError(argument=name, value=text, accepted=f"{accepted}, comma-separated")


def echo(text: object, *, err: bool = False, lines: bool = False) -> None:
    """Print a line that may contain names of unknown origin. With `lines`, its line breaks are ours and are kept."""
    typer.echo(visible(text, None, "\n" if lines else ""), err=err)


def echo_json(data: object) -> None:
    """Print JSON. Invisible characters are escaped as JSON escapes."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    typer.echo("".join(c if visible(c, keep="\n") == c else json.dumps(c)[1:-1] for c in text))


def fit_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in plain text, one line per row. Its last column is cut at the terminal's width."""
    cells = [[visible(cell, None) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    room = max(20, shutil.get_terminal_size((120, 24)).columns - sum(widths) - 2 * len(widths))
    lines = []
    for *row, last in cells:
        start = "".join(f"{cell:{width}}  " for cell, width in zip(row, widths, strict=True))
        lines.append((start + (last if len(last) <= room else f"{last[: room - 1]}…")).rstrip())
    return "\n".join(lines)
