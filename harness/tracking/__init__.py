"""MLflow beside the work: finished results become runs in one sqlite file; results never depend on it."""

from harness.tracking.log import log_result, metrics_of, params_of

__all__ = ["log_result", "metrics_of", "params_of"]
