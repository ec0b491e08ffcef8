"""The start-up self-test: refuses to run when a submodel's logits are wrong.

Two mistakes would otherwise give plausible wrong numbers: a submodel that runs the other one's compiled code on the
other one's KV cache, and weights that landed in the wrong place. Both are looked for through the public path, by
decoding a few greedy tokens:

- against transformers, teacher-forced on the same tokens, where the checkpoints are small enough to load twice;
- against the engine itself, always: tokens decoded one by one must have the same facts as when the first of them are
  given in the prompt (one by one reads the KV cache, the prompt is computed at once).
"""

from typing import TYPE_CHECKING

import numpy as np

from harness.decode.types import Request, Rollout
from harness.errors import UserError
from harness.spec import Decoding, Sampling

if TYPE_CHECKING:
    from harness.decode.vllm_pair.engine import VllmPair

TOKENS = 6
TOLERANCE = {"float32": 0.01, "bfloat16": 0.75, "float16": 0.2}  # nats of delta log p

_GREEDY = Sampling(temperature=1.0, top_p=1e-6, max_tokens=TOKENS)
_TEXT = "1 + 1 = 2, 2 + 2 ="


def self_test(engine: "VllmPair") -> str:
    """Runs the test; gives what it compared with: `transformers` or `engine`.

    Raises:
        UserError: a submodel's logits are wrong.
    """
    prompt = tuple(engine.tokenizer.encode(_TEXT))[: max(1, engine.max_model_len - TOKENS - 1)]
    runs = {mode: _decode(engine, prompt, mode) for mode in ("base", "rl")}
    tolerance = TOLERANCE.get(engine.dtype, 0.75)
    for mode, run in runs.items():
        half = run.n_tokens // 2
        if not half:
            continue
        again = _decode(engine, prompt + run.token_ids[:half], mode)
        _compare(mode, run, half, again.token_ids, again.delta_logp, tolerance, "the same tokens given as a prompt")
    if not engine.checkpoints.small:
        return "engine"
    _against_transformers(engine, prompt, runs, tolerance)
    return "transformers"


def _decode(engine: "VllmPair", prompt: tuple[int, ...], mode: str) -> Rollout:
    request = Request("", "self-test", decoding=Decoding(mode=mode), sampling=_GREEDY, prompt_token_ids=prompt)
    return next(iter(engine.generate([request])))


def _against_transformers(
    engine: "VllmPair", prompt: tuple[int, ...], runs: dict[str, Rollout], tolerance: float
) -> None:
    import torch

    from harness.decode.transformers_pair import TransformersPair
    from harness.spec import EngineSpec

    vocab = engine.checkpoints.vocab_size
    with TransformersPair(engine.pair, EngineSpec(dtype=engine.dtype, device="cpu")) as reference:
        for mode, run in runs.items():
            logits = reference.logits([*prompt, *run.token_ids[:-1]])
            base, rl = (torch.log_softmax(x[len(prompt) - 1 :, :vocab], -1) for x in logits)
            own = base if mode == "base" else rl
            chosen = torch.tensor(run.token_ids)[:, None]
            # the engine's token may differ from the reference's only where the two are as good as tied
            lead = (own.max(-1).values - own.gather(1, chosen)[:, 0]).numpy()
            delta = (rl - base).gather(1, chosen)[:, 0].numpy()
            error = max(float(np.abs(run.delta_logp - delta).max()), float(lead.max()))
            if not error <= tolerance:
                raise _wrong(mode, error, tolerance, "transformers on the same checkpoints")


def _compare(
    mode: str,
    run: Rollout,
    skip: int,
    token_ids: tuple[int, ...],
    delta_logp: np.ndarray,
    tolerance: float,
    reference: str,
) -> None:
    """The facts of `run` after its first `skip` tokens, as far as both chose the same tokens, against a reference."""
    for ours, theirs, one, other in zip(
        run.token_ids[skip:], token_ids, run.delta_logp[skip:], delta_logp, strict=False
    ):
        if ours != theirs:  # a near tie; the facts of what follows cannot be compared
            return
        if not abs(one - other) <= tolerance:
            raise _wrong(mode, abs(float(one - other)), tolerance, reference)


def _wrong(mode: str, error: float, tolerance: float, reference: str) -> UserError:
    return UserError(
        f"self-test: the {mode} submodel's log-probabilities are off by {error:.3g} nats against {reference} "
        f"(accepted: {tolerance}); vLLM's compile cache may hold another model's code: clear it, or try "
        "enforce_eager=True; self_test=False runs all the same, at your own risk"
    )
