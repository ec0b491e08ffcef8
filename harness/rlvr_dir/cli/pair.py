"""Define `rlvr-dir pair`: named pairs, the check whether two checkpoints fit together, and changed weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rlvr_dir.cli.base import echo, echo_json, group
from rlvr_dir.cli.options import spec_options
from rlvr_dir.config import EngineSpec, Pair, parse
from rlvr_dir.config.pair import PAIR_OPTIONS, TINY, TINY_BASE, pair_of
from rlvr_dir.errors import UserError
from rlvr_dir.files import check_writable
from rlvr_dir.progress import phase

app = group("Pairs by name, whether two checkpoints fit together, changed weights.")
TWO = ("pair", "base", "pretrained")  # checkpoints that may be given without an option
OF_ENGINE = ("max_model_len", "dtype", "chat_template_kwargs")
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the pairs that --pair NAME knows.

    A question mark follows facts that are not verified. Append a checkpoint, or any revision of the RL repository, to a
    name after an @: nemotron-1.5b@brorl.
    """
    from rlvr_dir.config import TINY_RL, zoo

    if as_json:
        echo_json([{"name": name, **pair.model_dump(mode="json")} for name, pair in zoo().items()])
        return
    from rlvr_dir.checkpoints.pair_check import zoo_table

    echo(zoo_table(list(zoo().items())), lines=True)
    echo("")
    echo("Facts followed by a ? are not verified. If the two differ, both are listed, as base / RL. – means unknown.")
    echo(f"tiny is the pair that ships with rlvr-dir. {', '.join(TINY_RL)} are its RL after that many steps.")


