"""The per-token channel: (replaced, changed, delta log p) as the one finite logit of a forced row.

The processor leaves exactly one finite logit a row, on the chosen token; vLLM samples it greedily and returns it
untouched as the token's "log-probability" (`logprobs_mode="processed_logits"`). It therefore survives preemption,
chunking, tensor parallelism and process boundaries like the token itself.

    logit = 64 (1 + replaced + changed) + clamp(delta log p, -30, 30)

Three bands that cannot overlap, all below 256, where float32 resolves 1.5e-5: the error in delta log p is at most
half of that.
"""

import numpy as np
import torch

from harness.decode.plan import DELTA_LIMIT

BAND = 64.0


def encode(replaced: torch.Tensor, changed: torch.Tensor, delta_logp: torch.Tensor) -> torch.Tensor:
    """Facts of n tokens -> n logits; (n,) bool, (n,) bool, (n,) float -> (n,) float32.

    A token is `changed` only where it is `replaced`.
    """
    band = 1.0 + replaced.float() + changed.float()
    return BAND * band + delta_logp.float().clamp(-DELTA_LIMIT, DELTA_LIMIT)


def decode(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The inverse of `encode`: (n,) floats -> replaced (n,) bool, changed (n,) bool, delta log p (n,) float32.

    Raises:
        ValueError: a number lies in no band, so it was not written by `encode`.
    """
    logits = np.asarray(logits, dtype=np.float64)
    band = np.rint(np.where(np.isfinite(logits), logits, 0.0) / BAND)
    delta = logits - BAND * band
    if not (np.isin(band, (1, 2, 3)) & (np.abs(delta) <= DELTA_LIMIT + 1e-3)).all():
        raise ValueError(
            "a token came back without the facts of its decision: its logit lies in no band of the channel"
        )
    return band >= 2, band >= 3, delta.astype(np.float32)
