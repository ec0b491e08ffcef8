"""The lm-eval task: a math benchmark with n samples a problem, its metrics named after the n that was drawn."""

import io
import logging
from contextlib import redirect_stderr
from typing import Any

from lm_eval.api.task import ConfigurableTask

from harness.errors import UserError
from harness.evals.data import find_benchmark, presentation_of
from harness.evals.metrics import metric_list
from harness.evals.scoring import BoxedAnswers
from harness.grading import DEFAULT_GRADER, grader_name


class SampledMathTask(ConfigurableTask):
    """A `ConfigurableTask` that shows a benchmark to the models as its files, and a run, say.

    `repeats`, `prompt`, `examples` and `grader` can be set for a run: `--metadata '{"repeats": 8}'` or
    `samples=8,grader=plain` in the model arguments (lm-eval hands both to the task as metadata). Everything else is in
    the YAML.
    """

    def __init__(self, config: dict[str, Any], **kwargs: Any) -> None:
        config = {key: value for key, value in config.items() if key != "class"}
        metadata = config.get("metadata") or {}
        asked = metadata.get("repeats", metadata.get("samples"))
        repeats = config.get("repeats", 1) if asked is None else asked
        if isinstance(repeats, bool) or not str(repeats).isdecimal() or int(repeats) < 1:
            raise UserError(f"repeats={repeats!r} is refused; accepted: a whole number of samples a problem, 1 or more")
        config["repeats"] = int(repeats)
        presentation = presentation_of(metadata)
        if asked := (config.get("dataset_kwargs") or {}).get("benchmark"):
            presentation = find_benchmark(asked, metadata.get("data_dir"), presentation).presentation
        grader_name(presentation.grader or DEFAULT_GRADER)
        if presentation.prompt:
            config["doc_to_text"] = presentation.prompt
        if presentation.examples:
            shown = [example.model_dump() for example in presentation.examples]
            config |= {"num_fewshot": len(shown), "fewshot_config": {"sampler": "first_n", "samples": shown}}
        answers = {"function": BoxedAnswers, "grader": presentation.grader or DEFAULT_GRADER}
        config["filter_list"] = [{"name": "boxed", "filter": [answers]}]
        config["metric_list"] = metric_list(config["repeats"])
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
