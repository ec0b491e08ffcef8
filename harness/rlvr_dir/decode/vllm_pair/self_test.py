"""Test at start-up that both submodels compute the right logits, and refuse to run otherwise.

The test uses text that base draws at T = 1. On text that RL would write both models agree, so a test there would miss
one submodel in place of the other. Every mistake below would otherwise produce plausible wrong numbers.

- **Three routes through the engine** to the same positions must yield the same log-probabilities. They are token by
  token, as the text was drawn; in steps that admit a request while others decode; and all at once, with every position
  at the end of its own prompt. Under CUDA graphs they run three kinds of code (whole graphs, piecewise graphs, none).
  Two submodels that write into each other's memory or KV cache differ on some route.
- **The submodels are themselves.** Their weights are those of their own checkpoint's files and not of another's, and
  their logits are not flat. If the files of base and RL differ, so do their hidden states and logits.
- **transformers** must yield the same on the same text. This is compared if the checkpoints are small, or if
  `self_test=full`.

If the pair's change is applied to a third model, "base" and "rl" are the two policies that represent them
(`rlvr_dir.policy.combine.Carried`), and the weights of all three submodels are checked.
"""

import gc
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations
from typing import Any
from zlib import crc32

import numpy as np
import torch

from rlvr_dir.checkpoints.weights import corners, tensors_of
from rlvr_dir.config import Decoding, EngineSpec, Sampling
from rlvr_dir.decode.engine import Engine
from rlvr_dir.decode.lock_step import as_known
from rlvr_dir.decode.progress import Progress
from rlvr_dir.decode.types import BrokenLogits, Request, Rollout
from rlvr_dir.errors import UserError
from rlvr_dir.policy.combine import combination_of

PROMPTS = ("1 + 1 = 2, 2 + 2 =", "Find all real x such that", "The capital of", "def f(n):")
TEXTS, TOKENS, PIECE = 16, 16, 8  # number of texts, of tokens in each, and of tokens decoded after a prompt
# Nats, root mean square over the text, by which log-probabilities and entropies may differ between two routes or from
# transformers: at most LIMIT, and at most the sum of FLOOR and five times the other submodel's difference.
LIMIT = {"float32": 0.01, "bfloat16": 0.2, "float16": 0.05}
FLOOR = {"float32": 0.001, "bfloat16": 0.02, "float16": 0.005}
FLAT = 1e-4  # nats from the entropy of a uniform distribution
STRANGERS = 5.0  # nats: the mean KL, in either direction, between a language model and noise
SAMPLED = 64  # how many of the tensors that differ between two checkpoints are checked
HEAD = "lm_head.weight"
_ADVICE = (
    "vLLM's compile cache may contain the code of another model. Clear it, or try `enforce_eager=True`. "
    "`self_test=False` skips this check, at your own risk."
)
FACTS = {"base": ("logp_base", "entropy_base"), "rl": ("logp_rl", "entropy_rl")}


class TestedPair(Engine):
    """Represent an engine that the test can use: it can query a worker, and compute prompts again."""

    @abstractmethod
    def ask_worker(self, method: str, *args: Any) -> Any:
        """Return the result of a method of `PairWorker` in the first of the workers."""

    @abstractmethod
    def forget_prompts(self) -> None:
        """Empty the prefix cache, so that prompts are computed again."""


def self_test(engine: TestedPair, full: bool = False) -> str:
    """Run the test; return what the logits were compared with: `transformers` or `engine`.

    Args:
        engine: An engine that has been started.
        full: Whether to compare with transformers at any size, on a GPU that has room, one model after the other.

    Raises:
        UserError: A submodel's logits are wrong.
    """
    distinct = _distinct(engine)
    try:
        texts = _watch(engine, "token by token", distinct, _draw)
        joined = _watch(engine, "in steps that admit requests", distinct, _joined, texts)
        at_once = _watch(engine, "where all is read at once", distinct, _at_once, texts)
    except BrokenLogits as error:
        raise UserError(f"self-test: {error}", argument="self_test") from None
    _check_each(engine, texts, distinct)
    _compare_routes(engine, texts, joined, "in steps that admit requests")
    _compare_routes(engine, texts, at_once, "where all is read at once")
    here = "load_format" not in engine.spec.vllm_args  # otherwise the checkpoint's folder may have no weights
    if not (full or (engine.checkpoints.small and here)):
        return "engine"
    _compare_with_transformers(engine, texts, full)
    return "transformers"


