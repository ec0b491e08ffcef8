"""Everything, line by line: all results, all differences, and where each result comes from."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from harness.evals.compare import Comparison
from harness.evals.result import EvalResult
from harness.evals.settings import Setting, facets
from harness.evals.show import changed, percent, replaced
from harness.markdown import interval
from harness.report.groups import Group
from harness.report.model import Cell, Column, Provenance, Row, Table
from harness.report.scores import anchor, score
from harness.report.shapes import title
from harness.report.verdict import p_value


def differences(rows: Sequence[Comparison], groups: Sequence[Group]) -> Table:
    """List every comparison with its interval and p values."""
    pairs = {id(setting): group.pair for group in groups for setting in group.settings} if len(groups) > 1 else {}
    columns = [Column("Pair", words=True)] if pairs else []
    columns += [Column("Benchmark", words=True), Column("Decoding", words=True), Column("minus", words=True)]
    columns += [Column(name) for name in ("Difference", "95 % interval", "Sampling only", "p", "p (Holm)")]
    lines = []
    for row in rows:
        d = row.difference
        cells = [
            *([Cell(pairs[id(row.result)])] if pairs else []),
            Cell(title(row.result.benchmark)),
            Cell(row.result.label, link=anchor(row.result.first)),
            Cell(row.reference.label, link=anchor(row.reference.first)),
            Cell(f"{100 * d.mean:+.2f}", 100 * d.mean),
            Cell(interval(d.low, d.high, 2, sign=True) or "–"),
            Cell("" if row.result.first.sampling.greedy else interval(*d.sampling, 2, sign=True)),
            Cell(p_value(d.p), d.p),
            Cell(p_value(row.holm_p), row.holm_p),
        ]
        lines.append(Row(tuple(cells)))
    note = (
        "In points, paired by problem, the seeds of a setting together. 95 % intervals for other such problems, and "
        "for other samples of these very problems (sampling only). p is the larger of the t test's and the sign-flip "
        f"test's; Holm's correction over these {len(rows)} rows."
    )
    return Table("differences", "Paired differences.", tuple(columns), tuple(lines), (note,), sortable=True)


def everything(groups: Sequence[Group]) -> Table:
    """List all results, one a row, to be sorted by any column."""
    several = len(groups) > 1
    columns = [Column("Pair", words=True)] if several else []
    columns += [Column("Benchmark", words=True), Column("Decoding", words=True), Column("Seed")]
    samples = {result.samples for group in groups for result in group.results}
    same = len(samples) == 1
    n, k = (f"@{min(samples)}", f"@{max(1, min(samples) // 2)}") if same else ("", "")
    titles = [
        f"Avg{n}",
        "95 % interval",
        "s.e. sampling",
        f"Pass{k}",
        f"Maj{n}",
        "Replaced",
        "Changed",
        "Tokens",
        "Cut",
    ]
    titles += ["No box"]
    columns += [Column(title) for title in titles]
    rows = []
    for group in groups:
        for r in group.results:
            metrics, one = r.metrics(), score(Setting.of([r]))
            sampling = 100 * r.sampling_error
            cells = [
                *([Cell(group.pair)] if several else []),
                Cell(title(r.benchmark)),
                Cell((f"{r.name}: " if r.name else "") + r.label, link=one.link),
                Cell(str(r.sampling.seed), r.sampling.seed),
                Cell(f"{one.avg:.2f}", one.avg, () if same else (f"@{r.samples}",), sign=one.sign, link=one.link),
                Cell(one.interval or "–"),
                Cell("–") if sampling != sampling else Cell(f"{sampling:.2f}", sampling),
                Cell("–")
                if one.passed is None
                else Cell(f"{one.passed:.2f}", one.passed, () if same else (f"@{one.k}",)),
                Cell("–") if r.maj is None else Cell(f"{100 * r.maj:.2f}", 100 * r.maj),
                _share(replaced(r, metrics), 2),
                _share(changed(r, metrics), 2),
                Cell(f"{metrics['mean_tokens']:.0f}", metrics["mean_tokens"])
                if "mean_tokens" in metrics
                else Cell("–"),
                _share(metrics.get("truncated_share")),
                _share(metrics.get("no_box_share")),
            ]
            rows.append(Row(tuple(cells), "reference" if not r.decoding.gated else ""))
    return Table("results", "Every result.", tuple(columns), tuple(rows), sortable=True)


def _share(share: float | None, digits: int = 1) -> Cell:
    return Cell(percent(share, digits, "–"), None if share is None else 100 * share)


def provenance(result: EvalResult, group: Group, runs: Mapping[str, str]) -> Provenance:
    """Say what made a result: settings, versions, its record and run."""
    p = result.provenance
    s, drawn = result.sampling, facets(result)
    facts = [
        ("config hash", result.config_hash),
        ("pair", f"{place(group.base)} → {place(group.rl)}"),
        ("decoding", result.decoding.label()),
        (
            "drawn",
            ", ".join(
                [
                    f"{s.samples} samples",
                    *(drawn[name] for name in ("temperature", "top_p", "max_tokens") if drawn[name]),
                    "seed unknown" if "seed" in result.lacks else f"seed {s.seed}",
                ]
            ),
        ),
        (
            "problems",
            f"{result.limited or len(result.problem_ids)} of {result.task}, digest {p.get('data', 'unknown')}",
        ),
        *([("shown before each problem", drawn["examples"])] if p.get("examples") else []),
        ("graded", str(p.get("grader", "unknown"))),
    ]
    engine = p.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    told = {k: engine[k] for k in ("backend", "vllm", "transformers", "torch", "dtype", "device") if k in engine}
    facts += [("engine", ", ".join(f"{k} {v}" for k, v in told.items()))] if told else []
    versions = p.get("versions")
    if isinstance(versions, dict):
        facts.append(("versions", ", ".join(f"{k} {v}" for k, v in versions.items())))
    if isinstance(p.get("argv"), list):
        argv = [str(word) for word in p["argv"]]
        facts.append(("command", " ".join([PurePath(argv[0]).name, *argv[1:]])))
    if result.partial:
        facts.append(("partial", result.partial))
    links = []
    if p.get("record"):  # named, not linked to: the store does not travel with the page
        facts.append(("record", str(p["record"])))
    if (run := runs.get(result.config_hash, "")).startswith(("http://", "https://")):
        links.append(("the MLflow run", run))
    return Provenance(anchor(result)[1:], f"{result.benchmark}, {result.label}", tuple(facts), tuple(links))


def place(checkpoint: str) -> str:
    """Return a hub id as it is, of a folder of this machine the last three names: all that others can use."""
    parts = PurePath(checkpoint).parts
    return "…/" + "/".join(parts[-3:]) if PurePath(checkpoint).is_absolute() and len(parts) > 4 else checkpoint
