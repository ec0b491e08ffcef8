"""The hub's `.eval_results/*.yaml`, for results of one model, and a section of a model card, for all of them."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from harness.evals.show import tables
from harness.exchange.material import Material, Target, Written, slug
from harness.files import make_folder, write_file
from harness.markdown import markdown_table
from harness.text import visible

CANNOT = (
    "the hub's .eval_results has one value a dataset and task: no error bar, no Pass@k and no rule, and a number there "
    "stands on the model's page as the model's own"
)


def write_eval_results(materials: Sequence[Material], out: Path, target: Target) -> Written:
    """Write a YAML for each result that one model alone has, below `MODEL/.eval_results`, and `model-card.md`."""
    files: list[Path] = []
    remarks: list[str] = []
    names: dict[Path, str] = {}
    for material in materials:
        result, system = material.result, material.system
        if why := _not_there(material, target):
            remarks.append(f"{material.name}: no .eval_results: {why}")
            continue
        folder = out / slug(f"{system.developer}__{system.model}") / ".eval_results"
        make_folder(folder)
        file = folder / f"{slug(result.task)}.yaml"
        if names.setdefault(file, result.config_hash) != result.config_hash:
            file = folder / f"{slug(result.task)}-{result.config_hash}.yaml"
        write_file(file, yaml.safe_dump([_entry(material, target)], sort_keys=False, allow_unicode=True, width=120))
        files.append(file)
    make_folder(out)
    write_file(out / "model-card.md", card(materials))
    return Written((*files, out / "model-card.md"), tuple(remarks))


def _not_there(material: Material, target: Target) -> str:
    result, system = material.result, material.system
    if not system.single:
        return f"{system.kind}: the hub would show the number as the model's own"
    if not result.shares:
        return "which of lm-eval's metrics the dataset's board is of is not known"
    if not system.on_hub:
        return f"{system.id} is no model of the hub"
    if result.partial or result.limited:
        return f"it is of {result.partial or result.limited}, not of the whole benchmark"
    if result.task not in target.datasets:
        return f"the hub's dataset and task are not known; give --dataset {result.task}=ORG/NAME:TASK_ID"
    return ""


def _entry(material: Material, target: Target) -> dict[str, object]:
    result = material.result
    dataset, task = target.datasets[result.task]
    entry: dict[str, object] = {"dataset": {"id": dataset, "task_id": task}, "value": round(100 * result.avg, 2)}
    if material.when:
        entry["date"] = material.when.date().isoformat()
    if target.source_url:
        entry["source"] = {"url": target.source_url}
    words = [f"Avg@{result.samples} in percent"]
    words += [
        f"{name.replace('_', ' ').replace('top p', 'top-p')} {value:g}"
        for name, value in material.drawn.items()
        if name != "seed"
    ]
    words += [f"graded by {visible(result.provenance['grader'])}"] if result.provenance.get("grader") else []
    return {**entry, "notes": ", ".join(words)}


def card(materials: Sequence[Material]) -> str:
    """Return a section of a model card: what decoded, a table of results for each pair of models, how it was drawn."""
    systems = {material.system.id: material.system for material in materials}
    rows = []
    for system in systems.values():
        models = ", ".join(f"{role} `{visible(model)}`" for role, model in system.models.items())
        rows.append([system.name, system.kind, models])
    lines = ["## Evaluation", "", markdown_table(["what decoded", "kind", "models"], rows, left=3), ""]
    pairs: dict[tuple[str, str], list[Material]] = {}
    for material in materials:
        pairs.setdefault(material.result.pair, []).append(material)
    for mine in pairs.values():
        models = {role: model for material in mine for role, model in material.system.models.items()}
        named = ", ".join(f"{role} `{visible(model)}`" for role, model in models.items())
        lines += [f"Of {named}:", ""] if len(pairs) > 1 else []
        lines += [tables([material.result for material in mine]), ""]
    if any(not system.single for system in systems.values()):
        lines += [
            "A row with a rule (replace, extrapolate, expo) is not a score of a model alone: the rule is part of it.",
            "",
        ]
    results = [material.result for material in materials]
    drawn = {
        f"{s.words}, at most {s.max_tokens} tokens, seed {s.seed}"
        for s in (result.sampling for result in results if not result.lacks)
    }
    graders = {str(result.provenance.get("grader")) for result in results if result.provenance.get("grader")}
    lines += [f"Drawn at {each}." for each in sorted(drawn)]
    lines += [f"Graded by {visible(', '.join(sorted(graders)))}."] if graders else []
    return "\n".join([*lines, "Errors are over problems. Made with rlvr-dir.", ""])
