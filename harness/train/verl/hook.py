"""On verl's driver: the trainer `rlvr_dir`, which sees a step's whole batch: `ppl`, and what verl does not count.

The loss sees micro-batches; z-scores over a batch or a group cannot be had there. verl's own log has rewards with the
length penalty in them and no accuracy, and validations without the problems that an interval needs.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.padding import response_to_nested

from harness.policy.advantages import (
    gradient_coefficient,
    log_perplexity,
    standardise,
    sums_by_probability,
    token_weights,
)

TRAINER = "rlvr_dir"
BINS = 10  # of the probability of a token, as with TRL


@register_trainer(TRAINER)
class RlvrDirTrainer(PPOTrainerSync):
    """verl's synchronous trainer, with a step behind its advantages and one behind its validations.

    Settings: `+rlvr_dir.method`, `alpha` and, for ppl, `scope`.
    """

    # verl compares this name with "sync" in many places, and would take ours for an asynchronous trainer.
    trainer_mode = property(lambda self: "sync", lambda self, value: None)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        count_verdicts(batch, metrics)
        asked = self.config.get("rlvr_dir") or {}
        if asked.get("method") == "ppl":
            batch = reweight_by_perplexity(batch, metrics, float(asked["alpha"]), str(asked["scope"]))
        share_gradient(batch, metrics, str(asked.get("method") or "none"), float(asked.get("alpha") or 0.0))
        return batch

    def _val_metrics_update(
        self,
        data_sources: Sequence[str],
        sample_uids: Sequence[str],
        infos: dict[str, list[Any]],
        *more: Any,
        **how: Any,
    ) -> dict[str, float]:
        infos = dict(infos)
        problems = infos.pop("problem", [])
        metrics = super()._val_metrics_update(data_sources, sample_uids, infos, *more, **how)
        samples = int(self.config.actor_rollout_ref.rollout.val_kwargs.n)
        return {**metrics, **count_right(data_sources, problems, infos.get("acc", []), samples)}


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


def count_right(
    sources: Sequence[str], problems: Sequence[float | None], right: Sequence[float | None], samples: int
) -> dict[str, float]:
    """Return `rlvr_dir/right/SAMPLES/SOURCE/PROBLEM`, the right samples of each problem; one that failed is wrong."""
    found: Counter[str] = Counter()
    for source, problem, each in zip(sources, problems, right, strict=False):
        if problem is not None:
            found[f"rlvr_dir/right/{samples}/{source}/{int(problem)}"] += int(each or 0)
    return dict(found)


def share_gradient(batch: Any, metrics: dict[str, Any], method: str, alpha: float, rows: int = 256) -> None:
    """Add `rlvr_dir/token_share/BIN` and `rlvr_dir/gradient_share/BIN`, by the probability of the token.

    The gradient mass is that of the step's first update, where the policy is still the one that wrote the responses.
    Advantages of `low_prob` and `dominate` are weighed by the loss, so here too; those of `ppl` are weighed already.
    """
    keys = [key for key, real in zip(batch.keys, _real(batch), strict=True) if real]
    fields = ["response_mask", "old_log_probs", "advantages"]
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
    padded = data.select(*fields).to_padded_tensor()
    mass = counts = torch.zeros(BINS, dtype=torch.float64)
    for start in range(0, len(keys), rows):
        mask, logp, advantages = (padded[name][start : start + rows] for name in fields)  # (n, tokens)
        inside = mask.bool() & (advantages != 0)
        if method in ("low_prob", "dominate"):
            advantages = advantages * token_weights(method, alpha, logp, mask)
        more, tokens = sums_by_probability(logp, gradient_coefficient(logp, advantages), inside, BINS)
        mass, counts = mass + more.cpu(), counts + tokens.cpu()
    if counts.sum() and mass.sum():
        for i in range(BINS):
            metrics[f"rlvr_dir/token_share/{i}"] = float(counts[i] / counts.sum())
            metrics[f"rlvr_dir/gradient_share/{i}"] = float(mass[i] / mass.sum())


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
