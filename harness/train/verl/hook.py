"""On verl's driver: the trainer `rlvr_dir`, which sees a step's whole batch: `ppl`, and how many responses are right.

The loss sees micro-batches; z-scores over a batch or a group cannot be had there. verl's own log has rewards with the
length penalty in them, and no accuracy.
"""

from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.padding import response_to_nested

from harness.policy import log_perplexity, standardise, token_weights

TRAINER = "rlvr_dir"


@register_trainer(TRAINER)
class RlvrDirTrainer(PPOTrainerSync):
    """verl's synchronous trainer, with a step behind its advantages. Settings: `+rlvr_dir.method`, `alpha`, `scope`."""

    # verl compares this name with "sync" in many places, and would take ours for an asynchronous trainer.
    trainer_mode = property(lambda self: "sync", lambda self, value: None)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        count_verdicts(batch, metrics)
        asked = self.config.get("rlvr_dir") or {}
        if asked.get("method") == "ppl":
            batch = reweight_by_perplexity(batch, metrics, float(asked["alpha"]), str(asked["scope"]))
        return batch


def count_verdicts(batch: Any, metrics: dict[str, Any]) -> None:
    """Add `rlvr_dir/accuracy`, over the graded responses of a batch, `rlvr_dir/ungraded` and `rlvr_dir/responses`."""
    keys = [key for key, real in zip(batch.keys, _real(batch), strict=True) if real]
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    if "extra_fields" not in data:
        return
    verdicts = [each.get("reward_extra_info", {}) for each in _values(data, "extra_fields")]
    graded = [each["acc"] for each in verdicts if "acc" in each and not each.get("ungraded")]
    metrics["rlvr_dir/responses"] = len(verdicts)
    metrics["rlvr_dir/ungraded"] = len(verdicts) - len(graded)
    if graded:
        metrics["rlvr_dir/accuracy"] = sum(graded) / len(graded)


def reweight_by_perplexity(batch: Any, metrics: dict[str, Any], alpha: float, scope: str) -> Any:
    """Write A (1 - alpha z) in the place of every advantage A; `scope` is `batch` or `group`. Padding is left out."""
    fields = ["response_mask", "old_log_probs", "advantages"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["uid", *fields])
    lengths = data["response_mask"]  # nested: the rows' own lengths
    groups = _values(data, "uid")
    padded = data.select(*fields).to_padded_tensor()
    mask, logp, advantages = padded["response_mask"], padded["old_log_probs"], padded["advantages"]  # (n, tokens)
    z = z_scores(log_perplexity(logp, mask), groups if scope == "group" else None, _real(batch))
    weight = token_weights("ppl", alpha, logp, mask, z)
    metrics["actor/advantage_weight"] = float(weight[mask.bool()].mean())
    new = TensorDict({"advantages": response_to_nested(advantages * weight, lengths)}, batch_size=len(batch))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=new)


def z_scores(x: torch.Tensor, groups: list[Any] | None, real: list[bool]) -> torch.Tensor:
    """Standardise over the real rows, or within each of their groups, in any order: (n,) -> (n,); 0 for padding."""
    z = torch.zeros_like(x)
    rows: dict[Any, list[int]] = {}
    for row, inside in enumerate(real):
        if inside:
            rows.setdefault(groups[row] if groups else None, []).append(row)
    for members in rows.values():
        z[members] = standardise(x[members])
    return z


def _values(data: Any, name: str) -> list[Any]:
    """Return a field that is no tensor, as plain values."""
    return [getattr(each, "data", each) for each in data[name]]


def _real(batch: Any) -> list[bool]:
    """Tell which rows are responses; verl fills a batch up to a multiple of its workers."""
    return [not tag.get("is_padding", False) for tag in batch.tags] if batch.tags else [True] * len(batch.keys)
