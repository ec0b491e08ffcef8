"""What the first lines of a report say: what RL's token and its decision add, what RL gained, what is no whole test."""

from collections.abc import Mapping, Sequence

import numpy as np

from rlvr_dir.report.shapes import (
    benchmark_title,
    in_points,
)
from rlvr_dir.results.compare import Comparison, comparison_kind
from rlvr_dir.results.settings import cut_unlike

DECISIONS = {"own draw": "base's own second draw", "decision": "the gate's"}  # what RL's is held against, by kind


def first_lines(rows: Sequence[Comparison], pairs: Mapping[int, str]) -> list[str]:
    """Say what RL's token and RL's decision add, then by how much RL changed each benchmark; nothing of what is not.

    First of all that RL is base, where it writes the same.

    What RL's token adds is a replacement of base's minus reject, of one replacement for each benchmark (`_fewest`); its
    decision adds to the gate's what that reject has more than the veto, and to base's own second draw what it has more
    than the resampling. `pairs` names the pair of a setting by the setting's id, where there are several pairs.
    """
    tokens: dict[tuple[str, str], list[Comparison]] = {}
    decisions: dict[str, dict[int, Comparison]] = {kind: {} for kind in DECISIONS}
    gains: dict[str, list[str]] = {}
    unchanged: dict[str, str] = {}
    for row in rows:
        kind, pair = comparison_kind(row), pairs.get(id(row.result), "")
        if kind == "token" and row.result.decoding.primary == "base":
            tokens.setdefault((pair, row.result.task), []).append(row)
        elif kind in decisions:
            decisions[kind][id(row.result)] = row
        elif kind == "trained":
            if _alike(row):
                unchanged[pair] = (
                    "RL wrote what base wrote: every response has the length and the verdict of base's. Are its "
                    "weights base's? `rlvr-dir pair check` says it."
                )
            gains.setdefault(pair, []).append(
                f"{benchmark_title(row.result.benchmark)} by {in_points(row.difference)}{_p_of(row)}"
            )
    added: list[str] = []
    decided: dict[str, list[str]] = {kind: [] for kind in DECISIONS}
    sides: dict[str, list[str]] = {}
    for (pair, task), of_place in tokens.items():
        row, among = _fewest(of_place)
        where = f"on {benchmark_title(task)}" + (f" with {pair}" if pair else "")
        added.append(f"{in_points(row.difference)} {where}")
        names, printed = [f"{row.result.label} minus {row.reference.label}"], [row]
        for kind, known in decisions.items():
            if (decision := known.get(id(row.reference))) is not None:
                decided[kind].append(f"{in_points(decision.difference)} {where}")
                names.append(f"{decision.result.label} minus {decision.reference.label}")
                printed.append(decision)
        of_many = f", of {among} replacements the one with the fewest tokens that is not significantly below the best"
        name = f"{_listed(names)}{of_many if among > 1 else ''}"
        sides.setdefault(name, []).append(where + _p_of(*printed))
    lines = [f"{f'{pair}: ' if pair else ''}{sentence}" for pair, sentence in unchanged.items()]
    lines += [f"What RL's token adds where RL rejects base's: {', '.join(added)}."] if added else []
    lines += [f"What RL's decision adds to {DECISIONS[kind]}: {', '.join(of)}." for kind, of in decided.items() if of]
    lines += [f"That is {name}: {', '.join(places)}." for name, places in sides.items()]
    lines += [f"{f'{pair}: ' if pair else ''}RL changed {', '.join(texts)}." for pair, texts in gains.items()]
    has_interval = any(row.difference.low == row.difference.low for row in rows)
    return [*lines, "Intervals are of 95 %, paired by problem."] if lines and has_interval else lines


def _alike(row: Comparison) -> bool:
    """Tell whether all responses of two settings, drawn with one noise, have the same lengths and verdicts."""
    result, reference = row.result, row.reference
    same_draws = (result.units, result.seeds) == (reference.units, reference.seeds)
    return same_draws and all(
        np.array_equal(result.all(name), reference.all(name)) for name in ("n_tokens", "correct", "truncated")
    )


def _p_of(*rows: Comparison) -> str:
    texts = [row.holm_text for row in rows if row.difference.low == row.difference.low]
    return f" (Holm p {_listed(texts)})" if texts else ""


def _listed(words: Sequence[str]) -> str:
    """Write a list: `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _fewest(rows: Sequence[Comparison]) -> tuple[Comparison, int]:
    """Return the comparison of the replacement that flags fewest tokens of those not significantly below the best.

    And among how many: those of the best one's pair and problems.
    """
    best = max(rows, key=lambda row: row.result.avg).result
    first = best.first
    alike = [row for row in rows if (row.result.task, row.result.units) == (best.task, best.units)]
    of_pair = [row for row in alike if (row.result.first.pair, row.result.first.name) == (first.pair, first.name)]
    as_good = [row for row in of_pair if row.result is best or not row.result.minus(best).high < 0]
    return min(as_good, key=lambda row: row.result.replacement_ratio), len(of_pair)


def caveats(rows: Sequence[Comparison]) -> list[str]:
    """Say what makes the comparisons less than they seem: parts of benchmarks, responses that the context ended."""
    parts = dict.fromkeys(f"{r.result.task}: {r.result.first.limited}" for r in rows if r.result.first.limited)
    sentences = [f"Only some of the problems were asked ({', '.join(parts)})."] if parts else []
    return sentences + cut_unlike([(row.result, row.reference) for row in rows])
