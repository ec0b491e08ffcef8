"""`rlvr-dir eval`, `compare` and `demo`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.track import Tracking
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.evals import EvalResult


def evaluate_command(
    tasks: Annotated[str, typer.Option("--tasks", help="Comma-separated: aime24, aime25, amc, minerva, rlvr_math, …")],
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            "-d", "--decoding", help="One way of decoding, as 'rl' or 'replace,tau=-0.3'; give it again for more."
        ),
    ] = None,
    controls: Annotated[
        bool, typer.Option("--controls", help="Add base, rl, and the gamma = 0 control of each extrapolation.")
    ] = False,
    pretrained: Annotated[
        str | None, typer.Option(help="RL checkpoint, or LoRA adapter of base: hub id or directory.")
    ] = None,
    base: Annotated[str | None, typer.Option(help="Base checkpoint: hub id or directory.")] = None,
    pair: Annotated[
        str | None,
        typer.Option(help="A pair by name (dapo-32b, orz-32b, unireason-14b, tiny), or a folder with base and rl."),
    ] = None,
    mode: Annotated[str | None, typer.Option(help="base, rl (default), replace, extrapolate or expo.")] = None,
    primary: Annotated[str | None, typer.Option(help="Who proposes each token: base (default) or rl.")] = None,
    criterion: Annotated[
        str | None, typer.Option(help="When a token is redrawn: delta_logp (default), entropy_base, kl, …")
    ] = None,
    tau: Annotated[float | None, typer.Option(help="Threshold: delta_logp and random below it, others above.")] = None,
    gamma: Annotated[float | None, typer.Option(help="Extrapolation strength; 0 replaces.")] = None,
    samples: Annotated[int, typer.Option(help="Responses a problem: Avg@k and Pass@k, k up to this.")] = 32,
    temperature: Annotated[float, typer.Option()] = 1.0,
    top_p: Annotated[float, typer.Option()] = 0.7,
    max_tokens: Annotated[int, typer.Option(help="New tokens at most; the context may allow fewer.")] = 20_000,
    seed: Annotated[int, typer.Option()] = 0,
    limit: Annotated[int | None, typer.Option(help="First problems only: for a look, not for a score.")] = None,
    grader: Annotated[str, typer.Option(help="robust, or plain: math-verify alone, as in the paper.")] = "robust",
    golds: Annotated[str, typer.Option(help="Version of Minerva's answers: published or r1zero.")] = "published",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of <task>.jsonl files, instead of the hub.")] = None,
    backend: Annotated[str, typer.Option(help="auto, vllm or transformers.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto (the checkpoints' own), float32, bfloat16, float16.")] = "auto",
    max_model_len: Annotated[int | None, typer.Option()] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Responses decoded at once.")] = 256,
    draft: Annotated[
        str | None, typer.Option(help="Tokens drafted at once, or auto; for backend=transformers, the same tokens.")
    ] = None,
    tensor_parallel_size: Annotated[int, typer.Option()] = 1,
    workers: Annotated[int, typer.Option(help="Engines that share the work, on Ray (docs/scale-out.md).")] = 1,
    ray_address: Annotated[
        str | None, typer.Option(help="HOST:PORT of a running Ray cluster, or auto; default this machine.")
    ] = None,
    gpu_memory_utilization: Annotated[float, typer.Option()] = 0.9,
    kv_cache_gib: Annotated[float | None, typer.Option(help="KV cache of both models together, in GiB.")] = None,
    enforce_eager: Annotated[bool, typer.Option(help="No compilation: starts sooner, runs slower.")] = False,
    deterministic: Annotated[
        bool, typer.Option(help="The same bits in any batch, for some speed: vLLM on NVIDIA GPUs.")
    ] = False,
    trust_remote_code: Annotated[bool, typer.Option(help="Run code that a checkpoint brings along.")] = False,
    out: Annotated[Path, typer.Option(help="Receives one JSON file a result, and the MLflow store.")] = Path("runs"),
    track: Annotated[bool, typer.Option(help="Log each result to MLflow.")] = True,
    tracking: Tracking = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not take finished results from MLflow.")] = False,
    records: Annotated[Path | None, typer.Option(help="Store of rollouts; default OUT/records.")] = None,
) -> None:
    """Score ways of decoding a pair on benchmarks, all of them in one engine start.

    The pair's chat template is applied; tasks and their data are checked before any model loads. Every rollout is kept
    as it finishes: interrupt it, run it again, and it goes on. For example:

    \b
        rlvr-dir eval --tasks tiny_easy,tiny_medium --mode replace --tau -0.3 --samples 8 --limit 40
        rlvr-dir eval --tasks tiny_medium -d replace,tau=-0.1 -d extrapolate,tau=-0.1,gamma=0.1 --controls --samples 8
    """
    from harness.evals import evaluate, preflight
    from harness.evals.args import parse_decoding, parse_model_args, with_controls
    from harness.evals.compare import compare, markdown
    from harness.evals.show import score, table
    from harness.spec import Sampling, parse
    from harness.tracking import comparison_link, find_result, log_result, resolve_store

    single = {"mode": mode, "primary": primary, "criterion": criterion, "tau": tau, "gamma": gamma}
    given = [name for name, value in single.items() if value is not None]
    if decoding and given:
        raise UserError(
            f"{given[0]}={single[given[0]]!r} and decoding={decoding[0]!r} both say how to decode; give one of them"
        )
    args = parse_model_args(
        {
            "pretrained": pretrained, "base": base, "pair": pair, "trust_remote_code": trust_remote_code or None,
            **single,
            "backend": backend, "dtype": dtype, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs,
            "tensor_parallel_size": tensor_parallel_size, "gpu_memory_utilization": gpu_memory_utilization,
            "kv_cache_gib": kv_cache_gib, "enforce_eager": enforce_eager,
            "deterministic": deterministic, "workers": workers, "ray_address": ray_address,
            "draft": int(draft) if draft and draft.isdecimal() else draft,
        }
    )  # fmt: skip
    decodings = [parse_decoding(text) for text in decoding] if decoding else [args.decoding]
    decodings = with_controls(decodings) if controls else decodings
    sampling = parse(
        Sampling,
        {"samples": samples, "temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed},
    )
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    folder = str(data_dir) if data_dir else None
    preflight(names, folder, golds)
    the_pair = args.pair
    if the_pair is None:
        from harness.tiny import tiny_pair

        the_pair = tiny_pair()
        typer.echo("No pair was named: using the embedded tiny pair (a pipeline check, not a math model).", err=True)
    place = resolve_store(out, tracking)
    store = records or out / "records"
    out.mkdir(parents=True, exist_ok=True)

    def keep(result: "EvalResult") -> None:
        say(f"{result.task}  {result.label}  {score(result)}")
        result.write(out)
        if track:
            log_result(result, place)

    def known(config_hash: str) -> "EvalResult | None":
        found = find_result(config_hash, place)
        if found is not None:
            say(f"{found.task}  {found.label}  is in MLflow already (config hash {config_hash}; --fresh ignores it)")
        return found

    try:
        results = evaluate(
            the_pair,
            decodings,
            names,
            sampling,
            limit=limit,
            data_dir=folder,
            grader=grader,
            golds=golds,
            engine_spec=args.engine,
            records=store,
            known=known if track and not fresh else None,
            on_result=keep,
        )
    except KeyboardInterrupt:
        say(f"interrupted; what was decoded is kept in {store}, and the same command goes on from there")
        raise
    typer.echo(table(results))
    if len(decodings) > 1:
        typer.echo("\n" + markdown(compare(results)))
    say(f"written to {out}: one JSON file a result; rollouts in {store}")
    for task in dict.fromkeys(result.task for result in results) if track else ():
        if links := comparison_link(place, f"rlvr-dir-{task}"):
            say(f"{task} in MLflow (`rlvr-dir ui --store {out}` serves it): {links.charts}")


def say(text: str) -> None:
    """A line on standard error, above a progress bar that may be there."""
    from tqdm import tqdm

    tqdm.write(text, file=sys.stderr)


def compare_command(
    results: Annotated[
        list[str],
        typer.Argument(help="Result files or folders of them, records (folder, or the beginning of a hash), run:ID."),
    ],
    against: Annotated[
        str | None,
        typer.Option(help="The reference: a decoding's label as printed, or a mode. Default rl, else the first."),
    ] = None,
    store: Annotated[Path, typer.Option(help="Folder of records, for hashes.")] = Path("runs/records"),
    grader: Annotated[str, typer.Option(help="Of records: robust or plain.")] = "robust",
    golds: Annotated[str, typer.Option(help="Of records: version of Minerva's answers.")] = "published",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of <task>.jsonl files, instead of the hub.")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Of unfinished records: the samples that every problem has, marked.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="Folder with the MLflow store, for run:ID.")] = Path("runs"),
    tracking: Tracking = None,
) -> None:
    """Paired differences to a reference, with intervals; p values are corrected over the table (Holm).

    \b
        rlvr-dir compare runs/demo --against "replace τ-0.1"
        rlvr-dir compare 3f2a 9c01/aime24 --store runs/records --partial
    """
    from harness.evals.compare import compare, markdown, read_results

    def of_run(run_id: str) -> "EvalResult":
        from harness.tracking import resolve_store, result_of_run

        return result_of_run(run_id, resolve_store(runs, tracking))

    found = read_results(
        results,
        store,
        run=of_run,
        grader=grader,
        version=golds,
        data_dir=str(data_dir) if data_dir else None,
        partial=partial,
    )
    typer.echo(markdown(compare(found, against)))


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
