"""The decision of one step: both models' logits in, one forced token a row out.

On a GPU with Triton it is the fused kernel of `harness.policy.fused`, elsewhere torch's `decide`, its reference. The
environment variable RLVR_DIR_DECISION says otherwise: `torch`, or `triton` (on a CPU in Triton's interpreter only).
"""

import logging
import os
from dataclasses import replace
from functools import cache

import torch

from harness.decode.plan import DELTA_LIMIT
from harness.decode.vllm_pair import channel
from harness.errors import UserError
from harness.policy import Decision, Noise, Past, Rule, RuleRow, decide, decide_fused, fused_available, over_shared
from harness.policy import force as force_fused
from harness.policy.rule import AT_ONCE

PATHS = ("triton", "torch")
VARIABLE = "RLVR_DIR_DECISION"

log = logging.getLogger("rlvr_dir")


@cache
def decision_path(device_type: str) -> str:
    """Return which of PATHS decides on a device of this type (`cuda`, `cpu`, ...), said in the log the first time.

    Raises:
        UserError: RLVR_DIR_DECISION names no path.
    """
    asked = os.environ.get(VARIABLE, "auto")
    if asked not in ("auto", *PATHS):
        raise UserError(f"{VARIABLE}={asked!r} is not known; accepted: auto, {', '.join(PATHS)}")
    path = asked if asked != "auto" else "triton" if fused_available(device_type) else "torch"
    slow = path == "torch" and asked == "auto" and device_type == "cuda"
    log.log(
        logging.WARNING if slow else logging.INFO,
        "the decision of a step runs in %s on %s%s",
        path,
        device_type,
        ": Triton is not installed, so a step takes longer" if slow else "",
    )
    return path


def decide_step(
    base_logits: torch.Tensor,
    rl_logits: torch.Tensor,
    rule: Rule,
    keys: torch.Tensor,
    positions: torch.Tensor,
    *,
    vocab_size: int | None,
    traced: torch.Tensor | None = None,
    top: int = 0,
    dense: bool | None = None,
    past: Past | None = None,
    shared: int | None = None,
) -> Decision:
    """Decide n rows of (n, padded vocabulary) logits; keys and positions (n,) int64; the rest as for `decide`.

    The two output layers may be padded differently; what only one of them has is no token. `shared` ids are known to
    both where RL has tokens of its own after them (`over_shared`).
    """
    if shared is not None:
        base_logits, rl_logits = over_shared(base_logits, rl_logits, rule, shared, vocab_size or rl_logits.shape[1])
    width = min(base_logits.shape[1], rl_logits.shape[1])
    base_logits, rl_logits = base_logits[:, :width], rl_logits[:, :width]
    facts = {"vocab_size": vocab_size, "traced": traced, "top": top, "past": past}
    if decision_path(rl_logits.device.type) == "triton":
        return decide_fused(base_logits, rl_logits, rule, keys, positions, **facts)
    return decide(base_logits, rl_logits, rule, Noise.at(keys, positions), dense=dense, **facts)


def force(logits: torch.Tensor, decision: Decision, decided: torch.Tensor | None) -> None:
    """Leave one finite logit a row, the channel's number on the decided token; (n, vocab), in place.

    Rows that are not `decided` (n,) bool are left as they are.
    """
    if decision_path(logits.device.type) == "triton":
        force_fused(logits, decision, decided, band=channel.BAND, limit=DELTA_LIMIT)
        return
    token = decision.token[:, None]
    facts = channel.encode(decision.replaced, decision.changed, decision.delta_logp).to(logits.dtype)[:, None]
    if decided is None:
        logits.fill_(float("-inf"))
    else:
        facts = torch.where(decided[:, None], facts, logits.gather(1, token))
        logits.masked_fill_(decided[:, None], float("-inf"))
    logits.scatter_(1, token, facts)


def rehearse(
    base_logits: torch.Tensor, rl_logits: torch.Tensor, shared: int | None = None, vocab_size: int | None = None
) -> None:
    """Decide and force once, as a step does, and forget it: vLLM's memory profile then knows the peak.

    Its own dummy run of the sampler leaves out custom processors (V1 passes an empty list, V2 returns before them). The
    rules are those that take most memory: `kl` of all rows in torch's path, else the rows that `coupling` sorts at
    once. The kernels get the numbers that a step gives them, and so are compiled here and not in the first request.
    """
    n, device = rl_logits.shape[0], rl_logits.device
    rows = [RuleRow(gate="kl", tau=0.0, gamma=0.1, temperature=0.9, top_p=0.95)] * n
    rows[:AT_ONCE] = [replace(row, gate="coupling") for row in rows[:AT_ONCE]]
    numbers, logits = torch.arange(n, device=device), rl_logits.to(torch.float32, copy=True)  # V2 has such a copy
    decision = decide_step(
        base_logits, logits, Rule(rows, device), numbers, numbers, vocab_size=vocab_size, shared=shared
    )
    for decided in (None, numbers >= 0):
        force(logits, decision, decided)
