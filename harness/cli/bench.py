"""`rlvr-dir bench`: speed and memory, measured side by side in one run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.bench.steps import LIMIT_S, STEPS
from harness.cli.base import group
from harness.errors import UserError, unknown
from harness.markdown import markdown_table

app = group("Speed and memory, measured side by side in one run.")

Threads = Annotated[int, typer.Option(help="CPU threads an engine; one is right for tiny models.", min=1)]


@app.command("decode")
def bench_decode_command(
    sequences: Annotated[str, typer.Option(help="Asked for at once, on 30 prompts; comma-separated.")] = "240",
    engines: Annotated[str, typer.Option(help="Comma-separated; pair is what others are compared with.")] = (
        "single,pair,transformers,stock,calls"
    ),
    tokens: Annotated[int, typer.Option(help="New tokens of each, at most.", min=1)] = 64,
    rounds: Annotated[int, typer.Option(help="Measured, after one that warms up.", min=1)] = 3,
    threads: Threads = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Measure tokens per CPU-second: RL alone, the pair, transformers as we and others use it, one token a call."""

    from harness.bench.decode import bench_decode

    found = bench_decode(
        sequences=_whole("sequences", sequences), kinds=engines.split(","), tokens=tokens, rounds=rounds,
        threads=threads, say=lambda text: typer.echo(text, err=True),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {tokens} tokens a sequence, {threads} thread(s)")
    for size in found["sizes"]:
        typer.echo(f"\n{size['sequences']} sequences")
        for kind, speed in size["tokens_per_cpu_second"].items():
            ratio = size["ratios"].get(f"pair_to_{kind}")
            typer.echo(
                f"{kind:>14}  {speed:>10,.0f} tokens per CPU-second" + (f"   pair: {ratio:.2f} x" if ratio else "")
            )
    typer.echo(
        "\nTwo forwards that share nothing: pair at 0.50 x single. stock: transformers with its own caches and "
        "attention. calls: two engines, one token a call."
    )


@app.command("serve")
def bench_serve_command(
    users: Annotated[int, typer.Option(help="Who ask at once.", min=2)] = 64,
    requests: Annotated[int, typer.Option(help="Of a round, each for one response.", min=1)] = 512,
    rounds: Annotated[int, typer.Option(help="Measured, after one that warms up.", min=1)] = 3,
    tokens: Annotated[int, typer.Option(help="New tokens of each response, at most.", min=1)] = 128,
    threads: Threads = 1,
    eager: Annotated[bool, typer.Option("--eager", help="Compile nothing, on either side.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Measure the server beside offline decoding of the same requests: tokens a second, time to the first token."""

    from harness.bench.serve import bench_serve

    found = bench_serve(
        users=users, requests=requests, rounds=rounds, tokens=tokens, threads=threads, eager=eager,
        say=lambda text: typer.echo(text, err=True),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {users} users, {requests} requests a round, {threads} thread(s)")
    for kind, speed in found["tokens_per_second"].items():
        ratio = found["served_to_offline"].get(kind)
        typer.echo(f"{kind:>10}  {speed:>8,.0f} tokens a second" + (f"   {ratio:.2f} x offline" if ratio else ""))
    for name, what in {"first_token_s": "first token", "answer_s": "whole answer"}.items():
        typer.echo(f"{what:>14} of a stream: p50 {found[name]['p50']:.3f} s, p95 {found[name]['p95']:.3f} s")
    left, ended = found["left"], found["ended"]
    typer.echo(f"{left['streams']} streams were left; the next answer took {left['next_answer_s']:.3f} s")
    typer.echo(
        f"SIGTERM under {ended['running']} streams: {ended['whole']} came to their end, {ended['lost']} were lost"
    )


@app.command("decision")
def bench_decision_command(
    rows: Annotated[int, typer.Option(help="Of one batch of logits.", min=1)] = 16,
    vocab: Annotated[int, typer.Option(help="Columns.", min=2)] = 151_936,
    rounds: Annotated[int, typer.Option(help="Measured, after one that warms up.", min=1)] = 5,
    threads: Threads = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Time a row of Algorithm 1 at a large vocabulary, peaked and flat, beside what no decision can avoid."""

    from harness.bench.decision import bench_decision

    found = bench_decision(
        rows=rows, vocab=vocab, rounds=rounds, threads=threads, say=lambda text: typer.echo(text, err=True)
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {rows} rows, vocabulary {vocab:,}, {threads} thread(s)")
    for shape, parts in found["ms_a_row"].items():
        typer.echo(f"\n{shape}: {found['replaced'][shape]:.0%} of the rows are redrawn")
        for name, ms in parts.items():
            typer.echo(f"{name:>18}  {ms:8.3f} ms a row")
        typer.echo(f"{'memory':>18}  {found['memory'][shape]:8.1f} batches of logits at most, beside the two given")
    typer.echo(
        "\nOf one decision: operators of torch, those that wait for a GPU, kernels of ours; bytes a logit of one "
        "model: held at most, and loaded and stored by our kernels"
    )
    for path, rules in found["paths"].items():
        for rule, counts in (rules or {}).items():
            moved = f"{counts['moved']:6.1f} moved" if "moved" in counts else ""
            typer.echo(
                f"{path:>18}  {rule:<12}{counts['operators']:4} operators{len(counts['waits']):3} waits"
                f"{counts['launches']:3} launches{counts['bytes']:6.1f} held{moved}"
            )
    if found["gpu"] is not None:
        typer.echo(json.dumps(found["gpu"], indent=1))
        raise typer.Exit(0 if found["gpu"]["right"] else 1)


@app.command("lora")
def bench_lora_command(
    hidden: Annotated[int, typer.Option(help="Width of the models, a multiple of 64.", min=64)] = 512,
    layers: Annotated[int, typer.Option(help="Of each model.", min=1)] = 8,
    rank: Annotated[int, typer.Option(help="Of the adapter's terms.", min=1)] = 16,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Measure the memory of a pair whose RL model is a LoRA adapter, beside base alone and two whole models."""

    from harness.bench.lora import SETUPS, bench_lora

    found = bench_lora(hidden=hidden, layers=layers, rank=rank, say=lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {layers} layers x {hidden}, rank {rank}, float32, in MiB\n")
    typer.echo(f"{'':>22}  {'weights':>8}  {'resident':>8}")
    for kind, name in SETUPS.items():
        of = found["bytes"][kind]
        typer.echo(f"{name:>22}  {of['weights'] / 2**20:8.1f}  {of['resident'] / 2**20:8.1f}")
    typer.echo(f"\nfiles: base {found['base'] / 2**20:.1f}, adapter {found['terms'] / 2**20:.1f}")


@app.command("train")
def bench_train_command(
    method: Annotated[
        list[str] | None, typer.Option(help="low_prob, dominate or ppl; give it again for more. Default all.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Measured, after one that warms up.", min=1)] = 3,
    threads: Threads = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Measure the share of a DAPO training that reweighting takes, and its processor time beside plain DAPO's."""

    from harness.bench.train import COMPARED, bench_train

    for each in method or ():
        if each not in COMPARED:
            raise unknown("method", each, COMPARED)
    found = bench_train(
        methods=method or COMPARED, rounds=rounds, threads=threads, say=lambda text: typer.echo(text, err=True)
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    sizes = found["settings"]
    typer.echo(
        f"{found['machine']}, {found['date']}; {rounds} rounds of {sizes['steps']} steps of {sizes['prompts']} x "
        f"{sizes['samples']} responses, {threads} thread(s)\n"
    )
    for name, share in found["shares"].items():
        plain, reweighted = found["seconds"][name]
        typer.echo(
            f"{name:>9}  {100 * share:6.2f} % of the time is reweighting;  {reweighted:.1f} s beside {plain:.1f} s of "
            f"plain DAPO, ratio {found['ratios'][name]:.3f}"
        )


def _shares(name: str, text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < share < 1 for share in found):
        raise UserError(f"{name}={text!r} is refused; accepted: numbers between 0 and 1, comma-separated")
    return found


def _whole(name: str, text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise UserError(f"{name}={text!r} is refused; accepted: whole numbers from 1, comma-separated")
    return found


_COUNTED = ("answers", "correct", "only_robust", "wrong", "only_plain")


@app.command("grade")
def bench_grade_command(
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="RLVR_DIR_DATA", help="Folder with minerva.jsonl; without one that corpus is skipped."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the made-up answers: a new seed, new answers.")] = 0,
    answers: Annotated[
        Path | None,
        typer.Option(help="JSON lines with gold and response: count which rule decides about each, and time nothing."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Time both graders on 960 integer answers, 8,704 Minerva-like ones and 200 hostile ones, in one run."""

    from harness.bench.grade import bench_grade, count_rules, read_answers

    if answers is not None:
        rows = count_rules(read_answers(answers))
        if as_json:
            typer.echo(json.dumps({"rules": rows}))
            return
        cells = [[f"`{row['rule']}`", *(str(row[name]) for name in _COUNTED)] for row in rows]
        cells.append(["all", *(str(sum(row[name] for row in rows)) for name in _COUNTED)])
        typer.echo(
            markdown_table(["rule", "answers", "correct", "not for `plain`", "wrong", "correct for `plain`"], cells)
        )
        return

    found = bench_grade(data_dir=data_dir, seed=seed, say=lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}, seed {found['seed']}")
    for one in found["results"]:
        pool = "the pool is alive after" if one["alive"] else "THE POOL IS DEAD"
        typer.echo(
            f"\n{one['corpus']}, {one['grader']}: {one['gradings']:,} gradings ({one['distinct']:,} distinct pairs) in "
            f"{one['seconds']:.2f} s, {one['per_second']:,.0f}/s; {pool}"
        )
        for family, kinds in {**one["families"], "all": one["kinds"]}.items():
            typer.echo(f"{family:>14}  " + ", ".join(f"{kind} {count}" for kind, count in kinds.items()))
    if found["skipped"]:
        typer.echo(f"\n{found['skipped']}")


@app.command("report")
def bench_report_command(
    samples: Annotated[int, typer.Option(help="Of each problem.", min=1)] = 32,
    rounds: Annotated[int, typer.Option(help="Measured, after one that warms up.", min=1)] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Time reading 68 results, building their report and writing it."""

    from harness.bench.report import bench_report

    found = bench_report(samples=samples, rounds=rounds, say=lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {found['results']} results of {samples} samples a problem\n")
    for name, seconds in found["seconds"].items():
        typer.echo(f"{name:>6}  {seconds:7.2f} s")
    typer.echo(f"\nbuild / read {found['build_to_read']:.1f}, write / read {found['write_to_read']:.1f}")
    typer.echo(f"report.html: {found['page'] / 1e6:.1f} MB")


@app.command("start")
def bench_start_command(
    rounds: Annotated[int, typer.Option(help="Fresh processes of each; of vLLM at most two.", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Time `--help`, the start-up hook, and the first token of the tiny pair in vLLM."""

    from harness.bench.start import bench_start

    found = bench_start(rounds=rounds, say=lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; medians of fresh processes, caches warm\n")
    for name, seconds in found["seconds"].items():
        limit = found["limit"][name]
        typer.echo(f"{name:>32}  {seconds:9.4f} s" + (f"   (wanted: {limit:g})" if limit else ""))


@app.command("records")
def bench_records_command(
    responses: Annotated[int, typer.Option(help="Of each record; a multiple of 32, the samples of a problem.")] = 96,
    tokens: Annotated[int, typer.Option(help="Of each response.")] = 20_000,
    decodings: Annotated[int, typer.Option(help="Records in all: the first is written, the others are copies.")] = 3,
    folder: Annotated[
        Path | None, typer.Option(help="Where the store is made and deleted again; default: for temporary files.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Measure the record store on made-up rollouts: bytes a token; seconds and memory to write, open, resume, compare.

    At the paper's size (17 decodings x 960 responses x 20,000 tokens) it writes about 1.6 GB and takes some minutes:

    \b
        rlvr-dir bench records --responses 960 --decodings 17
    """

    from harness.bench.records import bench_records

    found = bench_records(
        responses=responses, tokens=tokens, decodings=decodings, folder=folder,
        say=lambda text: typer.echo(text, err=True),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found))
        return
    stages = found["stages"]
    typer.echo(f"{found['machine']}, {found['date']}; {decodings} records of {responses} x {tokens:,} tokens\n")
    typer.echo(f"a record: {found['bytes'] / 1e6:,.1f} MB, {found['bytes_a_token']:.2f} bytes a token (wanted: 6)")
    typer.echo(
        f"a response: {stages['write']['each_ms']:.1f} ms to compress, append and sync "
        f"(slowest {stages['write']['slowest_ms']:.0f})\n"
    )
    for stage, what in (
        ("read", "open to read: counts and lengths of one record"),
        ("resume", "open to write: all bytes checked, a torn end cut off (wanted: 2 s, 200 MB)"),
        ("verify", "read one record back whole"),
        ("grade", "grade all records for the first time"),
        ("compare", "compare all records (wanted: 60 s)"),
        ("report", "report on all records (wanted: 60 s)"),
    ):
        typer.echo(f"{stages[stage]['seconds']:8.2f} s  {stages[stage]['peak_mib']:5.0f} MiB  {what}")


ALL = (
    ("decode", "--sequences", "240,960", "--rounds", "2"),
    ("decision",),
    ("lora",),
    ("grade",),
    ("train",),
    ("report",),
    ("records",),
    ("start",),
)


@app.command("all")
def bench_all_command(
    out: Annotated[
        Path | None, typer.Option(help="Folder for one JSON file a benchmark; default: tables on standard output.")
    ] = None,
) -> None:
    """Measure every table of docs/performance.md, each benchmark in its own process, in turn (over half an hour)."""
    import subprocess
    import sys

    for name, *options in ALL:
        typer.echo(f"rlvr-dir bench {' '.join((name, *options))}", err=True)
        command = [sys.executable, "-m", "harness.cli", "bench", name, *options]
        done = subprocess.run([*command, "--json"] if out else command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise typer.Exit(done.returncode)
        if out is None:
            typer.echo(f"# {name}\n\n{done.stdout}")
        else:
            from harness.files import make_folder, write_file

            make_folder(out)
            write_file(out / f"{'-'.join((name, *(o.strip('-') for o in options)))}.json", done.stdout.encode())


@app.command("statistics")
def bench_statistics_command(
    runs: Annotated[int, typer.Option(help="Benchmarks simulated for each row.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Of the simulation.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
) -> None:
    """Simulate what printed intervals and p values are worth: coverage and false claims (docs/statistics.md)."""

    from harness.bench.statistics import bench_statistics, tables

    found = bench_statistics(runs=runs, seed=seed, say=lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['machine']}, {found['date']}; {runs} simulated benchmarks a row, in percent\n")
    typer.echo(tables(found))


@app.command("checklist")
def bench_checklist_command(
    steps: Annotated[
        str | None, typer.Option(help=f"Comma-separated; default: all that suit the machine. {', '.join(STEPS)}.")
    ] = None,
    limit_s: Annotated[float, typer.Option(help="Seconds a step may take; one that overruns is killed.", min=1)] = (
        LIMIT_S
    ),
    sequences: Annotated[str, typer.Option(help="Decoded at once in the steps of speed, comma-separated.")] = "256,960",
    tokens: Annotated[int, typer.Option(help="New tokens of each.", min=1)] = 128,
    out: Annotated[Path | None, typer.Option(help="Write it all to this JSON file, anew after each step.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="For models, compile cache and whole outputs, kept for the next call.")
    ] = None,
) -> None:
    """Check the engine where it has not run yet, a GPU above all (docs/gpu.md). Exit status 1: a step failed."""
    from harness.bench.checklist import run_checklist, show

    found = run_checklist(
        steps=steps, limit_s=limit_s, sequences=_whole("sequences", sequences), tokens=tokens, out=out, folder=folder,
        say=lambda text: typer.echo(text, err=True),
    )  # fmt: skip
    for line in show(found):
        typer.echo(line)
    if any(one["ok"] is False for one in found["steps"].values()):
        raise typer.Exit(1)
