"""Pretrain the tiny base: one run from scratch, Muon for the matrices and AdamW for the rest, one thread."""

import math
import time
from random import Random
from typing import Any

import torch
from pydantic import Field
from torch.nn import functional as F
from torch.optim import _muon
from transformers import Qwen2Config, Qwen2ForCausalLM

from examples.tiny import corpus
from examples.tiny.tokenizer import CONTEXT
from rlvr_dir.config import Spec
from rlvr_dir.tiny import vocabulary as v
from rlvr_dir.train.run import OnProgress

# Without AVX-512 bfloat16 is emulated: forward and backward take ten times as long as in float32, Muon's step twenty.
NARROW = torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def orthogonal(grad: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> torch.Tensor:
    """Make the rows or columns of a gradient orthogonal, roughly, as `torch.optim.Muon` does, but in its own precision.

    Newton and Schulz's iteration on X / ‖X‖: X ← aX + (bG + cG²)X, G = XXᵀ, which takes singular values towards 1.
    """
    a, b, c = coefficients
    tall = grad.size(0) > grad.size(1)
    x = grad.T if tall else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class PretrainSettings(Spec, frozen=True):
    """Set how the base is trained. The defaults made the shipped weights."""

    tokens: int = Field(default=3_000_000, ge=1)
    batch: int = Field(default=32, ge=1)
    muon_lr: float = Field(default=3e-3, gt=0)  # 1e-2 is quicker at first and worse at finding clauses
    adamw_lr: float = Field(default=3e-3, gt=0)
    warmup_steps: int = Field(default=100, ge=0)
    decay_from: float = Field(default=0.6, ge=0, le=1)  # share of the tokens after which the rate falls linearly
    final_share: float = Field(default=0.03, ge=0)  # of the learning rate
    clip: float = Field(default=1.0, gt=0)
    max_steps: int | None = None  # stop early, for tests
    heads: int = Field(default=2, ge=1)
    kv_heads: int = Field(default=1, ge=1)
    head_dim: int = Field(default=64, ge=8)  # 64 is a size of every vLLM attention backend
    layers: int = Field(default=3, ge=1)
    fillers: bool = True  # lines begin and end with one of several words that mean nothing; otherwise always the same


def new_model(settings: PretrainSettings, seed: int) -> Qwen2ForCausalLM:
    """Make an untrained model with weights drawn from `seed`: matrices as 0.7 / sqrt(inputs), the embedding as 0.02."""
    config = Qwen2Config(
        vocab_size=len(v.VOCABULARY),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        head_dim=settings.head_dim,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        pad_token_id=v.ID[v.PAD],
        bos_token_id=v.ID[v.BOS],
        eos_token_id=v.ID[v.EOS],
        dtype="float32",
    )
    model = Qwen2ForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                std = 0.02 if "embed" in name else 0.7 / math.sqrt(weight.shape[1])
                weight.normal_(0.0, std, generator=generator)
            elif name.endswith("bias"):
                weight.zero_()
    return model


def optimizers(model: Qwen2ForCausalLM, settings: PretrainSettings) -> list[torch.optim.Optimizer]:
    """Make Muon for the matrices between layers, and AdamW for embedding, norms and biases, which are not linear
    maps."""
    matrices = [weight for name, weight in model.named_parameters() if weight.dim() == 2 and "embed" not in name]
    embedding = [weight for name, weight in model.named_parameters() if "embed" in name]
    vectors = [weight for weight in model.parameters() if weight.dim() != 2]
    muon = torch.optim.Muon(
        matrices, lr=settings.muon_lr, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    groups = [{"params": embedding, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=settings.adamw_lr, betas=(0.9, 0.98), fused=True)
    return [muon, adamw]


def pad(documents: list[corpus.Document]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad documents on the right: -> token ids (batch, length) int64, and which are the response's (batch, length)
    bool."""
    length = max(len(prompt) + len(response) for prompt, response in documents)
    tokens = torch.full((len(documents), length), v.ID[v.PAD])
    learned = torch.zeros(len(documents), length, dtype=torch.bool)
    for row, (prompt, response) in enumerate(documents):
        end = len(prompt) + len(response)
        tokens[row, :end] = torch.tensor(prompt + response)
        learned[row, len(prompt) : end] = True
    return tokens, learned


def response_loss(
    model: Qwen2ForCausalLM, tokens: torch.Tensor, learned: torch.Tensor, *, narrow: bool = NARROW
) -> torch.Tensor:
    """Return the mean cross entropy in nats over the response tokens. Causality masks the padding on the right.

    With `narrow`, products are in bfloat16, by default if that is not slower.
    """
    with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        hidden = model.model(tokens[:, :-1], use_cache=False).last_hidden_state  # (batch, length - 1, hidden)
        logits = model.lm_head(hidden[learned[:, 1:]])  # (response tokens, vocabulary)
    return F.cross_entropy(logits.float(), tokens[:, 1:][learned[:, 1:]])


def pretrain(
    settings: PretrainSettings | None = None, *, seed: int = 0, progress: OnProgress | None = None
) -> tuple[Qwen2ForCausalLM, dict[str, Any]]:
    """Train a base from scratch; return it and facts about the run: steps, tokens, seconds, mean of the last losses."""
    settings = settings or PretrainSettings()
    torch.manual_seed(seed)
    model = new_model(settings, seed)
    model.train()
    if not NARROW:
        _muon._zeropower_via_newtonschulz = orthogonal
    both = optimizers(model, settings)
    rates = (settings.muon_lr, settings.adamw_lr)
    seen = step = 0
    losses: list[float] = []
    started = time.perf_counter()

    def read() -> float:
        return seen / settings.tokens

    fillers = corpus.VARIED if settings.fillers else corpus.PLAIN
    for documents in corpus.batches(Random(f"corpus {seed}"), read, settings.batch, fillers=fillers):
        done = read()
        share = min(1.0, (step + 1) / max(1, settings.warmup_steps))
        if done > settings.decay_from:
            share *= max(settings.final_share, (1 - done) / (1 - settings.decay_from))
        for optimizer, rate in zip(both, rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * share
            optimizer.zero_grad(set_to_none=True)
        tokens, learned = pad(documents)
        loss = response_loss(model, tokens, learned)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        for optimizer in both:
            optimizer.step()
        seen += int((tokens != v.ID[v.PAD]).sum())
        step += 1
        losses.append(loss.item())
        if progress and step % 10 == 0:
            progress(min(1.0, seen / settings.tokens), f"loss {sum(losses[-50:]) / len(losses[-50:]):.3f}")
        if seen >= settings.tokens or step == settings.max_steps:
            break
    last = losses[-50:]
    if progress:
        progress(1.0, f"loss {sum(last) / len(last):.3f}")
    return model.eval(), {
        "steps": step,
        "tokens": seen,
        "seconds": time.perf_counter() - started,
        "loss": sum(last) / len(last),
    }
