"""Models trained in different ways from one base, side by side, as in the paper's main and reweighting tables."""

from collections.abc import Sequence

from harness.evals.result import EvalResult
from harness.report import paper
from harness.report.groups import Entry, pair_of
from harness.report.model import Section
from harness.report.scores import score
from harness.report.shapes import Method, methods_table

REFERENCE = "DAPO"  # what the others are set against, where it is there; else the first


def trained_section(entries: Sequence[Entry]) -> Section | None:
    """Base and each named RL model, by base model; None where fewer than two names were given."""
    named = [entry for entry in entries if entry.name and entry.result.decoding.mode == "rl"]
    names = list(dict.fromkeys(entry.name for entry in named))
    if len(names) < 2:
        return None
    reference = REFERENCE if REFERENCE in names else names[0]
    k = max(1, min(entry.result.samples for entry in named) // 2)
    methods = []
    for base in dict.fromkeys(pair_of(entry.result)[0] for entry in named):
        model = paper.model_of(base) or base.rpartition("/")[2]
        mine = [entry for entry in named if pair_of(entry.result)[0] == base]
        alone = {
            e.result.task: score(e.result, k=k)
            for e in entries
            if e.result.decoding.mode == "base" and pair_of(e.result)[0] == base
        }
        methods += [Method(model, "Base", alone)] if alone else []
        against = {entry.result.task: entry.result for entry in mine if entry.name == reference}
        for name in dict.fromkeys(entry.name for entry in mine):
            results = {entry.result.task: entry.result for entry in mine if entry.name == name}
            found = {task: score(one, beside=_minus(one, against.get(task)), k=k) for task, one in results.items()}
            methods.append(Method(model, name, found))
    note = (
        f"Under each score: its 95 % interval over problems, and its difference to {reference}, paired by problem; not "
        "corrected for the number of comparisons. One training each: another seed of the training may differ by more."
    )
    table = methods_table(
        "trained",
        "Trained models.",
        methods,
        notes=(note,),
        paper="tab:main, tab:compare, tab:rl_minerva",
        unranked=("Base",),
    )
    return Section("Trained models", (), (table,))


def _minus(result: EvalResult, reference: EvalResult | None) -> str:
    """`+1.2 [-0.3, +2.7]`; nothing for the reference itself, or where the problems differ."""
    if reference is None or result is reference or result.problem_ids != reference.problem_ids:
        return ""
    d = result.minus(reference)
    return f"{100 * d.mean:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"
