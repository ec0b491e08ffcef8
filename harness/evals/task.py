"""The lm-eval task: a math benchmark with n samples a problem, its metrics named after the n that was drawn."""

import io
import logging
from contextlib import redirect_stderr
from typing import Any

from lm_eval.api.task import ConfigurableTask

from harness.errors import UserError
from harness.evals.data import BENCHMARKS, GOLD_VERSIONS, GOLDS, PUBLISHED, check_golds
from harness.evals.metrics import metric_list
from harness.evals.scoring import BoxedAnswers
from harness.grading import DEFAULT_GRADER, grader_name


class SampledMathTask(ConfigurableTask):
    """A `ConfigurableTask` whose `repeats`, `grader` and `golds` can be set for a run: `--metadata '{"repeats": 8}'`
    or `samples=8,grader=plain` in the model arguments (lm-eval hands both to the task as metadata). Everything else
    is in the YAML.
    """

    def __init__(self, config: dict[str, Any], **kwargs: Any) -> None:
        config = {key: value for key, value in config.items() if key != "class"}
        metadata = config.get("metadata") or {}
        asked = metadata.get("repeats", metadata.get("samples"))
        repeats = config.get("repeats", 1) if asked is None else asked
        if isinstance(repeats, bool) or not str(repeats).isdecimal() or int(repeats) < 1:
            raise UserError(f"repeats={repeats!r} is refused; accepted: a whole number of samples a problem, 1 or more")
        config["repeats"] = int(repeats)
        name = str(config.get("task"))
        version, grader = str(metadata.get("golds", PUBLISHED)), str(metadata.get("grader", DEFAULT_GRADER))
        grader_name(grader)
        if name in BENCHMARKS:
            check_golds(name, version, metadata.get("data_dir"))
        answers = {"function": BoxedAnswers, "grader": grader, "golds": version}
        config["filter_list"] = [{"name": "boxed", "filter": [answers]}]
        config["metric_list"] = metric_list(config["repeats"], [v for v in GOLD_VERSIONS if v in GOLDS.get(name, ())])
        super().__init__(config=config, **kwargs)

    def build_all_requests(self, **kwargs: Any) -> None:
        """Do as lm-eval does, without its bar over what takes milliseconds: a sweep would print hundreds of them."""
        with redirect_stderr(io.StringIO()):
            super().build_all_requests(**kwargs)


def _expected(record: logging.LogRecord) -> bool:
    """Drop two remarks that are always made and never helpful here (see `metrics.group_metrics` and `data.load`)."""
    text = record.getMessage()
    return (
        not ("rlvr_math" in text and "no values found for metric" in text) and "Custom kwargs can be passed" not in text
    )


for _name in ("lm_eval.api.group", "lm_eval.api.task"):
    logging.getLogger(_name).addFilter(_expected)
