"""Models trained in different ways from one base, side by side, as in the paper's main and reweighting tables."""

from collections.abc import Sequence

from harness.evals.compare import Setting, settings_of
from harness.evals.result import EvalResult, model_name
from harness.markdown import interval
from harness.report import paper
from harness.report.groups import lots, set_apart
from harness.report.model import Section, Table
from harness.report.scores import score
from harness.report.shapes import MethodRow, methods_table
from harness.stats import family

REFERENCE = "DAPO"  # what the others are set against, where it is there; else the first


def trained_section(results: Sequence[EvalResult]) -> Section | None:
    """Set base and each named RL model side by side, a table for each lot that is alike; None below two names."""
    known = lots([r for r in results if r.decoding.mode == "base" or (r.name and r.decoding.mode == "rl")], lambda r: 0)
    several = [lot for lot in known if len({r.name for r in lot if r.decoding.mode == "rl"}) > 1]
    tables = [_table(lot, f"trained{f'-{i}' if i else ''}", set_apart(lot, several)) for i, lot in enumerate(several)]
    return Section("Trained models", (), tuple(tables)) if tables else None


def _table(results: Sequence[EvalResult], name: str, told: str) -> Table:
    settings = settings_of(results)
    trained = [one for one in settings if one.decoding.mode == "rl"]
    names = list(dict.fromkeys(one.first.name for one in trained))
    reference = REFERENCE if REFERENCE in names else names[0]
    k = max(1, min(one.samples for one in trained) // 2)
    pairs = [
        (one, other)
        for one in trained
        for other in trained
        if other.first.name == reference != one.first.name and (one.task, _base(one)) == (other.task, _base(other))
    ]
    beside = {
        id(row.result): f"{100 * (d := row.difference).mean:+.1f} {interval(d.low, d.high, sign=True)}".rstrip()
        for row in family(pairs)
    }
    methods = []
    for base in dict.fromkeys(map(_base, trained)):
        model = paper.model_of(base) or model_name(base)
        alone = {e.benchmark: score(e, k=k) for e in settings if e.decoding.mode == "base" and _base(e) == base}
        methods += [MethodRow(model, "Base", alone)] if alone else []
        for method in names:
            mine = [one for one in trained if (_base(one), one.first.name) == (base, method)]
            found = {one.benchmark: score(one, beside=beside.get(id(one), ""), k=k) for one in mine}
            methods += [MethodRow(model, method, found)] if found else []
    note = (
        f"Under each score: its 95 % interval over problems, and its difference to {reference}, paired by problem; not "
        "corrected for the number of comparisons. One training each: another seed of the training may differ by more."
    )
    return methods_table(
        name,
        f"Trained models{f' ({told})' if told else ''}.",
        methods,
        notes=(note,),
        paper="tab:main, tab:compare, tab:rl_minerva",
        unranked=("Base",),
    )


def _base(setting: Setting) -> str:
    """Return the checkpoint that a model was trained from."""
    return setting.first.pair[0]
