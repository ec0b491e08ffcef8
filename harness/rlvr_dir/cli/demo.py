"""Run `make demo`: decode the tiny pair with every mode, score and track it, in a few minutes on two cores."""

import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from rlvr_dir.config import Decoding, EngineSpec, EvalSpec, Sampling, parse
from rlvr_dir.evals import evaluate
from rlvr_dir.files import check_writable, write_file
from rlvr_dir.markdown import interval, markdown_table
from rlvr_dir.results import EvalResult
from rlvr_dir.results.show import percent
from rlvr_dir.stats import p_value, paired_difference

TASKS = ("tiny_easy", "tiny_medium")
PROBLEMS = 60  # of each benchmark; the model card has the results on all of them

# tau and gamma are from the paper's grid for its own pairs, not tuned on these benchmarks
DECODINGS = (
    Decoding(mode="base"),
    Decoding(mode="rl"),
    Decoding(mode="veto", tau=-0.1),  # a control of reject, in which the gate alone decides
    Decoding(mode="resample", tau=-0.1),  # another one, in which base decides
    Decoding(mode="reject", tau=-0.1),  # the control of replace, in which base writes the tokens that RL drops
    Decoding(mode="replace", tau=-0.1),  # the gamma = 0 control of extrapolate
    Decoding(mode="extrapolate", tau=-0.1, gamma=0.1),
)


def run_demo(
    out: Path,
    *,
    problems: int = PROBLEMS,
    samples: int = 16,
    backend: str = "auto",
    say: Callable[[str], None] = print,
) -> list[EvalResult]:
    """Decode, score and track. Write `demo.md`, one JSON file per result, the records and the MLflow store into `out`.

    Cached responses are not decoded again.

    Raises:
        UserError: The engine or the evaluation rejects something.
    """
    from rlvr_dir.tracking import comparison_link, log_result
    from rlvr_dir.tracking.store import ui_command

    started = time.monotonic()
    spec = EvalSpec(
        tasks=TASKS,
        decodings=DECODINGS,
        sampling=Sampling(samples=samples, max_tokens=512),
        limit=problems,
        engine=parse(EngineSpec, {"backend": backend, "enforce_eager": True}),
    )
    check_writable(out, out / "records")
    if backend == "auto" and find_spec("vllm") is None:
        say("vLLM is not installed: decoding with transformers, the slower reference engine.")
    say(f"Decoding {problems} problems x {samples} samples of {' and '.join(TASKS)}, {len(DECODINGS)} decodings.")
    results = evaluate(spec, records=out / "records")
    for result in results:
        result.write(out)
        log_result(result, out, "rlvr-dir-demo")
    text = report(results, seconds=time.monotonic() - started)
    write_file(out / "demo.md", text)
    say("\n" + text)
    for task in TASKS:
        comparison_link(out, "rlvr-dir-demo", task=task)  # creates the view that `ui` opens
    say(f"Written to {out}/demo.md; `{ui_command(out)}` shows the runs in MLflow, side by side.")
    return results


def report(results: Sequence[EvalResult], *, seconds: float) -> str:
    """Return the demo's Markdown: one table, the paired differences below it, and the settings."""
    n, k = results[0].samples, max(1, results[0].samples // 2)
    rows = [
        [
            result.task,
            result.decoding.label(),
            f"{100 * result.avg:.1f} ± {100 * result.standard_error:.1f}",
            f"{100 * result.pass_at(k):.1f}",
            percent(result.replacement_ratio),
            percent(result.changed_ratio),
        ]
        for result in sorted(results, key=lambda result: result.task)
    ]
    head = ["benchmark", "decoding", f"Avg@{n} ± s.e.", f"Pass@{k}", "flagged", "changed"]
    lines = [markdown_table(head, rows, left=2)]
    lines += [
        "",
        "Differences of Avg, paired by problem, with 95 % intervals over problems (and for these same ones):",
        "",
    ]
    for task in sorted({r.task for r in results}):
        by_decoding = {r.decoding: r for r in results if r.task == task}
        base, rl, veto, resample, reject, control, extra = (by_decoding[d] for d in DECODINGS)
        for name, result, other in [
            ("rl − base", rl, base),
            (f"{control.decoding.label()} − rl", control, rl),
            ("resample − base (base resamples)", resample, base),
            ("reject − resample (RL decides what to drop, not base)", reject, resample),
            (f"{control.decoding.label()} − reject (RL writes the token, not base)", control, reject),
            ("reject − veto (RL decides what to drop, not the gate)", reject, veto),
            (f"{extra.decoding.label()} − its γ=0 control ({control.decoding.label()})", extra, control),
        ]:
            d = paired_difference(result.correct, other.correct)
            points = f"{100 * d.mean:+.1f} points {interval(d.low, d.high, sign=True)}"
            points += f" ({interval(*d.sampling, sign=True)})"
            lines.append(f"- {task}: {name}: {points}, p {p_value(d.p, d.at_most)}")
    engine = results[0].provenance["engine"]
    timed = results[-1].seconds  # of the one stream with all decodings; 0 if some responses were cached
    speed = f"{results[-1].n_tokens.sum() / timed:,.0f} tokens/s, " if timed else ""
    lines += [
        "",
        f"s.e. is over problems ({len(results[0].problem_ids)} of each benchmark, {n} samples each). "
        f"Engine: {engine['backend']} {engine.get(engine['backend'], '')} on {engine['device']}, {engine['dtype']}; "
        f"{speed}{seconds:.0f} s in all.",
        "",
    ]
    return "\n".join(lines)
