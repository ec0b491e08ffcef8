"""Say what look-up drafts would be worth: replay the responses of a store, with no model.

A decision is a pure function of what was written before, so a draft is kept exactly where it equals the token that the
response has there. This counts how many tokens a row then writes in a step; `harness.decode.worth` says what that is
worth on a GPU.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

from harness.decode.vllm_pair.lookup import LEAST, MOST
from harness.decode.worth import Worth
from harness.errors import UserError
from harness.records.record import in_order
from harness.records.store import RecordStore

Tokens = Sequence[int]
Runs = dict[tuple[int, ...], tuple[int, "Text"]]  # a run of tokens -> the last place of what follows it, and whose


class Text:
    """A response as it is written once more: prompt first, `written` tokens of it so far.

    It is the `begun`-th that began; 0 before its first step.
    """

    def __init__(self, prompt: Tokens, response: Tokens, siblings: Runs) -> None:
        """Take a finished response, (tokens,), and what is known of its problem's others."""
        self.tokens, self.written, self.begun = [*prompt, *response], len(prompt), 0
        self._own: Runs = {}
        self._siblings = siblings
        self._learn(self._own, 0)

    def _learn(self, runs: Runs, begin: int) -> None:
        for place in range(begin, self.written):
            for n in range(LEAST, min(MOST, place) + 1):
                run = tuple(self.tokens[place - n : place])
                before, text = runs.get(run, (-1, self))
                if (before, text.begun) <= (place, self.begun):
                    runs[run] = place, self

    def drafts(self, k: int) -> Tokens:
        """Look up k drafts as `lookup` does: what followed the longest run that ends the text, else its last token."""
        last = [self.tokens[self.written - 1]] * k
        for n in range(min(MOST, self.written), LEAST - 1, -1):
            run = tuple(self.tokens[self.written - n : self.written])
            for runs in (self._own, self._siblings):
                if run in runs:
                    place, text = runs[run]
                    return [*text.tokens[place : min(place + k, text.written)], *last][:k]
        return last

    def write(self, drafts: Tokens) -> None:
        """Write as many tokens as a step that reads these drafts: those it keeps, and one more."""
        begin, kept = self.written, 0
        while kept < len(drafts) and self.tokens[begin + kept : begin + kept + 1] == [drafts[kept]]:
            kept += 1
        self.written = min(begin + kept + 1, len(self.tokens))
        self._learn(self._own, begin)
        self._learn(self._siblings, begin)


def steps_taken(texts: Iterable[Text], k: int, rows: int) -> int:
    """Write all texts, `rows` at once, a new one where one has ended; return how many steps the rows took in all."""
    waiting, running, taken, numbers = iter(texts), list[Text](), 0, count(1)
    while True:
        running += islice(waiting, rows - len(running))
        if not running:
            return taken
        found = [text.drafts(k) if text.begun else () for text in running]
        for text, drafts in zip(running, found, strict=True):
            text.begun = text.begun or next(numbers)
            text.write(drafts)
        taken += len(running)
        running = [text for text in running if text.written < len(text.tokens)]


def tokens_a_step(responses: Sequence[tuple[str, Tokens, Tokens]], k: int, rows: int) -> float:
    """Replay responses, each (problem, prompt, tokens), in their order: how many tokens a row writes in a step."""
    siblings: dict[str, Runs] = {}
    texts = (Text(prompt, tokens, siblings.setdefault(problem, {})) for problem, prompt, tokens in responses if tokens)
    return sum(len(tokens) for *_, tokens in responses) / max(1, steps_taken(texts, k, rows))


def bench_draft(
    records: str | Path,
    worth: Worth,
    *,
    context: int,
    name: str = "",
    drafts: Sequence[int] = (2, 4, 8),
    siblings: Sequence[int] = (1, 8),
    most_rows: int = 256,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Replay the records of a store, as many rows at once as a pair's cache holds, all first samples first.

    Args:
        records: the store's folder; `name` is of one of its records, all by default.
        worth: the pair and its GPUs; `context` is how long its rows are on the average, in tokens.
        drafts: a step, each number in turn.
        siblings: samples of each problem, each number in turn; all that there are come last.
        most_rows: at once, whatever the cache holds.

    Returns:
        A plain object: `rows`, and in `records` for each record and number of siblings `record`, `rule`, `top_p`,
        `responses`, `siblings`, and by number of drafts `tokens_a_step` and `gain`: how many times as fast, by the
        arithmetic of `harness.decode.worth`.

    Raises:
        UserError: the store has no such record, or none with tokens of ours; the pair does not fit.
    """
    store, found, rows = RecordStore(records), [], worth.rows(context, most_rows)
    if not rows:
        raise UserError(
            f"context={context} does not fit: beside the weights there is no room for one row's cache; accepted: less "
            "of it, a smaller model, another card or more gpus"
        )
    for each in store.find(name):
        record = store.read(*each)
        config, keys = record.config, [key for key in in_order(record.held) if "token_ids" in record.rows[key].columns]
        if config is None or config.decoding is None or config.sampling is None or not keys:
            continue
        keys.sort(key=lambda key: key[1])  # as an engine with drafts decodes them
        samples = 1 + keys[-1][1]
        for beside in dict.fromkeys(min(number, samples) for number in (*siblings, samples)):
            say(f"replaying {record.name}, {beside} sample(s) a problem")
            asked = [record.rows[key] for key in keys if key[1] < beside]
            responses = [(row.problem, row.prompt_token_ids or (), row.token_ids or ()) for row in asked]
            counted = {k: tokens_a_step(responses, k, rows) for k in drafts}
            found.append({
                "record": record.name, "rule": config.decoding.label(), "top_p": config.sampling.truncation.mass,
                "responses": len(responses), "siblings": beside,
                "tokens_a_step": {k: round(tokens, 3) for k, tokens in counted.items()},
                "gain": {k: round(worth.gain(rows, context, k, tokens), 3) for k, tokens in counted.items()},
            })  # fmt: skip
    if not found:
        raise UserError(
            f"records={str(records)!r} holds no tokens of responses decoded here; accepted: a store that does"
        )
    return {"rows": rows, "context": context, "records": found}
