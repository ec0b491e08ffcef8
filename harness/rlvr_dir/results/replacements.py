"""Which tokens were written in place of which: one table, made of records alone.

    for found in all_replacements(results, tokenizers(None)):  # one for each result of a gated decoding
        found.frame.head(5)[["proposed_text", "written_text", "times"]]
        found.kinds["end of text"]                             # a share of the flagged tokens
        print(as_text(found))                                  # a sentence and the first five rows

A gate flags a proposed token; if another one is written, the token changed, and this is a replacement.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlvr_dir.markdown import markdown_table
from rlvr_dir.records import Record, Row
from rlvr_dir.records.record import in_order
from rlvr_dir.records.row import UNKNOWN
from rlvr_dir.results.from_records import record_of
from rlvr_dir.results.result import EvalResult
from rlvr_dir.results.show import percent
from rlvr_dir.results.tokenizers import decoded

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
    frame: Any  # a pandas.DataFrame, whose own types say too little
    kinds: Mapping[str, float]
    tokens: int
    flagged: int
    changed: int
    unknown: int

    def sentences(self) -> list[str]:
        """Return what the table says, for a terminal or a page."""
        words = [
            f"{self.result.label} on {self.result.benchmark}: {percent(self.flagged / self.tokens)} of {self.tokens:,} "
            f"tokens were flagged, and {percent(self.changed / self.tokens)} changed."
        ]
        if len(self.frame):
            first = self.frame.iloc[0]
            words.append(
                f"The most frequent replacement is {quoted(first.proposed_text, first.proposed)} → "
                f"{quoted(first.written_text, first.written)}: {first.times:,} of {self.changed:,} changed tokens, in "
                f"{first.problems:,} of {len(self.result.problem_ids):,} problems."
            )
        if self.unknown:
            words.append(
                f"The dropped token is unknown at {self.unknown:,} of {self.changed:,} changed tokens, because an "
                "earlier version of rlvr-dir wrote the record."
            )
        if marked := {kind: share for kind, share in self.kinds.items() if kind != "other" and share}:
            shares = ", ".join(f"{kind} {percent(share)}" for kind, share in marked.items())
            words.append(f"Of the flagged tokens, some are no words: {shares}.")
        return words


def quoted(text: str | None, token: int) -> str:
    """Return how a token is written in a table: its text in quotation marks, or its id if the text is not known."""
    return f"#{token}" if text is None else f"‘{text}’"


def as_text(found: Replacements, most: int = 5) -> str:
    """Return the sentences of some replacements and a table of the `most` frequent, for a terminal."""
    head = ("dropped", "written", "times", "problems", "Δ log p, dropped", "written", "right")
    rows = [
        (
            quoted(row["proposed_text"], row["proposed"]),
            quoted(row["written_text"], row["written"]),
            f"{row['times']:,}",
            f"{row['problems']:,}",
            f"{row['delta_logp']:+.2f}",
            f"{row['delta_logp_written']:+.2f}",
            percent(row["right"], 0),
        )
        for row in found.frame[:most].to_dict("records")
    ]
    return "\n".join((*found.sentences(), *(["", markdown_table(head, rows, left=2)] if rows else [])))


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
