"""`rlvr-dir …`: thin commands; each imports what it needs when it runs."""

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.errors import UserError

HELP = """What did RLVR change in this model, token by token, and can that change be used?

Decodes with a base model and its RL-trained successor at once, replaces or extrapolates tokens where
log pi_RL - log pi_Base says so, and scores the result. With no model named, the embedded tiny pair is used.
"""

# No rich help: importing it would take half of the time in which `--help` answers.
_PLAIN: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}
app = typer.Typer(help=HELP, add_completion=False, pretty_exceptions_enable=False, **_PLAIN)
tiny_app = typer.Typer(help="The embedded pair: build it anew, or measure it.", **_PLAIN)
bench_app = typer.Typer(help="Speed, measured side by side in one run.", **_PLAIN)
app.add_typer(tiny_app, name="tiny")
app.add_typer(bench_app, name="bench")
records_app = typer.Typer(help="The store of rollouts: what is held, in what state.", **_PLAIN)
app.add_typer(records_app, name="records")

Threads = Annotated[int, typer.Option(help="CPU threads an engine; one is right for tiny models.", min=1)]


@app.command("eval")
def evaluate_command(
    tasks: Annotated[str, typer.Option("--tasks", help="Comma-separated: aime24, aime25, amc, minerva, rlvr_math, …")],
    pretrained: Annotated[str | None, typer.Option(help="RL checkpoint: hub id or directory.")] = None,
    base: Annotated[str | None, typer.Option(help="Base checkpoint: hub id or directory.")] = None,
    pair: Annotated[str | None, typer.Option(help="A pair by name: dapo-32b, orz-32b, unireason-14b, tiny.")] = None,
    mode: Annotated[str, typer.Option(help="base, rl, replace or extrapolate.")] = "rl",
    primary: Annotated[str | None, typer.Option(help="Who proposes each token: base (default) or rl.")] = None,
    criterion: Annotated[
        str, typer.Option(help="When a token is redrawn: delta_logp, entropy_base, kl, …")
    ] = "delta_logp",
    tau: Annotated[float | None, typer.Option(help="Threshold: delta_logp and random below it, others above.")] = None,
    gamma: Annotated[float, typer.Option(help="Extrapolation strength; 0 replaces.")] = 0.0,
    samples: Annotated[int, typer.Option(help="Responses a problem: Avg@k and Pass@k, k up to this.")] = 32,
    temperature: Annotated[float, typer.Option()] = 1.0,
    top_p: Annotated[float, typer.Option()] = 0.7,
    max_tokens: Annotated[int, typer.Option(help="New tokens at most; the context may allow fewer.")] = 20_000,
    seed: Annotated[int, typer.Option()] = 0,
    limit: Annotated[int | None, typer.Option(help="First problems only: for a look, not for a score.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of <task>.jsonl files, instead of the hub.")] = None,
    backend: Annotated[str, typer.Option(help="auto, vllm or transformers.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto (the checkpoints' own), float32, bfloat16, float16.")] = "auto",
    max_model_len: Annotated[int | None, typer.Option()] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Responses decoded at once.")] = 256,
    tensor_parallel_size: Annotated[int, typer.Option()] = 1,
    gpu_memory_utilization: Annotated[float, typer.Option()] = 0.9,
    kv_cache_gib: Annotated[float | None, typer.Option(help="KV cache of both models together, in GiB.")] = None,
    enforce_eager: Annotated[bool, typer.Option(help="No compilation: starts sooner, runs slower.")] = False,
    trust_remote_code: Annotated[bool, typer.Option(help="Run code that a checkpoint brings along.")] = False,
    out: Annotated[Path, typer.Option(help="Receives one JSON file a result, and the MLflow store.")] = Path("runs"),
    track: Annotated[bool, typer.Option(help="Log each result to MLflow.")] = True,
    records: Annotated[Path | None, typer.Option(help="Store of rollouts; default OUT/records.")] = None,
) -> None:
    """Score one way of decoding a pair on benchmarks.

    The pair's chat template is applied; tasks and their data are checked before any model loads. For example:

    \b
        rlvr-dir eval --tasks tiny_easy,tiny_medium --mode replace --tau -0.3 --samples 8 --limit 40
    """
    from harness.evals import evaluate, preflight
    from harness.evals.args import parse_model_args
    from harness.spec import Sampling, parse

    args = parse_model_args(
        {
            "pretrained": pretrained, "base": base, "pair": pair, "trust_remote_code": trust_remote_code or None,
            "mode": mode, "primary": primary, "criterion": criterion, "tau": tau, "gamma": gamma,
            "backend": backend, "dtype": dtype, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs,
            "tensor_parallel_size": tensor_parallel_size, "gpu_memory_utilization": gpu_memory_utilization,
            "kv_cache_gib": kv_cache_gib, "enforce_eager": enforce_eager,
        }
    )  # fmt: skip
    sampling = parse(
        Sampling,
        {"samples": samples, "temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed},
    )
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    folder = str(data_dir) if data_dir else None
    preflight(names, folder)
    the_pair = args.pair
    if the_pair is None:
        from harness.tiny import tiny_pair

        the_pair = tiny_pair()
        typer.echo("No pair was named: using the embedded tiny pair (a pipeline check, not a math model).", err=True)
    results = evaluate(
        the_pair,
        [args.decoding],
        names,
        sampling,
        limit=limit,
        data_dir=folder,
        engine_spec=args.engine,
        records=records or out / "records",
    )
    _show(results)
    out.mkdir(parents=True, exist_ok=True)
    for result in results:
        path = out / f"{result.task}-{result.decoding.hash()}-{result.sampling.hash()}.json"
        path.write_text(result.to_json())
        typer.echo(f"written: {path}")
        if track:
            from harness.tracking import log_result

            log_result(result, out, f"rlvr-dir-{result.task}")


def _show(results: list[Any]) -> None:
    """The results as a table on the screen, in percent."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    n = results[0].samples
    for column in (
        "benchmark",
        "decoding",
        f"Avg@{n} ± s.e.",
        f"Pass@{max(1, n // 2)}",
        "replaced",
        "tokens",
        "cut",
        "no box",
    ):
        table.add_column(column, justify="left" if column in ("benchmark", "decoding") else "right")
    for result in results:
        metrics = result.metrics()
        table.add_row(
            result.task,
            result.decoding.label(),
            f"{100 * result.avg:.2f} ± {100 * result.standard_error:.2f}",
            f"{100 * result.pass_at(max(1, n // 2)):.2f}",
            f"{100 * result.replacement_ratio:.1f} %",
            f"{metrics['mean_tokens']:.0f}",
            f"{100 * metrics['truncated_share']:.1f} %",
            f"{100 * metrics['no_box_share']:.1f} %",
        )
    Console().print(table)


@app.command("compare")
def compare_command(
    results: Annotated[list[Path], typer.Argument(help="Result files, or folders of them, that eval or demo wrote.")],
    against: Annotated[str, typer.Option(help="The reference: a decoding's label as printed, or a mode.")] = "rl",
) -> None:
    """Paired differences to a reference, with intervals.

    p values are corrected over the table (Holm).

    rlvr-dir compare runs/demo --against "replace τ-0.1"
    """
    from harness.evals.compare import compare, markdown, read_results

    typer.echo(markdown(compare(read_results(results), against)))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Receives the table, the results and the MLflow store.")] = Path(
        "runs/demo"
    ),
    problems: Annotated[int, typer.Option(help="Of each benchmark.", min=2)] = 60,
    samples: Annotated[int, typer.Option(help="Responses a problem.", min=2)] = 32,
    backend: Annotated[str, typer.Option(help="auto, vllm or transformers.")] = "auto",
) -> None:
    """Decode the tiny pair every way; print one table."""
    from harness.demo import run_demo

    run_demo(out, problems=problems, samples=samples, backend=backend, say=typer.echo)


@app.command()
def ui(
    store: Annotated[Path, typer.Option(help="Folder that holds mlflow.db.")] = Path("runs"),
    port: Annotated[int, typer.Option()] = 5000,
) -> None:
    """Open the MLflow pages of a store (127.0.0.1)."""
    import subprocess

    database = store.resolve() / "mlflow.db"
    if not database.is_file():
        raise UserError(f"store={str(store)!r} holds no mlflow.db; accepted: a folder that eval or demo has written to")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", f"sqlite:///{database}"]
    typer.echo(f"http://127.0.0.1:{port} — Ctrl-C ends it")
    raise typer.Exit(subprocess.call([*command, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]))


@tiny_app.command("build")
def tiny_build(
    out: Annotated[Path, typer.Option(help="Receives base/, rl/ and the model card.")],
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Pretrain the tiny base from nothing, then RL-train it with DAPO through TRL: some six minutes on one core."""
    from harness.tiny import build

    pair = build(out, seed=seed)
    typer.echo(f"base: {pair.base}\nrl:   {pair.rl}\nFigures: rlvr-dir tiny measure --pair {out}")


@tiny_app.command("measure")
def tiny_measure(
    pair: Annotated[
        Path | None, typer.Option(help="A folder that `tiny build` made; default the shipped pair.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Responses a problem.", min=2)] = 32,
) -> None:
    """Avg@k of base and RL on the three tiny benchmarks; the figures of a built pair go into its model card."""
    from harness.tiny import tiny_pair
    from harness.tiny.measure import figures_text, measure_pair
    from harness.tiny.measure import main as measure

    if pair is None:
        shipped = tiny_pair()
        typer.echo(figures_text(measure_pair(shipped.base, shipped.rl, samples=samples)))
    elif (pair / "rl").is_dir():
        measure(pair, samples)
    else:
        raise UserError(f"pair={str(pair)!r} has no rl/; accepted: a folder that `rlvr-dir tiny build` made")


@bench_app.command("decode")
def bench_decode_command(
    sequences: Annotated[int, typer.Option(help="Decoded at once, on 30 prompts.", min=1)] = 240,
    tokens: Annotated[int, typer.Option(help="New tokens of each, at most.", min=1)] = 64,
    rounds: Annotated[int, typer.Option(help="Measured, after one that warms up.", min=1)] = 3,
    threads: Threads = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Tokens per CPU-second of the RL model alone, the pair engine and the transformers pair, in one run."""
    import json

    from harness.bench.decode import bench_decode

    found = bench_decode(
        sequences=sequences, tokens=tokens, rounds=rounds, threads=threads, say=lambda text: typer.echo(text, err=True)
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {sequences} sequences x {tokens} tokens, {threads} thread(s)\n")
    for kind, speed in found["tokens_per_cpu_second"].items():
        typer.echo(f"{kind:>14}  {speed:>10,.0f} tokens per CPU-second")
    typer.echo(f"\npair / single        {found['ratios']['pair_to_single']:.2f}   (two forwards sharing nothing: 0.50)")
    typer.echo(f"pair / transformers  {found['ratios']['pair_to_transformers']:.2f}")


Store = Annotated[Path, typer.Option(help="Folder of records.")]
Name = Annotated[str, typer.Argument(help="Beginning of a record's hash, with /TASK where several match.")]
RECORDS = Path("runs/records")


@records_app.command("list")
def records_list(store: Store = RECORDS) -> None:
    """Every record: what it is, how much of it is held, whether it is finished."""
    from harness.records.commands import list_records

    for row in list_records(store):
        state = "finished" if row["finished"] else f"{row['held']} of {row['asked']}"
        graders = f"  graded: {', '.join(row['graders'])}" if row["graders"] else ""
        typer.echo(f"{row['record']}  {row['decoding']}  {state}, {row['tokens']:,} tokens{graders}")


@records_app.command("show")
def records_show(name: Name, store: Store = RECORDS) -> None:
    """Settings, sizes, scores and damage of one record, as JSON."""
    import json

    from harness.records.commands import show_record

    typer.echo(json.dumps(show_record(store, name), indent=1, ensure_ascii=False))


@records_app.command("export")
def records_export(
    name: Name,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    form: Annotated[str, typer.Option(help="jsonl, texts or summary.")] = "jsonl",
    store: Store = RECORDS,
) -> None:
    """Write one record to a file."""
    from harness.records.commands import export_record

    typer.echo(f"written: {export_record(store, name, out, form)}")


@records_app.command("verify")
def records_verify(
    name: Annotated[str | None, typer.Argument(help="One record; default all.")] = None, store: Store = RECORDS
) -> None:
    """Check every line; changes nothing, exits with status 1 where something is wrong."""
    from harness.records.commands import verify_records

    found = verify_records(store, name)
    for record, damage in found.items():
        typer.echo("\n".join(f"{record}  {line}" for line in damage or ["good"]))
    raise typer.Exit(1 if any(found.values()) else 0)


@records_app.command("gc")
def records_gc(
    drop: Annotated[list[str] | None, typer.Option(help="Records to delete as well.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Really delete; without it, only say what.")] = False,
    store: Store = RECORDS,
) -> None:
    """What nothing needs: set-aside damaged files, half-written ones, empty records."""
    from harness.records.commands import gc_records

    for row in gc_records(store, drop or (), delete=delete):
        typer.echo(
            f"{'deleted' if delete else 'would delete'}: {row['path']} ({row['reason']}, {row['bytes']:,} bytes)"
        )


@records_app.command("import")
def records_import(
    folder: Annotated[Path, typer.Argument(help="A result folder of the authors' script (seed*.json).")],
    task: Annotated[str | None, typer.Option(help="Benchmark, where the folder's name does not say.")] = None,
    store: Store = RECORDS,
) -> None:
    """Read the authors' own result files, compare their verdicts with ours; prints JSON."""
    import json

    from harness.records.commands import import_official

    typer.echo(json.dumps(import_official(store, folder, task=task), indent=1))


def main() -> None:
    """Entry point: a user's mistake is one line on standard error and exit status 2."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    warnings.simplefilter("ignore", FutureWarning)  # libraries telling each other
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"warning: {message}\n"
    try:
        app()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
