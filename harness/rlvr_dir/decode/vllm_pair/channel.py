"""The per-token channel: (replaced, changed, delta log p) as the one finite logit of a forced row.

The processor leaves exactly one finite logit a row, on the chosen token; vLLM samples it greedily and returns it
untouched as the token's "log-probability" (`logprobs_mode="processed_logits"`). It therefore survives preemption,
chunking, tensor parallelism and process boundaries like the token itself.

    logit = 64 (1 + replaced + changed) + clamp(delta log p, -30, 30)

Three bands that cannot overlap, all below 256, where float32 resolves 1.5e-5: the error in delta log p is at most
half of that. Where a model's logits are no distribution, delta log p is NaN and the logit is 256: a number too, so
that vLLM emits the token like any other, which is then one that ends the response, and the host is told with it. No
step waits for that.

A traced token has its statistics on other ids of the row, in order and past the chosen one, as finite logits below its
band (ranks and ids negated, the others at most 30); asked for as many log-probabilities, vLLM returns exactly these.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import torch

from rlvr_dir.decode.plan import DELTA_LIMIT
from rlvr_dir.errors import UserError
from rlvr_dir.policy.trace import FACTS, TOP_FACTS

BAND = 64.0
NO_NUMBER = 4 * BAND  # where delta log p is NaN
NO_FACT = -(2.0**26)  # the same, for a statistic: below all others
_ERROR = 1e-3
_NO_BAND = "a token came back without the facts of its decision: its logit lies in no band of the channel"


def encode(replaced: torch.Tensor, changed: torch.Tensor, delta_logp: torch.Tensor) -> torch.Tensor:
    """Write the facts of n tokens as n logits: (n,) bool, (n,) bool, (n,) float -> (n,) float32.

    A token is `changed` only where it is `replaced`.
    """
    band = 1.0 + replaced.float() + changed.float()
    number = BAND * band + delta_logp.float().clamp(-DELTA_LIMIT, DELTA_LIMIT)
    return number.where(~delta_logp.isnan(), NO_NUMBER)


def decode(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Undo `encode`: (n,) floats -> replaced (n,) bool, changed (n,) bool, delta log p (n,) float32.

    Where delta log p is NaN the token was neither.

    Raises:
        ValueError: a number lies in no band, so it was not written by `encode`.
    """
    logits = np.asarray(logits, dtype=np.float64)
    band = np.rint(np.where(np.isfinite(logits), logits, 0.0) / BAND)
    delta = logits - BAND * band
    broken = logits == NO_NUMBER
    if not (broken | np.isin(band, (1, 2, 3)) & (np.abs(delta) <= DELTA_LIMIT + _ERROR)).all():
        raise ValueError(_NO_BAND)
    return (band >= 2) & ~broken, (band >= 3) & ~broken, np.where(broken, np.nan, delta).astype(np.float32)


def first_broken(logits: Iterable[float]) -> int | None:
    """Return the first place where delta log p is NaN, None where it is a number everywhere; few tokens, quickly.

    Raises:
        ValueError: as `decode`.
    """
    for at, logit in enumerate(logits):
        if logit == NO_NUMBER:
            return at
        band = round(logit / BAND) if math.isfinite(logit) else 0
        if not (1 <= band <= 3 and abs(logit - BAND * band) <= DELTA_LIMIT + _ERROR):
            raise ValueError(_NO_BAND)
    return None


def slots(chosen: torch.Tensor, width: int) -> torch.Tensor:
    """Return the ids of `width` statistics beside each chosen token: (n,) -> (n, width), 0, 1, ... without it."""
    ids = torch.arange(width, device=chosen.device).expand(len(chosen), width)
    return ids + (ids >= chosen[:, None]).long()


def signs(width: int) -> np.ndarray:
    """Return what each statistic is multiplied with to stay below the bands: (width,) float32."""
    top = (width - len(FACTS)) // len(TOP_FACTS)
    counts = {"rank_base", "rank_rl", "proposed", "base_id", "rl_id"}
    return np.array([-1.0 if name in counts else 1.0 for name in (*FACTS, *TOP_FACTS * top)], dtype=np.float32)


def encode_trace(table: torch.Tensor) -> torch.Tensor:
    """Write the statistics of n tokens as logits for their `slots`: (n, width) -> as many float32; NaN as NO_FACT."""
    numbers = table.float() * _signs_on(table.device, table.shape[1])
    return numbers.masked_fill_(numbers.isnan(), NO_FACT)


@lru_cache
def _signs_on(device: torch.device, width: int) -> torch.Tensor:
    return torch.from_numpy(signs(width)).to(device)  # once: a copy in every step would wait for the device


def decode_trace(
    chosen: Sequence[int], returned: Sequence[tuple[Sequence[int], Sequence[float]]], width: int
) -> np.ndarray:
    """Undo `encode_trace` for a whole response.

    Args:
        chosen: (tokens,) the tokens that were forced.
        returned: for each of them the ids and logits that vLLM gave back.
        width: statistics a token.

    Returns:
        (tokens, width) float32; NaN where it was NaN.

    Raises:
        UserError: vLLM's nucleus of another request cut statistics off: it is applied to all rows, and in float32 those
            have no probability beside the forced token.
        ValueError: a statistic is missing, or something came back that is none.
    """
    table = np.full((len(chosen), width), np.nan, dtype=np.float32)
    for row, token, (ids, logits) in zip(table, chosen, returned, strict=True):
        for id_, value in zip(ids, logits, strict=True):
            if id_ != token:
                slot = id_ - (id_ > token)
                if value == -math.inf:
                    raise UserError(
                        "trace is refused beside a plain request of vLLM's with top_p, top_k or another cut, which is "
                        "made in every row; accepted: plain requests with top_p=1, or none"
                    )
                if not 0 <= slot < width or not math.isfinite(value):
                    raise ValueError(f"token {id_} came back with {value}, which is none of its statistics")
                row[slot] = value
    if np.isnan(table).any():
        raise ValueError("a traced token came back without all of its statistics")
    return np.where(table == NO_FACT, np.nan, table * signs(width))