@app.command("check")
@spec_options(Pair, EngineSpec, only=(*PAIR_OPTIONS, *OF_ENGINE))
def check_command(
    options: dict[str, Any],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="BASE RL", help="Two checkpoints; or one NAME, or a folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether two checkpoints can be decoded together, and show what differs.

    Reads configurations, tokenizers and, for local checkpoints, weights (a sample of large ones). Every engine begins
    with the same checks. Exit status: 0 if the pair can be decoded, 1 if not, 2 if that cannot be checked here. For
    example:

    \b
        rlvr-dir pair check orz-7b
        rlvr-dir pair check Qwen/Qwen2.5-7B Open-Reasoner-Zero/Open-Reasoner-Zero-7B --max-model-len 16384
        rlvr-dir pair check runs/train/mine/seed-0
    """
    names = names or []
    if names and (doubled := [name for name in TWO if name in options]):
        raise UserError(
            f"and {names[0]!r} both name a pair; give one of them", argument=doubled[0], value=options[doubled[0]]
        )
    if len(names) > 2:
        raise UserError(f"{len(names)} checkpoints are named", accepted="BASE RL, or the name or the folder of a pair")
    engine = parse(EngineSpec, {name: options.pop(name) for name in OF_ENGINE if name in options})
    two = {"base": names[0], "pretrained": names[-1]} if len(names) == 2 else dict(zip(["pair"], names, strict=False))
    pair = pair_of({**two, **options}) or TINY
    if not as_json:
        echo("Reading both checkpoints …", err=True)
    from rlvr_dir.checkpoints.pair_check import examine

    report = examine(pair, engine, names[0] if len(names) == 1 else options.get("pair", ""))
    if as_json:
        echo_json(report.plain())
    else:
        for line in report.lines():
            echo(line)
    if report.verdict != "runs":
        raise typer.Exit(1 if report.verdict == "refused" else 2)


@app.command("expo")
def expo_command(
    base: Annotated[str, typer.Argument(help="Directory or hub id.")],
    rl: Annotated[str, typer.Argument(help="Directory or hub id.")],
    gamma: Annotated[float, typer.Option(help="Strength: 0 is RL, -1 is base, above 0 is past RL.", min=-1, max=100)],
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint, which is stored in float32.")],
) -> None:
    """Write RL's weights extrapolated: theta_RL + gamma (theta_RL - theta_base).

    A single-model baseline (ExPO, arXiv 2404.16792). It is written in float32, because a small step would vanish in
    bfloat16, so decode it in float32, too. For example:

    \b
        rlvr-dir pair expo my-base my-rl --gamma 0.5 --out runs/expo-0.5
        rlvr-dir eval --base my-base --pretrained runs/expo-0.5 -d rl --dtype float32 --tasks aime24
    """
    with _new_checkpoint(base, rl, out, "extrapolating", " --dtype float32") as pair:
        from rlvr_dir.checkpoints.expo import write_expo

        write_expo(pair, gamma, out)


@app.command("low-rank")
def low_rank_command(
    base: Annotated[str, typer.Argument(help="Directory or hub id.")],
    rl: Annotated[str, typer.Argument(help="Directory or hub id.")],
    rank: Annotated[int, typer.Option(help="Number of directions to keep of each matrix's change.", min=1)],
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint, which is stored in float32.")],
    rescale: Annotated[
        bool,
        typer.Option("--rescale", help="Rescale the kept part to the norm of the change, as in arXiv 2510.00553."),
    ] = False,
) -> None:
    """Write base with only the low-rank part of RL's change.

    Each matrix W, including embeddings and output layer, becomes W_base + the best approximation of W_RL - W_base of
    that rank. Vectors (norms, biases) are copied from RL. If the experts of a layer are stored in one tensor, each is
    approximated separately. The checkpoint is written in float32, because a change that is rounded to bfloat16 has full
    rank, so decode it in float32, too. For example:

    \b
        rlvr-dir pair low-rank my-base my-rl --rank 1 --out runs/rank-1
        rlvr-dir eval --base my-base --pretrained runs/rank-1 -d rl --dtype float32 --tasks aime24
    """
    with _new_checkpoint(base, rl, out, "approximating", " --dtype float32") as pair:
        from rlvr_dir.checkpoints.low_rank import write_low_rank

        write_low_rank(pair, rank, out, rescale=rescale)


@app.command("sharpen")
def sharpen_command(
    base: Annotated[str, typer.Argument(help="Directory or hub id; `tiny` is the base that ships with rlvr-dir.")],
    temperature: Annotated[
        float, typer.Option(help="Temperature of the copy; below 1 it is sharper than base.", min=0.01, max=100)
    ],
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint, which is as large as base's.")],
) -> None:
    """Write a copy of base whose logits are divided by a temperature.

    A placebo: it gains without any training, so compare RL with it. Choose a temperature at which the copy gains as
    much as RL does. For example:

    \b
        rlvr-dir pair sharpen my-base --temperature 0.5 --out runs/sharp
        rlvr-dir eval --base my-base --pretrained runs/sharp -d base -d rl -d replace,tau=-0.3 --tasks aime24
    """
    base = TINY_BASE if base == TINY else base
    with _new_checkpoint(base, base, out, "sharpening") as pair:
        from rlvr_dir.checkpoints.sharpen import write_sharpened

        write_sharpened(pair.base, temperature, out, pair.base_revision)


@contextmanager
def _new_checkpoint(base: str, rl: str, out: Path, doing: str, options: str = "") -> Iterator[Pair]:
    """Yield the pair that a checkpoint is made from. Then print where it was written, and the options to decode it.

    Raises:
        UserError: `out` is not empty or not writable, or a model does not exist.
    """
    if out.exists() and any(out.iterdir()):
        raise UserError("is not empty", argument="out", value=str(out), accepted="a new folder")
    check_writable(out)
    with phase(doing):
        from rlvr_dir.checkpoints.read import check_place
        from rlvr_dir.checkpoints.resolve import resolve

        pair = resolve(parse(Pair, {"base": base, "rl": rl}))
        for role, model in pair.models.items():
            check_place(role, *model)
        yield pair
    echo(f"written: {out}; `rlvr-dir eval --base {base} --pretrained {out} -d rl{options}` decodes it")
