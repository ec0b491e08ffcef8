"""`rlvr-dir analyse …`: numbers about tokens, texts, training and Theorem 1, for `rlvr-dir report` to draw."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.base import group
from harness.errors import UserError

app = group("Token statistics, given text, training curves and Theorem 1; `rlvr-dir report` draws them.")

Out = Annotated[Path, typer.Option(help="Receives the analysis as JSON.")]
OUT = Path("runs/analysis")


@app.command("tokens")
def analyse_tokens(
    tasks: Annotated[str, typer.Option("--tasks", help="Comma-separated: tiny_medium, aime24, …")] = "tiny_medium",
    pretrained: Annotated[str | None, typer.Option(help="RL checkpoint: hub id or directory.")] = None,
    base: Annotated[str | None, typer.Option(help="Base checkpoint: hub id or directory.")] = None,
    pair: Annotated[str | None, typer.Option(help="A pair by name: dapo-32b, …; default tiny.")] = None,
    samples: Annotated[int, typer.Option(help="Responses a problem, of each model.", min=1)] = 32,
    temperature: Annotated[float, typer.Option()] = 1.0,
    top_p: Annotated[float, typer.Option()] = 0.7,
    max_tokens: Annotated[int, typer.Option(help="New tokens at most.")] = 20_000,
    seed: Annotated[int, typer.Option()] = 0,
    limit: Annotated[int | None, typer.Option(help="First problems only.")] = None,
    ratio: Annotated[
        float, typer.Option(help="Share of base's tokens that each criterion picks.", min=0, max=1)
    ] = 0.08,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of <task>.jsonl files, instead of the hub.")] = None,
    backend: Annotated[str, typer.Option(help="auto, vllm or transformers.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.")] = "auto",
    tensor_parallel_size: Annotated[int, typer.Option()] = 1,
    enforce_eager: Annotated[bool, typer.Option(help="No compilation: starts sooner, runs slower.")] = False,
    records: Annotated[Path, typer.Option(help="Store of rollouts; what it holds is not decoded again.")] = Path(
        "runs/records"
    ),
    out: Out = OUT,
) -> None:
    """Decode base and RL, score every token with both, count everything into OUT/tokens.json.

    \b
        rlvr-dir analyse tokens --tasks tiny_easy,tiny_medium --samples 16 --limit 60 --ratio 0.02
    """
    from harness.analysis.traced import token_statistics
    from harness.evals.args import parse_model_args
    from harness.spec import Sampling, parse

    args = parse_model_args(
        {
            "pretrained": pretrained, "base": base, "pair": pair, "backend": backend, "dtype": dtype,
            "tensor_parallel_size": tensor_parallel_size, "enforce_eager": enforce_eager,
        }
    )  # fmt: skip
    the_pair = args.pair
    if the_pair is None:
        from harness.tiny import tiny_pair

        the_pair = tiny_pair()
    drawn = {"samples": samples, "temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed}
    found = token_statistics(
        the_pair,
        [name.strip() for name in tasks.split(",") if name.strip()],
        records,
        parse(Sampling, drawn),
        limit=limit,
        data_dir=str(data_dir) if data_dir else None,
        engine_spec=args.engine,
        selected=ratio,
    )
    _keep(out / "tokens.json", found)


@app.command("texts")
def analyse_texts(
    file: Annotated[Path, typer.Argument(help="JSON lines with 'response' and, if any, 'prompt'.")],
    pretrained: Annotated[str | None, typer.Option(help="RL checkpoint: hub id or directory.")] = None,
    base: Annotated[str | None, typer.Option(help="Base checkpoint: hub id or directory.")] = None,
    pair: Annotated[str | None, typer.Option(help="A pair by name; default tiny.")] = None,
    temperature: Annotated[float, typer.Option()] = 1.0,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Receives one JSON object a line; default standard output.")] = None,
) -> None:
    """Score given text with both models, teacher-forced: log-probabilities, Δ log p, entropies, KL, ranks a token."""
    from harness.analysis.texts import score_texts
    from harness.decode import open_engine
    from harness.evals.args import parse_model_args

    args = parse_model_args(
        {"pretrained": pretrained, "base": base, "pair": pair, "backend": "transformers", "dtype": dtype}
    )
    the_pair = args.pair
    if the_pair is None:
        from harness.tiny import tiny_pair

        the_pair = tiny_pair()
    rows = list(_rows(file))
    engine = open_engine(the_pair, args.engine)
    try:
        lines = (json.dumps(row, ensure_ascii=True) for row in score_texts(engine, iter(rows), temperature))
        if out is None:
            for line in lines:
                typer.echo(line)
        else:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text("".join(f"{line}\n" for line in lines))
    finally:
        engine.close()


def _rows(file: Path) -> Iterator[dict[str, object]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read ({type(error).__name__}); accepted: a file of JSON lines") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise UserError(f"{file}, line {number} is no JSON object; accepted: one object a line")
            yield row


@app.command("theorem")
def analyse_theorem(
    bandits: Annotated[int, typer.Option(min=2)] = 400, seed: Annotated[int, typer.Option()] = 0, out: Out = OUT
) -> None:
    """Theorem 1 by numbers: random bandits, natural policy gradient, reward against γ, with and without noise."""
    from harness.analysis.bandit import as_json, trials

    _keep(out / "theorem.json", as_json(trials(bandits=bandits, seed=seed)))


@app.command("curves")
def analyse_curves(
    logs: Annotated[
        list[str], typer.Argument(help="Logs of training: FILE, or METHOD=FILE; give several of a method.")
    ],
    out: Out = OUT,
) -> None:
    """Training curves from the logs of TRL, verl or `rlvr-dir tiny build`: accuracy, entropy, response length."""
    from harness.analysis.curves import curves

    by_method: dict[str, list[Path]] = {}
    for log in logs:
        name, equals, path = log.partition("=")
        if not equals or Path(log).is_file():
            name, path = Path(log).stem, log
        if not Path(path).is_file():
            raise UserError(f"logs={log!r}: there is no such file; accepted: FILE or METHOD=FILE")
        by_method.setdefault(name, []).append(Path(path))
    _keep(out / "training.json", curves(by_method))


def _keep(path: Path, found: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, ensure_ascii=True, indent=1, allow_nan=False) + "\n")
    typer.echo(f"written: {path}; `rlvr-dir report --analysis {path.parent}` draws it")