# The routes --------------------------------------------------------------------------------------------------------


def _watch(
    engine: TestedPair, route: str, distinct: bool, decode: Callable[..., Iterable[Rollout]], *args: Any
) -> list[Rollout]:
    """Return the rollouts of `decode`, while the worker compares the hidden states of the two submodels.

    Raises:
        UserError: They are the same in most rows, although the checkpoints are `distinct`.
    """
    if not distinct:
        return list(decode(engine, *args))
    engine.ask_worker("rlvr_watch")
    done = list(decode(engine, *args))
    rows, same = engine.ask_worker("rlvr_watched")
    if 2 * same > rows:
        raise _failed(
            f"both submodels have the same hidden states {route} ({same} of {rows} rows), although their weights "
            "differ. One has run in the other's place or memory"
        )
    return done


def _draw(engine: TestedPair) -> list[Rollout]:
    """Draw the texts from base token by token. No request joins after the first step."""
    room = engine.max_model_len
    prompts = [tuple(engine.tokenizer.encode(text))[: max(1, room // 2)] for text in PROMPTS]
    tokens = min(TOKENS, room - max(map(len, prompts)))
    requests = [_request(i, prompts[i % len(prompts)], tokens) for i in range(TEXTS)]
    size = min(TEXTS, engine.spec.max_num_seqs)
    drawn = []
    for start in range(0, TEXTS, size):
        drawn += engine.generate(requests[start : start + size])
    return drawn


def _joined(engine: TestedPair, texts: Sequence[Rollout]) -> Iterable[Rollout]:
    """Decode the same tokens in pieces. Each follows a prompt that ends where it begins, and is admitted separately."""
    engine.forget_prompts()
    requests = [
        _continued(text, start, min(PIECE, text.n_tokens - start))
        for text in texts
        for start in range(0, text.n_tokens, PIECE)
    ]
    return engine.serve(_OneByOne(requests), Progress(0, False))


def _at_once(engine: TestedPair, texts: Sequence[Rollout]) -> Iterable[Rollout]:
    """Decode every second position, each at the end of its own prompt."""
    engine.forget_prompts()
    return engine.generate([_continued(text, start, 1) for text in texts for start in range(0, text.n_tokens, 2)])


def _request(i: int, prompt: tuple[int, ...], tokens: int) -> Request:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=tokens)
    return Request("", "self-test", i, Decoding(mode="base"), sampling, prompt_token_ids=prompt, trace=0)


def _continued(text: Rollout, start: int, tokens: int) -> Request:
    """Return a request for the same text from token `start` on, with the same noise."""
    return _request(text.request.sample, text.prompt_token_ids + text.token_ids[:start], tokens)


class _OneByOne:
    """Implement an iterator that appears to end after every request, so that the engine runs a step in between."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests, self._pause = iter(requests), False

    def __iter__(self) -> Iterator[Request]:
        return self

    def __next__(self) -> Request:
        self._pause = not self._pause
        if not self._pause:
            raise StopIteration
        return next(self._requests)


def _compare_routes(engine: TestedPair, texts: Sequence[Rollout], redrawn: Iterable[Rollout], route: str) -> None:
    """Compare the values of the texts' tokens with those from another route, as far as it draws the same tokens.

    Raises:
        UserError: A submodel differs, or has become the other one.
    """
    drawn = {text.request.sample: text for text in texts}
    log_ratio: list[np.ndarray] = []
    errors: dict[str, list[np.ndarray]] = {role: [] for role in _roles(engine)}
    for other in redrawn:
        text = drawn[other.request.sample]
        start = len(other.prompt_token_ids) - len(text.prompt_token_ids)
        pairs = zip(other.token_ids, text.token_ids[start:], strict=False)
        same = [first == second for first, second in pairs]
        common = (same.index(False) + 1) if False in same else len(same)  # after a different token the text differs
        part = slice(start, start + common)
        for role, parts in errors.items():
            now = _facts(other, role)[:common]
            if False in same:
                now[-1, 0] = np.nan  # log p of a different token; only entropies are compared
            parts.append(now - _facts(text, role)[part])
        log_ratio.append(_log_ratio(text)[part])
    stacked = {role: np.concatenate(parts) for role, parts in errors.items()}
    _judge(engine, stacked, np.concatenate(log_ratio), f"against its own, {route}")


def _facts(rollout: Rollout, role: str) -> np.ndarray:
    """Return log p of each proposed token under one model, and the model's entropy there: (tokens, 2) float64."""
    return np.stack([_fact(rollout, name) for name in FACTS[role]], axis=1).astype(np.float64)


def _fact(rollout: Rollout, name: str) -> np.ndarray:
    assert rollout.trace is not None
    return rollout.trace.fact(name)


def _log_ratio(rollout: Rollout) -> np.ndarray:
    """Return log p of each proposed token under RL minus that under base: (tokens,) float64."""
    return _facts(rollout, "rl")[:, 0] - _facts(rollout, "base")[:, 0]


def _judge(engine: TestedPair, errors: dict[str, np.ndarray], apart: np.ndarray, against: str) -> None:
    """Refuse submodels whose values differ by more than rounding.

    Rounding depends on the models, but it is similar for the two of a pair. So the error of one submodel determines how
    large the other's may be, below a limit for both.

    Args:
        engine: Used for its dtype.
        errors: For each submodel, (positions, 2) differences of log p and of entropy; NaN where there is none.
        apart: (positions,) log p under RL minus log p under base.
        against: What they were compared with.

    Raises:
        UserError: An error is too large, or points from one submodel to the other.
    """
    size = {role: float(np.sqrt(np.nanmean(error**2))) for role, error in errors.items()}
    for role, error in errors.items():
        if not np.isfinite(error[:, 1]).all():
            raise _wrong(role, f"are not finite {against}")
        other = "rl" if role == "base" else "base"
        finite = np.isfinite(error[:, 0])
        towards = apart[finite] if role == "base" else -apart[finite]
        if squared := float(towards @ towards):
            moved = float(error[finite, 0] @ towards) / squared  # 1 if log p has become the other model's
            noise = float(np.sqrt(np.mean((error[finite, 0] - moved * towards) ** 2) / squared))
            if moved > max(0.5, 6 * noise):
                raise _wrong(role, f"are {other}'s ({moved:.0%} of the way from its own) {against}")
        most = LIMIT.get(engine.dtype, LIMIT["bfloat16"])
        if other in size:
            most = min(most, FLOOR.get(engine.dtype, FLOOR["bfloat16"]) + 5 * size[other])
        if size[role] > most:
            raise _wrong(
                role, f"are off by {size[role]:.3g} nats {against} (root mean square; at most {most:.3g} is allowed)"
            )


def _wrong(role: str, fault: str) -> UserError:
    return _failed(f"the {role} submodel's log-probabilities {fault}")


def _failed(fault: str) -> UserError:
    return UserError(f"self-test: {fault}", argument="self_test", hint=_ADVICE)


def _roles(engine: TestedPair) -> tuple[str, ...]:
    return engine.roles[:2]


# Each submodel by itself -------------------------------------------------------------------------------------------


def _check_each(engine: TestedPair, texts: Sequence[Rollout], distinct: bool) -> None:
    """Check that both submodels are language models, and that they differ if the checkpoints are `distinct`.

    Raises:
        UserError: They are not, or do not.
    """
    uniform = float(np.log(engine.checkpoints.vocab_size))
    facts = {role: np.concatenate([_facts(text, role) for text in texts]) for role in FACTS}
    for role in _roles(engine):
        if not np.isfinite(facts[role]).all() or uniform - facts[role][:, 1].mean() < FLAT:
            raise _wrong(role, "are those of a model without an output layer: every token is as likely as any other")
    kl = [np.concatenate([_fact(text, name) for text in texts]).mean() for name in ("kl_rl_base", "kl_base_rl")]
    if min(kl) > STRANGERS:
        raise _wrong(
            "rl", f"have nothing in common with base's: {min(kl):.1f} nats of KL, at most {STRANGERS:.0f} are allowed"
        )
    if distinct and max(np.abs(_log_ratio(text)).max() for text in texts) < 1e-6:
        raise _wrong("rl", "are base's on every token, although the two checkpoints differ")


def _distinct(engine: TestedPair) -> bool:
    """Return whether the checkpoints are known to differ before the output layer; check the weights of the submodels.

    It reads the first numbers of tensors from local safetensors files (a directory, or the hub's cache).

    Raises:
        UserError: A submodel contains another checkpoint's numbers.
    """
    pair = engine.loaded
    if pair.single:
        return False
    files = {role: tensors_of(*model) for role, model in pair.models.items()}
    names = sorted(
        set.intersection(*(set(weights) for weights in files.values())), key=lambda name: crc32(name.encode())
    )
    numbers: dict[str, dict[str, list[float]]] = {}
    dtype = getattr(torch, engine.dtype)
    for name, *corner_pair in zip(names, *(corners(weights, names) for weights in files.values()), strict=True):
        own = {
            role: tensor.to(dtype).float().flatten().tolist()
            for role, (_, tensor) in zip(files, corner_pair, strict=True)
        }
        if own["base"] != own["rl"]:
            numbers[name] = own
        if len(numbers) == SAMPLED:
            break
    in_worker = engine.ask_worker("rlvr_corners", [f"{role}.{name}" for name in numbers for role in files])
    for name, own in numbers.items():
        for role, other in permutations(files, 2):
            if own[role] != own[other] and in_worker.get(f"{role}.{name}") == own[other]:
                raise _failed(f"the {role} submodel holds {other}'s {name} and not its own")
    return bool(numbers.keys() - {HEAD})


# transformers ------------------------------------------------------------------------------------------------------


def _compare_with_transformers(engine: TestedPair, texts: Sequence[Rollout], full: bool) -> None:
    """Compare the values with those that transformers computes for the same checkpoints, with one in memory at a time.

    Raises:
        UserError: They differ.
    """
    from rlvr_dir.decode.transformers_pair import TransformersPair

    device = _device(engine) if full else "cpu"
    reference = TransformersPair(engine.loaded, EngineSpec().replace(dtype=engine.dtype, device=device))
    logits: dict[str, list[torch.Tensor]] = {}
    for role in engine.roles:
        model: Any = reference.load_model(role)
        logits[role] = [_reference_logits(engine, model, text, role) for text in texts]
        del model
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    by_text = zip(*logits.values(), strict=True)
    policies = [combination_of(logits).policies(dict(zip(logits, pair_logits, strict=True))) for pair_logits in by_text]
    both: dict[str, Any] = dict(zip(("base", "rl"), zip(*policies, strict=True), strict=True))
    expected = {
        role: np.concatenate([_facts_of(*facts) for facts in zip(both[role], texts, strict=True)])
        for role in _roles(engine)
    }
    apart = expected["rl"][:, 0] - expected.get("base", expected["rl"])[:, 0]
    errors = {role: np.concatenate([_facts(text, role) for text in texts]) - facts for role, facts in expected.items()}
    _judge(engine, errors, apart, "against transformers on the same checkpoint")


@torch.inference_mode()
def _reference_logits(engine: TestedPair, model: Any, text: Rollout, role: str) -> torch.Tensor:
    """Return the logits of a text's tokens from transformers, which reads it at once: (tokens, vocab) float32."""
    ids = torch.tensor([*text.prompt_token_ids, *text.token_ids], device=model.device)
    known_ids = as_known(engine.checkpoints, role, ids[None, :-1])
    logits = model(known_ids).logits[0, len(text.prompt_token_ids) - 1 :, : engine.checkpoints.shared]
    return logits.float().cpu()


def _facts_of(logits: torch.Tensor, text: Rollout) -> np.ndarray:
    """Return `_facts` computed from `logits`. The text was proposed by base and not changed."""
    logp = torch.log_softmax(logits, -1)
    own = logp.gather(1, torch.tensor(text.token_ids)[:, None])[:, 0]
    return torch.stack([own, -(logp.exp() * logp).sum(-1)], dim=1).double().numpy()


def _device(engine: TestedPair) -> str:
    """Return a GPU with room for twice a model's files, in addition to vLLM's memory; otherwise the CPU."""
    if not torch.cuda.is_available():
        return "cpu"
    stored = tensors_of(engine.loaded.base, engine.loaded.base_revision)
    size = sum(file.stat().st_size for file in {tensor.file for tensor in stored.values()})
    return "cuda" if size and torch.cuda.mem_get_info()[0] > 2 * size else "cpu"
