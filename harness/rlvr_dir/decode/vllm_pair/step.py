"""Decide one step: read both models' logits and force one token per row.

On a GPU with Triton the kernels of `rlvr_dir.policy.fused` are used. Elsewhere it is torch's `decide`, their reference.
The environment variable RLVR_DIR_DECISION overrides this: `torch`, or `triton` (on a CPU only in Triton's interpreter).
"""

import logging
import os
from collections.abc import Mapping
from functools import cache

import torch

from rlvr_dir.decode.plan import DELTA_LIMIT
from rlvr_dir.decode.vllm_pair import channel
from rlvr_dir.errors import unknown
from rlvr_dir.policy.algorithm import Decision, decide
from rlvr_dir.policy.combine import Combination
from rlvr_dir.policy.fused import AT_ONCE, decide_fused, fused_available
from rlvr_dir.policy.fused import force as force_fused
from rlvr_dir.policy.gates import gate_of, gates
from rlvr_dir.policy.rule import Rule, Rules
from rlvr_dir.policy.step import Requests

PATHS = ("triton", "torch")
VARIABLE = "RLVR_DIR_DECISION"

log = logging.getLogger("rlvr_dir")


@cache
def decision_path(device_type: str) -> str:
    """Return which of PATHS decides on a device of this type (`cuda`, `cpu`, ...). It is logged the first time.

    Raises:
        UserError: RLVR_DIR_DECISION is not the name of a path.
    """
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in ("auto", *PATHS):
        raise unknown(VARIABLE, wanted, ("auto", *PATHS))
    path = wanted if wanted != "auto" else "triton" if fused_available(device_type) else "torch"
    slow = path == "torch" and wanted == "auto" and device_type == "cuda"
    log.log(
        logging.WARNING if slow else logging.INFO,
        "the decision of a step runs in %s on %s%s",
        path,
        device_type,
        ": Triton is not installed, so a step takes longer" if slow else "",
    )
    return path


def decide_step(
    logits: Mapping[str, torch.Tensor], rules: Rules, requests: Requests, combination: Combination
) -> Decision:
    """Decide n rows, by the path for their device; see `decide`."""
    path = decide_fused if decision_path(logits["rl"].device.type) == "triton" else decide
    return path(logits, rules, requests, combination)


def force(logits: torch.Tensor, decision: Decision, decided: torch.Tensor | None) -> None:
    """Write the channel's finite logits into each row: one on the decided token, and two more if it changed.

    It changes `logits` (n, vocab) in place. Rows that are not `decided` (n,) bool are not modified.
    """
    if decision_path(logits.device.type) == "triton":
        force_fused(logits, decision, decided, band=channel.BAND, limit=DELTA_LIMIT, beside=channel.BESIDE)
        return
    token = decision.token[:, None]
    facts = channel.encode(decision.replaced, decision.changed, decision.delta_logp).to(logits.dtype)[:, None]
    has_numbers = (decision.changed & ~decision.delta_logp.isnan())[:, None]
    beside = channel.slots(decision.token, channel.PROPOSAL)
    numbers = channel.encode_proposal(decision.proposed, decision.delta_logp_written).to(logits.dtype)
    if decided is None:
        logits.fill_(float("-inf"))
    else:
        facts = torch.where(decided[:, None], facts, logits.gather(1, token))
        logits.masked_fill_(decided[:, None], float("-inf"))
        has_numbers = has_numbers & decided[:, None]
    logits.scatter_(1, beside, torch.where(has_numbers, numbers, logits.gather(1, beside)))
    logits.scatter_(1, token, facts)


def rehearse(logits: Mapping[str, torch.Tensor], combination: Combination) -> None:
    """Decide and force once as in a step and discard the result, so that vLLM's memory profile includes the peak.

    vLLM's own dummy run of the sampler skips custom processors (V1 passes an empty list, V2 returns before them). The
    rules are those that need the most memory. In torch's path these are the divergence of all rows with the other model
    deciding, and as many rows as are decided at once with a gate that sorts both policies. The kernels receive the same
    kinds of numbers as in a step, so they are compiled here and not in the first request.
    """
    rl = logits["rl"].to(torch.float32, copy=True)  # V2 makes such a copy
    n, device = rl.shape[0], rl.device
    plain, sorting = gate_of({"criterion": "kl", "tau": 0.0}), next(gate() for gate in gates().values() if gate.redraws)
    rehearsed = [sorting if i < AT_ONCE else plain for i in range(n)]
    decider = "rl"  # two more draws
    rules = [
        Rule(g, gamma=0.1, temperature=0.9, top_p=0.95, decider=decider if g is plain else None) for g in rehearsed
    ]
    numbers = torch.arange(n, device=device)
    requests = Requests(numbers, numbers, numbers)
    decision = decide_step({**logits, "rl": rl}, Rules.compile(rules, device), requests, combination)
    for decided in (None, numbers >= 0):
        force(rl, decision, decided)
