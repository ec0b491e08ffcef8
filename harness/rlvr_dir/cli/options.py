"""Make command-line options from spec classes. Each option is declared once, as a field with its description.

    @spec_options(Sampling, EngineSpec, only=("seed", "dtype"))
    def command(file: ..., options: dict[str, Any]) -> None:

`options` then contains the given values, by the field's name (`pretrained` and `revision` for `rl` and `rl_revision`,
which are options, too), for `rlvr_dir.config.load_eval`.
"""

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rlvr_dir.cli.base import DECODING, LIST
from rlvr_dir.config import Decoding, EngineSpec, EvalSpec, Pair, Sampling, Spec
from rlvr_dir.config.pair import OPTIONS
from rlvr_dir.config.presentation import Presentation
from rlvr_dir.config.serving import Address, Limits

# The groups of a command's help, after its own options.
GROUPS: dict[type[Spec], str] = {
    EvalSpec: "Benchmarks", Pair: "Models", Decoding: DECODING, Sampling: "Sampling", Address: "Server",
    Limits: "Limits", EngineSpec: "Engine",
}  # fmt: skip


# Keys of an evaluation's file without options, because the fields of a pair, a decoding and a sampling, and -d, are.
_SAID_OTHERWISE = ("pair", "decodings", "sampling")


def spec_options(
    *specs: type[Spec], only: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field of some specs. `only` and `without` select them by name.

    Every option is None if it is not given, so that a file can set it. The help shows the field's own default. Fields
    that contain other specs or free mappings have no option.
    """
    options_of_specs = {name: option for spec in specs for name, option in _options(spec) if name not in without}
    if only:
        options_of_specs = {name: options_of_specs[name] for name in only}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            options = {name: arguments.pop(name) for name in options_of_specs}
            command(**arguments, options={name: value for name, value in options.items() if value is not None})

        signature = inspect.signature(command, eval_str=True)
        own = [parameter for name, parameter in signature.parameters.items() if name != "options"]
        ours = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options_of_specs.items()
        ]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        vars(run)["__signature__"] = signature.replace(parameters=[*ours, *parameters])
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*ours, *parameters)}
        return run

    return decorate


def _options(spec: type[Spec]) -> list[tuple[str, Any]]:
    """Return the options of a spec, by name. A pair may also be named as a whole."""
    options = [("pair", _option(EvalSpec.model_fields["pair"], str, GROUPS[Pair]))] if spec is Pair else []
    for field, info in sorted(spec.options().items(), key=lambda item: item[0] in Presentation.model_fields):
        kind = _kind(info)
        if info.description and kind is not None and not (spec is EvalSpec and field in _SAID_OTHERWISE):
            name = OPTIONS.get(field, field)
            options.append((name, _option(info, kind, GROUPS.get(spec), *(() if name == field else (name, field)))))
    return options


def _option(info: FieldInfo, kind: type, panel: str | None, *names: str) -> Any:
    has_default = info.default not in (None, (), PydanticUndefined) and info.default is not False
    default_words = f" Default: {info.default}." if has_default else ""
    spelt = [f"--{name.replace('_', '-')}" for name in names]
    metavar = LIST if get_origin(info.annotation) is tuple else None
    text = f"{info.description}{default_words}"
    return Annotated[kind | None, typer.Option(*spelt, help=text, metavar=metavar, rich_help_panel=panel)]


def _kind(info: FieldInfo) -> type | None:
    """Return the type of a field on a command line: numbers and switches as such, names as text."""
    every = [info.annotation, *get_args(info.annotation)]
    if any(isinstance(validator, BeforeValidator) for validator in info.metadata):
        every = []  # read as text, whatever it is converted to
    if any(isinstance(type_, type) and issubclass(type_, dict) for type_ in every) or dict in [
        get_origin(type_) for type_ in every
    ]:
        return None
    if any(get_origin(type_) is Literal for type_ in every):
        return str  # a number or switch that also allows a word
    return next((kind for kind in (bool, int, float) if kind in every), str)
