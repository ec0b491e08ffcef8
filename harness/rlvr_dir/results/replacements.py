"""Count which tokens were written instead of which, in one table that needs only records.

    for found in all_replacements(results, tokenizers(None)):  # one for each result of a gated decoding
        found.frame.head(5)[["proposed_text", "written_text", "times"]]
        found.kinds["end of text"]                             # a share of the flagged tokens
        print(as_text(found))                                  # a sentence and the first five rows

A gate flags a proposed token. If another one is written, the token changed, and this is a replacement.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
CONTEXT = 24  # tokens before and after the changed one in an example
COLUMNS = (
    "proposed", "proposed_text", "written", "written_text", "times", "share", "problems", "responses",
    "delta_logp", "delta_logp_written", "right", "problem", "sample", "position", "before", "after",
)  # fmt: skip


@dataclass(frozen=True)
class Replacements:
    """Store the replacements in some responses, the most frequent first.

    `frame` has a row for each pair of a proposed and a written token: their ids and texts; how many `times`, and which
    `share` of all changed tokens; in how many `problems` and `responses`; the mean Δ log p of the proposed and of the
    written token (`delta_logp`, `delta_logp_written`); the share of these responses that are `right`; and the first
    example, by `problem`, `sample` and `position`, with the text `before` and `after` it. Texts are missing without a
    tokenizer.

    `title` describes the responses, `problems` is the number of their problems, and `right` is the share of right ones,
    if it is known. If they are `expected`, nothing was written, and RL's most likely token is assumed to be the written
    one.

    `kinds` are shares of the flagged tokens, by what the proposed token is (`KINDS`); it is empty without a tokenizer
    or without a flagged token. `unknown` counts the changed tokens whose proposal is not in the record, because an
    earlier version wrote it.
    """

    title: str
    problems: int
    right: float | None
    frame: Any  # a pandas.DataFrame, whose own types are not specific
    kinds: Mapping[str, float]
    tokens: int
    flagged: int
    changed: int
    unknown: int = 0
    expected: bool = False

    def sentences(self) -> list[str]:
        """Return the summary of the table as sentences, for a terminal or a page."""
        words = [
            f"{self.title}: of {self.tokens:,} tokens, {self.flagged:,} were flagged and {self.changed:,} "
            f"{'would change' if self.expected else 'changed'}."
        ]
        if len(self.frame):
            first = self.frame.iloc[0]
            words.append(
                f"The most frequent replacement is {quoted(first.proposed_text, first.proposed)} → "
                f"{quoted(first.written_text, first.written)}: {first.times:,} of {self.changed:,} changed tokens, in "
                f"{first.problems:,} of {self.problems:,} problems."
            )
        if self.unknown:
            words.append(
                f"The dropped token is unknown at {self.unknown:,} of {self.changed:,} changed tokens, because an "
                "earlier version of rlvr-dir wrote the record."
            )
        if marked := {kind: share for kind, share in self.kinds.items() if kind != "other" and share}:
            listed = ", ".join(f"{kind} {percent(share)}" for kind, share in marked.items())
            words.append(f"Of the flagged tokens, some are no words: {listed}.")
        return words


def quoted(text: str | None, token: int) -> str:
    """Return a token as tables show it: its text in quotation marks, or its id if the text is not known."""
    return f"#{token}" if text is None else f"‘{text}’"


def nats(value: float | None) -> str:
    """Return Δ log p with its sign as text; empty if it is not known."""
    return "" if value is None or value != value else f"{value:+.2f}"


def as_text(replaced: Replacements, most: int = 5) -> str:
    """Return the sentences of some replacements and a table of the `most` frequent, for a terminal."""
    head = ["dropped", "written", "times", "problems", "Δ log p of dropped", "Δ log p of written"]
    head += [] if replaced.right is None else ["correct, of responses with it"]
    rows = [
        (
            quoted(row["proposed_text"], row["proposed"]),
            quoted(row["written_text"], row["written"]),
            f"{row['times']:,}",
            f"{row['problems']:,}",
            nats(row["delta_logp"]),
            nats(row["delta_logp_written"]),
            *([] if replaced.right is None else [percent(row["right"], 0)]),
        )
        for row in replaced.frame[:most].to_dict("records")
    ]
    return "\n".join((*replaced.sentences(), *(["", markdown_table(head, rows, left=2)] if rows else [])))


def all_replacements(results: Sequence[EvalResult], tokenizer: Callable[[Sequence[Record]], Any]) -> list[Replacements]:
    """Return the replacements of each result of a gated decoding whose record can be read and has a changed token.

    `tokenizer` returns the tokenizer of some records, or None (`rlvr_dir.results.tokenizers`).
    """
    several = []
    for result in results:
        record = record_of(result) if result.decoding.gated else None
        if record is not None and (of_result := replacements(result, record, tokenizer([record]))).changed:
            several.append(of_result)
    return several


def replacements(result: EvalResult, record: Record, tokenizer: Any = None) -> Replacements:
    """Return the replacements in the responses of a result, from its record."""
    right = {
        (f"{record.task}/{problem}", sample): bool(correct)
        for problem, row in zip(result.problem_ids, result.correct.tolist(), strict=True)
        for sample, correct in enumerate(row)
    }
    rows = [record.rows[key] for key in in_order(key for key in record.rows if key in right)]
    places = Places(tokenizer)
    proposals: Counter[int] = Counter()
    unknown, ends = 0, ends_of(rows)
    for row in rows:
        if not row.n_replaced:
            continue
        whole = row.load()
        proposed, written, changed = whole.proposed, whole.token_ids, whole.changed
        nats, nats_written = whole.delta_logp, whole.delta_logp_written
        proposals.update(proposed[whole.replaced].tolist())
        for position in np.flatnonzero(changed & (proposed != UNKNOWN)).tolist():
            pair, numbers = (int(proposed[position]), written[position]), (nats[position], nats_written[position])
            places.add(pair, whole, position, float(numbers[0]), float(numbers[1]), right[row.key])
        unknown += int((changed & (proposed == UNKNOWN)).sum())
    return Replacements(
        f"{result.label} on {result.benchmark}",
        len(result.problem_ids),
        result.avg,
        places.frame(),
        kinds_of(proposals, ends, tokenizer) if tokenizer is not None else {},
        sum(row.n_tokens for row in rows),
        sum(row.n_replaced for row in rows),
        places.total + unknown,
        unknown,
    )


class Places:
    """Collect where tokens changed, by the pair of the proposed and the written token."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._of_pair: dict[tuple[int, int], list[tuple[tuple[str, int], float, float, bool | None]]] = defaultdict(
            list
        )
        self._first: dict[tuple[int, int], dict[str, Any]] = {}
        self.total = 0

    def add(
        self, pair: tuple[int, int], row: Row, at: int, delta_logp: float, delta_logp_written: float, right: bool | None
    ) -> None:
        """Add a changed token of a response; `right` is whether the response is right."""
        if pair not in self._first:
            self._first[pair] = {
                "problem": row.problem.partition("/")[2],
                "sample": row.sample,
                "position": at,
                "before": self._text(row.token_ids[max(0, at - CONTEXT) : at]),
                "after": self._text(row.token_ids[at + 1 : at + 1 + CONTEXT]),
            }
        self._of_pair[pair].append((row.key, delta_logp, delta_logp_written, right))
        self.total += 1

    def frame(self) -> Any:
        """Return a row for each pair, the most frequent pair first."""
        import pandas

        table = []
        for pair, places in sorted(self._of_pair.items(), key=lambda item: (-len(item[1]), item[0])):
            keys, nats, nats_written, right = zip(*places, strict=True)
            table.append(
                {
                    "proposed": pair[0],
                    "proposed_text": self._text(pair[:1]),
                    "written": pair[1],
                    "written_text": self._text(pair[1:]),
                    "times": len(places),
                    "share": len(places) / self.total,
                    "problems": len({problem for problem, _ in keys}),
                    "responses": len({*keys}),
                    "delta_logp": _mean(nats),
                    "delta_logp_written": _mean(nats_written),
                    "right": _mean(dict(zip(keys, right, strict=True)).values()),
                    **self._first[pair],
                }
            )
        return pandas.DataFrame(table, columns=pandas.Index(COLUMNS), dtype=object)

    def _text(self, tokens: Sequence[int]) -> str | None:
        return None if self._tokenizer is None else decoded(self._tokenizer, tokens)


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    numbers = [value for value in values if value is not None and value == value]
    return float(np.mean(numbers)) if numbers else None


def ends_of(rows: Sequence[Row]) -> set[int]:
    """Return the tokens with which responses ended by themselves."""
    return {row.token_ids[-1] for row in rows if row.finish_reason == "stop" and row.n_tokens}


def kinds_of(proposals: Counter[int], ends: set[int], tokenizer: Any) -> dict[str, float]:
    """Return the share of flagged tokens of each kind, by the proposed token; unknown tokens have no kind."""
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
    """Return the tokens that are not text: end of text and those of chat templates, such as `<|im_start|>`, `<think>`.

    Tokenizers mark most of them as special. `<think>` and similar tokens are added to a vocabulary without that mark,
    and so are plain words.
    """
    if hasattr(tokenizer, "get_added_tokens_decoder"):  # from the library `tokenizers`
        added = tokenizer.get_added_tokens_decoder()
    else:
        added = tokenizer.added_tokens_decoder
    return {
        number
        for number, token in added.items()
        if token.special or (token.content.startswith("<") and token.content.endswith(">"))
    }
