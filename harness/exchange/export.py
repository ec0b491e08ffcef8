"""Writes results in a format by its name: `export(results, "eee", Path("shared"), Target())`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.errors import UserError, unknown
from harness.evals.result import EvalResult
from harness.exchange import eee, hub, inspect_log, lm_eval
from harness.exchange.material import RELATIONSHIPS, Material, Target, Written, material_of

_EACH: Mapping[str, tuple[Callable[[Material, Path, Target], Written], str]] = {
    "eee": (eee.write_eee, eee.CANNOT),
    "inspect": (inspect_log.write_inspect, inspect_log.CANNOT),
    "lm-eval": (lm_eval.write_lm_eval, lm_eval.CANNOT),
}
FORMATS = ("eee", "eval-results", "inspect", "lm-eval")


def export(results: Sequence[EvalResult], form: str, out: Path, target: Target, data_dir: str | None = None) -> Written:
    """Write results in a format below `out`; what the format cannot say, and what is not at hand, is in `remarks`.

    Raises:
        UserError: there is no such format, no result, no result of a dataset's task, or a name that the format does not
            take.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    if target.relationship not in RELATIONSHIPS:
        raise unknown("relationship", target.relationship, RELATIONSHIPS)
    if not results:
        raise UserError("results: nothing to export; accepted: files or folders that eval has written, or records")
    tasks = list(dict.fromkeys(result.task for result in results))
    for task in target.datasets:
        if task not in tasks:
            raise unknown("dataset", task, tasks)
    materials = [material_of(result, data_dir) for result in results]
    if form == "eval-results":
        written = hub.write_eval_results(materials, out, target)
        return Written(written.files, (*written.remarks, hub.CANNOT))
    write, cannot = _EACH[form]
    each = [write(material, out, target) for material in materials]
    files, remarks = [file for one in each for file in one.files], [said for one in each for said in one.remarks]
    if form == "eee" and target.organization == "unknown":
        remarks.append("who evaluated is not known (source_organization_name is 'unknown'); give --organization")
    return Written(tuple(files), (*dict.fromkeys(remarks), cannot))


def dataset_of(said: str) -> tuple[str, tuple[str, str]]:
    """Read `TASK=ORG/NAME:TASK_ID`, the hub's dataset of a benchmark and the task's id in its eval.yaml.

    Raises:
        UserError: it is not of that form.
    """
    task, equals, where = said.partition("=")
    dataset, colon, task_id = where.rpartition(":")
    if not (task and equals and colon and task_id and dataset.count("/") == 1 and all(dataset.split("/"))):
        raise UserError(f"dataset={said!r} is refused; accepted: TASK=ORG/NAME:TASK_ID, as in the dataset's eval.yaml")
    return task, (dataset, task_id)
