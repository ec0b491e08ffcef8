"""Write the large numbers and the first sentences of a report: accuracies, then what each comparison adds, then
caveats."""

from collections.abc import Mapping, Sequence

import numpy as np

from rlvr_dir.config.decoding import ALONE
from rlvr_dir.markdown import interval
from rlvr_dir.report.layouts import benchmark_title, in_points
from rlvr_dir.report.model import Tile
from rlvr_dir.results.answer import in_order
from rlvr_dir.results.compare import Comparison, comparison_kind
from rlvr_dir.results.settings import Setting, cut_unlike
from rlvr_dir.results.show import percent

# The meaning of each comparison of a replacement's controls, by kind.
DECISIONS = {
    "own draw": "Letting RL decide which flagged tokens to drop, instead of resampling from base (reject − resample)",
    "decision": "Dropping only the tokens that RL would drop, instead of all flagged tokens (reject − veto)",
}
MOST_TILES = 8
TOKEN = "Writing RL's token instead of another token of base's (replace − reject)"


def first_lines(rows: Sequence[Comparison], pairs: Mapping[int, str]) -> list[str]:
    """Return the headline and the sentences below it.

    They state, in this order: that RL equals base, if it writes the same responses; how accurate base is when flagged
    tokens are replaced; RL's gain; and what RL's token and RL's decision add. Of several replacements on a benchmark
    one is described (`_fewest`). `pairs` names the pair of a setting by the setting's id if there are several pairs.
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
                    "RL wrote what base wrote: every response has the same length and the same verdict. Are the two "
                    "checkpoints the same? `rlvr-dir pair check` compares their weights."
                )
            gains.setdefault(pair, []).append(
                f"{in_points(row.difference)} on {benchmark_title(row.result.benchmark)}{_p_of(row)}"
            )
    added: list[str] = []
    decided: dict[str, list[str]] = {kind: [] for kind in DECISIONS}
    replaced: list[str] = []
    chosen: list[str] = []
    for (pair, task), of_place in tokens.items():
        row, among = _fewest(of_place)
        replaced.append(_replaced(row, rows, pair))
        where = f"on {benchmark_title(task)}" + (f" with {pair}" if pair else "")
        added.append(f"{in_points(row.difference)} {where}{_p_of(row)}")
        for kind, of_kind in decisions.items():
            if (decision := of_kind.get(id(row.reference))) is not None:
                decided[kind].append(f"{in_points(decision.difference)} {where}{_p_of(decision)}")
        if among > 1:
            chosen.append(f"{row.result.label} {where}")
    lines = [f"{f'{pair}: ' if pair else ''}{sentence}" for pair, sentence in unchanged.items()]
    lines += replaced
    lines += [f"{f'{pair}: ' if pair else ''}RL gains {', '.join(texts)}." for pair, texts in gains.items()]
    lines += [f"{TOKEN} changes the accuracy by {', '.join(added)}."] if added else []
    lines += [f"{DECISIONS[kind]} changes the accuracy by {', '.join(of)}." for kind, of in decided.items() if of]
    if chosen:
        lines.append(
            f"These sentences are about {', '.join(chosen)}: among all replacements, the one that flags the fewest "
            "tokens and is not significantly below the best."
        )
    has_interval = any(row.difference.low == row.difference.low for row in rows)
    note = "Brackets are 95 % intervals, paired by problem. p is corrected over all comparisons of this page (Holm)."
    return [*lines, note] if lines and has_interval else lines


def tiles(settings: Sequence[Setting]) -> list[Tile]:
    """Return the large numbers of a page: base, RL and the decodings of one benchmark with their changed tokens."""
    large = []
    for setting in in_order(settings)[:MOST_TILES]:
        mode = setting.decoding.mode
        title = {"base": "Base", "rl": "RL"}.get(mode, setting.label)
        notes = [interval(*setting.interval)]
        if setting.decoding.gated:
            notes.append(f"{percent(setting.changed_ratio)} of tokens changed")
        large.append(Tile(title, percent(setting.avg), tuple(filter(None, notes)), mode if mode in ALONE else "mixed"))
    return large


def tiles_caption(settings: Sequence[Setting]) -> str:
    """Return what the large numbers are; empty if there are none."""
    if not settings:
        return ""
    samples = {setting.samples for setting in settings}
    avg = f"Avg@{samples.pop()}" if len(samples) == 1 else "Avg"
    return f"Correct responses on {benchmark_title(settings[0].benchmark)}: {avg}, with 95 % intervals over problems."


def _replaced(row: Comparison, rows: Sequence[Comparison], pair: str) -> str:
    """Describe how accurate base is when its flagged tokens are replaced, compared with base and RL."""
    setting = row.result
    beside = {
        side.decoding.mode: side.avg
        for other in rows
        for side in (other.result, other.reference)
        if side.task == setting.task and side.decoding.mode in ALONE and side.first.pair == setting.first.pair
    }
    share = percent(setting.changed_ratio)
    instead = f" instead of {percent(beside['base'])}" if "base" in beside else ""
    end = f"; RL answers {percent(beside['rl'])}" if "rl" in beside else ""
    return (
        f"{f'{pair}: ' if pair else ''}With {share} of its tokens replaced, base answers {percent(setting.avg)} of "
        f"{benchmark_title(setting.task)} correctly{instead}{end}."
    )


def _alike(row: Comparison) -> bool:
    """Return whether all responses of two settings, sampled with the same noise, have the same lengths and verdicts."""
    result, reference = row.result, row.reference
    same_draws = (result.units, result.seeds) == (reference.units, reference.seeds)
    return same_draws and all(
        np.array_equal(result.all(name), reference.all(name)) for name in ("n_tokens", "correct", "truncated")
    )


def _p_of(*rows: Comparison) -> str:
    texts = [row.holm_text for row in rows if row.difference.low == row.difference.low]
    return f" (Holm p {_listed(texts)})" if texts else ""


def _listed(words: Sequence[str]) -> str:
    """Return a list as text: `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _fewest(rows: Sequence[Comparison]) -> tuple[Comparison, int]:
    """Return the comparison of the replacement that flags the fewest tokens of those not significantly below the best.

    Also return how many there are with the best one's pair and problems.
    """
    best = max(rows, key=lambda row: row.result.avg).result
    first = best.first
    alike = [row for row in rows if (row.result.task, row.result.units) == (best.task, best.units)]
    of_pair = [row for row in alike if (row.result.first.pair, row.result.first.name) == (first.pair, first.name)]
    as_good = [row for row in of_pair if row.result is best or not row.result.minus(best).high < 0]
    return min(as_good, key=lambda row: row.result.replacement_ratio), len(of_pair)


def caveats(rows: Sequence[Comparison]) -> list[str]:
    """Describe what limits the comparisons: parts of benchmarks, and responses that the context ended."""
    parts = dict.fromkeys(f"{r.result.task}: {r.result.first.limited}" for r in rows if r.result.first.limited)
    sentences = [f"Only some of the problems were used ({', '.join(parts)})."] if parts else []
    return sentences + cut_unlike([(row.result, row.reference) for row in rows])
