"""Which tokens were written in place of which: one table, made of records alone.

    found = replacements(result, record, tokenizer)      # of one result of a gated decoding
    found.frame.head(5)[["proposed_text", "written_text", "times"]]
    found.kinds["end of text"]                           # a share of the flagged tokens

A gate flags a proposed token; if another one is written, the token changed, and this is a replacement.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr_dir.records import Record, Row
from rlvr_dir.records.record import in_order
from rlvr_dir.records.row import UNKNOWN
from rlvr_dir.results.from_records import record_of
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.tokenizers import decoded

if TYPE_CHECKING:
    import pandas

KINDS = ("end of text", "whitespace", "template", "other")
CONTEXT = 24  # tokens of the response that an example shows on either side
COLUMNS = (
    "proposed", "proposed_text", "written", "written_text", "times", "share", "problems", "responses",
    "delta_logp", "delta_logp_written", "right", "problem", "sample", "position", "before", "after",
)  # fmt: skip


@dataclass(frozen=True)
class Replacements:
    """The replacements of one result, the most frequent first.

    `frame` has a row for each pair of a proposed and a written token: their ids and texts; how many `times`, and which
    `share` of all changed tokens; in how many `problems` and `responses`; the mean Δ log p of the proposed and of the
    written token (`delta_logp`, `delta_logp_written`); the share of these responses that are `right`; and the first
    example, by `problem`, `sample` and `position`, with the text `before` and `after` it. Texts are missing without a
    tokenizer.

    `kinds` are shares of the flagged tokens, by what the proposed token is (`KINDS`); it is empty without a tokenizer
    or without a flagged token. `unknown` counts the changed tokens whose proposal the record does not have, because an
    earlier version wrote it.
    """

    result: EvalResult
    frame: "pandas.DataFrame"
    kinds: Mapping[str, float]
    tokens: int
    flagged: int
    changed: int
    unknown: int


def all_replacements(results: Sequence[EvalResult], tokenizer: Callable[[Sequence[Record]], Any]) -> list[Replacements]:
    """Return the replacements of each result of a gated decoding whose record can be read and has a changed token.

    `tokenizer` returns the tokenizer of some records, or None (`rlvr_dir.results.tokenizers`).
    """
    found = []
    for result in results:
        record = record_of(result) if result.decoding.gated else None
        if record is not None and (one := replacements(result, record, tokenizer([record]))).changed:
            found.append(one)
    return found


def replacements(result: EvalResult, record: Record, tokenizer: Any = None) -> Replacements:
    """Return the replacements in the responses of a result, which its record holds."""
    import pandas

    right = {
        (f"{record.task}/{problem}", sample): bool(correct)
        for problem, row in zip(result.problem_ids, result.correct.tolist(), strict=True)
        for sample, correct in enumerate(row)
    }
    rows = [record.rows[key] for key in in_order(key for key in record.rows if key in right)]
    places: dict[tuple[int, int], list[_Place]] = defaultdict(list)
    proposals: Counter[int] = Counter()
    unknown, ends = 0, _ends(rows)
    for row in rows:
        if not row.n_replaced:
            continue
        whole = row.load()
        proposed, written, changed = whole.proposed, whole.token_ids, whole.changed
        nats, nats_written = whole.delta_logp, whole.delta_logp_written
        proposals.update(proposed[whole.replaced].tolist())
        for position in np.flatnonzero(changed & (proposed != UNKNOWN)).tolist():
            place = _Place(row, position, float(nats[position]), float(nats_written[position]), right[row.key])
            places[int(proposed[position]), written[position]].append(place)
        unknown += int((changed & (proposed == UNKNOWN)).sum())
    n_known = sum(map(len, places.values()))
    texts = _Texts(tokenizer)
    table = [
        {
            "proposed": pair[0],
            "proposed_text": texts.of([pair[0]]),
            "written": pair[1],
            "written_text": texts.of([pair[1]]),
            "times": len(of_pair),
            "share": len(of_pair) / n_known,
            "problems": len({place.row.problem for place in of_pair}),
            "responses": len({place.row.key for place in of_pair}),
            "delta_logp": float(np.mean([place.delta_logp for place in of_pair])),
            "delta_logp_written": float(np.mean([place.delta_logp_written for place in of_pair])),
            "right": float(np.mean([*{place.row.key: place.right for place in of_pair}.values()])),
            **texts.example(of_pair[0]),
        }
        for pair, of_pair in sorted(places.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    flagged = sum(row.n_replaced for row in rows)
    return Replacements(
        result,
        pandas.DataFrame(table, columns=pandas.Index(COLUMNS)),
        _kinds(proposals, ends, tokenizer) if tokenizer is not None else {},
        sum(row.n_tokens for row in rows),
        flagged,
        n_known + unknown,
        unknown,
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one token was written in place of another."""

    row: Row
    position: int
    delta_logp: float
    delta_logp_written: float
    right: bool


class _Texts:
    """The texts of tokens; None without a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def of(self, tokens: Sequence[int]) -> str | None:
        return None if self._tokenizer is None else decoded(self._tokenizer, tokens)

    def example(self, place: _Place) -> dict[str, Any]:
        """Return where a replacement is, and the text on either side of it."""
        row, at = place.row, place.position
        return {
            "problem": row.problem.partition("/")[2],
            "sample": row.sample,
            "position": at,
            "before": self.of(row.token_ids[max(0, at - CONTEXT) : at]),
            "after": self.of(row.token_ids[at + 1 : at + 1 + CONTEXT]),
        }


def _ends(rows: Sequence[Row]) -> set[int]:
    """Return the tokens with which responses ended by themselves."""
    return {row.token_ids[-1] for row in rows if row.finish_reason == "stop" and row.n_tokens}


def _kinds(proposals: Counter[int], ends: set[int], tokenizer: Any) -> dict[str, float]:
    """Return the share of flagged tokens of each kind, by the proposed token; an unknown one is in none."""
    markers = _markers(tokenizer)
    counts: Counter[str] = Counter()
    for token, times in proposals.items():
        if token in markers:
            counts["end of text" if token in ends else "template"] += times
        elif token != UNKNOWN:
            counts["other" if decoded(tokenizer, [token]).strip() else "whitespace"] += times
    total = sum(proposals.values())
    return {kind: counts[kind] / total for kind in KINDS} if total else {}


def _markers(tokenizer: Any) -> set[int]:
    """Return the tokens that are no text: end of text and those of chat templates, such as `<|im_start|>`, `<think>`.

    Tokenizers call most of them special. `<think>` and its like are added to a vocabulary without being called so, as
    are plain words.
    """
    if hasattr(tokenizer, "get_added_tokens_decoder"):  # of the library `tokenizers`
        added = tokenizer.get_added_tokens_decoder()
    else:
        added = tokenizer.added_tokens_decoder
    return {
        number
        for number, token in added.items()
        if token.special or (token.content.startswith("<") and token.content.endswith(">"))
    }
