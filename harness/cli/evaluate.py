"""`rlvr-dir eval`, `compare` and `demo`."""

from pathlib import Path
from typing import Annotated, Any

import typer


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
