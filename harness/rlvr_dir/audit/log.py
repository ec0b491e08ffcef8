"""Log the numbers of an audit as one MLflow run: a metric per claim and column, with both ends of its interval."""

import re
import warnings
from pathlib import Path

from rlvr_dir.audit.run import THIS, Audit
from rlvr_dir.tracking.store import TrackingStore, patience, reason

EXPERIMENT = "rlvr-dir-audit"
AT_ONCE = 1000  # metrics that MLflow accepts in one call
_REFUSED = re.compile(r"[^\w. /-]")  # characters that MLflow refuses in a metric's name


def log_audit(audit: Audit, store: Path | str) -> None:
    """Log an audit as a new run. If MLflow cannot be written to, print a warning and continue."""
    from mlflow.entities import Metric, Param

    context = audit.analysis.context
    params = {
        "base": audit.pair.base,
        "rl": audit.pair.rl,
        "tasks": ", ".join(context["tasks"]),
        "samples": context["samples"],
    }
    metrics = [Metric(name, value, 0, 0) for name, value in metrics_of(audit).items()]
    tags = {"kind": "audit", "mlflow.source.name": "rlvr-dir"}
    try:
        with patience():
            place = TrackingStore.at(store)
            client = place.client()
            with place.locked():
                run = client.create_run(
                    place.experiment_id(client, EXPERIMENT), run_name="audit", tags=tags
                ).info.run_id
                client.log_batch(run, params=[Param(name, str(value)) for name, value in params.items()])
                for first in range(0, len(metrics), AT_ONCE):
                    client.log_batch(run, metrics=metrics[first : first + AT_ONCE])
                client.set_terminated(run)
    except Exception as error:
        sentence = f"the audit was not logged to MLflow at {store} ({reason(error, store)}); its folder has everything"
        warnings.warn(sentence, stacklevel=2)


def metrics_of(audit: Audit) -> dict[str, float]:
    """Return every number by the name of its claim, with `_low` and `_high`. Names of further columns are a prefix."""
    metrics: dict[str, float] = {}
    for (name, column), estimate in audit.estimates.items():
        full = name if column == THIS else f"{_REFUSED.sub('_', column)}/{name}"
        ends = {"": estimate.value, "_low": estimate.low, "_high": estimate.high}
        metrics |= {f"{full}{end}": value for end, value in ends.items() if value is not None}
    return metrics
