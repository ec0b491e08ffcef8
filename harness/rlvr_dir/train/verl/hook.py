"""Extend verl's trainer on its driver: compute weights that depend on other responses, and count what verl does not.

The loss sees micro-batches only, so nothing over a batch or a group can be computed there. verl's own log has rewards
with the length penalty and no accuracy, and validations without the problems, which intervals need.
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

from rlvr_dir.policy.advantages import gradient_coefficient, sums_by_probability
from rlvr_dir.policy.reweighting import PLAIN, Reweighting, reweighting, token_weights

TRAINER = "rlvr_dir"
BINS = 10  # # of the probability of a token, as with TRL


@register_trainer(TRAINER)
class RlvrDirTrainer(PPOTrainerSync):
    """Run verl's synchronous trainer, with one more step after its advantages and one after its validations.

    Its settings are `+rlvr_dir.method`, `alpha` and, if a weight depends on other responses, `scope`.
    """

    # # verl compares this name with "sync" in many places, and would treat ours as an asynchronous trainer.
    trainer_mode = property(lambda self: "sync", lambda self, value: None)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        count_verdicts(batch, metrics)
        settings = self.config.get("rlvr_dir") or {}
        way = reweighting(str(settings.get("method") or PLAIN), float(settings.get("alpha") or 0.0))
        if way.whole_batch:
            batch = reweight(batch, metrics, way, str(settings["scope"]))
        share_gradient(batch, metrics, way)
        return batch

    def _val_metrics_update(
        self,
        data_sources: Sequence[str],
        sample_uids: Sequence[str],
        infos: dict[str, list[Any]],
        *more: Any,
        **kwargs: Any,
    ) -> dict[str, float]:
        infos = dict(infos)
        problems = infos.pop("problem", [])
        metrics = super()._val_metrics_update(data_sources, sample_uids, infos, *more, **kwargs)
        samples = int(self.config.actor_rollout_ref.rollout.val_kwargs.n)
        return {**metrics, **count_right(data_sources, problems, infos.get("acc", []), samples)}


def count_verdicts(batch: Any, metrics: dict[str, Any]) -> None:
    """Add `rlvr_dir/accuracy`, over the graded responses of a batch, `rlvr_dir/ungraded` and `rlvr_dir/responses`."""
    keys = [key for key, real in zip(batch.keys, _real(batch), strict=True) if real]
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    if "extra_fields" not in data:
        return
    verdicts = [extra.get("reward_extra_info", {}) for extra in _values(data, "extra_fields")]
    graded = [extra["acc"] for extra in verdicts if "acc" in extra and not extra.get("ungraded")]
    metrics["rlvr_dir/responses"] = len(verdicts)
    metrics["rlvr_dir/ungraded"] = len(verdicts) - len(graded)
    if graded:
        metrics["rlvr_dir/accuracy"] = sum(graded) / len(graded)


def count_right(
    sources: Sequence[str], problems: Sequence[float | None], right: Sequence[float | None], samples: int
) -> dict[str, float]:
    """Return `rlvr_dir/right/SAMPLES/SOURCE/PROBLEM`, the right samples of each problem. Failed ones count as wrong."""
    counts: Counter[str] = Counter()
    for source, problem, verdict in zip(sources, problems, right, strict=False):
        if problem is not None:
            counts[f"rlvr_dir/right/{samples}/{source}/{int(problem)}"] += int(verdict or 0)
    return dict(counts)


def share_gradient(batch: Any, metrics: dict[str, Any], way: Reweighting, rows: int = 256) -> None:
    """Add `rlvr_dir/token_share/BIN` and `rlvr_dir/gradient_share/BIN`, by the probability of the token.

    The gradient mass is that of the step's first update, whose policy is still the one that wrote the responses.
    Advantages that the loss will reweight are reweighted here too. Those that need the whole batch are reweighted
    already.
    """
    keys = [key for key, real in zip(batch.keys, _real(batch), strict=True) if real]
    fields = ["response_mask", "old_log_probs", "advantages"]
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
    padded = data.select(*fields).to_padded_tensor()
    mass = counts = torch.zeros(BINS, dtype=torch.float64)
    for start in range(0, len(keys), rows):
        mask, logp, advantages = (padded[name][start : start + rows] for name in fields)  # (n, tokens)
        inside = mask.bool() & (advantages != 0)
        if not way.whole_batch:
            advantages = advantages * token_weights(way, logp, mask)
        more, tokens = sums_by_probability(logp, gradient_coefficient(logp, advantages), inside, BINS)
        mass, counts = mass + more.cpu(), counts + tokens.cpu()
    if counts.sum() and mass.sum():
        for i in range(BINS):
            metrics[f"rlvr_dir/token_share/{i}"] = float(counts[i] / counts.sum())
            metrics[f"rlvr_dir/gradient_share/{i}"] = float(mass[i] / mass.sum())


def reweight(batch: Any, metrics: dict[str, Any], way: Reweighting, scope: str) -> Any:
    """Reweight every advantage together with those of its `batch` or its `group` (`scope`). Padding is left out."""
    fields = ["response_mask", "old_log_probs", "advantages"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["uid", *fields])
    lengths = data["response_mask"]  # # nested: the rows' own lengths
    groups = _values(data, "uid")
    padded = data.select(*fields).to_padded_tensor()
    mask, logp, advantages = padded["response_mask"], padded["old_log_probs"], padded["advantages"]  # (n, tokens)
    rows: dict[Any, list[int]] = {}
    for row, real in enumerate(_real(batch)):
        if real:
            rows.setdefault(groups[row] if scope == "group" else None, []).append(row)
    weight = token_weights(way, logp, mask, map(torch.tensor, rows.values()))
    metrics["actor/advantage_weight"] = float(weight[mask.bool()].mean())
    new = TensorDict({"advantages": response_to_nested(advantages * weight, lengths)}, batch_size=len(batch))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=new)


def _values(data: Any, name: str) -> list[Any]:
    """Return a field that is not a tensor, as plain values."""
    return [getattr(value, "data", value) for value in data[name]]


def _real(batch: Any) -> list[bool]:
    """Return which rows are responses. verl fills a batch up to a multiple of its workers."""
    return [not tag.get("is_padding", False) for tag in batch.tags] if batch.tags else [True] * len(batch.keys)
