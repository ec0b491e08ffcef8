"""Log finished results to MLflow, in a sqlite file or on a server. Results never depend on it."""

from rlvr_dir.tracking.describe import metrics_of, params_of
from rlvr_dir.tracking.log import SyncReport, log_result, result_of_run, sync
from rlvr_dir.tracking.store import resolve_store, tracking_place
from rlvr_dir.tracking.training import Training
from rlvr_dir.tracking.views import Links, comparison_link, run_links

__all__ = [
    "Links",
    "SyncReport",
    "Training",
    "comparison_link",
    "log_result",
    "metrics_of",
    "params_of",
    "resolve_store",
    "result_of_run",
    "run_links",
    "sync",
    "tracking_place",
]
