"""What to look at on a machine where the engine has not run yet, a GPU above all: docs/gpu.md explains each step.

    python -m harness.bench.checklist STEP PAIR-OR-SHAPE SETTINGS

is one step in a process of its own, with a line of JSON in the end; `run_checklist` runs all of them and judges. A step
that fails is a finding, not the end: the others run all the same.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from harness.bench.decode import machine
from harness.bench.worker import TEXT
from harness.errors import UserError, unknown
from harness.spec import Decoding, EngineSpec, Pair, Sampling

SHAPES = {  # hidden, layers, heads, KV heads, intermediate: of Qwen2.5
    "tiny": (256, 4, 4, 2, 768),
    "1.5b": (1536, 28, 12, 2, 8960),
    "7b": (3584, 28, 28, 4, 18944),
}
VOCAB = 151_936
CLOSE = {"float32": 1e-3, "bfloat16": 0.75}  # nats of delta log p against transformers on the same device and type
LIKELY = 1e-4  # below this p the law of the draws is called wrong
RUNNERS = {"the default runner": {}, "runner V1": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}

Found = dict[str, Any]


def run_checklist(
    *,
    shapes: Sequence[str] = ("1.5b", "7b"),
    sequences: Sequence[int] = (256, 960),
    tokens: int = 128,
    say: Callable[[str], None] = lambda text: None,
) -> Found:
    """Runs every step; each has `ok` (None where it only measures) and its figures, or `error`.

    Args:
        shapes: of the models whose speed is measured, with random weights: see SHAPES.
        sequences: decoded at once, in the measurements of speed.
        tokens: of each.
        say: is told how far the run is.

    Raises:
        UserError: a shape is not known, or vLLM is not installed.
    """
    from importlib.util import find_spec

    for shape in shapes:
        if shape not in SHAPES:
            raise unknown("shape", shape, SHAPES)
    if find_spec("vllm") is None:
        raise UserError("the checklist is about vLLM, which is not installed; install the extra [cpu] or [gpu]")
    steps: dict[str, Found] = {}

    def step(title: str, name: str, target: Any, environment: dict[str, str] | None = None, **settings: Any) -> None:
        say(title)
        steps[title] = _apart(name, target, settings, environment or {})

    with tempfile.TemporaryDirectory(prefix="rlvr-dir-checklist-") as scratch:
        from harness.bench.random_pair import random_pair

        folder = Path(scratch)
        pair = random_pair(folder / "pair", vocab=1004, hidden=256, layers=4)
        cache = {"VLLM_CACHE_ROOT": str(folder / "cache")}
        for runner, chosen in RUNNERS.items():
            for heat in ("a cold", "a warm"):
                step(f"logits, {runner}, {heat} compile cache", "logits", pair, {**cache, **chosen})
            step(f"law of the draws, {runner}", "law", pair, {**cache, **chosen})
            step(f"shuffled batches, {runner}", "shuffle", pair, {**cache, **chosen})
        step("logits in bfloat16", "logits", pair, cache, dtype="bfloat16")
        for shape in shapes:
            made = write_shape(folder / shape, shape)
            kinds = {"pair": made, "single": Pair(base=made.rl, rl=made.rl)}
            for kind, each in kinds.items():
                step(
                    f"speed of {shape}, {kind}", "speed", each, cache,
                    dtype="bfloat16", vllm_args={"load_format": "dummy"}, self_test=False, max_num_seqs=max(sequences),
                    max_model_len=1024, sequences=list(sequences), tokens=tokens,
                )  # fmt: skip
        step("decision", "decision", pair, rows=max(sequences))
    return {"steps": steps, "machine": where(), "date": date.today().isoformat()}


def where() -> str:
    """The processor and the GPU, if there is one."""
    import torch

    return machine() + (f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU")


def write_shape(folder: Path, shape: str) -> Pair:
    """Configurations and a tokenizer of VOCAB tokens, no weights: for engines that make up their own."""
    from transformers import Qwen2Config

    from harness.bench.random_pair import tokenizer

    hidden, layers, heads, kv_heads, intermediate = SHAPES[shape]
    for role in ("base", "rl"):
        place = folder / role
        tokenizer(1004).save_pretrained(place)
        file = place / "tokenizer.json"
        data = json.loads(file.read_text())
        vocab = data["model"]["vocab"]
        vocab |= {f"<unused{i}>": i for i in range(len(vocab), VOCAB - 1)}  # <|endoftext|> comes last
        file.write_text(json.dumps(data))
        config = Qwen2Config(
            vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=kv_heads, intermediate_size=intermediate, max_position_embeddings=32768,
            tie_word_embeddings=False, eos_token_id=1, bos_token_id=None, architectures=["Qwen2ForCausalLM"],
        )  # fmt: skip
        config.dtype = "bfloat16"
        config.save_pretrained(place)
    return Pair(base=str(folder / "base"), rl=str(folder / "rl"))


def _apart(name: str, pair: Pair, settings: Found, environment: dict[str, str]) -> Found:
    began = time.monotonic()
    command = [sys.executable, "-m", "harness.bench.checklist", name, pair.model_dump_json(), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    seconds = round(time.monotonic() - began, 1)
    if done.returncode:
        tail = (done.stderr.strip() or "no message").splitlines()
        return {"ok": False, "error": tail[-1][:500], "seconds": seconds}
    return {**json.loads(done.stdout.splitlines()[-1]), "seconds": seconds}


# The steps, each in its own process -------------------------------------------------------------------------------


def _open(pair: Pair, settings: Found) -> Any:
    from harness.decode import open_engine

    fields = {name: value for name, value in settings.items() if name in EngineSpec.model_fields}
    return open_engine(pair, EngineSpec(**{"backend": "vllm", "dtype": "float32", **fields}))


def _requests(count: int, decoding: Decoding, sampling: Sampling, vary: bool = True) -> list[Any]:
    from harness.decode import Request

    return [
        Request(TEXT.format(i % 30 * vary, 3 + i % 30 * vary), f"check/{i}", 0, decoding, sampling)
        for i in range(count)
    ]


def logits(pair: Pair, settings: Found) -> Found:
    """Delta log p of decoded tokens against transformers, teacher-forced; both submodels propose."""
    import torch

    from harness.decode.transformers_pair import TransformersPair

    sampling = Sampling(top_p=0.95, max_tokens=32)
    with _open(pair, settings) as engine:
        done = [r for mode in ("base", "rl") for r in engine.generate(_requests(16, Decoding(mode=mode), sampling))]
        dtype, facts = engine.dtype, engine.info()
    worst = 0.0
    with TransformersPair(pair, EngineSpec(backend="transformers", dtype=dtype)) as reference:
        for r in done:
            both = reference.logits([*r.prompt_token_ids, *r.token_ids[:-1]])
            vocab, first = reference.checkpoints.vocab_size, len(r.prompt_token_ids) - 1
            base, rl = (torch.log_softmax(x[first:, :vocab], -1).cpu() for x in both)
            chosen = torch.tensor(r.token_ids)[:, None]
            worst = max(worst, float((torch.tensor(r.delta_logp) - (rl - base).gather(1, chosen)[:, 0]).abs().max()))
    tokens = sum(r.n_tokens for r in done)
    return {"ok": worst <= CLOSE[dtype], "largest_error": worst, "tokens": tokens, "engine": facts}


def law(pair: Pair, settings: Found) -> Found:
    """6,000 one-token draws of a replacement and of an extrapolation against their closed form: chi-square."""
    from scipy import stats

    from harness.decode.plan import rule_row
    from harness.decode.transformers_pair import TransformersPair
    from harness.policy import Rule, distribution

    found: Found = {}
    count = settings.get("draws", 6000)
    sampling = Sampling(temperature=2.5, top_p=0.98, max_tokens=1)  # flat enough for many kinds of token
    rules = {
        "replace": Decoding(mode="replace", tau=-0.1),
        "extrapolate": Decoding(mode="extrapolate", tau=0.0, gamma=0.5),
    }
    with _open(pair, settings) as engine:
        draws = {
            name: [r.token_ids[0] for r in engine.generate(_requests(count, decoding, sampling, vary=False))]
            for name, decoding in rules.items()
        }
        prompt, vocab = engine.tokenizer.encode(TEXT.format(0, 3)), engine.checkpoints.vocab_size
    with TransformersPair(pair, EngineSpec(backend="transformers", dtype="float32")) as reference:
        base, rl = (x[-1:, :vocab].cpu() for x in reference.logits(prompt))
    for name, decoding in rules.items():
        expected, _ = distribution(base, rl, Rule([rule_row(decoding, sampling)]))
        expected = expected[0].double().numpy() * count
        counts = np.bincount(draws[name], minlength=vocab)
        order = np.argsort(-expected)
        cells = max(2, int((expected >= 5).sum()))  # the last one holds all that is rarer
        wanted, observed = ([*x[order][: cells - 1], x[order][cells - 1 :].sum()] for x in (expected, counts))
        p = float(stats.chisquare(observed, wanted).pvalue)
        found[name] = {"p": p, "cells": cells, "impossible": int(counts[expected == 0].sum())}
    good = all(one["p"] > LIKELY and not one["impossible"] for one in found.values())
    return {"ok": bool(good), **found}


def shuffle(pair: Pair, settings: Found) -> Found:
    """The same requests in another order, and beside others: how many give the same tokens."""
    import random

    sampling = Sampling(top_p=0.95, max_tokens=96)
    requests = _requests(192, Decoding(mode="extrapolate", tau=-0.1, gamma=0.2), sampling)
    with _open(pair, settings) as engine:
        first = {r.request.problem: r.token_ids for r in engine.generate(requests)}
        random.Random(0).shuffle(requests)
        mixed = [*requests[:96], *[replace(r, problem=f"other/{r.problem}") for r in requests[:64]], *requests[96:]]
        second = {r.request.problem: r.token_ids for r in engine.generate(mixed)}
    same = sum(second[name] == ids for name, ids in first.items())
    exact = settings.get("dtype", "float32") == "float32"
    return {"ok": same >= 0.98 * len(first) if exact else None, "same": same, "of": len(first)}


def speed(pair: Pair, settings: Found) -> Found:
    """Tokens a second, and the KV cache the engine found room for against what the shapes say."""
    with _open(pair, settings) as engine:
        sizes = {}
        for count in settings["sequences"]:
            decoding = Decoding(mode="rl") if engine.single else Decoding(mode="extrapolate", tau=-0.3, gamma=0.05)
            requests = _requests(count, decoding, Sampling(max_tokens=settings["tokens"]))
            for _ in range(2):  # the first time graphs and kernels are made
                began = time.perf_counter()
                written = sum(r.n_tokens for r in engine.generate(requests))
                spent = time.perf_counter() - began
            sizes[count] = {
                "tokens": written,
                "seconds": round(spent, 3),
                "tokens_per_second": round(written / spent, 1),
            }
        config, models = engine.checkpoints.config, 1 if engine.single else 2
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        token = (
            models
            * config.num_hidden_layers
            * 2
            * config.num_key_value_heads
            * head
            * (2 if engine.dtype != "float32" else 4)
        )
        cache = engine._engine.vllm_config.cache_config
        blocks = cache.num_gpu_blocks or 0
    return {
        "ok": None, "sizes": sizes, "kv_bytes_a_token": token, "kv_tokens": blocks * cache.block_size,
        "kv_gib": round(blocks * cache.block_size * token / 2**30, 2),
    }  # fmt: skip


def decision(pair: Pair, settings: Found) -> Found:
    """Milliseconds of Algorithm 1 for a whole batch at VOCAB columns, peaked logits, on the device itself."""
    import torch

    from harness.policy import Noise, Rule, RuleRow, decide

    device, rows = (
        ("cuda" if torch.cuda.is_available() else "cpu"),
        settings["rows"] if torch.cuda.is_available() else 8,
    )
    base = 6.0 * torch.randn(rows, VOCAB, device=device)
    rl = base + 0.1 * torch.randn(rows, VOCAB, device=device)
    rule = Rule([RuleRow(gate="delta_logp", tau=-0.05, gamma=0.05, top_p=0.7)] * rows, device)
    keys = torch.arange(rows, device=device)
    times = []
    for number in range(12):
        noise = Noise.at(keys, keys + number)
        _wait(device)
        began = time.perf_counter()
        decide(base, rl, rule, noise)
        _wait(device)
        times.append(time.perf_counter() - began)
    return {"ok": None, "rows": rows, "ms_a_batch": round(1000 * float(np.median(times[2:])), 3), "device": device}


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


STEPS: dict[str, Callable[[Pair, Found], Found]] = {
    "logits": logits, "law": law, "shuffle": shuffle, "speed": speed, "decision": decision,
}  # fmt: skip


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")  # engines print to standard output
    os.dup2(2, 1)
    outcome = STEPS[sys.argv[1]](Pair.model_validate_json(sys.argv[2]), json.loads(sys.argv[3]))
    print(json.dumps(outcome), file=answers, flush=True)
