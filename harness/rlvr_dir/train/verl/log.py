"""Translate verl's log lines of a step into ours, with the same names as for TRL, and verl's own metrics under
`verl`."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rlvr_dir import stats
from rlvr_dir.train.settings import DapoSettings

_RIGHT = re.compile(r"rlvr_dir/right/(?P<samples>\d+)/(?P<source>.+)/(?P<problem>\d+)")
_TOKEN_SHARES = ("token_share", "gradient_share")


def translate(
    line: Mapping[str, Any], dapo: DapoSettings, problems: Mapping[str, int] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Translate a line of verl's log, `{"step": n, "data": metrics}`, into ours: a step's, a validation's, or both.

    `problems` are the numbers of problems by benchmark. A problem that verl does not mention has no right sample.
    """
    step, data = int(line["step"]), dict(line["data"])
    numbers = {name: value for name, value in data.items() if isinstance(value, int | float)}
    verl_metrics = {name: value for name, value in numbers.items() if not _is_from_our_trainer(name)}
    validated = {name: value for name, value in verl_metrics.items() if name.startswith("val-")}
    rest = {name: value for name, value in verl_metrics.items() if name not in validated}
    records: list[dict[str, Any]] = []
    if "critic/score/mean" in data:
        records.append({"step": step, **_step(data, dapo), "verl": rest})
    if validated or not records:
        records.append(
            {"step": step, "validation": _validation(numbers, problems), "verl": validated if records else verl_metrics}
        )
    return records


def _is_from_our_trainer(name: str) -> bool:
    return bool(_RIGHT.fullmatch(name)) or name.startswith(tuple(f"rlvr_dir/{share}/" for share in _TOKEN_SHARES))


def _validation(numbers: Mapping[str, float], problems: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return the scores by benchmark, from the right samples of each problem, which our trainer counts."""
    right: dict[str, dict[str, int]] = {}
    samples: dict[str, int] = {}
    for name, value in numbers.items():
        if match := _RIGHT.fullmatch(name):
            right.setdefault(match["source"], {})[match["problem"]] = int(value)
            samples[match["source"]] = int(match["samples"])
    scores = {}
    for source, by_problem in right.items():
        by = dict.fromkeys(map(str, range(problems.get(source, 0))), 0) | by_problem
        n, counts = samples[source], [by[problem] for problem in sorted(by, key=int)]
        correct = [[sample < count for sample in range(n)] for count in counts]
        scores[source] = {
            "samples": n,
            "problems": len(counts),
            "avg": stats.avg_at_k(correct),
            "error": stats.standard_error(correct),
            "pass": stats.pass_at_k(correct, max(1, n // 2)),
            "right": {problem: by[problem] for problem in sorted(by, key=int)},
        }
    return scores


def _step(data: dict[str, Any], dapo: DapoSettings) -> dict[str, Any]:
    return {
        "accuracy": data.get("rlvr_dir/accuracy"),
        "reward": data.get("critic/score/mean"),
        "length": data.get("response_length/mean"),
        "truncated": data.get("response_length/clip_ratio"),
        "responses": int(data.get("rlvr_dir/responses") or dapo.responses),
        "ungraded": int(data.get("rlvr_dir/ungraded") or 0),
        "groups": {"kept": dapo.prompts, "dropped": int(data.get("training/filter_groups/evicted_samples") or 0)},
        "weight": 1.0 if dapo.is_plain else data.get("actor/advantage_weight"),
        "entropy": data.get("actor/entropy"),
        "clip_fraction": data.get("actor/pg_clipfrac"),
        "loss": data.get("actor/pg_loss"),
        "grad_norm": data.get("actor/grad_norm"),
        "learning_rate": data.get("actor/lr"),
        "seconds": data.get("timing_s/step"),
        **{share: bins for share in _TOKEN_SHARES if (bins := _bins(data, share))},
    }


def _bins(data: Mapping[str, Any], share: str) -> list[float]:
    """Return the shares by probability, which our trainer counts, from the least probable tokens on."""
    bins = []
    while (value := data.get(f"rlvr_dir/{share}/{len(bins)}")) is not None:
        bins.append(round(float(value), 6))
    return bins
