"""The model arguments of `--model rlvr_dir`, from what lm-eval hands over to validated specs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError, unknown
from harness.evals.data import PUBLISHED, VERSIONS
from harness.grading import DEFAULT_GRADER, GRADERS
from harness.spec import PRESETS, Decoding, EngineSpec, Pair, parse

PAIR_ARGS = ("pair", "pretrained", "base", "revision", "base_revision", "trust_remote_code")
DECODING_ARGS = tuple(Decoding.model_fields)
ENGINE_ARGS = tuple(EngineSpec.model_fields)
OWN_ARGS = ("seed", "chat", "samples", "data_dir", "records", "grader", "golds")
ACCEPTED = (*PAIR_ARGS, *DECODING_ARGS, *ENGINE_ARGS, *OWN_ARGS)
CHATS = ("auto", "off")

_LM_EVAL_DEVICE = "cuda:0"  # what lm-eval passes when the user said nothing


@dataclass(frozen=True)
class ModelArgs:
    """The parsed model arguments. `pair` None means: the embedded tiny pair, because nothing was named."""

    pair: Pair | None
    tiny: bool
    decoding: Decoding
    engine: EngineSpec
    seed: int
    chat: str
    samples: int | None
    data_dir: str | None
    records: str | None
    grader: str
    golds: str


def parse_model_args(given: Mapping[str, Any]) -> ModelArgs:
    """Validates model arguments; `batch_size`, `max_batch_size` and `device` may come from lm-eval's own options.

    Raises:
        UserError: an unknown argument, or a value that is refused.
    """
    args = {name: value for name, value in given.items() if value is not None and value != ""}
    batch = args.pop("batch_size", None), args.pop("max_batch_size", None)
    for name in args:
        if name not in ACCEPTED:
            raise unknown("model_args", name, ACCEPTED)
    if args.get("device") == _LM_EVAL_DEVICE:
        del args["device"]
    for size in batch:  # lm-eval's default is 1, and "auto" may carry a schedule: both mean the engine's own choice
        if str(size).isdecimal() and int(size) > 1:
            args.setdefault("max_num_seqs", int(size))
    chat = {True: "auto", False: "off"}.get(args.get("chat", "auto"), args.get("chat", "auto"))
    if chat not in CHATS:
        raise unknown("chat", chat, CHATS)
    pair, tiny = _pair(args)
    return ModelArgs(
        pair=pair,
        tiny=tiny,
        decoding=parse(Decoding, {name: args[name] for name in DECODING_ARGS if name in args}),
        engine=parse(EngineSpec, {name: args[name] for name in ENGINE_ARGS if name in args}),
        seed=_whole(args, "seed", 0),
        chat=chat,
        samples=_whole(args, "samples", 1) if "samples" in args else None,
        data_dir=args.get("data_dir"),
        records=str(args["records"]) if "records" in args else None,
        grader=_one_of(args, "grader", DEFAULT_GRADER, GRADERS),
        golds=_one_of(args, "golds", PUBLISHED, VERSIONS),
    )


def _pair(args: Mapping[str, Any]) -> tuple[Pair | None, bool]:
    """The pair that was named, and whether it is the tiny one. (None, True) where nothing was named."""
    named = [name for name in PAIR_ARGS[1:] if name in args]
    if "pair" in args:
        name = str(args["pair"])
        clash = [other for other in ("pretrained", "base") if other in args]
        if clash:
            raise UserError(f"pair={name!r} and {clash[0]}={args[clash[0]]!r} name two pairs; give one of them")
        if name == "tiny":
            if named:
                raise UserError(
                    f"{named[0]}={args[named[0]]!r} has no effect with pair='tiny', which ships with rlvr-dir"
                )
            return None, True
        if name in PRESETS:
            fields = PRESETS[name].model_dump()
        elif Path(name).expanduser().is_dir():
            fields = Pair.of_folder(name).model_dump()
        else:
            raise unknown("pair", name, (*PRESETS, "tiny", "a folder with base and rl"))
    else:
        if args.get("pretrained") == "tiny" and named == ["pretrained"]:
            return None, True
        missing = [name for name in ("pretrained", "base") if name not in args]
        if len(missing) == 2:
            if named:
                raise UserError(
                    f"{named[0]}={args[named[0]]!r} needs a pair: give pretrained=RL,base=BASE or pair=NAME"
                )
            return None, True
        if missing:
            other = "pretrained" if missing == ["base"] else "base"
            lacks = {"pretrained": "pretrained= (the RL checkpoint)", "base": "base= (the base checkpoint)"}[missing[0]]
            raise UserError(f"{other}={args[other]!r} is only half a pair: give {lacks} too, or pair=NAME")
        fields = {"rl": str(args["pretrained"]), "base": str(args["base"])}
    for field, name in (("rl_revision", "revision"), ("base_revision", "base_revision")):
        if name in args:
            fields[field] = str(args[name])
    if "trust_remote_code" in args:
        fields["trust_remote_code"] = args["trust_remote_code"]
    return parse(Pair, fields), False


def parse_decoding(text: str) -> Decoding:
    """A decoding from `rl`, `replace,tau=-0.3` or `mode=extrapolate,tau=-0.3,gamma=0.1`: the model arguments' syntax.

    Raises:
        UserError: an unknown name, or a value that is refused.
    """
    fields: dict[str, str] = {}
    for i, part in enumerate(text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            name, value = "mode", name
            if i:
                raise UserError(f"decoding={text!r}: {part!r} is no name=value; accepted: MODE,name=value,…")
        if name not in DECODING_ARGS:
            raise unknown("decoding", name, DECODING_ARGS)
        if name in fields:
            raise UserError(f"decoding={text!r} gives {name} twice")
        fields[name] = value
    return parse(Decoding, fields)


def with_controls(decodings: Sequence[Decoding]) -> list[Decoding]:
    """Base and RL first, and before each extrapolation its gamma = 0 control: the same gate, redrawn from RL."""
    found = [Decoding(mode="base"), Decoding(mode="rl")]
    for decoding in decodings:
        found += [decoding.control(), decoding]
    return list(dict.fromkeys(found))


def _one_of(args: Mapping[str, Any], name: str, default: str, accepted: Iterable[str]) -> str:
    value = str(args.get(name, default))
    if value not in accepted:
        raise unknown(name, value, accepted)
    return value


def _whole(args: Mapping[str, Any], name: str, least: int) -> int:
    value = args.get(name, least)
    if isinstance(value, bool) or not str(value).isdecimal() or int(value) < least:
        raise UserError(f"{name}={value!r} is refused; accepted: a whole number, {least} or more")
    return int(value)
